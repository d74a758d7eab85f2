//! Which versions and resources of the built-in groups are served (`--runtime-config`): stable versions, unless something else is said.

use std::collections::BTreeMap;

use generic_server::server::GroupSpec;

/// How stable a version is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Stable,
    Beta,
    Alpha,
}

impl Stage {
    fn of(version: &str) -> Stage {
        match version {
            version if version.contains("alpha") => Stage::Alpha,
            version if version.contains("beta") => Stage::Beta,
            _ => Stage::Stable,
        }
    }
}

/// What is served. Of all that is said about a resource the most special counts: it, its version, the stage of that, all versions.
#[derive(Debug, Clone, Default)]
pub struct ServedApis {
    all: Option<bool>,
    stable: Option<bool>,
    beta: Option<bool>,
    alpha: Option<bool>,
    /// By `GROUP/VERSION`, and by `GROUP/VERSION/RESOURCE`; the core group is empty.
    named: BTreeMap<String, bool>,
}

impl ServedApis {
    /// Notes what is said of `api/all`, `api/ga`, `api/beta`, `api/alpha`, `GROUP/VERSION` or `GROUP/VERSION/RESOURCE`.
    pub fn set(&mut self, key: &str, is_on: bool) {
        match key {
            "api/all" => self.all = Some(is_on),
            "api/ga" => self.stable = Some(is_on),
            "api/beta" => self.beta = Some(is_on),
            "api/alpha" => self.alpha = Some(is_on),
            named => drop(self.named.insert(named.to_owned(), is_on)),
        }
    }

    /// Whether a version is served, but for resources of it that are named.
    pub fn version(&self, group: &str, version: &str) -> bool {
        let stage = Stage::of(version);
        let of_stage = match stage {
            Stage::Stable => self.stable,
            Stage::Beta => self.beta,
            Stage::Alpha => self.alpha,
        };
        let named = self.named.get(&format!("{group}/{version}")).copied();
        named.or(of_stage).or(self.all).unwrap_or(stage == Stage::Stable)
    }

    /// Whether a resource is served.
    pub fn resource(&self, group: &str, version: &str, resource: &str) -> bool {
        let named = self.named.get(&format!("{group}/{version}/{resource}"));
        named.copied().unwrap_or_else(|| self.version(group, version))
    }

    /// Whether a resource or its version is turned on by name.
    pub fn names(&self, group: &str, version: &str, resource: &str) -> bool {
        let keys = [
            format!("{group}/{version}"),
            format!("{group}/{version}/{resource}"),
        ];
        keys.iter().any(|key| self.named.get(key) == Some(&true))
    }

    /// What is left of a group. `None` when nothing is.
    pub(crate) fn of(&self, mut group: GroupSpec) -> Option<GroupSpec> {
        for (version, resources) in &mut group.versions {
            resources.retain(|resource| self.resource(&group.group, version, &resource.gvr.resource));
        }
        group.versions.retain(|(_, resources)| !resources.is_empty());
        (!group.versions.is_empty()).then_some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_special_word_counts() {
        #[track_caller]
        fn check(said: &[(&str, bool)], what: [&str; 3], expected: bool) {
            let mut apis = ServedApis::default();
            for (key, is_on) in said {
                apis.set(key, *is_on);
            }
            let [group, version, resource] = what;
            assert_eq!(
                apis.resource(group, version, resource),
                expected,
                "{said:?} {what:?}"
            );
        }
        let (deployments, pods) = (["apps", "v1", "deployments"], ["", "v1", "pods"]);
        let candidates = ["coordination.k8s.io", "v1beta1", "leasecandidates"];
        check(&[], deployments, true);
        check(&[], candidates, false);
        check(&[("api/beta", true)], candidates, true);
        check(&[("api/all", true)], candidates, true);
        check(&[("api/all", true), ("api/beta", false)], candidates, false);
        check(&[("api/all", false), ("/v1", true)], pods, true);
        check(&[("api/all", false), ("/v1", true)], deployments, false);
        check(&[("api/ga", false)], deployments, false);
        check(&[("apps/v1", false)], deployments, false);
        check(
            &[("apps/v1", false), ("apps/v1/deployments", true)],
            deployments,
            true,
        );
        check(&[("apps/v1/deployments", false)], deployments, false);
        check(&[("apps/v1/daemonsets", false)], deployments, true);
    }
}
