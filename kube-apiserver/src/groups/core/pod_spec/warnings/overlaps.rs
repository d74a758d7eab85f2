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
    source: String,
}

impl File<'_> {
    fn show(&self) -> String {
        match self.source.as_str() {
            "" => go::quote(self.path),
            source => format!("{} ({source})", go::quote(self.path)),
        }
    }
}

/// Adds the warnings about the volumes of a pod or template.
pub(super) fn warnings(out: &mut Vec<String>, volumes: &[Value]) {
    let most = out.len() + limits::WARNINGS;
    let mut bytes = 0;
    let mut compare = |out: &mut Vec<String>, name: &str, what: &str, files: Vec<File<'_>>| {
        bytes += files.iter().map(|file| file.path.len()).sum::<usize>();
        if bytes <= COMPARED_BYTES {
            collisions(out, most, name, what, files);
        }
    };
    for volume in volumes {
        let name = volume.text("name");
        let plain = [
            ("configMap", "name", "ConfigMap"),
            ("secret", "secretName", "Secret"),
            ("downwardAPI", "", "DownwardAPI"),
        ];
        for (key, of, kind) in plain {
            let source = volume.dig(key);
            let what = match of {
                "" => kind.to_owned(),
                of => format!("{kind} {}", go::quote(source.text(of))),
            };
            compare(out, name, &what, items(source, ""));
        }
        let mut files = Vec::new();
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
            files.extend(projected(source));
        }
        compare(out, name, "Projected", files);
    }
}

fn items<'v>(source: &'v Value, what: &str) -> Vec<File<'v>> {
    let file = |item: &'v Value| File {
        path: item.text("path"),
        source: what.to_owned(),
    };
    source.list("items").iter().map(file).collect()
}

/// The files of one source of a projected volume.
fn projected(source: &Value) -> Vec<File<'_>> {
    for (key, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        let one = source.dig(key);
        if one.has("items") {
            return items(one, &format!("{kind} {}", go::quote(one.text("name"))));
        }
    }
    if source.has("downwardAPI.items") {
        return items(source.dig("downwardAPI"), "DownwardAPI");
    }
    let one = |path, source: String| vec![File { path, source }];
    if source.has("serviceAccountToken") {
        return one(
            source.text("serviceAccountToken.path"),
            "ServiceAccountToken".into(),
        );
    }
    let bundle = source.dig("clusterTrustBundle");
    if !bundle.is_null() {
        let name = bundle.dig("name").as_str().unwrap_or(bundle.text("signerName"));
        return one(
            bundle.text("path"),
            format!("ClusterTrustBundle {}", go::quote(name)),
        );
    }
    let parts = [
        ("certificateChainPath", "chain"),
        ("keyPath", "key"),
        ("credentialBundlePath", "credential bundle"),
    ];
    let certificate = source.dig("podCertificate");
    let part = |(key, what): &(&str, &str)| File {
        path: certificate.text(key),
        source: format!("PodCertificate {what}"),
    };
    parts
        .iter()
        .map(part)
        .filter(|file| !file.path.is_empty())
        .collect()
}

fn collisions(out: &mut Vec<String>, most: usize, volume: &str, what: &str, files: Vec<File<'_>>) {
    let mut seen: Vec<File<'_>> = Vec::new();
    // The places of earlier files by path, with a slash at the end.
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for mut file in files {
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
