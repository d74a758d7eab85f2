//! The runtime cost of a call: cel-go's `interpreter/runtimecost.go`, its extension trackers and Kubernetes'
//! `library/cost.go`, resolved to a rule when the call is planned.

use crate::{
    opaque::Opaque,
    value::{Map, Val},
};

pub(crate) const SELECT: u64 = 1;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;
pub(crate) const STRING_FACTOR: f64 = 0.1;
pub(crate) const REGEX_FACTOR: f64 = 0.25;
pub const AUTHZ_CHECK: u64 = 350_000;

/// How a call is priced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CostRule {
    Fixed(u64),
    /// A walk over the receiver and everything in it.
    Traverse,
    /// The receiver's size times a factor.
    Size(f64),
    /// The result's size times a factor.
    Result(f64),
    /// Text size times pattern size.
    Regex,
    /// Text size times text size.
    Contains,
    ContainsIp(bool),
    ContainsCidr(bool),
    Validate,
    Selector,
    /// Elements of the second argument.
    InList,
    /// The smaller of both sizes.
    Smaller,
    /// Both sizes.
    Joined,
    /// A new list of the result's size.
    NewList,
    Flatten,
    /// Every element of the argument with every other.
    SelfCompare(usize),
    Sets(f64),
}

impl CostRule {
    pub(crate) fn of(function: &str, overload: &str) -> CostRule {
        match overload {
            "list_slice" | "lists_range" | "list_reverse" => return CostRule::NewList,
            "list_flatten" | "list_flatten_int" => return CostRule::Flatten,
            "list_distinct" => return CostRule::SelfCompare(0),
            "list_sets_contains_list" | "list_sets_intersects_list" => return CostRule::Sets(1.0),
            "list_sets_equivalent_list" => return CostRule::Sets(2.0),
            _ if overload.ends_with("_sortByAssociatedKeys") => return CostRule::SelfCompare(1),
            _ if overload.ends_with("_sort") => return CostRule::SelfCompare(0),
            _ => {}
        }
        match function {
            "check" => return CostRule::Fixed(AUTHZ_CHECK),
            "fieldSelector" | "labelSelector" => return CostRule::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return CostRule::Traverse,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => return CostRule::Size(STRING_FACTOR),
            "ip" if overload == "cidr_ip" => return CostRule::Fixed(1),
            "ip" => return CostRule::Size(STRING_FACTOR),
            "replace" | "split" | "ip.isCanonical" => return CostRule::Size(2.0 * STRING_FACTOR),
            "join" => return CostRule::Result(2.0 * STRING_FACTOR),
            "find" | "findAll" => return CostRule::Regex,
            "containsIP" => return CostRule::ContainsIp(overload == "cidr_contains_ip_string"),
            "containsCIDR" => return CostRule::ContainsCidr(overload == "cidr_contains_cidr_string"),
            "validate" => return CostRule::Validate,
            _ => {}
        }
        match overload {
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format" => CostRule::Size(STRING_FACTOR),
            "in_list" => CostRule::InList,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => CostRule::Smaller,
            "add_string" | "add_bytes" => CostRule::Joined,
            "matches_string" => CostRule::Regex,
            "contains_string" => CostRule::Contains,
            _ => CostRule::Fixed(1),
        }
    }

    /// Whether the price is known only afterwards.
    pub(crate) fn needs_result(self) -> bool {
        matches!(self, CostRule::Result(_) | CostRule::NewList)
    }

    /// The price of a call with these arguments and this result.
    pub(crate) fn price(self, args: &[Val<'_>], result: Option<&Val<'_>>) -> u64 {
        let size = |index: usize| args.get(index).map_or(1, Val::cost_size);
        let result_size = || result.map_or(1, Val::cost_size);
        match self {
            CostRule::Fixed(cost) => cost,
            CostRule::Traverse => args.first().map_or(0, traversal),
            CostRule::Size(factor) => scaled(size(0), factor),
            CostRule::Result(factor) => scaled(result_size(), factor),
            CostRule::Regex => scaled(size(0) + 1, STRING_FACTOR) * scaled(size(1), REGEX_FACTOR),
            CostRule::Contains => scaled(size(0), STRING_FACTOR) * scaled(size(1), STRING_FACTOR),
            CostRule::ContainsIp(parse) => {
                scaled(2 * size(0), STRING_FACTOR) + if parse { scaled(size(1), STRING_FACTOR) } else { 0 }
            }
            CostRule::ContainsCidr(parse) => {
                let parsing = if parse { scaled(size(1), STRING_FACTOR) } else { 0 };
                scaled(2 * size(0), STRING_FACTOR) + scaled(size(0), STRING_FACTOR) + 1 + parsing
            }
            CostRule::Validate => match args.first() {
                Some(Val::Opaque(value)) if let Opaque::Format(format) = &**value => {
                    scaled(size(1) + 1, STRING_FACTOR) * scaled(format.regex_size(), REGEX_FACTOR)
                }
                _ => 1,
            },
            CostRule::Selector => {
                10 + scaled(size(1), STRING_FACTOR) + scaled(scaled(size(1), 0.5), (LIST + STRUCT) as f64)
            }
            CostRule::InList => size(1),
            CostRule::Smaller => scaled(size(0).min(size(1)), STRING_FACTOR),
            CostRule::Joined => scaled(size(0) + size(1), STRING_FACTOR),
            CostRule::NewList => result_size() + 1 + LIST,
            CostRule::Flatten => {
                let depth = match args.get(1) {
                    Some(Val::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                (size(0) as f64 * depth) as u64 + 1 + LIST
            }
            CostRule::SelfCompare(index) => self_compare(args.get(index)),
            CostRule::Sets(factor) => 1 + (size(0).saturating_mul(size(1)) as f64 * factor) as u64,
        }
    }
}

fn self_compare(list: Option<&Val<'_>>) -> u64 {
    let Some(Val::List(list)) = list else { return 1 };
    let size = list.len() as f64;
    let factor = match list.at(0) {
        Ok(Val::String(_) | Val::Bytes(_)) => 2.0 + STRING_FACTOR,
        _ => 2.0,
    };
    (size * size * factor) as u64 + 1 + LIST
}

fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The price of `==` and `!=`. Values of Kubernetes' own types have a flat price for `==`.
pub(crate) fn equality(a: &Val<'_>, b: &Val<'_>, negated: bool) -> u64 {
    if !negated && matches!(a, Val::Opaque(_) | Val::Authz(_)) {
        return 1;
    }
    scaled(a.cost_size().min(b.cost_size()), STRING_FACTOR)
}

/// The price of walking a value: the bytes of its strings, one for every other leaf.
fn traversal(val: &Val<'_>) -> u64 {
    match val {
        Val::String(text) => (text.len() as f64 * STRING_FACTOR) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * STRING_FACTOR) as u64,
        Val::List(list) => list.iter().map(|item| item.as_ref().map_or(1, traversal)).sum(),
        Val::Map(Map::Lazy(_)) => 1,
        Val::Map(map) => map
            .entries()
            .iter()
            .map(|(key, value)| traversal(key) + value.as_ref().map_or(1, traversal))
            .sum(),
        _ => 1,
    }
}
