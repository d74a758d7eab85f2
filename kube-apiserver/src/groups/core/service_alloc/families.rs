//! The IP families of a service and its policy about them.

use std::net::IpAddr;

use generic_server::ApiError;
use machinery::FieldPath;
use serde_json::Value;

use super::super::service::{cluster_ips, headless};
use super::refused;
use crate::errors::Errors;
use crate::json::{Json, same};
use crate::net::Cidr;

pub(super) fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv6() { "IPv6" } else { "IPv4" }
}

/// Policy and families, from what was asked and what there is.
pub(super) fn init_families(cidrs: &[Cidr], service: &mut Value, old: &Value) -> Result<(), ApiError> {
    if service.text("spec.type") == "ExternalName" {
        return Ok(());
    }
    let known: Vec<&str> = cidrs.iter().map(|cidr| family(cidr.first())).collect();
    let selectorless = headless(service)
        && service
            .object_at("spec.selector")
            .is_none_or(|selector| selector.is_empty());
    if !service.has("spec.ipFamilyPolicy") {
        let before = old
            .list("spec.ipFamilies")
            .len()
            .max(old.list("spec.clusterIPs").len());
        let policy = if old.is_null() || before == 0 {
            let many =
                service.list("spec.clusterIPs").len() == 2 || service.list("spec.ipFamilies").len() == 2;
            if many || selectorless {
                "RequireDualStack"
            } else {
                "SingleStack"
            }
        } else {
            match old.text("spec.ipFamilyPolicy") {
                "" => "SingleStack",
                policy => policy,
            }
        };
        let policy = policy.to_owned();
        service.ensure("spec").put("ipFamilyPolicy", policy);
    }
    refused(
        service,
        &Errors::collect(|errors| cluster_ips(errors, service, old)),
    )?;
    let path = FieldPath::new("spec");
    let policy_at = path.child("ipFamilyPolicy");
    let single = service.text("spec.ipFamilyPolicy") == "SingleStack";
    if !old.is_null() && single {
        for key in ["clusterIPs", "ipFamilies"] {
            let path = format!("spec.{key}");
            if same(service.dig(&path), old.dig(&path)) && service.list(&path).len() > 1 {
                let first = service.list(&path)[0].clone();
                service.ensure("spec").put(key, vec![first]);
            }
        }
    }
    let errors = Errors::collect(|errors| {
        for (key, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let (new, before) = (service.dig("spec").list(key), old.dig("spec").list(key));
            if !single && !new.is_empty() && new.len() < before.len() && new[0] == before[0] {
                let text = format!("must be 'SingleStack' to release the secondary {what}");
                errors.invalid_value(&policy_at, service.dig("spec.ipFamilyPolicy"), text);
            }
        }
        for (key, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if single && service.dig("spec").list(key).len() == 2 {
                let text = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.invalid(&policy_at, "SingleStack", text);
            }
        }
    });
    refused(service, &errors)?;
    let mut families: Vec<String> = service.strings("spec.ipFamilies").map(str::to_owned).collect();
    let ips = service.strings("spec.clusterIPs");
    let ips: Vec<IpAddr> = ips.map_while(|ip| ip.parse().ok()).collect();
    let errors = Errors::collect(|errors| {
        for (index, ip) in ips.iter().enumerate().skip(families.len()) {
            let family = family(*ip);
            if known.contains(&family) {
                families.push(family.to_owned());
            } else {
                errors.invalid_value(
                    &path.child("clusterIPs").index(index),
                    service.dig("spec.clusterIPs"),
                    format!("{family} is not configured on this cluster"),
                );
            }
        }
    });
    refused(service, &errors)?;
    let default = known.first().copied().unwrap_or("IPv4");
    if !selectorless {
        let errors = Errors::collect(|errors| {
            if service.text("spec.ipFamilyPolicy") == "RequireDualStack" && known.len() < 2 {
                errors.invalid(
                    &policy_at,
                    "RequireDualStack",
                    "this cluster is not configured for dual-stack services",
                );
            }
            for (index, family) in families.iter().enumerate() {
                if !known.contains(&&**family) {
                    errors.invalid(
                        &path.child("ipFamilies").index(index),
                        family.as_str(),
                        "not configured on this cluster",
                    );
                }
            }
        });
        refused(service, &errors)?;
    }
    if families.is_empty() {
        families.push(default.to_owned());
    }
    if !single && families.len() == 1 && (selectorless || known.len() == 2) {
        let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(other.to_owned());
    }
    service.ensure("spec").put("ipFamilies", families);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The policy and families of a created service on a cluster of these ranges, or the errors.
    fn made(ranges: &[&str], spec: Value) -> Result<(String, Vec<String>), String> {
        let cidrs: Vec<Cidr> = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        init_families(&cidrs, &mut service, &Value::Null).map_err(|error| error.message().to_string())?;
        let families = service.strings("spec.ipFamilies").map(str::to_owned).collect();
        Ok((service.text("spec.ipFamilyPolicy").to_owned(), families))
    }

    const V4: &str = "10.0.0.0/24";
    const V6: &str = "fd00::/120";

    #[test]
    fn families_follow_policy_and_cluster() {
        #[track_caller]
        fn check(ranges: &[&str], spec: Value, policy: &str, families: &[&str]) {
            let (found, list) = made(ranges, spec).unwrap();
            assert_eq!(
                (&*found, list.iter().map(String::as_str).collect()),
                (policy, families.to_vec())
            );
        }
        let policy = |policy: &str| json!({"ipFamilyPolicy": policy, "selector": {"a": "b"}});
        check(&[V4], json!({}), "SingleStack", &["IPv4"]);
        check(&[V6], json!({}), "SingleStack", &["IPv6"]);
        check(&[V6, V4], json!({}), "SingleStack", &["IPv6"]);
        check(&[V4], policy("PreferDualStack"), "PreferDualStack", &["IPv4"]);
        check(
            &[V4, V6],
            policy("PreferDualStack"),
            "PreferDualStack",
            &["IPv4", "IPv6"],
        );
        check(
            &[V4, V6],
            policy("RequireDualStack"),
            "RequireDualStack",
            &["IPv4", "IPv6"],
        );
        check(
            &[V4, V6],
            json!({"ipFamilies": ["IPv6", "IPv4"]}),
            "RequireDualStack",
            &["IPv6", "IPv4"],
        );
        // Without addresses and selector no cluster needs to have the second family.
        check(
            &[V4],
            json!({"clusterIP": "None", "clusterIPs": ["None"]}),
            "RequireDualStack",
            &["IPv4", "IPv6"],
        );
    }

    #[test]
    fn families_that_are_not_there() {
        #[track_caller]
        fn check(spec: Value, expected: &str) {
            let error = made(&[V4], spec).unwrap_err();
            assert_eq!(error, format!("Service \"s\" is invalid: {expected}"));
        }
        check(
            json!({"ipFamilyPolicy": "RequireDualStack", "selector": {"a": "b"}}),
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
        );
        check(
            json!({"ipFamilies": ["IPv6"]}),
            r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#,
        );
        check(
            json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}),
            r#"spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"#,
        );
    }
}
