//! Which functions exist and for which types: the Kubernetes 1.36 environment as a table.
//!
//! Mirrors `apiserver/pkg/cel/environment/base.go`: cel-go's standard library with cross-type numeric comparison, optionals,
//! strings (2), sets, lists (3), two-variable comprehensions, and the Kubernetes libraries. `cel.bind`, base64 and math are off
//! there and so here. The implementation of an overload is in `functions`; its identity (`id`) also decides its cost.

use std::{collections::HashMap, sync::LazyLock};

use crate::types::Type;

/// One typed signature of a function. Parameters are `Type::Param(0..params)` here and get fresh numbers when checked.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) params: u32,
}

/// Functions beyond the base environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// `jsonpatch.escapeKey`, for mutating admission. The type `JSONPatch` is declared with `EnvBuilder::structure`.
    JsonPatch,
    /// The types `Object`, `Object.spec` and so on, which expressions of mutating admission build without a schema.
    Objects,
    /// The macro `cel.bind(name, value, expression)`, for selectors of devices.
    Bindings,
}

/// The overloads of a function in an environment with these libraries.
pub(crate) fn overloads(name: &str, libraries: &[Library]) -> Option<(&'static str, &'static [Overload])> {
    let (name, overloads) = BASE.get_key_value(name)?;
    if *name == "jsonpatch.escapeKey" && !libraries.contains(&Library::JsonPatch) {
        return None;
    }
    Some((name, overloads))
}

/// `name kind id arguments -> result`, where kind `.` is a method, whose first argument is its receiver, and `g` is global.
const TABLE: &str = "
_?_:_ g conditional bool A A -> A
_&&_ g logical_and bool bool -> bool
_||_ g logical_or bool bool -> bool
!_ g logical_not bool -> bool
@not_strictly_false g not_strictly_false bool -> bool
_==_ g equals A A -> bool
_!=_ g not_equals A A -> bool
_+_ g add_bytes bytes bytes -> bytes
_+_ g add_double double double -> double
_+_ g add_duration_duration duration duration -> duration
_+_ g add_duration_timestamp duration timestamp -> timestamp
_+_ g add_timestamp_duration timestamp duration -> timestamp
_+_ g add_int64 int int -> int
_+_ g add_list list<A> list<A> -> list<A>
_+_ g add_string string string -> string
_+_ g add_uint64 uint uint -> uint
_/_ g divide_double double double -> double
_/_ g divide_int64 int int -> int
_/_ g divide_uint64 uint uint -> uint
_%_ g modulo_int64 int int -> int
_%_ g modulo_uint64 uint uint -> uint
_*_ g multiply_double double double -> double
_*_ g multiply_int64 int int -> int
_*_ g multiply_uint64 uint uint -> uint
-_ g negate_double double -> double
-_ g negate_int64 int -> int
_-_ g subtract_double double double -> double
_-_ g subtract_duration_duration duration duration -> duration
_-_ g subtract_int64 int int -> int
_-_ g subtract_timestamp_duration timestamp duration -> timestamp
_-_ g subtract_timestamp_timestamp timestamp timestamp -> duration
_-_ g subtract_uint64 uint uint -> uint
_[_] g index_list list<A> int -> A
_[_] g index_map map<A,B> A -> B
_[_] g optional_list_index_int optional<list<A>> int -> optional<A>
_[_] g optional_map_index_value optional<map<A,B>> A -> optional<B>
_[?_] g list_optindex_optional_int list<A> int -> optional<A>
_[?_] g optional_list_optindex_optional_int optional<list<A>> int -> optional<A>
_[?_] g map_optindex_optional_value map<A,B> A -> optional<B>
_[?_] g optional_map_optindex_optional_value optional<map<A,B>> A -> optional<B>
_?._ g select_optional_field dyn string -> optional<A>
@in g in_list A list<A> -> bool
@in g in_map A map<A,B> -> bool
size g size_bytes bytes -> int
size . bytes_size bytes -> int
size g size_list list<A> -> int
size . list_size list<A> -> int
size g size_map map<A,B> -> int
size . map_size map<A,B> -> int
size g size_string string -> int
size . string_size string -> int
type g type A -> type<A>
bool g bool_to_bool bool -> bool
bool g string_to_bool string -> bool
bytes g bytes_to_bytes bytes -> bytes
bytes g string_to_bytes string -> bytes
double g double_to_double double -> double
double g int64_to_double int -> double
double g string_to_double string -> double
double g uint64_to_double uint -> double
duration g duration_to_duration duration -> duration
duration g int64_to_duration int -> duration
duration g string_to_duration string -> duration
dyn g to_dyn A -> dyn
int g int64_to_int64 int -> int
int g double_to_int64 double -> int
int g duration_to_int64 duration -> int
int g string_to_int64 string -> int
int g timestamp_to_int64 timestamp -> int
int g uint64_to_int64 uint -> int
string g string_to_string string -> string
string g bool_to_string bool -> string
string g bytes_to_string bytes -> string
string g double_to_string double -> string
string g duration_to_string duration -> string
string g int64_to_string int -> string
string g timestamp_to_string timestamp -> string
string g uint64_to_string uint -> string
string g ip_to_string ip -> string
string g cidr_to_string cidr -> string
timestamp g timestamp_to_timestamp timestamp -> timestamp
timestamp g int64_to_timestamp int -> timestamp
timestamp g string_to_timestamp string -> timestamp
uint g uint64_to_uint64 uint -> uint
uint g double_to_uint64 double -> uint
uint g int64_to_uint64 int -> uint
uint g string_to_uint64 string -> uint
contains . contains_string string string -> bool
endsWith . ends_with_string string string -> bool
startsWith . starts_with_string string string -> bool
matches g matches string string -> bool
matches . matches_string string string -> bool
optional.of g optional_of V -> optional<V>
optional.ofNonZeroValue g optional_ofNonZeroValue V -> optional<V>
optional.none g optional_none -> optional<V>
value . optional_value optional<V> -> V
hasValue . optional_hasValue optional<V> -> bool
or . optional_or_optional optional<V> optional<V> -> optional<V>
orValue . optional_orValue_value optional<V> V -> V
last . list_last list<V> -> optional<V>
first . list_first list<V> -> optional<V>
optional.unwrap g optional_unwrap list<optional<V>> -> list<V>
unwrapOpt . optional_unwrapOpt list<optional<V>> -> list<V>
cel.@mapInsert g cel_mapInsert_map_key_value map<K,V> K V -> map<K,V>
cel.@mapInsert g cel_mapInsert_map_map map<K,V> map<K,V> -> map<K,V>
url g string_to_url string -> url
isURL g is_url_string string -> bool
getScheme . url_get_scheme url -> string
getHost . url_get_host url -> string
getHostname . url_get_hostname url -> string
getPort . url_get_port url -> string
getEscapedPath . url_get_escaped_path url -> string
getQuery . url_get_query url -> map<string,list<string>>
find . string_find_string string string -> string
findAll . string_find_all_string string string -> list<string>
findAll . string_find_all_string_int string string int -> list<string>
indexOf . list_a_index_of_int list<A> A -> int
lastIndexOf . list_a_last_index_of_int list<A> A -> int
path . authorizer_path authorizer string -> pathcheck
group . authorizer_group authorizer string -> groupcheck
serviceAccount . authorizer_serviceaccount authorizer string string -> authorizer
resource . groupcheck_resource groupcheck string -> resourcecheck
subresource . resourcecheck_subresource resourcecheck string -> resourcecheck
namespace . resourcecheck_namespace resourcecheck string -> resourcecheck
name . resourcecheck_name resourcecheck string -> resourcecheck
fieldSelector . authorizer_fieldselector resourcecheck string -> resourcecheck
labelSelector . authorizer_labelselector resourcecheck string -> resourcecheck
check . pathcheck_check pathcheck string -> decision
check . resourcecheck_check resourcecheck string -> decision
errored . decision_errored decision -> bool
error . decision_error decision -> string
allowed . decision_allowed decision -> bool
reason . decision_reason decision -> string
quantity g string_to_quantity string -> quantity
isQuantity g is_quantity_string string -> bool
sign g quantity_sign quantity -> int
isGreaterThan . quantity_is_greater_than quantity quantity -> bool
isLessThan . quantity_is_less_than quantity quantity -> bool
compareTo . quantity_compare_to quantity quantity -> int
asApproximateFloat . quantity_get_float quantity -> double
asInteger . quantity_get_int quantity -> int
isInteger . quantity_is_integer quantity -> bool
add . quantity_add quantity quantity -> quantity
add . quantity_add_int quantity int -> quantity
sub . quantity_sub quantity quantity -> quantity
sub . quantity_sub_int quantity int -> quantity
charAt . string_char_at_int string int -> string
indexOf . string_index_of_string string string -> int
indexOf . string_index_of_string_int string string int -> int
lastIndexOf . string_last_index_of_string string string -> int
lastIndexOf . string_last_index_of_string_int string string int -> int
lowerAscii . string_lower_ascii string -> string
replace . string_replace_string_string string string string -> string
replace . string_replace_string_string_int string string string int -> string
split . string_split_string string string -> list<string>
split . string_split_string_int string string int -> list<string>
substring . string_substring_int string int -> string
substring . string_substring_int_int string int int -> string
trim . string_trim string -> string
upperAscii . string_upper_ascii string -> string
format . string_format string list<dyn> -> string
strings.quote g strings_quote string -> string
join . list_join list<string> -> string
join . list_join_string list<string> string -> string
sets.contains g list_sets_contains_list list<T> list<T> -> bool
sets.equivalent g list_sets_equivalent_list list<T> list<T> -> bool
sets.intersects g list_sets_intersects_list list<T> list<T> -> bool
ip g string_to_ip string -> ip
ip . cidr_ip cidr -> ip
family . ip_family ip -> int
ip.isCanonical g ip_is_canonical string -> bool
isUnspecified . ip_is_unspecified ip -> bool
isLoopback . ip_is_loopback ip -> bool
isLinkLocalMulticast . ip_is_link_local_multicast ip -> bool
isLinkLocalUnicast . ip_is_link_local_unicast ip -> bool
isGlobalUnicast . ip_is_global_unicast ip -> bool
isIP g is_ip string -> bool
cidr g string_to_cidr string -> cidr
containsIP . cidr_contains_ip_string cidr string -> bool
containsIP . cidr_contains_ip_ip cidr ip -> bool
containsCIDR . cidr_contains_cidr_string cidr string -> bool
containsCIDR . cidr_contains_cidr cidr cidr -> bool
prefixLength . cidr_prefix_length cidr -> int
masked . cidr_masked cidr -> cidr
isCIDR g is_cidr string -> bool
validate . format-validate format string -> optional<list<string>>
format.named g format-named string -> optional<format>
semver g string_to_semver string -> semver
semver g string_bool_to_semver string bool -> semver
isSemver g is_semver_string string -> bool
isSemver g is_semver_string_bool string bool -> bool
isGreaterThan . semver_is_greater_than semver semver -> bool
isLessThan . semver_is_less_than semver semver -> bool
compareTo . semver_compare_to semver semver -> int
major . semver_major semver -> int
minor . semver_minor semver -> int
patch . semver_patch semver -> int
slice . list_slice list<T> int int -> list<T>
flatten . list_flatten list<list<T>> -> list<T>
flatten . list_flatten_int list<dyn> int -> list<dyn>
lists.range g lists_range int -> list<int>
reverse . list_reverse list<T> -> list<T>
distinct . list_distinct list<T> -> list<T>
jsonpatch.escapeKey g string_jsonpatch_escapeKey_string string -> string
";

/// Names and words of the named formats, in `format.NAME()`.
pub(crate) const FORMATS: &[&str] = &[
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

/// Types with an order, by the word used in overload ids.
const COMPARABLE: &[&str] = &[
    "int",
    "uint",
    "double",
    "bool",
    "duration",
    "timestamp",
    "string",
    "bytes",
];

const RELATIONS: &[(&str, &str)] = &[
    ("_<_", "less"),
    ("_<=_", "less_equals"),
    ("_>_", "greater"),
    ("_>=_", "greater_equals"),
];

const RELATED: &[(&str, &str)] = &[
    ("bool", "bool bool"),
    ("int64", "int int"),
    ("int64_double", "int double"),
    ("int64_uint64", "int uint"),
    ("uint64", "uint uint"),
    ("uint64_double", "uint double"),
    ("uint64_int64", "uint int"),
    ("double", "double double"),
    ("double_int64", "double int"),
    ("double_uint64", "double uint"),
    ("string", "string string"),
    ("bytes", "bytes bytes"),
    ("timestamp", "timestamp timestamp"),
    ("duration", "duration duration"),
];

const TIME_PARTS: &[(&str, &str, bool)] = &[
    ("getFullYear", "year", false),
    ("getMonth", "month", false),
    ("getDayOfYear", "day_of_year", false),
    ("getDayOfMonth", "day_of_month", false),
    ("getDate", "day_of_month_1_based", false),
    ("getDayOfWeek", "day_of_week", false),
    ("getHours", "hours", true),
    ("getMinutes", "minutes", true),
    ("getSeconds", "seconds", true),
    ("getMilliseconds", "milliseconds", true),
];

type Functions = HashMap<&'static str, Vec<Overload>>;

static BASE: LazyLock<Functions> = LazyLock::new(build);

fn build() -> Functions {
    let mut functions = Functions::new();
    let mut lines: Vec<String> = Vec::new();
    for (function, word) in RELATIONS {
        lines.extend(
            RELATED
                .iter()
                .map(|(id, args)| format!("{function} g {word}_{id} {args} -> bool")),
        );
    }
    for (function, part, of_duration) in TIME_PARTS {
        lines.push(format!("{function} . timestamp_to_{part} timestamp -> int"));
        lines.push(format!(
            "{function} . timestamp_to_{part}_with_tz timestamp string -> int"
        ));
        if *of_duration {
            lines.push(format!("{function} . duration_to_{part} duration -> int"));
        }
    }
    for ty in COMPARABLE {
        lines.push(format!("isSorted . list_{ty}_is_sorted_bool list<{ty}> -> bool"));
        lines.push(format!("max . list_{ty}_max_{ty} list<{ty}> -> {ty}"));
        lines.push(format!("min . list_{ty}_min_{ty} list<{ty}> -> {ty}"));
        lines.push(format!("sort . list_{ty}_sort list<{ty}> -> list<{ty}>"));
        lines.push(format!(
            "@sortByAssociatedKeys . list_{ty}_sortByAssociatedKeys list<T> list<{ty}> -> list<T>"
        ));
    }
    for ty in ["int", "uint", "double", "duration"] {
        lines.push(format!("sum . list_{ty}_sum_{ty} list<{ty}> -> {ty}"));
    }
    lines.extend(
        FORMATS
            .iter()
            .map(|name| format!("format.{name} g format.{name} -> format")),
    );
    for line in TABLE
        .lines()
        .filter(|line| !line.is_empty())
        .chain(lines.iter().map(String::as_str))
    {
        let (name, overload) = signature(line);
        functions.entry(name).or_default().push(overload);
    }
    functions
}

/// Names live as long as the program; there is one table per process.
fn leak(text: &str) -> &'static str {
    Box::leak(text.to_string().into_boxed_str())
}

fn signature(line: &str) -> (&'static str, Overload) {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (name, kind, id) = (word(), word(), word());
    let mut types: Vec<Type> = Vec::new();
    let mut letters = Vec::new();
    for word in words.filter(|word| *word != "->") {
        types.push(parse_type(word, &mut letters));
    }
    let result = types.pop().unwrap_or(Type::Dyn);
    let overload = Overload {
        id: leak(id),
        member: kind == ".",
        args: types,
        result,
        params: letters.len() as u32,
    };
    (leak(name), overload)
}

fn parse_type(text: &str, letters: &mut Vec<char>) -> Type {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        return match outer {
            "map" => {
                let (key, value) = inner.split_once(',').unwrap_or((inner, inner));
                Type::map(parse_type(key, letters), parse_type(value, letters))
            }
            "list" => Type::list(parse_type(inner, letters)),
            "type" => Type::type_of(parse_type(inner, letters)),
            _ => Type::optional(parse_type(inner, letters)),
        };
    }
    let mut chars = text.chars();
    if let (Some(letter), None) = (chars.next(), chars.next()) {
        let index = letters
            .iter()
            .position(|known| *known == letter)
            .unwrap_or_else(|| {
                letters.push(letter);
                letters.len() - 1
            });
        return Type::Param(index as u32);
    }
    match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "url" => Type::URL,
        "quantity" => Type::QUANTITY,
        "ip" => Type::IP,
        "cidr" => Type::CIDR,
        "semver" => Type::SEMVER,
        "format" => Type::FORMAT,
        "authorizer" => Type::AUTHORIZER,
        "pathcheck" => Type::PATH_CHECK,
        "groupcheck" => Type::GROUP_CHECK,
        "resourcecheck" => Type::RESOURCE_CHECK,
        "decision" => Type::DECISION,
        _ => Type::Dyn,
    }
}

/// The types an expression can name.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "string" => Type::String,
        "uint" => Type::Uint,
        "null_type" => Type::Null,
        "dyn" => return None,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" => Type::IP,
        "net.CIDR" => Type::CIDR,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads_as_written() {
        let (_, overloads) = overloads("getQuery", &[]).unwrap();
        assert_eq!(overloads[0].result.to_string(), "map(string, list(string))");
        assert!(overloads[0].member);
        assert_eq!(super::overloads("_<_", &[]).unwrap().1.len(), RELATED.len());
        assert!(super::overloads("jsonpatch.escapeKey", &[]).is_none());
        assert!(super::overloads("jsonpatch.escapeKey", &[Library::JsonPatch]).is_some());
        let (_, inserts) = super::overloads("cel.@mapInsert", &[]).unwrap();
        assert_eq!(inserts[0].params, 2);
    }
}
