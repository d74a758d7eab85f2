//! The estimated cost of each call.

use super::{Arg, Coster, Price, Range, UNKNOWN, is_comparison, is_logical};
use crate::{
    ast::{Expr, Kind, Literal},
    price::{AUTHZ_CHECK, LIST, REGEX_FACTOR, STRING_FACTOR, STRUCT},
    types::Type,
};

/// The pattern length `validate` is estimated by, whatever the format.
const MAX_FORMAT_REGEX: f64 = 128.0;
/// The longest name of a format.
const MAX_FORMAT_NAME: u64 = 64;

fn priced(cost: Range) -> Option<Price> {
    Some(Price { cost, result: None })
}

fn sized(cost: Range, result: Range) -> Option<Price> {
    Some(Price {
        cost,
        result: Some(result),
    })
}

impl<'c> Coster<'c> {
    /// The price of one overload, arguments included.
    pub(super) fn price(
        &mut self,
        expr: &'c Expr,
        function: &str,
        overload: &str,
        target: Option<&Arg<'c>>,
        args: &[Arg<'c>],
        costs: &[Range],
    ) -> Price {
        let paid = costs.iter().fold(Range::default(), |sum, cost| sum + *cost);
        let own = self
            .extension(overload, target, args)
            .or_else(|| self.library(function, overload, target, args));
        if let Some(price) = own {
            return Price {
                cost: price.cost + paid,
                ..price
            };
        }
        self.standard(expr, function, overload, target, args, costs, paid)
    }

    fn size_of(&self, arg: &Arg<'_>) -> Range {
        arg.size
            .or_else(|| self.declared_size(&arg.path))
            .unwrap_or(UNKNOWN)
    }

    /// cel-go's sets and lists.
    fn extension(&self, overload: &str, target: Option<&Arg<'_>>, args: &[Arg<'_>]) -> Option<Price> {
        let list = |factor: f64, size: Range| sized(size.scaled(factor) + Range::fixed(1 + LIST), size);
        let sets = |factor: f64| match args {
            [a, b] => priced(self.size_of(a).times(self.size_of(b)).scaled(factor) + Range::fixed(1)),
            _ => None,
        };
        match (overload, target) {
            ("list_sets_contains_list" | "list_sets_intersects_list", _) => sets(1.0),
            ("list_sets_equivalent_list", _) => sets(2.0),
            ("list_slice", Some(target)) => {
                let size = self.size_of(target);
                let start = int_literal(args.first()?).unwrap_or(0);
                let end = int_literal(args.get(1)?).unwrap_or(size.max);
                list(1.0, Range::fixed(end.wrapping_sub(start)))
            }
            ("lists_range", None) => list(1.0, Range::fixed(int_literal(args.first()?).unwrap_or(u64::MAX))),
            ("list_reverse", Some(target)) => list(1.0, self.size_of(target)),
            ("list_flatten" | "list_flatten_int", Some(target)) => {
                let depth = args
                    .first()
                    .map_or(1, |depth| int_literal(depth).unwrap_or(u64::MAX));
                list(depth as f64, self.size_of(target))
            }
            ("list_distinct", Some(target)) => {
                let size = self.size_of(target);
                list(2.0, size.times(size))
            }
            (overload, Some(target)) if overload.ends_with("_sort") => {
                let size = self.size_of(target);
                list(sort_factor(overload), size.times(size))
            }
            (overload, Some(_)) if overload.ends_with("_sortByAssociatedKeys") => {
                let size = self.size_of(args.first()?);
                list(sort_factor(overload), size.times(size))
            }
            _ => None,
        }
    }

    /// Kubernetes' libraries, by function name.
    fn library(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Arg<'_>>,
        args: &[Arg<'_>],
    ) -> Option<Price> {
        let one = || priced(Range::fixed(1));
        let first = || args.first().map(|arg| self.size_of(arg));
        let receiver = || target.map(|target| self.size_of(target));
        match function {
            "check" => priced(Range::fixed(AUTHZ_CHECK)),
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
            | "allowed" | "reason" | "error" | "errored" => one(),
            "fieldSelector" | "labelSelector" if args.len() == 1 => {
                let size = first()?;
                let requirements = size.scaled(0.5).scaled((LIST + STRUCT) as f64);
                priced(Range::fixed(LIST) + size.scaled(STRING_FACTOR) + requirements)
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => self.traversal(target?),
            "url" | "jsonpatch.escapeKey" if args.len() == 1 => {
                sized(first()?.scaled(STRING_FACTOR), first()?)
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                sized(receiver()?.scaled(STRING_FACTOR), receiver()?)
            }
            "replace" if args.len() >= 2 => {
                let (text, old, new) = (receiver()?, self.size_of(&args[0]), self.size_of(&args[1]));
                sized(text.scaled(2.0 * STRING_FACTOR), replaced(text, old, new))
            }
            "split" => {
                let size = receiver()?;
                let max = args.get(1).and_then(int_literal).unwrap_or(size.max);
                sized(size.scaled(2.0 * STRING_FACTOR), Range { min: 0, max })
            }
            "join" => self.join(target?, args.first()),
            "find" | "findAll" => {
                let text = receiver()?;
                let cost = (text + Range::fixed(1))
                    .scaled(STRING_FACTOR)
                    .times(first()?.scaled(REGEX_FACTOR));
                sized(
                    cost,
                    Range {
                        min: 0,
                        max: text.max,
                    },
                )
            }
            "ip" if overload == "cidr_ip" => one(),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                priced(first()?.scaled(STRING_FACTOR))
            }
            "ip.isCanonical" => priced(first()?.scaled(2.0 * STRING_FACTOR)),
            "containsIP" | "containsCIDR" => {
                let address = Range { min: 4, max: 16 };
                let mut cost = (address + address).scaled(STRING_FACTOR);
                if function == "containsCIDR" {
                    cost = cost + address.scaled(STRING_FACTOR) + Range::fixed(1);
                }
                if overload.ends_with("_string") {
                    cost = cost + first()?.scaled(STRING_FACTOR);
                }
                priced(cost)
            }
            "validate" => priced(
                first()?
                    .scaled(STRING_FACTOR)
                    .scaled(MAX_FORMAT_REGEX * REGEX_FACTOR),
            ),
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => one(),
            "_==_" => self.equality(args),
            _ => None,
        }
    }

    /// One for each element, and a walk over each that is text.
    fn traversal(&self, target: &Arg<'_>) -> Option<Price> {
        let size = self.size_of(target);
        let Type::List(elem) = target.ty else {
            // Maps have parameters as lists do; everything else is taken for text.
            return priced(size.scaled(STRING_FACTOR));
        };
        let mut each = Range::fixed(1);
        if matches!(**elem, Type::String | Type::Bytes) {
            each = each + self.element_size(target).scaled(STRING_FACTOR);
        }
        priced(size.times(each))
    }

    fn element_size(&self, list: &Arg<'_>) -> Range {
        if list.path.is_empty() {
            return UNKNOWN;
        }
        let mut path = list.path.clone();
        path.push("@items".into());
        self.declared_size(&path).unwrap_or(UNKNOWN)
    }

    fn join(&self, target: &Arg<'_>, separator: Option<&Arg<'_>>) -> Option<Price> {
        let count = self.size_of(target);
        let mut size = match target.ty {
            Type::List(_) => count.times(self.element_size(target)),
            _ => Range::default(),
        };
        if let Some(separator) = separator {
            let gaps = Range {
                min: count.min.saturating_sub(1),
                max: count.max.saturating_sub(1),
            };
            size = size + self.size_of(separator).times(gaps);
        }
        sized(size.scaled(STRING_FACTOR), size)
    }

    fn equality(&self, args: &[Arg<'_>]) -> Option<Price> {
        let [a, b] = args else { return None };
        if !a.ty.same(b.ty) {
            return None;
        }
        match a.ty {
            Type::Opaque(_) => priced(Range::fixed(1)),
            Type::Struct("kubernetes.NamedFormat") => priced(
                Range {
                    min: 1,
                    max: MAX_FORMAT_NAME,
                }
                .scaled(STRING_FACTOR),
            ),
            // Upstream means to union both sides here and takes the right one twice.
            Type::Struct("kubernetes.URL") => {
                let max = b.size.map_or(1, |size| size.max);
                priced(Range { min: 1, max }.scaled(STRING_FACTOR))
            }
            Type::Struct(_) => priced(Range::fixed(1)),
            _ => None,
        }
    }

    /// The standard functions, by overload.
    #[expect(clippy::too_many_arguments, reason = "the parts of one call")]
    fn standard(
        &mut self,
        expr: &'c Expr,
        function: &str,
        overload: &str,
        target: Option<&Arg<'c>>,
        args: &[Arg<'c>],
        costs: &[Range],
        paid: Range,
    ) -> Price {
        let size = |index: usize| args.get(index).and_then(|arg| arg.size).unwrap_or(UNKNOWN);
        let receiver = target.map(|target| target.size.unwrap_or(UNKNOWN));
        let mut result = None;
        let cost = match (overload, receiver) {
            ("string_format", Some(text)) => text.scaled(STRING_FACTOR) + paid,
            ("string_to_bytes", _) => {
                result = Some(Range {
                    min: size(0).min,
                    max: size(0).max.wrapping_mul(4),
                });
                size(0).scaled(STRING_FACTOR) + paid
            }
            ("bytes_to_string", _) => {
                result = Some(Range {
                    min: size(0).min / 4,
                    max: size(0).max,
                });
                size(0).scaled(STRING_FACTOR) + paid
            }
            ("strings_quote", _) => {
                let Range { min, max } = size(0);
                result = Some(Range {
                    min: min.wrapping_add(2),
                    max: max.wrapping_mul(2).wrapping_add(2),
                });
                size(0).scaled(STRING_FACTOR) + paid
            }
            ("starts_with_string" | "ends_with_string", _) => size(0).scaled(STRING_FACTOR) + paid,
            ("in_list", _) => size(1).scaled(1.0) + paid,
            ("matches_string", Some(text)) => {
                (text + Range::fixed(1))
                    .scaled(STRING_FACTOR)
                    .times(size(0).scaled(REGEX_FACTOR))
                    + paid
            }
            ("contains_string", Some(text)) => {
                text.scaled(STRING_FACTOR).times(size(0).scaled(STRING_FACTOR)) + paid
            }
            ("conditional", _) if costs.len() == 3 => {
                result = Some(size(1).union(size(2)));
                let entries = self.entry_sizes(args[1].expr).zip(self.entry_sizes(args[2].expr));
                self.join_entries(expr, entries);
                costs[0] + costs[1].union(costs[2])
            }
            ("add_string" | "add_bytes" | "add_list", _) if args.len() == 2 => {
                let total = size(0) + size(1);
                result = Some(total);
                let entries = self.entry_sizes(args[0].expr).zip(self.entry_sizes(args[1].expr));
                self.join_entries(expr, entries);
                let own = if overload == "add_list" {
                    Range::fixed(1)
                } else {
                    total.scaled(STRING_FACTOR)
                };
                own + paid
            }
            // At most, all terms after the first are evaluated too.
            (overload, _) if is_logical(overload) => Range {
                min: costs.first().map_or(0, |first| first.min),
                max: paid.max,
            },
            (overload, _) if is_comparison(function, overload) && args.len() == 2 => {
                let max = size(0).max.min(size(1).max);
                Range {
                    min: u64::from(max > 0),
                    max,
                }
                .scaled(STRING_FACTOR)
                    + paid
            }
            _ => Range::fixed(1) + paid,
        };
        Price { cost, result }
    }

    fn join_entries(&mut self, expr: &Expr, pair: Option<(super::Entries, super::Entries)>) {
        if let Some((a, b)) = pair {
            let joined = super::Entries {
                list: a.list,
                key: a.key.union(b.key),
                value: a.value.union(b.value),
            };
            self.entries.insert(expr.id, joined);
        }
    }
}

fn sort_factor(overload: &str) -> f64 {
    match overload.starts_with("list_string_") || overload.starts_with("list_bytes_") {
        true => 2.0 + STRING_FACTOR,
        false => 2.0,
    }
}

/// An argument that is a literal int; a negative one counts as zero.
fn int_literal(arg: &Arg<'_>) -> Option<u64> {
    match arg.expr.kind {
        Kind::Literal(Literal::Int(value)) => Some(u64::try_from(value).unwrap_or(0)),
        _ => None,
    }
}

/// The size of a text after replacing.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::default(), Range::default());
    if old.min == 0 {
        // An empty pattern matches around every character.
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = divide(text.max, old.min);
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = divide(text.min, old.max);
    }
    count.times(new) + kept
}

fn divide(size: u64, by: u64) -> u64 {
    (size as f64 / by as f64).ceil() as u64
}
