//! The metrics of PodSecurity, under upstream's names and labels. Mirrors `pod-security-admission/metrics`.

use std::collections::BTreeMap;

use generic_server::admission::{Attributes, Operation};
use generic_server::metrics::{Collect, family, sample};
use parking_lot::Mutex;

use super::policy::{Level, LevelVersion};
use super::{Role, role};

/// The minor version of this server: later ones are counted together.
const MINOR: u32 = 36;

/// What a policy is evaluated for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    Audit,
    Enforce,
    Warn,
}

/// `request_operation`, `resource` and `subresource` of a write. There are only so many.
type Write = (&'static str, &'static str, String);

fn write_of(attributes: &Attributes<'_>) -> Write {
    let operation = match attributes.operation {
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Delete => "delete",
        Operation::Connect => "connect",
    };
    let resource = match role(attributes.gvr) {
        Some(Role::Pod) => "pod",
        Some(Role::Namespace) => "namespace",
        Some(Role::Template(_)) | None => "controller",
    };
    (operation, resource, attributes.subresource.to_string())
}

/// An evaluation: refused or not, the level, the version, what for, and of which write.
type Evaluation = (bool, &'static str, String, Mode, Write);

/// What was counted.
#[derive(Debug)]
pub(super) struct PodSecurityMetrics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    evaluations: BTreeMap<Evaluation, u64>,
    exemptions: BTreeMap<Write, u64>,
    errors: BTreeMap<(bool, Write), u64>,
}

impl Default for PodSecurityMetrics {
    /// With the series that upstream has from the start.
    fn default() -> Self {
        let mut counts = Counts::default();
        for operation in ["create", "update"] {
            let write = |resource| (operation, resource, String::new());
            let allowed = (false, "privileged", "latest".into(), Mode::Enforce, write("pod"));
            counts.evaluations.insert(allowed, 0);
            for resource in ["controller", "pod"] {
                counts.exemptions.insert(write(resource), 0);
            }
        }
        PodSecurityMetrics(Mutex::new(counts))
    }
}

impl PodSecurityMetrics {
    pub(super) fn evaluated(
        &self,
        denied: bool,
        policy: LevelVersion,
        mode: Mode,
        attributes: &Attributes<'_>,
    ) {
        let version = match policy.version.filter(|_| policy.level != Level::Privileged) {
            None => "latest".to_string(),
            Some(minor) if minor > MINOR => "future".to_string(),
            Some(minor) => format!("v1.{minor}"),
        };
        let key = (denied, policy.level.name(), version, mode, write_of(attributes));
        *self.0.lock().evaluations.entry(key).or_default() += 1;
    }

    pub(super) fn exempted(&self, attributes: &Attributes<'_>) {
        *self.0.lock().exemptions.entry(write_of(attributes)).or_default() += 1;
    }

    /// A part of the policy could not be evaluated; `fatal`: none of it could.
    pub(super) fn failed(&self, fatal: bool, attributes: &Attributes<'_>) {
        let key = (fatal, write_of(attributes));
        *self.0.lock().errors.entry(key).or_default() += 1;
    }
}

fn labels_of((operation, resource, subresource): &Write) -> [(&'static str, &str); 3] {
    [
        ("request_operation", operation),
        ("resource", resource),
        ("subresource", subresource),
    ]
}

impl Collect for PodSecurityMetrics {
    fn collect(&self, out: &mut String) {
        let counts = self.0.lock();
        let name = "pod_security_errors_total";
        let help = "Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation.";
        if !counts.errors.is_empty() {
            family(out, name, "counter", help);
        }
        for ((fatal, write), count) in &counts.errors {
            let fatal = [("fatal", if *fatal { "true" } else { "false" })];
            let labels = [&fatal[..], &labels_of(write)].concat();
            sample(out, name, &labels, count);
        }
        let name = "pod_security_evaluations_total";
        let help = "Number of policy evaluations that occurred, not counting ignored or exempt requests.";
        family(out, name, "counter", help);
        for ((denied, level, version, mode, write), count) in &counts.evaluations {
            let own = [
                ("decision", if *denied { "deny" } else { "allow" }),
                (
                    "mode",
                    match mode {
                        Mode::Audit => "audit",
                        Mode::Enforce => "enforce",
                        Mode::Warn => "warn",
                    },
                ),
                ("policy_level", level),
                ("policy_version", version),
            ];
            let labels = [&own[..], &labels_of(write)].concat();
            sample(out, name, &labels, count);
        }
        let name = "pod_security_exemptions_total";
        let help = "Number of exempt requests, not counting ignored or out of scope requests.";
        family(out, name, "counter", help);
        for (write, count) in &counts.exemptions {
            sample(out, name, &labels_of(write), count);
        }
    }
}
