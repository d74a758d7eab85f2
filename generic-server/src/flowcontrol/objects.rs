//! FlowSchemas and PriorityLevelConfigurations as far as requests are decided on them.

use machinery::meta;
use serde::Deserialize;
use serde_json::Value;

use super::queue_set::Queuing;

/// The level and the schema of members of `system:masters`: never limited.
pub(crate) const EXEMPT: &str = "exempt";
/// The level and the schema of everything that no other schema matches.
pub(crate) const CATCH_ALL: &str = "catch-all";

/// A FlowSchema.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FlowSchema {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) spec: SchemaSpec,
    /// `status.conditions` of the type `Dangling`: status, reason and message.
    pub(crate) dangling: Option<(String, String, String)>,
}

/// Its spec. As everywhere in this file, what is missing is empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SchemaSpec {
    pub(crate) priority_level_configuration: Reference,
    pub(crate) matching_precedence: i64,
    pub(crate) distinguisher_method: Option<DistinguisherMethod>,
    pub(crate) rules: Vec<PolicyRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Reference {
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct DistinguisherMethod {
    #[serde(rename = "type")]
    pub(crate) by: Distinguisher,
}

/// What tells the flows of a schema from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Distinguisher {
    ByUser,
    ByNamespace,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PolicyRule {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) resource_rules: Vec<ResourceRule>,
    pub(crate) non_resource_rules: Vec<NonResourceRule>,
}

/// Exactly one of its parts is there, by `kind`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) user: Option<Reference>,
    pub(crate) group: Option<Reference>,
    pub(crate) service_account: Option<ServiceAccount>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceAccount {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceRule {
    pub(crate) verbs: Vec<String>,
    pub(crate) api_groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) cluster_scope: bool,
    pub(crate) namespaces: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct NonResourceRule {
    #[serde(default)]
    pub(crate) verbs: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    pub(crate) urls: Vec<String>,
}

/// A PriorityLevelConfiguration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LevelObject {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) spec: LevelSpec,
}

/// Its spec, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelSpec {
    pub(crate) queuing: Queuing,
    pub(crate) shares: u32,
    pub(crate) lendable_percent: u32,
    /// `None` for no bound.
    pub(crate) borrowing_percent: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireLevel {
    #[serde(rename = "type")]
    kind: String,
    exempt: Option<WireShares>,
    limited: Option<WireShares>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireShares {
    nominal_concurrency_shares: Option<i64>,
    lendable_percent: Option<i64>,
    borrowing_limit_percent: Option<i64>,
    limit_response: WireResponse,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireResponse {
    #[serde(rename = "type")]
    kind: String,
    queuing: Option<WireQueuing>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireQueuing {
    queues: i64,
    hand_size: i64,
    queue_length_limit: i64,
}

impl FlowSchema {
    /// Reads an object. `None` when its spec is none.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let dangling = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.get("type").and_then(Value::as_str) == Some("Dangling"));
        let text = |condition: &Value, key| {
            let value = condition.get(key).and_then(Value::as_str);
            value.unwrap_or_default().to_string()
        };
        Some(FlowSchema {
            name: meta::name(object).to_string(),
            uid: meta::uid(object).to_string(),
            spec: SchemaSpec::deserialize(object.get("spec")?).ok()?,
            dangling: dangling.map(|one| (text(one, "status"), text(one, "reason"), text(one, "message"))),
        })
    }

    /// What is in force while the object of this name does not exist.
    pub(crate) fn mandatory(name: &'static str) -> Self {
        let all = || vec!["*".to_string()];
        let exempt = name == EXEMPT;
        let groups: &[&str] = match exempt {
            true => &["system:masters"],
            false => &["system:unauthenticated", "system:authenticated"],
        };
        let subjects = groups.iter().map(|group| Subject {
            kind: "Group".into(),
            group: Some(Reference {
                name: (*group).into(),
            }),
            ..Subject::default()
        });
        FlowSchema {
            name: name.into(),
            spec: SchemaSpec {
                priority_level_configuration: Reference { name: name.into() },
                matching_precedence: if exempt { 1 } else { 10_000 },
                distinguisher_method: (!exempt).then_some(DistinguisherMethod {
                    by: Distinguisher::ByUser,
                }),
                rules: vec![PolicyRule {
                    subjects: subjects.collect(),
                    resource_rules: vec![ResourceRule {
                        verbs: all(),
                        api_groups: all(),
                        resources: all(),
                        cluster_scope: true,
                        namespaces: all(),
                    }],
                    non_resource_rules: vec![NonResourceRule {
                        verbs: all(),
                        urls: all(),
                    }],
                }],
            },
            ..FlowSchema::default()
        }
    }
}

impl LevelObject {
    /// Reads an object. `None` when its spec contradicts itself: upstream, too, treats such an object as if it did not exist.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let name = meta::name(object);
        let spec = WireLevel::deserialize(object.get("spec")?).ok()?;
        let (shares, queuing) = match (spec.kind.as_str(), spec.exempt, spec.limited) {
            ("Exempt", Some(exempt), None) if name == EXEMPT => (exempt, Queuing::Exempt),
            ("Limited", None, Some(limited)) if name != EXEMPT => {
                let queuing = match (
                    limited.limit_response.kind.as_str(),
                    &limited.limit_response.queuing,
                ) {
                    ("Reject", None) => Queuing::Reject,
                    ("Queue", Some(queuing)) => Queuing::Queue {
                        queues: positive(queuing.queues)?,
                        hand_size: usize::try_from(positive(queuing.hand_size)?).ok()?,
                        length: usize::try_from(positive(queuing.queue_length_limit)?).ok()?,
                    },
                    _ => return None,
                };
                (limited, queuing)
            }
            _ => return None,
        };
        let number = |number: Option<i64>| u32::try_from(number.unwrap_or_default()).unwrap_or_default();
        let borrowing = shares.borrowing_limit_percent;
        Some(LevelObject {
            name: name.to_string(),
            uid: meta::uid(object).to_string(),
            spec: LevelSpec {
                queuing,
                shares: number(shares.nominal_concurrency_shares),
                lendable_percent: number(shares.lendable_percent).min(100),
                borrowing_percent: borrowing.map(|percent| number(Some(percent))),
            },
        })
    }

    /// What is in force while the object of this name does not exist.
    pub(crate) fn mandatory(name: &'static str) -> Self {
        let exempt = name == EXEMPT;
        LevelObject {
            name: name.into(),
            uid: String::new(),
            spec: LevelSpec {
                queuing: if exempt { Queuing::Exempt } else { Queuing::Reject },
                shares: if exempt { 0 } else { 5 },
                lendable_percent: 0,
                borrowing_percent: None,
            },
        }
    }
}

fn positive(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn levels_that_contradict_themselves_do_not_exist() {
        #[track_caller]
        fn check(name: &str, spec: Value, expected: Option<LevelSpec>) {
            let object = json!({"metadata": {"name": name, "uid": "u"}, "spec": spec});
            assert_eq!(
                LevelObject::read(&object).map(|level| level.spec),
                expected,
                "{object}"
            );
        }
        let plain = |queuing, shares| LevelSpec {
            queuing,
            shares,
            lendable_percent: 0,
            borrowing_percent: None,
        };
        let reject = json!({"type": "Reject"});
        check(
            "exempt",
            json!({"type": "Exempt", "exempt": {}}),
            Some(plain(Queuing::Exempt, 0)),
        );
        check(
            "exempt",
            json!({"type": "Limited", "limited": {"limitResponse": reject}}),
            None,
        );
        check("other", json!({"type": "Exempt", "exempt": {}}), None);
        check("other", json!({"type": "Exempt"}), None);
        check(
            "other",
            json!({"type": "Limited", "exempt": {}, "limited": {"limitResponse": reject}}),
            None,
        );
        let limited = json!({"nominalConcurrencyShares": 7, "limitResponse": reject});
        check(
            "a",
            json!({"type": "Limited", "limited": limited}),
            Some(plain(Queuing::Reject, 7)),
        );
        let queuing = |hand: i64| {
            let queuing = json!({"queues": 64, "handSize": hand, "queueLengthLimit": 50});
            json!({
                "type": "Limited",
                "limited": {
                    "nominalConcurrencyShares": 30, "lendablePercent": 33, "borrowingLimitPercent": 10,
                    "limitResponse": {"type": "Queue", "queuing": queuing},
                },
            })
        };
        let expected = LevelSpec {
            queuing: Queuing::Queue {
                queues: 64,
                hand_size: 8,
                length: 50,
            },
            shares: 30,
            lendable_percent: 33,
            borrowing_percent: Some(10),
        };
        check("a", queuing(8), Some(expected));
        check("a", queuing(0), None);
        check("a", queuing(-1), None);
        check(
            "a",
            json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}}),
            None,
        );
        check("a", json!({"type": 5}), None);
        check("a", json!({}), None);
    }

    #[test]
    fn schemas_are_read() {
        let schema = FlowSchema::read(&json!({
            "metadata": {"name": "a", "uid": "u"},
            "spec": {
                "matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "l"},
                "distinguisherMethod": {"type": "ByNamespace"},
                "rules": [{
                    "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "*"}}],
                    "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
                }],
            },
            "status": {"conditions": [{"type": "Dangling", "status": "True", "reason": "NotFound", "message": "m"}]},
        }));
        let schema = schema.expect("it is whole");
        assert_eq!((&*schema.name, &*schema.uid), ("a", "u"));
        assert_eq!(schema.spec.matching_precedence, 5);
        assert_eq!(
            schema.spec.distinguisher_method.map(|method| method.by),
            Some(Distinguisher::ByNamespace)
        );
        assert_eq!(schema.spec.rules[0].non_resource_rules[0].urls, ["/x"]);
        assert_eq!(
            schema.dangling,
            Some(("True".into(), "NotFound".into(), "m".into()))
        );
        assert_eq!(
            FlowSchema::read(&json!({"metadata": {"name": "a"}, "spec": {"rules": 5}})),
            None
        );
    }
}
