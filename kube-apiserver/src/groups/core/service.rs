//! Service: its fields. The cluster addresses and node ports are given in [`super::service_alloc`].

use generic_server::registry::strategy::{MetadataRules, SelectableField, WriteContext};
use machinery::names::ip::{
    cidr_warnings, ip_warnings, parse_ip_sloppy, validate_cidr_legacy, validate_ip_legacy,
};
use machinery::names::{
    dns1123_label, dns1123_subdomain, label_key, label_value, name_is_dns_label, port_name, port_number,
    qualified_name,
};
use machinery::{FieldPath, meta};
use serde_json::{Value, json};

use super::load_balancer::{self, service_status};
use crate::errors::{Errors, IMMUTABLE};
use crate::json::{Json, same};
use crate::net::special_ip;
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::CREATE,
    name: name_is_dns_label,
    status: true,
    create_on_update: true,
    returns_deleted: true,
    default,
    prepare_update: |_: &WriteContext<'_>, object, old| drop_by_type(object, old),
    validate: |errors, object| validate(errors, object, &Value::Null),
    validate_update,
    validate_status: service_status,
    warnings: |object, _| warnings(object),
    fields: || {
        vec![
            SelectableField::path("spec.clusterIP"),
            SelectableField::path("spec.type"),
        ]
    },
    status_warnings: |object| load_balancer::warnings(object.dig("status")),
    ..Rules::PLAIN
};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";

fn note<'a>(service: &'a Value, key: &str) -> Option<&'a str> {
    meta::annotations(service)?.get(key)?.as_str()
}

pub(super) fn headless(service: &Value) -> bool {
    service
        .list("spec.clusterIPs")
        .first()
        .and_then(Value::as_str)
        .unwrap_or_else(|| service.text("spec.clusterIP"))
        == "None"
}

pub(super) fn needs_cluster_ip(service: &Value) -> bool {
    matches!(
        service.text("spec.type"),
        "ClusterIP" | "NodePort" | "LoadBalancer"
    )
}

pub(super) fn needs_node_port(service: &Value) -> bool {
    match service.text("spec.type") {
        "NodePort" => true,
        "LoadBalancer" => service.dig("spec.allocateLoadBalancerNodePorts").as_bool() != Some(false),
        _ => false,
    }
}

pub(super) fn needs_health_check(service: &Value) -> bool {
    service.text("spec.type") == "LoadBalancer" && service.text("spec.externalTrafficPolicy") == "Local"
}

fn externally_accessible(service: &Value) -> bool {
    matches!(service.text("spec.type"), "NodePort" | "LoadBalancer")
        || service.text("spec.type") == "ClusterIP" && !service.list("spec.externalIPs").is_empty()
}

fn default(service: &mut Value) {
    let status = service.ensure("status");
    status.ensure("loadBalancer");
    let spec = service.ensure("spec");
    spec.fill_text("sessionAffinity", "None");
    match spec.text("sessionAffinity") {
        "None" => {
            spec.take_key("sessionAffinityConfig");
        }
        "ClientIP"
            if spec
                .int("sessionAffinityConfig.clientIP.timeoutSeconds")
                .is_none() =>
        {
            spec.put(
                "sessionAffinityConfig",
                json!({"clientIP": {"timeoutSeconds": 10800}}),
            );
        }
        _ => {}
    }
    spec.fill_text("type", "ClusterIP");
    for port in spec.list_mut("ports") {
        port.fill_text("protocol", "TCP");
        let target = port.dig("targetPort");
        if target.is_null() || target == &json!(0) || target == &json!("") {
            let number = port.int("port").unwrap_or_default();
            port.put("targetPort", number);
        }
    }
    let kind = spec.text("type").to_owned();
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        spec.fill("internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.fill("allocateLoadBalancerNodePorts", true);
    }
    if externally_accessible(service) {
        service
            .ensure("spec")
            .fill_text("externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        for ingress in service.list_mut("status.loadBalancer.ingress") {
            if !ingress.text("ip").is_empty() {
                ingress.fill("ipMode", "VIP");
            }
        }
    }
}

/// Fields that no longer apply after a change of type are dropped, unless the client changed it too.
/// Whether the type of a service uses node ports, whether or not it gets some of its own accord.
fn uses_node_ports(service: &Value) -> bool {
    matches!(service.text("spec.type"), "NodePort" | "LoadBalancer")
}

pub(super) fn drop_by_type(service: &mut Value, old: &Value) {
    if service.text("spec.type") == "ExternalName" {
        service.ensure("spec").take_key("internalTrafficPolicy");
    }
    let same_at = |service: &Value, key: &str| same(service.dig(key), old.dig(key));
    if needs_cluster_ip(old) && !needs_cluster_ip(service) {
        if same_at(service, "spec.clusterIPs") {
            service.ensure("spec").take_key("clusterIP");
            service.ensure("spec").take_key("clusterIPs");
        }
        if same_at(service, "spec.ipFamilies") {
            service.ensure("spec").take_key("ipFamilies");
        }
        if same_at(service, "spec.ipFamilyPolicy") {
            service.ensure("spec").take_key("ipFamilyPolicy");
        }
    }
    if uses_node_ports(old) && !uses_node_ports(service) && same_ports(service, old) {
        for port in service.list_mut("spec.ports") {
            port.take_key("nodePort");
        }
    }
    if needs_health_check(old) && !needs_health_check(service) && same_at(service, "spec.healthCheckNodePort")
    {
        service.ensure("spec").take_key("healthCheckNodePort");
    }
    let balances = |service: &Value| service.text("spec.type") == "LoadBalancer";
    if balances(old) && !balances(service) {
        for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same_at(service, &format!("spec.{key}")) {
                service.ensure("spec").take_key(key);
            }
        }
    }
    if externally_accessible(old)
        && !externally_accessible(service)
        && same_at(service, "spec.externalTrafficPolicy")
    {
        service.ensure("spec").take_key("externalTrafficPolicy");
    }
    // The addresses go at once, though the load balancer may take its time.
    if !balances(service) && service.dig("status").has("loadBalancer") {
        service.ensure("status").put("loadBalancer", json!({}));
    }
}

fn same_ports(service: &Value, old: &Value) -> bool {
    let ports = |service: &Value| -> Vec<i64> {
        let ports = service.list("spec.ports").iter();
        ports
            .map(|port| port.int("nodePort").unwrap_or_default())
            .collect()
    };
    ports(service) == ports(old)
}

fn validate(errors: &mut Errors, service: &Value, old: &Value) {
    let metadata = FieldPath::new("metadata");
    let (hints, mode) = (
        note(service, HINTS),
        note(service, "service.kubernetes.io/topology-mode"),
    );
    if let (Some(hints), Some(mode)) = (hints, mode)
        && hints != mode
    {
        errors.invalid(
            &metadata
                .child("annotations")
                .key("service.kubernetes.io/topology-mode"),
            mode,
            "must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified",
        );
    }
    let path = FieldPath::new("spec");
    let spec = service.dig("spec");
    let kind = spec.text("type");
    let ports = spec.list("ports");
    if ports.is_empty() && !headless(service) && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless(service) => errors.invalid(
            &path.child("clusterIPs").index(0),
            "None",
            format!("may not be set to 'None' for {kind} services"),
        ),
        "ExternalName" => {
            for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let there = match key {
                    "ipFamilyPolicy" => spec.has(key),
                    _ => !spec.list(key).is_empty(),
                };
                if there {
                    errors.forbidden(&path.child(key), "may not be set for ExternalName services");
                }
            }
            let name = spec.text("externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            let path = path.child("externalName");
            if errors.need(&path, name) {
                errors.text(&path, name, dns1123_subdomain(name));
            }
        }
        _ => {}
    }
    let mut names = Seen::default();
    for (index, port) in ports.iter().enumerate() {
        one_port(
            errors,
            &path.child("ports").index(index),
            port,
            ports.len() > 1,
            &mut names,
        );
    }
    labels(errors, &path.child("selector"), spec.dig("selector"));
    let affinity = spec.text("sessionAffinity");
    errors.required_one_of(&path.child("sessionAffinity"), affinity, &["ClientIP", "None"]);
    session(
        errors,
        &path.child("sessionAffinityConfig"),
        affinity,
        spec.dig("sessionAffinityConfig"),
    );
    cluster_ips(errors, service, old);
    addresses(errors, &path.child("externalIPs"), spec, old);
    errors.required_one_of(
        &path.child("type"),
        kind,
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    port_sets(errors, &path.child("ports"), kind, ports);
    balancer(errors, &path, service, old);
    traffic(errors, &path, service);
}

fn one_port<'a>(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    port: &'a Value,
    named: bool,
    names: &mut Seen<&'a str>,
) {
    let name = port.text("name");
    let at = path.child("name");
    if name.is_empty() {
        if named {
            errors.required(&at, "");
        }
    } else {
        errors.text(&at, name, dns1123_label(name));
        if names.again(name) {
            errors.duplicate(&at, name);
        }
    }
    let number = port.int("port").unwrap_or_default();
    for text in port_number(number) {
        errors.invalid(&path.child("port"), number, text);
    }
    errors.required_one_of(
        &path.child("protocol"),
        port.text("protocol"),
        &["SCTP", "TCP", "UDP"],
    );
    let target = port.dig("targetPort");
    let texts = match target.as_str() {
        Some(name) => port_name(name),
        None => port_number(target.as_i64().unwrap_or_default()),
    };
    for text in texts {
        errors.invalid_value(&path.child("targetPort"), target, text);
    }
    if let Some(protocol) = port.dig("appProtocol").as_str() {
        errors.text(&path.child("appProtocol"), protocol, qualified_name(protocol));
    }
}

pub(super) fn labels(errors: &mut Errors, path: &FieldPath<'_>, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.text(path, key, label_key(key));
        let value = value.as_str().unwrap_or_default();
        errors.text(path, value, label_value(value));
    }
}

fn session(errors: &mut Errors, path: &FieldPath<'_>, affinity: &str, config: &Value) {
    match affinity {
        "ClientIP" => {
            if config.is_null() {
                return errors.required(path, "when session affinity type is ClientIP");
            }
            let path = path.child("clientIP");
            let Some(seconds) = config.int("clientIP.timeoutSeconds") else {
                return errors.required(&path, "when session affinity type is ClientIP");
            };
            if seconds <= 0 || seconds > 86400 {
                errors.invalid(
                    &path.child("timeoutSeconds"),
                    seconds,
                    "must be greater than 0 and less than 86400",
                );
            }
        }
        "None" if !config.is_null() => {
            errors.forbidden(path, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// The rules between `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`.
pub(super) fn cluster_ips(errors: &mut Errors, service: &Value, old: &Value) {
    if service.text("spec.type") == "ExternalName" {
        return;
    }
    let path = FieldPath::new("spec");
    let spec = service.dig("spec");
    let (at, families_at, policy_at) = (
        path.child("clusterIPs"),
        path.child("ipFamilies"),
        path.child("ipFamilyPolicy"),
    );
    let all = spec.dig("clusterIPs");
    let ips: Vec<&str> = spec.strings("clusterIPs").collect();
    let first = spec.text("clusterIP");
    if first.is_empty() {
        if !ips.is_empty() {
            errors.invalid_value(&at, all, "must be empty when `clusterIP` is not specified");
        }
    } else if ips.is_empty() {
        errors.required(&at, "");
    } else if ips.first() != Some(&first) {
        errors.invalid_value(&at, all, "first value must match `clusterIP`");
    }
    let (mut families, mut seen) = (Vec::new(), Seen::default());
    for (index, family) in spec.strings("ipFamilies").enumerate() {
        let at = families_at.index(index);
        errors.one_of(&at, family, &["IPv4", "IPv6"]);
        if seen.again(family) {
            errors.duplicate(&at, family);
        }
        families.push(family);
    }
    if let Some(policy) = spec.dig("ipFamilyPolicy").as_str() {
        errors.one_of(
            &policy_at,
            policy,
            &["PreferDualStack", "RequireDualStack", "SingleStack"],
        );
    }
    let before: Seen<&str> = old.strings("spec.clusterIPs").collect();
    let mut bad = false;
    for (index, ip) in ips.iter().enumerate() {
        if index == 0 && *ip == "None" {
            if ips.len() > 1 {
                bad = true;
                errors.invalid_value(&at, all, "'None' must be the first and only value");
            }
            continue;
        }
        bad |= !legacy_ip(errors, &at.index(index), ip, &before);
    }
    if ips.len() > 2 {
        errors.invalid_value(&at, all, "may only hold up to 2 values");
    }
    if bad {
        return;
    }
    let v6 = |ip: &str| ip.contains(':');
    if ips.len() > 1 && ips.iter().all(|ip| v6(ip) == v6(ips[0])) {
        errors.invalid_value(&at, all, "may specify no more than one IP for each IP family");
    }
    if !headless(service) {
        for (index, (ip, family)) in ips.iter().zip(&families).enumerate() {
            let other = match *family {
                "IPv4" if v6(ip) => "IPv4",
                "IPv6" if !v6(ip) => "IPv6",
                _ => continue,
            };
            let text = format!("expected an {other} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&at.index(index), *ip, text);
        }
    }
}

/// Why an address may not be an endpoint or an external address.
pub(crate) fn endpoint_ip(errors: &mut Errors, path: &FieldPath<'_>, text: &str) {
    let Some(ip) = parse_ip_sloppy(text) else {
        return errors.invalid(path, text, "must be a valid IP address");
    };
    for reason in special_ip(ip) {
        errors.invalid(path, text, reason);
    }
}

fn addresses(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, old: &Value) {
    let before: Seen<&str> = old.strings("spec.externalIPs").collect();
    for (index, ip) in spec.strings("externalIPs").enumerate() {
        let at = path.index(index);
        if legacy_ip(errors, &at, ip, &before) {
            endpoint_ip(errors, &at, ip);
        }
    }
}

/// Checks a field that holds an address and was once lax: what there was before may stay. Gives whether it holds.
pub(crate) fn legacy_ip(errors: &mut Errors, path: &FieldPath<'_>, text: &str, before: &Seen<&str>) -> bool {
    let found = validate_ip_legacy(path, text, |ip| before.has(ip));
    let holds = found.is_empty();
    for error in found {
        errors.push(error);
    }
    holds
}

/// The same of a network.
fn legacy_cidr(errors: &mut Errors, path: &FieldPath<'_>, text: &str, before: &Seen<&str>) {
    for error in validate_cidr_legacy(path, text, |cidr| before.has(cidr)) {
        errors.push(error);
    }
}

fn port_sets(errors: &mut Errors, path: &FieldPath<'_>, kind: &str, ports: &[Value]) {
    let node_port = |port: &Value| port.int("nodePort").unwrap_or_default();
    if kind == "ClusterIP" {
        for (index, port) in ports.iter().enumerate() {
            if node_port(port) != 0 {
                errors.forbidden(
                    &path.index(index).child("nodePort"),
                    "may not be used when `type` is 'ClusterIP'",
                );
            }
        }
    }
    let mut seen = Seen::default();
    for (index, port) in ports.iter().enumerate() {
        let key = (port.text("protocol"), node_port(port));
        if key.1 == 0 {
            continue;
        }
        if seen.again(key) {
            errors.duplicate(&path.index(index).child("nodePort"), key.1);
        }
    }
    let mut seen = Seen::default();
    for (index, port) in ports.iter().enumerate() {
        let key = (port.text("protocol"), port.int("port").unwrap_or_default());
        if seen.again(key) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                machinery::go::Quoted(key.0),
                key.1
            );
            errors.shown(
                machinery::FieldError::duplicate(&path.index(index), &Value::Null),
                shown,
            );
        }
    }
}

fn balancer(errors: &mut Errors, path: &FieldPath<'_>, service: &Value, old: &Value) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    const NOTE: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let spec = service.dig("spec");
    let balances = spec.text("type") == "LoadBalancer";
    if spec.list("loadBalancerSourceRanges").is_empty() {
        if let Some(text) = note(service, NOTE) {
            let metadata = FieldPath::new("metadata");
            let notes = metadata.child("annotations");
            let at = notes.key(NOTE);
            if !balances {
                errors.forbidden(&at, ONLY);
            }
            if note(old, NOTE) != Some(text) && !text.trim().is_empty() {
                for range in text.split(',') {
                    legacy_cidr(errors, &at, range.trim(), &Seen::default());
                }
            }
        }
    } else {
        // Upstream's path is spelt like this.
        let at = path.child("LoadBalancerSourceRanges");
        if !balances {
            errors.forbidden(&at, ONLY);
        }
        let before: Seen<&str> = old
            .strings("spec.loadBalancerSourceRanges")
            .map(str::trim)
            .collect();
        for (index, range) in spec
            .strings("loadBalancerSourceRanges")
            .map(str::trim)
            .enumerate()
        {
            legacy_cidr(errors, &at.index(index), range, &before);
        }
    }
    if spec.has("allocateLoadBalancerNodePorts") && !balances {
        errors.forbidden(&path.child("allocateLoadBalancerNodePorts"), ONLY);
    }
    if let Some(class) = spec.dig("loadBalancerClass").as_str() {
        let at = path.child("loadBalancerClass");
        if balances {
            errors.text(&at, class, qualified_name(class));
        } else {
            errors.forbidden(&at, ONLY);
        }
    }
}

fn traffic(errors: &mut Errors, path: &FieldPath<'_>, service: &Value) {
    let spec = service.dig("spec");
    let (at, policy) = (
        path.child("externalTrafficPolicy"),
        spec.text("externalTrafficPolicy"),
    );
    if externally_accessible(service) {
        errors.required_one_of(&at, policy, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        errors.invalid(&at, policy, "may only be set for externally-accessible services");
    }
    let (at, port) = (
        path.child("healthCheckNodePort"),
        spec.int("healthCheckNodePort").unwrap_or_default(),
    );
    match (needs_health_check(service), port) {
        (false, 0) => {}
        (false, _) => errors.invalid(
            &at,
            port,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ),
        (true, 0) => errors.required(&at, ""),
        (true, _) => {
            for text in port_number(port) {
                errors.invalid(&at, port, text);
            }
        }
    }
    let at = path.child("internalTrafficPolicy");
    match spec.dig("internalTrafficPolicy").as_str() {
        None if needs_cluster_ip(service) => errors.required(&at, ""),
        None => {}
        Some(policy) => {
            errors.one_of(&at, policy, &["Cluster", "Local"]);
        }
    }
    if let Some(distribution) = spec.dig("trafficDistribution").as_str() {
        errors.one_of(
            &path.child("trafficDistribution"),
            distribution,
            &["PreferClose", "PreferSameZone", "PreferSameNode"],
        );
    }
}

/// Whether a service has no addresses of the cluster: its type is another, or none that there is, which is refused as such.
fn outside(service: &Value) -> bool {
    !matches!(
        service.text("spec.type"),
        "" | "ClusterIP" | "NodePort" | "LoadBalancer"
    )
}

/// The cluster addresses that a service had stay its own.
pub(super) fn keeps_addresses(errors: &mut Errors, service: &Value, old: &Value) {
    if !outside(service) && !outside(old) {
        kept(
            errors,
            &FieldPath::new("spec"),
            service,
            old,
            "clusterIPs",
            ["primary clusterIP can not be unset", "the secondary clusterIP"],
        );
    }
}

fn validate_update(errors: &mut Errors, service: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    keeps_addresses(errors, service, old);
    if !outside(service) && !outside(old) {
        kept(
            errors,
            &path,
            service,
            old,
            "ipFamilies",
            ["primary ipFamily can not be unset", "the secondary ipFamily"],
        );
    }
    let class = path.child("loadBalancerClass");
    let balances = |service: &Value| service.text("spec.type") == "LoadBalancer";
    if balances(service)
        && balances(old)
        && !same(
            service.dig("spec.loadBalancerClass"),
            old.dig("spec.loadBalancerClass"),
        )
    {
        errors.invalid_value(
            &class,
            service.dig("spec.loadBalancerClass"),
            "may not change once set",
        );
    }
    if needs_health_check(old)
        && needs_health_check(service)
        && service.int("spec.healthCheckNodePort") != old.int("spec.healthCheckNodePort")
    {
        errors.forbidden(&path.child("healthCheckNodePort"), IMMUTABLE);
    }
    validate(errors, service, old);
}

/// A list whose first item stays, and whose second may come and go.
fn kept(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    service: &Value,
    old: &Value,
    key: &str,
    [unset, second]: [&str; 2],
) {
    if headless(service) && headless(old) {
        return;
    }
    let at = path.child(key);
    let all = service.dig("spec").dig(key);
    let new: Vec<&str> = service.dig("spec").strings(key).collect();
    let before: Vec<&str> = old.dig("spec").strings(key).collect();
    if before.len() > new.len() && new.is_empty() {
        errors.invalid_value(&at.index(0), all, unset);
    }
    let pairs = if before.len() == new.len() {
        before.len()
    } else {
        1
    };
    for (index, (old, new)) in before.iter().zip(&new).take(pairs).enumerate() {
        if old != new {
            errors.invalid_value(&at.index(index), all, "may not change once set");
        }
    }
    if before.len() > new.len() && new.len() == 1 && service.text("spec.ipFamilyPolicy") != "SingleStack" {
        errors.invalid_value(
            &path.child("ipFamilyPolicy"),
            service.dig("spec.ipFamilyPolicy"),
            format!("must be set to 'SingleStack' when releasing {second}"),
        );
    }
}

fn warnings(service: &Value) -> Vec<String> {
    let spec = service.dig("spec");
    let (kind, external) = (spec.text("type"), !spec.list("externalIPs").is_empty());
    let mut warnings: Vec<String> = Vec::new();
    let warn = |warnings: &mut Vec<String>, when: bool, text: &str| {
        if when {
            warnings.push(text.into());
        }
    };
    let addresses = |warnings: &mut Vec<String>, key: &str| {
        let path = FieldPath::new("spec");
        let at = path.child(key);
        let each = spec.strings(key).enumerate();
        warnings.extend(each.filter_map(|(index, ip)| ip_warnings(&at.index(index), ip)));
    };
    warn(
        &mut warnings,
        note(service, HINTS).is_some(),
        "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
    );
    let headless = headless(service);
    if !headless {
        addresses(&mut warnings, "clusterIPs");
    }
    warn(
        &mut warnings,
        headless && !spec.text("loadBalancerIP").is_empty(),
        "spec.loadBalancerIP is ignored for headless services",
    );
    warn(
        &mut warnings,
        headless && external,
        "spec.externalIPs is ignored for headless services",
    );
    warn(
        &mut warnings,
        headless && spec.text("sessionAffinity") != "None",
        "spec.SessionAffinity is ignored for headless services",
    );
    addresses(&mut warnings, "externalIPs");
    warn(
        &mut warnings,
        external && !headless && kind != "ExternalName",
        "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
    );
    let path = FieldPath::new("spec");
    warnings.extend(ip_warnings(
        &path.child("loadBalancerIP"),
        spec.text("loadBalancerIP"),
    ));
    let at = path.child("loadBalancerSourceRanges");
    for (index, range) in spec.strings("loadBalancerSourceRanges").enumerate() {
        warnings.extend(cidr_warnings(&at.index(index), range));
    }
    warn(
        &mut warnings,
        external && kind == "ExternalName",
        "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
    );
    warn(
        &mut warnings,
        kind != "ExternalName" && !spec.text("externalName").is_empty(),
        "spec.externalName is ignored when spec.type is not \"ExternalName\"",
    );
    warn(
        &mut warnings,
        spec.text("trafficDistribution") == "PreferClose",
        "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
    );
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, with_spec};

    fn with(spec: Value) -> Value {
        let base = json!({"spec": {"ports": [{"port": 80}]}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("services").create(&with(spec), expected);
    }

    #[test]
    fn services_are_validated() {
        check(json!({}), &[]);
        check(json!({"clusterIP": "None", "ports": []}), &[]);
        check(json!({"ports": []}), &["spec.ports: Required value"]);
        check(
            json!({"ports": [{"port": 80}, {"name": "a", "port": 0}, {"name": "a", "port": 1, "protocol": "X", "targetPort": 65536}]}),
            &[
                "spec.ports[0].name: Required value",
                "spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[1].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                r#"spec.ports[2].name: Duplicate value: "a""#,
                r#"spec.ports[2].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP""#,
                "spec.ports[2].targetPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
            ],
        );
        check(
            json!({"type": "ExternalName"}),
            &["spec.externalName: Required value"],
        );
        check(
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}),
            &[
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
            ],
        );
        check(
            json!({"type": "Tunnel"}),
            &[
                r#"spec.type: Unsupported value: "Tunnel": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
            ],
        );
    }

    #[test]
    fn services_have_defaults() {
        let services = kind("services");
        services.defaults(
            &with(json!({})),
            &json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}}),
        );
        services.defaults(
            &with(json!({"sessionAffinity": "ClientIP"})),
            &json!({"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}}),
        );
    }

    #[test]
    fn an_address_stays_while_the_type_wants_one() {
        let services = kind("services");
        services.update(
            &with(json!({"clusterIP": "10.0.0.10"})),
            &json!({"spec": {"clusterIP": "10.0.0.11", "clusterIPs": ["10.0.0.11"]}}),
            &[r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.11"]: may not change once set"#],
        );
        let named = json!({"spec": {"type": "ExternalName", "externalName": "a.example.com"}});
        let updated = services.updated("", &with(json!({})), &named).unwrap();
        assert!(updated["spec"].get("clusterIP").is_none(), "{updated}");
    }
}
