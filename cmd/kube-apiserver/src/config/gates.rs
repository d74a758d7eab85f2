//! Feature gates: all of upstream's names, with their stages and defaults, and the few that switch something here.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use kube_apiserver::KindFeatures;

use super::Findings;

/// Upstream's gates, one a line.
const TABLE: &str = include_str!("feature_gates.txt");
/// The gates that are not on without others.
const DEPENDENCIES: &str = include_str!("feature_gate_dependencies.txt");
/// The feature gate of storage version migrations.
pub(super) const STORAGE_MIGRATION: &str = "StorageVersionMigrator";
/// The feature gate of deleting objects that cannot be read.
const UNSAFE_DELETION: &str = "AllowUnsafeMalformedObjectDeletion";
/// The feature gate of the servers' own leases.
const IDENTITY: &str = "APIServerIdentity";
/// The feature gate of webhooks and policies in files.
const ADMISSION_MANIFESTS: &str = "ManifestBasedAdmissionControlConfig";
/// The feature gate of NodeDeclaredFeatureValidator.
const DECLARED_FEATURES: &str = "NodeDeclaredFeatures";
/// The feature gate of CBOR.
const CBOR: &str = "CBORServingAndStorage";
/// The feature gate of `/statusz`.
const STATUSZ: &str = "ComponentStatusz";
/// The feature gate of `/flagz`.
const FLAGZ: &str = "ComponentFlagz";
/// The feature gates of kinds, and of fields that are about them.
const WORKLOADS: &str = "GenericWorkload";
const TRUST_BUNDLES: &str = "ClusterTrustBundle";
const TRUST_BUNDLE_PROJECTION: &str = "ClusterTrustBundleProjection";
const POD_CERTIFICATES: &str = "PodCertificateRequest";
const DEVICE_TAINT_RULES: &str = "DRADeviceTaintRules";
const POOL_STATUS: &str = "DRAResourcePoolStatus";
const GRANULAR_CLAIM_STATUS: &str = "DRAResourceClaimGranularStatusAuthorization";
const STORAGE_VERSIONS: &str = "StorageVersionAPI";
/// The gates that switch something here.
const EFFECTIVE: [&str; 16] = [
    STORAGE_MIGRATION,
    UNSAFE_DELETION,
    IDENTITY,
    ADMISSION_MANIFESTS,
    DECLARED_FEATURES,
    CBOR,
    STATUSZ,
    FLAGZ,
    TRUST_BUNDLES,
    WORKLOADS,
    TRUST_BUNDLE_PROJECTION,
    POD_CERTIFICATES,
    DEVICE_TAINT_RULES,
    POOL_STATUS,
    GRANULAR_CLAIM_STATUS,
    STORAGE_VERSIONS,
];
/// The gates that switch all of a stage, as the table writes it.
const ALL: [(&str, &str); 2] = [("AllAlpha", "ALPHA"), ("AllBeta", "BETA")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gate {
    stage: &'static str,
    default: bool,
    locked: bool,
}

/// What upstream knows of the gates.
static GATES: LazyLock<HashMap<&str, Gate>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        let gate = Gate {
            stage: words.next()?,
            default: words.next()? == "true",
            locked: words.next().is_some(),
        };
        Some((name, gate))
    };
    lines.filter_map(parse).collect()
});

fn gate(name: &str) -> Option<Gate> {
    GATES.get(name).copied()
}

/// A boolean in Go's spellings.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The gates as they are set.
#[derive(Debug, Default)]
pub(super) struct Gates<'a>(BTreeMap<&'a str, bool>);

impl<'a> Gates<'a> {
    /// Reads `--feature-gates`: items of `name=bool`, of which the last of a name counts.
    pub(super) fn read(found: &mut Findings, items: &'a [String]) -> Self {
        let mut set = BTreeMap::new();
        for item in items.iter().filter(|item| !item.is_empty()) {
            let Some((name, value)) = item.split_once('=') else {
                found.fault(format!("--feature-gates: missing bool value for {item}"));
                continue;
            };
            match parse_bool(value) {
                Some(value) => drop(set.insert(name.trim(), value)),
                None => found.fault(format!(
                    "--feature-gates: invalid value of {name}={value}: it is true or false"
                )),
            }
        }
        let gates = Gates(set);
        for (name, value) in &gates.0 {
            gates.check(found, name, *value);
        }
        gates.check_dependencies(found);
        gates
    }

    fn check(&self, found: &mut Findings, name: &str, value: bool) {
        let Some(gate) = gate(name) else {
            return found.fault(format!("--feature-gates: unrecognized feature gate: {name}"));
        };
        if gate.locked && value != gate.default {
            return found.fault(format!(
                "--feature-gates: cannot set feature gate {name} to {value}, feature is locked to {}",
                gate.default
            ));
        }
        if matches!(gate.stage, "GA" | "DEPRECATED") {
            let stage = if gate.stage == "GA" { "GA" } else { "deprecated" };
            found.warn(format!(
                "--feature-gates: setting {stage} feature gate {name}={value}. It will be removed in a future release."
            ));
        }
        if value == gate.default || EFFECTIVE.contains(&name) {
            return;
        }
        let all = ALL.iter().find(|(all, _)| *all == name);
        let switched = EFFECTIVE.iter().filter(|effective| {
            all.is_some_and(|(_, stage)| {
                self::gate(effective).is_some_and(|gate| gate.stage == *stage && gate.default != value)
            })
        });
        match switched.copied().collect::<Vec<&str>>()[..] {
            [] => found.warn(format!("--feature-gates: {name}={value} has no effect")),
            ref switched => found.warn(format!(
                "--feature-gates: {name}={value} has an effect on {} alone",
                switched.join(", ")
            )),
        }
    }

    /// A gate that is on has those that it depends on, whether it is on by default or by name.
    fn check_dependencies(&self, found: &mut Findings) {
        for line in DEPENDENCIES.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let Some(name) = words.next().filter(|name| self.is_on(name)) else {
                continue;
            };
            let missing: Vec<&str> = words.filter(|needed| !self.is_on(needed)).collect();
            if !missing.is_empty() {
                found.fault(format!(
                    "--feature-gates: {name} is enabled, but depends on features that are disabled: [{}]",
                    missing.join(" ")
                ));
            }
        }
    }

    fn is_on(&self, name: &str) -> bool {
        let Some(gate) = gate(name) else {
            return false;
        };
        let stage = ALL.iter().find(|(_, stage)| *stage == gate.stage);
        let by_stage = stage.and_then(|(all, _)| self.0.get(all));
        *self.0.get(name).or(by_stage).unwrap_or(&gate.default)
    }

    /// Every gate by name, with its stage as metrics have it, and whether it is on.
    pub(super) fn all(&self) -> Vec<(&'static str, &'static str, bool)> {
        let mut all: Vec<_> = GATES
            .iter()
            .map(|(name, gate)| {
                let stage = if gate.stage == "GA" { "" } else { gate.stage };
                (*name, stage, self.is_on(name))
            })
            .collect();
        all.sort_unstable();
        all
    }

    pub(super) fn storage_migration(&self) -> bool {
        self.is_on(STORAGE_MIGRATION)
    }

    pub(super) fn admission_manifests(&self) -> bool {
        self.is_on(ADMISSION_MANIFESTS)
    }

    pub(super) fn declared_features(&self) -> bool {
        self.is_on(DECLARED_FEATURES)
    }

    pub(super) fn statusz(&self) -> bool {
        self.is_on(STATUSZ)
    }

    pub(super) fn flagz(&self) -> bool {
        self.is_on(FLAGZ)
    }

    pub(super) fn cbor(&self) -> bool {
        self.is_on(CBOR)
    }

    /// The features of kinds that are on.
    pub(super) fn kinds(&self) -> KindFeatures {
        KindFeatures {
            workloads: self.is_on(WORKLOADS),
            trust_bundles: self.is_on(TRUST_BUNDLES),
            trust_bundle_projection: self.is_on(TRUST_BUNDLE_PROJECTION),
            pod_certificates: self.is_on(POD_CERTIFICATES),
            device_taint_rules: self.is_on(DEVICE_TAINT_RULES),
            pool_status: self.is_on(POOL_STATUS),
            granular_claim_status: self.is_on(GRANULAR_CLAIM_STATUS),
            storage_versions: self.is_on(STORAGE_VERSIONS),
        }
    }

    pub(super) fn unsafe_deletion(&self) -> bool {
        self.is_on(UNSAFE_DELETION)
    }

    /// Nobody but this server sees a store in memory: its lease is there on demand alone.
    pub(super) fn identity(&self, in_memory: bool) -> bool {
        self.is_on(IDENTITY) && (!in_memory || self.0.contains_key(IDENTITY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether storage migration, unsafe deletion and identity are on, and what is said.
    #[track_caller]
    fn check(items: &[&str], expected: Result<[bool; 3], &str>, warning: &str) {
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        let mut found = Findings::default();
        let gates = Gates::read(&mut found, &items);
        let on = [
            gates.storage_migration(),
            gates.unsafe_deletion(),
            gates.identity(false),
        ];
        let got = match found.faults.first() {
            Some(fault) => Err(fault.trim_start_matches("--feature-gates: ")),
            None => Ok(on),
        };
        assert_eq!(got, expected, "{items:?}");
        let warnings = found.warnings.join("; ");
        assert_eq!(warnings.replace("--feature-gates: ", ""), warning, "{items:?}");
    }

    #[test]
    fn gates_are_upstreams() {
        let default = [false, false, true];
        check(&[], Ok(default), "");
        check(&["WatchList=true"], Ok(default), "");
        check(
            &["ClusterTrustBundleProjection=true"],
            Err(
                "ClusterTrustBundleProjection is enabled, but depends on features that are disabled: [ClusterTrustBundle]",
            ),
            "",
        );
        check(
            &[
                "GenericWorkload=true",
                "ClusterTrustBundle=true",
                "ClusterTrustBundleProjection=true",
            ],
            Ok(default),
            "",
        );
        check(&["StorageVersionMigrator=true"], Ok([true, false, true]), "");
        check(
            &["APIServerIdentity=false"],
            Err(
                "UnknownVersionInteroperabilityProxy is enabled, but depends on features that are disabled: [APIServerIdentity]",
            ),
            "",
        );
        check(
            &[
                "APIServerIdentity=false",
                "UnknownVersionInteroperabilityProxy=false",
            ],
            Ok([false, false, false]),
            "UnknownVersionInteroperabilityProxy=false has no effect",
        );
        check(
            &["APIServerIdentity=false", "APIServerIdentity=T"],
            Ok(default),
            "",
        );
        check(
            &["AllAlpha=true"],
            Ok([false, true, true]),
            "AllAlpha=true has an effect on AllowUnsafeMalformedObjectDeletion, ManifestBasedAdmissionControlConfig, CBORServingAndStorage, GenericWorkload, DRAResourcePoolStatus, StorageVersionAPI alone",
        );
        check(
            &["AllAlpha=true", "AllowUnsafeMalformedObjectDeletion=false"],
            Ok(default),
            "AllAlpha=true has an effect on AllowUnsafeMalformedObjectDeletion, ManifestBasedAdmissionControlConfig, CBORServingAndStorage, GenericWorkload, DRAResourcePoolStatus, StorageVersionAPI alone",
        );
        check(
            &["APIResponseCompression=false"],
            Ok(default),
            "APIResponseCompression=false has no effect",
        );
        check(
            &["ConsistentListFromCache=true"],
            Ok(default),
            "setting GA feature gate ConsistentListFromCache=true. It will be removed in a future release.",
        );
        check(
            &["ConsistentListFromCache=false"],
            Err("cannot set feature gate ConsistentListFromCache to false, feature is locked to true"),
            "",
        );
        check(&["Odd=true"], Err("unrecognized feature gate: Odd"), "");
        check(&["WatchList"], Err("missing bool value for WatchList"), "");
        check(
            &["WatchList=yes"],
            Err("invalid value of WatchList=yes: it is true or false"),
            "",
        );
    }

    #[test]
    fn declared_features_of_nodes_are_looked_at_by_default() {
        let check = |items: &[&str], expected: bool| {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            let mut found = Findings::default();
            let gates = Gates::read(&mut found, &items);
            assert_eq!(gates.declared_features(), expected, "{items:?}");
            assert_eq!(found.warnings, Vec::<String>::new(), "{items:?}");
        };
        check(&[], true);
        check(&["NodeDeclaredFeatures=false"], false);
    }

    #[test]
    fn the_table_has_no_odd_line() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for line in lines {
            let name = line.split(' ').next().unwrap_or_default();
            let gate = gate(name).unwrap_or_else(|| panic!("{line}"));
            assert!(
                ["ALPHA", "BETA", "GA", "DEPRECATED"].contains(&gate.stage),
                "{line}"
            );
            count += 1;
        }
        assert_eq!(count, 240);
    }
}
