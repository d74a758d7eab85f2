//! Meta-tests of the sources of this crate against the facts table: every kind has a schema, every path that is written in the source
//! of a kind is in its schema, and every path of admission, controllers and the like in that of some kind. A misspelt path reads as
//! an absent field, which nothing else would notice.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use generic_server::resource::{Decoding, Subresource};
use machinery::schema::{KindSchema, NodeId, SchemaRef, builtin};

use super::check;

/// The functions of `Json` that take a path or a key.
const READERS: [&str; 18] = [
    "dig",
    "text",
    "int",
    "flag",
    "list",
    "object_at",
    "has",
    "entries",
    "strings",
    "dig_mut",
    "list_mut",
    "ensure",
    "put",
    "take_key",
    "fill",
    "fill_text",
    "fill_int",
    "copy_key",
];

#[test]
fn every_kind_has_a_schema() {
    let mut seen = 0;
    for resource in check::resources() {
        let gvk = &resource.gvk;
        assert!(matches!(resource.decoding, Decoding::Builtin(_)), "{gvk}");
        for (name, subresource) in &resource.subresources {
            if let Subresource::Create(creator) = subresource {
                let kind = creator.kind();
                let schema = builtin().kind(&kind.group, &kind.version, &kind.kind);
                assert!(schema.is_some(), "{gvk} {name}: {kind}");
            }
        }
        seen += 1;
    }
    assert!(seen > 60, "{seen}");
}

/// Where a path can begin: every node of some schemas that has fields, by the names of its fields.
#[derive(Default)]
struct Fields<'a> {
    by_name: HashMap<&'a str, Vec<SchemaRef<'a>>>,
    seen: HashSet<NodeId>,
}

impl<'a> Fields<'a> {
    fn of(schemas: &'a [KindSchema]) -> Self {
        let mut fields = Fields::default();
        for schema in schemas {
            fields.add(NodeId(u32::MAX), schema.root());
            fields.seen.remove(&NodeId(u32::MAX));
        }
        fields
    }

    fn add(&mut self, id: NodeId, schema: SchemaRef<'a>) {
        if !self.seen.insert(id) {
            return;
        }
        let node = schema.node();
        for field in node.fields.iter() {
            let inner = schema.at(field.node);
            self.by_name.entry(&field.name).or_default().push(inner);
            self.add(field.node, inner);
        }
        for below in [node.items, node.additional].into_iter().flatten() {
            self.add(below, schema.at(below));
        }
    }

    /// Whether a dotted path leads somewhere from some node. Any key of a map is accepted.
    fn has(&self, path: &str) -> bool {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let below = self.by_name.get(first);
        below.is_some_and(|below| below.iter().any(|schema| leads(*schema, rest)))
    }
}

fn leads(schema: SchemaRef<'_>, path: &str) -> bool {
    if path.is_empty() || schema.node().additional.is_some() {
        return true;
    }
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    schema.field(first).is_some_and(|(_, below)| leads(below, rest))
}

/// The paths that a source hands to the functions of `Json`, without those of its tests.
fn paths(source: &str) -> BTreeSet<&str> {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut out = BTreeSet::new();
    for reader in READERS {
        for (at, _) in code.match_indices(&format!(".{reader}(")) {
            let arguments = code[at..]
                .split_once('(')
                .map_or("", |(_, rest)| rest)
                .trim_start();
            if let Some((path, _)) = arguments.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                out.insert(path);
            }
        }
    }
    out
}

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// `PodDisruptionBudget` as files are named: `pod_disruption_budget`.
fn snake(kind: &str) -> String {
    let mut out = String::new();
    for (index, letter) in kind.char_indices() {
        if letter.is_uppercase() && index > 0 {
            let before_small = kind[index + 1..].starts_with(char::is_lowercase);
            let after_small = kind[..index].ends_with(char::is_lowercase);
            if before_small || after_small {
                out.push('_');
            }
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// The schemas that the paths of a source are of: those of the kind that the file or its folder is named after, else those of
/// the whole group, else all. Bodies of subresources and objects of other kinds that are looked up have their own names.
fn schemas_of(file: &Path, root: &Path) -> Vec<KindSchema> {
    let inside = file.strip_prefix(root).unwrap().with_extension("");
    let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
    let group = |name: &str| match name.split('.').next() {
        Some("") | None => "core".to_string(),
        Some(first) => first.to_string(),
    };
    let kinds: Vec<_> = builtin()
        .kinds()
        .map(|(group, version, kind, _)| (group, version, kind))
        .collect();
    let of_kind = |part: &&str| kinds.iter().any(|(_, _, kind)| snake(kind) == **part);
    let named = parts.iter().rev().find(|part| of_kind(part));
    let of_group = parts
        .first()
        .filter(|part| kinds.iter().any(|(name, _, _)| group(name) == **part));
    let wanted = kinds.iter().filter(|(name, _, kind)| match (named, of_group) {
        (Some(named), _) => snake(kind) == **named,
        (None, Some(own)) => group(name) == **own,
        (None, None) => true,
    });
    wanted
        .filter_map(|(group, version, kind)| builtin().kind(group, version, kind))
        .collect()
}

/// Sources that read objects of other kinds than the one they are named after.
const OTHERS: &[(&str, &[&str])] = &[
    ("core/pod/binding.rs", &["Pod"]),
    ("core/pod/eviction.rs", &["Pod", "PodDisruptionBudget"]),
    ("core/pod/status.rs", &["Pod"]),
    ("core/service_account/token.rs", &["TokenRequest", "Pod"]),
    ("core/service_alloc/late.rs", &["IPAddress"]),
    ("core/service_alloc/ranges.rs", &["ServiceCIDR"]),
    ("events.rs", &["Event"]),
];

/// Keys of maps, and of the options of streams, which no schema names.
const KEYS: &[&str] = &[
    "batch.kubernetes.io/controller-uid",
    "podSignature.podController",
    "preferAvoidPods",
    "container",
    "stderr",
    "stdout",
    "storage",
];

/// Paths outside the groups that no schema names, each with the file that reads it and what it is.
const EXCEPTIONS: &[(&str, &str, &str)] = &[(
    "admission/config.rs",
    "EventRateLimit",
    "the name of a plugin, which a selection of plugins has",
)];

/// Files that read configuration files, whose kinds are not served and have no schema.
const CONFIGURATIONS: &[&str] = &["tokens/jwt/config/reader.rs"];

/// The paths of a folder of sources, file by file. Whole files of tests are left out.
fn paths_below(root: &Path) -> Vec<(PathBuf, BTreeSet<String>)> {
    let mut files = Vec::new();
    sources(root, &mut files);
    let is_test = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs";
    files.retain(|file| !file.strip_prefix(root).unwrap().iter().any(is_test));
    let read = |file: PathBuf| {
        let source = std::fs::read_to_string(&file).unwrap();
        let paths = paths(&source).into_iter().filter(|path| !path.is_empty());
        let paths = paths.map(str::to_string).collect();
        (file, paths)
    };
    files.into_iter().map(read).collect()
}

#[track_caller]
fn check_unknown(unknown: &[String]) {
    let unknown = unknown.join("\n");
    assert!(unknown.is_empty(), "in no schema of their kind:\n{unknown}");
}

#[test]
fn every_path_in_the_sources_is_in_a_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/groups");
    let (mut checked, mut unknown) = (0, Vec::new());
    for (file, paths) in paths_below(&root) {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let mut schemas = schemas_of(&file, &root);
        let others = OTHERS.iter().filter(|(own, _)| *own == name);
        for other in others.flat_map(|(_, others)| *others) {
            let all = builtin().kinds().filter(|(_, _, kind, _)| kind == other);
            schemas.extend(all.filter_map(|(group, version, kind, _)| builtin().kind(group, version, kind)));
        }
        let fields = Fields::of(&schemas);
        for path in paths {
            checked += 1;
            if !fields.has(&path) && !KEYS.contains(&path.as_str()) {
                unknown.push(format!("{name}: {path}"));
            }
        }
    }
    assert!(checked > 800, "{checked}");
    check_unknown(&unknown);
}

/// What is outside the groups reads objects of many kinds, so that a path may be of any of them.
#[test]
fn every_path_outside_the_groups_is_in_a_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let kinds = builtin().kinds();
    let schemas: Vec<KindSchema> = kinds
        .filter_map(|(group, version, kind, _)| builtin().kind(group, version, kind))
        .collect();
    let fields = Fields::of(&schemas);
    for (path, known) in [
        ("spec.nodeName", true),
        ("spec.nodeNmae", false),
        ("nodeNmae", false),
    ] {
        assert_eq!(fields.has(path), known, "{path}");
    }
    let (mut checked, mut unknown) = (0, Vec::new());
    let mut unused: Vec<_> = EXCEPTIONS.iter().map(|(file, path, _)| (*file, *path)).collect();
    for (file, paths) in paths_below(&root) {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        if name.starts_with("groups") || CONFIGURATIONS.contains(&name.as_str()) {
            continue;
        }
        for path in paths {
            checked += 1;
            if fields.has(&path) {
                continue;
            }
            match unused.iter().position(|exception| *exception == (&name, &path)) {
                Some(at) => drop(unused.remove(at)),
                None => unknown.push(format!("{name}: {path}")),
            }
        }
    }
    assert!(checked > 400, "{checked}");
    check_unknown(&unknown);
    assert!(unused.is_empty(), "no exceptions: {unused:?}");
}

#[test]
fn paths_are_found_in_sources() {
    let source = "a.text(\"spec.x\"); b\n .put(\n  \"y\", 1); c.text(other); meta.text_of(\"z\");\n#[cfg(test)]\nmod tests { d.int(\"w\") }";
    assert_eq!(paths(source).into_iter().collect::<Vec<_>>(), ["spec.x", "y"]);
    assert_eq!(snake("CSIStorageCapacity"), "csi_storage_capacity");
    assert_eq!(snake("IPAddress"), "ip_address");
}
