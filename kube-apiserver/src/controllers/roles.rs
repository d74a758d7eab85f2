//! Cluster roles with an aggregation rule have the rules of every role that it selects.

use std::sync::Arc;

use crate::rbac::PolicyRule;
use generic_server::ApiError;
use serde_json::{Map, Value};
use tracing::warn;

use super::{REST, follow};
use crate::client::{At, Client};
use crate::json::{Json, same};
use crate::unique::Seen;

const ROLES: At<'static> = ("rbac.authorization.k8s.io", "clusterroles");

/// Maintains the rules of aggregated roles.
pub(super) async fn run(client: Client) {
    let store = loop {
        match client.resource(ROLES) {
            Ok(registered) => break registered.store,
            Err(_) => tokio::time::sleep(REST).await,
        }
    };
    let client = Arc::new(client);
    let sync = || {
        let client = client.clone();
        async move {
            if let Err(error) = sync(&client).await {
                warn!(error = error.message(), "cannot aggregate cluster roles");
            }
        }
    };
    follow(&store, |_| sync(), |_| sync()).await;
}

async fn sync(client: &Client) -> Result<(), ApiError> {
    // A role that cannot be read grants nothing, here neither.
    let roles: Vec<Value> = client
        .list_readable(ROLES, "")
        .await?
        .iter()
        .map(|e| e.value())
        .collect();
    for role in roles.iter().filter(|r| r.has("aggregationRule")) {
        let rules = aggregate(role, &roles);
        let rules = Value::from(rules);
        if same(role.dig("rules"), &rules) {
            continue;
        }
        let name = role.text("metadata.name");
        client
            .update(ROLES, "", name, "", |live| {
                live.put("rules", rules.clone());
                Ok(())
            })
            .await?;
    }
    Ok(())
}

/// The rules of an aggregated role: those of every role that its selectors match, in order of names, each once.
fn aggregate(role: &Value, roles: &[Value]) -> Vec<Value> {
    let selectors = role.list("aggregationRule.clusterRoleSelectors");
    let mut matching: Vec<&Value> = Vec::new();
    for selector in selectors {
        let Ok(selector) = machinery::selector::LabelSelector::from_value(selector) else {
            continue;
        };
        let empty = Map::new();
        let found = roles.iter().filter(|other| {
            other.text("kind") == "ClusterRole"
                && other.text("metadata.name") != role.text("metadata.name")
                && selector.matches(other.object_at("metadata.labels").unwrap_or(&empty))
        });
        matching.extend(found);
    }
    matching.sort_by(|a, b| a.text("metadata.name").cmp(b.text("metadata.name")));
    let mut seen = Seen::default();
    let rules = matching.iter().flat_map(|role| role.list("rules"));
    rules
        .filter(|rule| !seen.again(PolicyRule::read(rule)))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_come_from_selected_roles_in_order_of_names() {
        let part = |name: &str, verb: &str| {
            json!({"kind": "ClusterRole", "metadata": {"name": name, "labels": {"to": "x"}},
            "rules": [{"verbs": [verb]}, {"verbs": ["shared"]}]})
        };
        let whole = json!({"kind": "ClusterRole", "metadata": {"name": "w", "labels": {"to": "x"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "x"}}]}, "rules": [{"verbs": ["own"]}]});
        let roles = [part("b", "2"), whole.clone(), part("a", "1")];
        assert_eq!(
            Value::from(aggregate(&whole, &roles)),
            json!([{"verbs": ["1"]}, {"verbs": ["shared"]}, {"verbs": ["2"]}])
        );
    }
}
