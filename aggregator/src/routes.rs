//! Which group versions are local and which are remote, and their priorities: an immutable table made from the APIServices.

use std::collections::HashMap;
use std::sync::Arc;

use generic_server::paths::Paths;
use generic_server::registry::Entry;
use machinery::meta;
use serde_json::Value;

use crate::backend::Backend;
use crate::local::{CUSTOM_PRIORITY, Priorities};
use crate::remote::RemoteSpec;
use crate::transport::TransportSettings;

/// The route of a group version, from its APIService.
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

/// All routes, by group and version.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Group, version and route.
    all: Vec<(Box<str>, Box<str>, Route)>,
    /// Where in `all` the route of a group and version is.
    paths: Paths<usize>,
}

impl Routes {
    /// The table of these APIServices. Unchanged parts are taken over from `old`: routes whose object is the same without
    /// reading it, backends whose spec is.
    pub(crate) fn of<'a>(
        services: impl Iterator<Item = &'a Arc<Entry>>,
        old: &Routes,
        transport: &TransportSettings,
    ) -> Self {
        let known: HashMap<&str, (&str, &str, &Route)> = old
            .iter()
            .map(|(group, version, route)| (&*route.from.0, (group, version, route)))
            .collect();
        let mut routes = Routes::default();
        for entry in services {
            let same = known
                .get(entry.name())
                .filter(|(.., route)| route.from.1 == entry.revision.0);
            let (group, version, route) = match same {
                Some((group, version, route)) => ((*group).into(), (*version).into(), Route::clone(route)),
                None => Self::read(entry, old, transport),
            };
            let at = routes.all.len();
            routes.paths.insert_segments(&[&group, &version], at);
            routes.all.push((group, version, route));
        }
        routes
    }

    fn read(entry: &Entry, old: &Routes, transport: &TransportSettings) -> (Box<str>, Box<str>, Route) {
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
            _ => Backend::new(Arc::new(spec), transport),
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
        let at = self.paths.get_segments(&[group, version])?;
        self.all.get(*at).map(|(_, _, route)| route)
    }

    /// Every group version with its route.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &Route)> {
        let all = self.all.iter();
        all.map(|(group, version, route)| (&**group, &**version, route))
    }

    /// The remote servers.
    pub(crate) fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.iter().filter_map(|(_, _, route)| route.remote.as_ref())
    }

    /// The priorities of a group version: its APIService's, else those of its registration.
    pub(crate) fn priority(&self, group: &str, version: &str, builtin: Priorities) -> (i32, i32) {
        match self.get(group, version) {
            Some(route) => (route.group_priority, route.version_priority),
            None => builtin(group, version).unwrap_or(CUSTOM_PRIORITY),
        }
    }
}
