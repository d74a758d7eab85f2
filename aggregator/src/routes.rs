//! Which group versions are local and which are remote, and their priorities: an immutable table made from the APIServices.

use std::collections::HashMap;
use std::sync::Arc;

use generic_server::registry::Entry;
use machinery::meta;
use serde_json::Value;

use crate::backend::Backend;
use crate::local::{CUSTOM_PRIORITY, builtin_priority};
use crate::proxy::tls::ProxyKey;

/// What an APIService says of its group version.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) group_priority: i32,
    pub(crate) version_priority: i32,
    /// The remote server; `None` when the group version is served here.
    pub(crate) remote: Option<Arc<Backend>>,
    /// The Available condition.
    pub(crate) available: bool,
    /// The APIService's name, and the revision that says all this.
    from: (Arc<str>, u64),
}

/// How a remote server is reached, as its APIService says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteSpec {
    /// The APIService's name.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) service: String,
    pub(crate) port: u16,
    /// PEM in base64; `None` verifies against the system's roots.
    pub(crate) ca_bundle: Option<String>,
    pub(crate) insecure: bool,
}

/// All routes, by group and version.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    groups: HashMap<Box<str>, Vec<(Box<str>, Route)>>,
}

impl Routes {
    /// The table of these APIServices. What has not changed is taken over from `old`: routes whose object is the same without
    /// reading it, backends whose spec is.
    pub(crate) fn of<'a>(
        services: impl Iterator<Item = &'a Arc<Entry>>,
        old: &Routes,
        key: &ProxyKey,
    ) -> Self {
        let known: HashMap<&str, (&str, &str, &Route)> = old
            .iter()
            .map(|(group, version, route)| (&*route.from.0, (group, version, route)))
            .collect();
        let mut groups: HashMap<Box<str>, Vec<_>> = HashMap::new();
        for entry in services {
            let same = known
                .get(entry.name())
                .filter(|(.., route)| route.from.1 == entry.revision.0);
            let (group, version, route) = match same {
                Some((group, version, route)) => ((*group).into(), (*version).into(), Route::clone(route)),
                None => Self::read(entry, old, key),
            };
            groups.entry(group).or_default().push((version, route));
        }
        Routes { groups }
    }

    fn read(entry: &Entry, old: &Routes, key: &ProxyKey) -> (Box<str>, Box<str>, Route) {
        let object = entry.value();
        let text = |key: &str| meta::dig_str(&object, &["spec", key]);
        let number = |key: &str| {
            let value = meta::dig(&object, &["spec", key])
                .and_then(Value::as_i64)
                .unwrap_or_default();
            i32::try_from(value).unwrap_or_default()
        };
        let available = crate::apiservice::condition(&object, "Available")
            .and_then(|c| c.get("status")?.as_str())
            .is_some_and(|status| status == "True");
        let known = old
            .get(text("group"), text("version"))
            .and_then(|route| route.remote.clone());
        let remote = RemoteSpec::of(&object).map(|spec| match known {
            Some(backend) if *backend.spec == spec => backend,
            _ => Backend::new(Arc::new(spec), key),
        });
        let route = Route {
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
            remote,
            available,
            from: (entry.name().into(), entry.revision.0),
        };
        (text("group").into(), text("version").into(), route)
    }

    /// The route of a group version, when an APIService names it.
    pub(crate) fn get(&self, group: &str, version: &str) -> Option<&Route> {
        let versions = self.groups.get(group)?;
        versions
            .iter()
            .find(|(v, _)| **v == *version)
            .map(|(_, route)| route)
    }

    /// Every group version with its route.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &Route)> {
        self.groups.iter().flat_map(|(group, versions)| {
            versions
                .iter()
                .map(move |(version, route)| (&**group, &**version, route))
        })
    }

    /// The remote servers.
    pub(crate) fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.iter().filter_map(|(_, _, route)| route.remote.as_ref())
    }

    /// The priorities of a group version: its APIService's, else what it is registered with.
    pub(crate) fn priority(&self, group: &str, version: &str) -> (i32, i32) {
        match self.get(group, version) {
            Some(route) => (route.group_priority, route.version_priority),
            None => builtin_priority(group, version).unwrap_or(CUSTOM_PRIORITY),
        }
    }
}

impl RemoteSpec {
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let service = meta::dig(object, &["spec", "service"]).filter(|s| s.is_object())?;
        let text = |key: &str| {
            service
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
        let bundle = meta::dig_str(object, &["spec", "caBundle"]);
        Some(RemoteSpec {
            name: meta::name(object).to_string(),
            group: meta::dig_str(object, &["spec", "group"]).to_string(),
            version: meta::dig_str(object, &["spec", "version"]).to_string(),
            namespace: text("namespace"),
            service: text("name"),
            port: u16::try_from(port).unwrap_or(443),
            ca_bundle: (!bundle.is_empty()).then(|| bundle.to_string()),
            insecure: meta::dig(object, &["spec", "insecureSkipTLSVerify"])
                .and_then(Value::as_bool)
                .unwrap_or_default(),
        })
    }

    /// `v1.a.io`, served by the service `n/s`.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        RemoteSpec {
            name: "v1.a.io".into(),
            group: "a.io".into(),
            version: "v1".into(),
            namespace: "n".into(),
            service: "s".into(),
            port: 443,
            ca_bundle: None,
            insecure: false,
        }
    }
}
