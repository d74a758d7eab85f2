//! The file of `--admission-control-config-file`: `AdmissionConfiguration`, read strictly, with the configuration of each plugin in it or in
//! a file that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use generic_server::reload::Reload;
use generic_server::webhook::WebhookUsers;
use machinery::{FieldError, FieldPath, go};
use serde::Deserialize;
use serde_json::Value;

use super::event_rate_limit::EventLimits;
use super::image_policy::ImagePolicy;
use super::manifests::{ManifestReloads, Manifests, Plugin, Set};
use super::node_selector::ClusterSelectors;
use super::pod_security::{PodSecurityConfig, PodSecurityFile};
use super::quota::{self, LimitedResources};
use super::selection::PluginSelection;
use super::toleration_restriction::ClusterTolerations;
use crate::config_file::{document, of_kind, read, typed};

const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
const IMAGE_POLICY: &str = "ImagePolicyWebhook";
const POD_SECURITY_VERSIONS: [&str; 3] = [
    "pod-security.admission.config.k8s.io/v1",
    "pod-security.admission.config.k8s.io/v1beta1",
    "pod-security.admission.config.k8s.io/v1alpha1",
];
/// The configuration of the plugins that have one.
#[derive(Debug, Clone, Default)]
pub struct PluginConfigs {
    pub(super) events: EventLimits,
    pub(super) images: Option<ImagePolicy>,
    pub(super) limited: LimitedResources,
    /// Webhooks and policies may be in files.
    pub(super) manifests_are_allowed: bool,
    /// Where they are.
    manifest_directories: BTreeMap<Plugin, PathBuf>,
    manifests: Vec<Arc<Manifests>>,
    pub(super) manifest_reloads: Arc<ManifestReloads>,
    pub(super) mutating_users: WebhookUsers,
    pub(super) node_selectors: ClusterSelectors,
    pub(super) pod_security: PodSecurityConfig,
    pub(super) tolerations: ClusterTolerations,
    pub(super) validating_users: WebhookUsers,
}

/// `WebhookAdmissionConfiguration` of the plugins that ask webhooks.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct WebhookAdmission {
    kube_config_file: Option<String>,
    static_manifests_dir: Option<String>,
}

impl WebhookAdmission {
    const VERSIONS: [&str; 1] = ["apiserver.config.k8s.io/v1"];
    const KIND: &str = "WebhookAdmissionConfiguration";

    fn read(value: Value) -> Result<Self, String> {
        of_kind(value, &Self::VERSIONS, Self::KIND)
    }

    fn users(&self) -> Result<WebhookUsers, String> {
        let file = self.kube_config_file.clone().unwrap_or_default();
        if file.is_empty() {
            return Ok(WebhookUsers::default());
        }
        let path = Path::new(&file);
        if !path.is_absolute() {
            let at = FieldPath::new("kubeConfigFile");
            return Err(FieldError::invalid(&at, &file.into(), "must be an absolute file path").to_string());
        }
        WebhookUsers::read(path).map_err(|why| format!("kubeConfigFile \"{file}\": {why}"))
    }
}

/// `ValidatingAdmissionPolicyConfiguration` and its sibling.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct PolicyAdmission {
    static_manifests_dir: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmissionConfiguration {
    #[serde(default)]
    plugins: Option<Vec<PluginEntry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginEntry {
    name: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    configuration: Option<Value>,
}

impl PluginConfigs {
    /// Reads the file, if there is one, for the plugins that are on. Gives warnings, too: of entries that have no effect. `manifests`: it may
    /// name directories with webhooks and policies.
    ///
    /// # Errors
    /// The file and those that it names cannot be read, are not what they should be, or a plugin that is on needs a configuration that is
    /// not there. The text begins with the flag.
    pub fn read(
        file: Option<&Path>,
        plugins: &PluginSelection,
        manifests: bool,
    ) -> Result<(Self, Vec<String>), String> {
        let mut configs = PluginConfigs {
            manifests_are_allowed: manifests,
            ..PluginConfigs::default()
        };
        let mut warnings = Vec::new();
        if let Some(file) = file {
            let data = read(file)
                .map_err(|why| format!("unable to read admission control configuration from {why}"))
                .map_err(flagged)?;
            let base = file.parent().unwrap_or(Path::new(""));
            warnings = configs.add(&data, base, plugins).map_err(flagged)?;
        }
        let faults = configs.events.faults();
        if plugins.has("EventRateLimit") && !faults.is_empty() {
            let why = go::aggregate(&faults);
            return Err(flagged(format!(
                "couldn't init admission plugin \"EventRateLimit\": {why}"
            )));
        }
        if plugins.has(IMAGE_POLICY) && configs.images.is_none() {
            return Err(flagged(format!(
                "couldn't init admission plugin \"{IMAGE_POLICY}\": no config specified"
            )));
        }
        Ok((configs, warnings))
    }

    /// Reads the webhooks and policies of files.
    ///
    /// # Errors
    /// They cannot be used. The text begins with the flag.
    pub async fn load_manifests(&mut self) -> Result<(), String> {
        for (plugin, directory) in std::mem::take(&mut self.manifest_directories) {
            let opened = Manifests::open(plugin, directory.clone(), self.manifest_reloads.clone()).await;
            let opened = opened.map_err(|why| {
                let (noun, shown) = (plugin.noun(), directory.display());
                flagged(format!(
                    "failed to load static {noun} manifests from \"{shown}\": {why}"
                ))
            })?;
            self.manifests.push(Arc::new(opened));
        }
        Ok(())
    }

    /// Gives a plugin what is in its files, now and whenever they change.
    pub(super) fn connect(&self, plugin: Plugin, consumer: impl Fn(Set) + Send + Sync + 'static) {
        if let Some(manifests) = self.manifests.iter().find(|one| one.plugin() == plugin) {
            manifests.connect(consumer);
        }
    }

    /// Follows the files of client certificates for webhooks, and those with webhooks and policies.
    pub fn follow(&self, reload: &mut Reload) {
        for users in [&self.mutating_users, &self.validating_users] {
            let kept = users.clone();
            reload.watch("client certificates for webhooks", users.files(), move || {
                kept.reload()
            });
        }
        for manifests in &self.manifests {
            reload.follow_file(manifests.clone());
        }
    }

    fn add(&mut self, data: &[u8], base: &Path, plugins: &PluginSelection) -> Result<Vec<String>, String> {
        let value = document(data)?;
        if value.get("kind").is_none() && value.get("podNodeSelectorPluginConfig").is_some() {
            // The file of before there was a common one.
            self.node_selectors = typed(value)?;
            return Ok(self.node_selectors.faults()).and_then(none_of);
        }
        if value.get("kind").is_none() && value.get("imagePolicy").is_some() {
            self.images = Some(ImagePolicy::read(value)?);
            return Ok(Vec::new());
        }
        let config: AdmissionConfiguration = of_kind(value, &VERSIONS, "AdmissionConfiguration")?;
        let mut warnings = Vec::new();
        let mut seen = BTreeSet::new();
        for entry in config.plugins.unwrap_or_default() {
            let name = entry.name.as_str();
            if !PluginSelection::is_known(name) {
                warnings.push(flagged(format!(
                    "plugin \"{name}\" is unknown, its entry has no effect"
                )));
                continue;
            }
            if !seen.insert(name.to_string()) {
                warnings.push(flagged(format!(
                    "plugin \"{name}\" is there more than once: only its first entry has an effect"
                )));
                continue;
            }
            let Some(value) = entry.value(base)? else {
                continue;
            };
            if !plugins.has(name) {
                warnings.push(flagged(format!(
                    "plugin \"{name}\" is off, its entry has no effect"
                )));
                continue;
            }
            let faults = self
                .configure(name, value)
                .map_err(|why| format!("couldn't init admission plugin \"{name}\": {why}"))?;
            warnings.extend(faults);
        }
        Ok(warnings)
    }

    /// Sets the configuration of one plugin. Gives a warning where it takes none.
    fn configure(&mut self, name: &str, value: Value) -> Result<Option<String>, String> {
        let faults = match name {
            "ResourceQuota" => {
                let versions = match value.get("kind").and_then(Value::as_str) {
                    Some("Configuration") => &quota::VERSIONS[1..],
                    _ => &quota::VERSIONS[..1],
                };
                let kind = match versions.len() {
                    1 => "ResourceQuotaConfiguration",
                    _ => "Configuration",
                };
                self.limited = of_kind(value, versions, kind)?;
                self.limited.faults()
            }
            "EventRateLimit" => {
                let versions = ["eventratelimit.admission.k8s.io/v1alpha1"];
                self.events = of_kind(value, &versions, "Configuration")?;
                self.events.faults()
            }
            "PodNodeSelector" => {
                self.node_selectors = typed(value)?;
                self.node_selectors.faults()
            }
            "PodSecurity" => {
                let file: PodSecurityFile =
                    of_kind(value, &POD_SECURITY_VERSIONS, "PodSecurityConfiguration")?;
                match PodSecurityConfig::new(file) {
                    Ok(config) => {
                        self.pod_security = config;
                        Vec::new()
                    }
                    Err(faults) => faults,
                }
            }
            "PodTolerationRestriction" => {
                let versions = ["podtolerationrestriction.admission.k8s.io/v1alpha1"];
                self.tolerations = of_kind(value, &versions, "Configuration")?;
                self.tolerations.faults()
            }
            IMAGE_POLICY => {
                self.images = Some(ImagePolicy::read(value)?);
                Vec::new()
            }
            "MutatingAdmissionWebhook" => {
                let config = WebhookAdmission::read(value)?;
                self.mutating_users = config.users()?;
                self.manifests_in(Plugin::MutatingWebhooks, config.static_manifests_dir)?;
                Vec::new()
            }
            "ValidatingAdmissionWebhook" => {
                let config = WebhookAdmission::read(value)?;
                self.validating_users = config.users()?;
                self.manifests_in(Plugin::ValidatingWebhooks, config.static_manifests_dir)?;
                Vec::new()
            }
            "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy" => {
                let (plugin, kind) = match name {
                    "MutatingAdmissionPolicy" => {
                        (Plugin::MutatingPolicies, "MutatingAdmissionPolicyConfiguration")
                    }
                    _ => (
                        Plugin::ValidatingPolicies,
                        "ValidatingAdmissionPolicyConfiguration",
                    ),
                };
                let config: PolicyAdmission = of_kind(value, &WebhookAdmission::VERSIONS, kind)?;
                self.manifests_in(plugin, config.static_manifests_dir)?;
                Vec::new()
            }
            _ => {
                return Ok(Some(flagged(format!(
                    "plugin \"{name}\" takes no configuration, its entry has no effect"
                ))));
            }
        };
        none_of(faults).map(|_| None)
    }

    /// Notes the directory of a plugin's manifests.
    fn manifests_in(&mut self, plugin: Plugin, directory: Option<String>) -> Result<(), String> {
        let Some(directory) = directory.filter(|directory| !directory.is_empty()) else {
            return Ok(());
        };
        let at = FieldPath::new("staticManifestsDir");
        if !self.manifests_are_allowed {
            let text = "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled";
            return Err(FieldError::forbidden(&at, text).to_string());
        }
        let path = PathBuf::from(&directory);
        let invalid = |why: String| Err(FieldError::invalid_str(&at, &directory, why).to_string());
        if !path.is_absolute() {
            return invalid("must be an absolute file path".into());
        }
        match std::fs::metadata(&path) {
            Err(error) => return invalid(format!("unable to read: {error}")),
            Ok(found) if !found.is_dir() => return invalid("must be a directory".into()),
            Ok(_) => {}
        }
        self.manifest_directories.insert(plugin, path);
        Ok(())
    }
}

impl PluginEntry {
    /// The configuration itself: the embedded one, or else the content of the file, which is relative to the one that names it.
    fn value(&self, base: &Path) -> Result<Option<Value>, String> {
        match (&self.configuration, self.path.as_deref()) {
            (Some(value), _) => Ok(Some(value.clone())),
            (None, Some(path)) if !path.is_empty() => {
                let path = base.join(path);
                let data = read(&path)
                    .map_err(|why| format!("couldn't open admission plugin configuration {why}"))?;
                let within = |why| format!("\"{}\": {why}", path.display());
                document(&data).map(Some).map_err(within)
            }
            (None, _) => Ok(None),
        }
    }
}

fn flagged(why: String) -> String {
    format!("--admission-control-config-file: {why}")
}

fn none_of(faults: Vec<String>) -> Result<Vec<String>, String> {
    match faults.is_empty() {
        true => Ok(Vec::new()),
        false => Err(go::aggregate(&faults).into_owned()),
    }
}

#[cfg(test)]
mod tests;
