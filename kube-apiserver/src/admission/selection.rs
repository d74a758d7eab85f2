//! Which admission plugins there are, in which order they run, and which of them are on: upstream's list. Mirrors `pkg/kubeapiserver/options/plugins.go`.

use std::collections::BTreeSet;
use std::sync::Arc;

use generic_server::admission::AdmissionPlugin;
use machinery::go::Quoted;

use Status::{Off, On};

/// Where a plugin of upstream's stands here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// On unless it is disabled.
    On,
    /// Off unless it is enabled.
    Off,
}

/// All plugins in upstream's order.
const PLUGINS: [(&str, Status); 41] = [
    ("AlwaysAdmit", Off),
    ("NamespaceAutoProvision", Off),
    ("NamespaceLifecycle", On),
    ("NamespaceExists", Off),
    ("LimitPodHardAntiAffinityTopology", Off),
    ("LimitRanger", On),
    ("ServiceAccount", On),
    ("NodeRestriction", Off),
    ("TaintNodesByCondition", On),
    ("AlwaysPullImages", Off),
    ("ImagePolicyWebhook", Off),
    ("PodSecurity", On),
    ("PodNodeSelector", Off),
    ("Priority", On),
    ("DefaultTolerationSeconds", On),
    ("PodTolerationRestriction", Off),
    ("EventRateLimit", Off),
    ("ExtendedResourceToleration", Off),
    ("DefaultStorageClass", On),
    ("StorageObjectInUseProtection", On),
    ("PodGroupProtection", On),
    ("OwnerReferencesPermissionEnforcement", Off),
    ("PersistentVolumeClaimResize", On),
    ("RuntimeClass", On),
    ("CertificateApproval", On),
    ("CertificateSigning", On),
    ("ClusterTrustBundleAttest", On),
    ("CertificateSubjectRestriction", On),
    ("DefaultIngressClass", On),
    ("DenyServiceExternalIPs", Off),
    ("PodTopologyLabels", On),
    ("PodGroupWorkloadExists", On),
    ("NodeDeclaredFeatureValidator", On),
    ("JobValidation", On),
    ("PodResizeValidator", On),
    ("MutatingAdmissionPolicy", On),
    ("MutatingAdmissionWebhook", On),
    ("ValidatingAdmissionPolicy", On),
    ("ValidatingAdmissionWebhook", On),
    ("ResourceQuota", On),
    ("AlwaysDeny", Off),
];

/// Plugins that upstream warns of when they are on.
const DEPRECATED: [&str; 2] = ["AlwaysAdmit", "AlwaysDeny"];

/// The place of a plugin in the order.
fn rank(name: &str) -> Option<usize> {
    PLUGINS.iter().position(|(known, _)| *known == name)
}

/// The plugins that are on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PluginSelection {
    enabled: BTreeSet<String>,
    disabled: BTreeSet<String>,
}

impl PluginSelection {
    /// The default plugins without `disable`. Gives warnings, too: of deprecated plugins in `enable`.
    ///
    /// # Errors
    /// Unknown plugins and plugins in both lists in upstream's words.
    pub fn new(enable: &[String], disable: &[String]) -> Result<(Self, Vec<String>), Vec<String>> {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let status = |name: &str| rank(name).map(|at| PLUGINS[at].1);
        for name in enable {
            match status(name) {
                None => errors.push(format!(
                    "enable-admission-plugins plugin {} is unknown",
                    Quoted(name)
                )),
                Some(On | Off) => {
                    if DEPRECATED.contains(&name.as_str()) {
                        warnings.push(format!(
                            "{name} admission controller is deprecated. Please remove this controller from your configuration files \
                             and scripts."
                        ));
                    }
                }
            }
        }
        for name in disable {
            if status(name).is_none() {
                errors.push(format!(
                    "disable-admission-plugins plugin {} is unknown",
                    Quoted(name)
                ));
            }
        }
        let disabled: BTreeSet<String> = disable.iter().cloned().collect();
        let both: BTreeSet<&str> = enable
            .iter()
            .filter(|name| disabled.contains(*name))
            .map(String::as_str)
            .collect();
        if !both.is_empty() {
            let both: Vec<&str> = both.into_iter().collect();
            errors.push(format!(
                "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
                both.join(" ")
            ));
        }
        match errors.is_empty() {
            true => {
                let enabled = enable.iter().cloned().collect();
                Ok((PluginSelection { enabled, disabled }, warnings))
            }
            false => Err(errors),
        }
    }

    /// Whether upstream has a plugin of this name.
    pub(super) fn is_known(name: &str) -> bool {
        rank(name).is_some()
    }

    /// Whether a plugin is on.
    pub fn has(&self, name: &str) -> bool {
        let off = rank(name).is_some_and(|at| PLUGINS[at].1 == Off);
        match off {
            true => self.enabled.contains(name),
            false => !self.disabled.contains(name),
        }
    }

    /// Leaves out a plugin whose feature is off, even where it is enabled by name.
    pub fn leave_out(&mut self, name: &str) {
        self.enabled.remove(name);
        self.disabled.insert(name.to_owned());
    }

    /// Those of the plugins that are on, in upstream's order.
    pub fn choose(&self, mut plugins: Vec<Arc<dyn AdmissionPlugin>>) -> Vec<Arc<dyn AdmissionPlugin>> {
        plugins.retain(|plugin| self.has(plugin.name()));
        plugins.sort_by_key(|plugin| rank(plugin.name()).unwrap_or(PLUGINS.len()));
        plugins
    }
}

#[cfg(test)]
mod tests {
    use generic_server::admission::Operation;
    use machinery::GroupVersionResource;

    use super::*;

    #[track_caller]
    fn check(enable: &[&str], disable: &[&str], expected: Result<&[&str], &[&str]>) {
        let owned = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let outcome = PluginSelection::new(&owned(enable), &owned(disable));
        match expected {
            Ok(warnings) => {
                let (selection, said) = outcome.expect("a selection");
                assert_eq!(said, warnings);
                for (name, status) in PLUGINS {
                    let on = match status {
                        Off => enable.contains(&name),
                        _ => !disable.contains(&name),
                    };
                    assert_eq!(selection.has(name), on, "{name}");
                }
            }
            Err(errors) => assert_eq!(outcome.expect_err("errors"), errors),
        }
    }

    #[test]
    fn upstreams_names_and_words() {
        check(&[], &[], Ok(&[]));
        check(&["NodeRestriction"], &[], Ok(&[]));
        check(&[], &["NodeRestriction"], Ok(&[]));
        check(
            &["LimitRanger", "NamespaceLifecycle"],
            &["AlwaysPullImages", "ServiceAccount"],
            Ok(&[]),
        );
        check(
            &["ImagePolicyWebhook", "Bogus", "Priority"],
            &["bogus", "Priority", "LimitRanger"],
            Err(&[
                "enable-admission-plugins plugin \"Bogus\" is unknown",
                "disable-admission-plugins plugin \"bogus\" is unknown",
                "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
            ]),
        );
    }

    #[derive(Debug)]
    struct Named(&'static str);

    #[async_trait::async_trait]
    impl AdmissionPlugin for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn handles(&self, _: Operation, _: &GroupVersionResource, _: &str) -> bool {
            false
        }
    }

    #[test]
    fn each_plugin_can_be_turned_off_and_the_others_keep_upstreams_order() {
        let here: Vec<&str> = PLUGINS
            .iter()
            .filter(|(_, status)| *status == On)
            .map(|(name, _)| *name)
            .collect();
        for off in &here {
            let (selection, _) = PluginSelection::new(&[], &[off.to_string()]).expect("a selection");
            let shuffled = here
                .iter()
                .rev()
                .map(|name| Arc::new(Named(name)) as Arc<dyn AdmissionPlugin>);
            let chosen: Vec<&str> = selection
                .choose(shuffled.collect())
                .iter()
                .map(|plugin| plugin.name())
                .collect();
            let expected: Vec<&str> = here.iter().copied().filter(|name| name != off).collect();
            assert_eq!(chosen, expected);
        }
    }
}
