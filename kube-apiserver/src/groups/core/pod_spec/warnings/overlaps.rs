//! Files of one volume that are in each other's way.
//!
//! A path is compared only with those that it can collide with: equal ones, the directories around it, and the files below it. Every colliding
//! pair is a warning, so warnings end at [`limits::WARNINGS`], as many as a response carries.

use std::collections::{BTreeMap, BTreeSet};

use machinery::{go, limits};
use serde_json::Value;

use crate::json::Json;

/// Bytes of the paths of one pod that are compared: a path is looked up once for each directory around it, which costs the square of its
/// length. Upstream has no bound. Past it: the volume is not compared, nor are those after it.
const COMPARED_BYTES: usize = 32 << 10;

/// A path and what it comes from.
struct File<'v> {
    path: &'v str,
    /// The kind of the source, or its part; empty where the volume has one source alone.
    kind: &'static str,
    /// The name of the source, where it has one.
    name: Option<&'v str>,
}

impl File<'_> {
    fn show(&self) -> String {
        let path = go::Quoted(self.path);
        match (self.kind, self.name) {
            ("", _) => path.to_string(),
            (kind, None) => format!("{path} ({kind})"),
            (kind, Some(name)) => format!("{path} ({kind} {})", go::Quoted(name)),
        }
    }
}

/// Adds the warnings about the volumes of a pod or template.
pub(super) fn warnings(out: &mut Vec<String>, volumes: &[Value]) {
    let most = out.len() + limits::WARNINGS;
    let mut bytes = 0;
    let mut files = Vec::new();
    for volume in volumes {
        let name = volume.text("name");
        let plain = [
            ("configMap", Some("name"), "ConfigMap"),
            ("secret", Some("secretName"), "Secret"),
            ("downwardAPI", None, "DownwardAPI"),
        ];
        let mut compare = |out: &mut Vec<String>, files: &mut Vec<File<'_>>, kind, of: Option<&str>| {
            bytes += files.iter().map(|file| file.path.len()).sum::<usize>();
            if bytes <= COMPARED_BYTES && collide(files) {
                let what = match of {
                    None => String::from(kind),
                    Some(of) => format!("{kind} {}", go::Quoted(of)),
                };
                collisions(out, most, name, &what, files);
            }
            files.clear();
        };
        for (key, of, kind) in plain {
            let source = volume.dig(key);
            files.extend(items(source, "", None));
            compare(out, &mut files, kind, of.map(|of| source.text(of)));
        }
        for source in volume.list("projected.sources") {
            let is_empty = source
                .as_object()
                .is_none_or(|all| all.values().all(Value::is_null));
            if is_empty && out.len() < most {
                out.push(format!(
                    "volume {} (Projected) has no sources provided",
                    go::quote(name)
                ));
            }
            projected(&mut files, source);
        }
        compare(out, &mut files, "Projected", None);
    }
}

fn items<'v>(
    source: &'v Value,
    kind: &'static str,
    name: Option<&'v str>,
) -> impl Iterator<Item = File<'v>> + use<'v> {
    let files = source.list("items").iter();
    files.map(move |item| File {
        path: item.text("path"),
        kind,
        name,
    })
}

/// Adds the files of one source of a projected volume.
fn projected<'v>(files: &mut Vec<File<'v>>, source: &'v Value) {
    for (key, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        let one = source.dig(key);
        if one.has("items") {
            return files.extend(items(one, kind, Some(one.text("name"))));
        }
    }
    let downward = source.dig("downwardAPI");
    if downward.has("items") {
        return files.extend(items(downward, "DownwardAPI", None));
    }
    let mut add = |path, kind, name| files.push(File { path, kind, name });
    let token = source.dig("serviceAccountToken");
    if !token.is_null() {
        return add(token.text("path"), "ServiceAccountToken", None);
    }
    let bundle = source.dig("clusterTrustBundle");
    if !bundle.is_null() {
        let name = bundle.dig("name").as_str().unwrap_or(bundle.text("signerName"));
        return add(bundle.text("path"), "ClusterTrustBundle", Some(name));
    }
    let parts = [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ];
    let certificate = source.dig("podCertificate");
    for (key, kind) in parts {
        match certificate.text(key) {
            "" => {}
            path => add(path, kind, None),
        }
    }
}

/// Whether any two are in each other's way: the usual case, that none are, is told without allocating for each.
fn collide(files: &[File<'_>]) -> bool {
    if files.len() < 2 {
        return false;
    }
    let paths = files.iter().map(|file| file.path.trim_end_matches('/'));
    let mut paths: Vec<&[u8]> = paths.filter(|path| !path.is_empty()).map(str::as_bytes).collect();
    // With a slash behind each, what lies in a directory follows it at once.
    paths.sort_unstable_by(|a, b| a.iter().chain(b"/").cmp(b.iter().chain(b"/")));
    paths.windows(2).any(|pair| {
        pair[1]
            .strip_prefix(pair[0])
            .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    })
}

fn collisions(out: &mut Vec<String>, most: usize, volume: &str, what: &str, files: &mut Vec<File<'_>>) {
    let mut seen: Vec<File<'_>> = Vec::new();
    // The places of earlier files by path, with a slash at the end.
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for mut file in files.drain(..) {
        file.path = file.path.trim_end_matches('/');
        if file.path.is_empty() {
            continue;
        }
        let own = format!("{}/", file.path);
        let inside = places
            .range(own.clone()..)
            .take_while(|(path, _)| path.starts_with(&own));
        let mut others: BTreeSet<usize> = inside
            .flat_map(|(_, at)| at)
            .copied()
            .take(limits::WARNINGS)
            .collect();
        for (end, _) in own.match_indices('/') {
            let around = places.get(&own[..=end]);
            others.extend(around.into_iter().flatten().take(limits::WARNINGS));
        }
        for other in others.iter().filter_map(|other| seen.get(*other)) {
            if out.len() >= most {
                return;
            }
            out.push(format!(
                "volume {} ({what}): overlapping paths: {} with {}",
                go::quote(volume),
                file.show(),
                other.show()
            ));
        }
        places.entry(own).or_default().push(seen.len());
        seen.push(file);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(volume: Value, expected: &[&str]) {
        let mut out = Vec::new();
        warnings(&mut out, &[volume]);
        assert_eq!(out, expected);
    }

    #[test]
    fn files_in_each_others_way_are_warned_of() {
        let items = json!([{"key": "a", "path": "x"}, {"key": "b", "path": "x/y/"}, {"key": "c", "path": "xy"}, {"key": "d", "path": "x"}]);
        check(
            json!({"name": "v", "configMap": {"name": "m", "items": items}}),
            &[
                r#"volume "v" (ConfigMap "m"): overlapping paths: "x/y" with "x""#,
                r#"volume "v" (ConfigMap "m"): overlapping paths: "x" with "x""#,
                r#"volume "v" (ConfigMap "m"): overlapping paths: "x" with "x/y""#,
            ],
        );
        check(
            json!({"name": "v", "projected": {"sources": [{}, {"secret": {"name": "s", "items": [{"key": "a", "path": "t"}]}},
                {"serviceAccountToken": {"path": "t"}}]}}),
            &[
                r#"volume "v" (Projected) has no sources provided"#,
                r#"volume "v" (Projected): overlapping paths: "t" (ServiceAccountToken) with "t" (Secret "s")"#,
            ],
        );
    }

    #[test]
    fn warnings_about_many_files_end() {
        let items: Vec<Value> = (0..1_000).map(|_| json!({"key": "a", "path": "x"})).collect();
        let mut out = Vec::new();
        warnings(
            &mut out,
            &[json!({"name": "v", "secret": {"secretName": "s", "items": items}})],
        );
        assert_eq!(out.len(), limits::WARNINGS);
        for (bytes, expected) in [(COMPARED_BYTES, 1), (COMPARED_BYTES + 2, 0)] {
            let path = "a".repeat(bytes / 2);
            let item = json!({"key": "a", "path": path});
            let mut out = Vec::new();
            warnings(
                &mut out,
                &[json!({"name": "v", "secret": {"secretName": "s", "items": [item, item]}})],
            );
            assert_eq!(out.len(), expected);
        }
    }
}
