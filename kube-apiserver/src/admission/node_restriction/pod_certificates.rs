//! A kubelet asks for certificates of pods that run on its node as their service accounts, and for no others.

use generic_server::ApiError;
use generic_server::admission::Operation;
use machinery::go::Quoted;
use machinery::meta;
use serde_json::Value;

use super::{NodeRestriction, Write};
use crate::groups::core::pod::is_mirror;
use crate::json::Json;

/// What is found wrong: to be refused, or to be tried again, because the kubelet may have seen more than this server.
enum Fault {
    Refused(String),
    Early(String),
}

use Fault::{Early, Refused};

impl NodeRestriction {
    pub(super) async fn pod_certificate(&self, write: &Write<'_>) -> Result<(), ApiError> {
        let attributes = write.attributes;
        if attributes.operation != Operation::Create {
            return write.refuse(&format!("unexpected operation {}", attributes.operation.as_str()));
        }
        if !attributes.subresource.is_empty() {
            return write.refuse(&format!("unexpected subresource {}", attributes.subresource));
        }
        let Some(request) = write.object else {
            return Ok(());
        };
        let spec = request.dig("spec");
        match self.fault(write.node, attributes.namespace, spec).await? {
            None => Ok(()),
            Some(Refused(why)) => write.refuse(&why),
            Some(Early(why)) => Err(ApiError::raw_internal(why)),
        }
    }

    async fn fault(&self, node: &str, namespace: &str, spec: &Value) -> Result<Option<Fault>, ApiError> {
        let named = spec.text("nodeName");
        if named != node {
            return Ok(Some(Refused(format!(
                "PodCertificateRequest.Spec.NodeName={}, which is not the requesting node {}",
                Quoted(named),
                Quoted(node)
            ))));
        }
        let names = ["podName", "serviceAccountName"].map(|key| spec.text(key));
        let [pod_name, account_name] = names;
        let shown = |name: &str| Quoted(&format!("{namespace}/{name}")).to_string();
        let missing = |kind: &str, shown: &str, singular: &str, name: &str| {
            Some(Early(format!(
                "while retrieving {kind} {shown} named in the PodCertificateRequest: {singular} {} not found",
                Quoted(name)
            )))
        };
        let Some(found) = self.client.find(("", "nodes"), "", node).await? else {
            return Ok(missing("node", &Quoted(node).to_string(), "node", node));
        };
        let pod_shown = shown(pod_name);
        if meta::uid(&found) != spec.text("nodeUID") {
            return Ok(Some(Early(format!(
                "PodCertificateRequest for pod {pod_shown} names node UID {}, inconsistent with the running node ({})",
                Quoted(spec.text("nodeUID")),
                Quoted(meta::uid(&found))
            ))));
        }
        let Some(pod) = self.client.find(("", "pods"), namespace, pod_name).await? else {
            return Ok(missing("pod", &pod_shown, "pod", pod_name));
        };
        if let Some(fault) = pod_fault(spec, &pod, &pod_shown) {
            return Ok(Some(fault));
        }
        let accounts = ("", "serviceaccounts");
        let Some(account) = self.client.find(accounts, namespace, account_name).await? else {
            let account_shown = shown(account_name);
            return Ok(missing(
                "service account",
                &account_shown,
                "serviceaccount",
                account_name,
            ));
        };
        let uid = spec.text("serviceAccountUID");
        Ok((uid != meta::uid(&account)).then(|| {
            Early(format!(
                "PodCertificateRequest for pod {pod_shown} names service account UID {}, which differs from the running service account ({})",
                Quoted(uid),
                Quoted(meta::uid(&account))
            ))
        }))
    }
}

/// What of a request does not fit its pod.
fn pod_fault(spec: &Value, pod: &Value, shown: &str) -> Option<Fault> {
    let (uid, account) = (spec.text("podUID"), spec.text("serviceAccountName"));
    if uid != meta::uid(pod) {
        return Some(Early(format!(
            "PodCertificateRequest for pod {shown} contains pod UID ({}) which differs from running pod {}",
            Quoted(uid),
            Quoted(meta::uid(pod))
        )));
    }
    let (node, runs_as) = (spec.text("nodeName"), pod.text("spec.serviceAccountName"));
    if pod.text("spec.nodeName") != node {
        return Some(Refused(format!(
            "pod {shown} is not running on node {} named in the PodCertificateRequest",
            Quoted(node)
        )));
    }
    if is_mirror(pod) {
        return Some(Refused(format!("pod {shown} is a mirror pod")));
    }
    (account != runs_as).then(|| {
        Refused(format!(
            "PodCertificateRequest for pod {shown} contains serviceAccountName ({}) that differs from running pod ({})",
            Quoted(account),
            Quoted(runs_as)
        ))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_fit_their_pods() {
        let pod = json!({"metadata": {"uid": "1"}, "spec": {"nodeName": "n", "serviceAccountName": "a"}});
        let mut mirror = pod.clone();
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        let check = |pod: &Value, spec: [&str; 3], expected: Option<&str>| {
            let [uid, node, account] = spec;
            let spec = json!({"podUID": uid, "nodeName": node, "serviceAccountName": account});
            let found = pod_fault(&spec, pod, "\"d/p\"").map(|fault| match fault {
                Refused(why) | Early(why) => why,
            });
            assert_eq!(found.as_deref(), expected);
        };
        check(&pod, ["1", "n", "a"], None);
        check(
            &pod,
            ["2", "n", "a"],
            Some(
                r#"PodCertificateRequest for pod "d/p" contains pod UID ("2") which differs from running pod "1""#,
            ),
        );
        check(
            &pod,
            ["1", "m", "a"],
            Some(r#"pod "d/p" is not running on node "m" named in the PodCertificateRequest"#),
        );
        check(
            &pod,
            ["1", "n", "b"],
            Some(
                r#"PodCertificateRequest for pod "d/p" contains serviceAccountName ("b") that differs from running pod ("a")"#,
            ),
        );
        check(&mirror, ["1", "n", "a"], Some(r#"pod "d/p" is a mirror pod"#));
    }
}
