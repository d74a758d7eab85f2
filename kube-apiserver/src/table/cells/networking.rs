//! Cells of services, endpoints and ingresses.

use serde_json::{Value, json};

use super::*;

printer!(
    ENDPOINTS,
    "Name|string|name|0;Endpoints|string||0;Age|string||0",
    |o, ages| vec![name(o), endpoints(o).into(), age(o, ages)]
);

printer!(
    SERVICE,
    "Name|string|name|0;Type|string||0;Cluster-IP|string||0;External-IP|string||0;Port(s)|string||0;Age|string||0;Selector|string||1",
    |o, ages| {
        let ports: Vec<String> = o.list("spec.ports").iter().map(service_port).collect();
        let ports = ports.join(",");
        vec![
            name(o),
            o.text("spec.type").into(),
            o.strings("spec.clusterIPs").next().unwrap_or("<none>").into(),
            external_ip(o).into(),
            or(&ports, "<none>").into(),
            age(o, ages),
            format_labels(o.dig("spec.selector")).into(),
        ]
    }
);

printer!(
    INGRESS_CLASS,
    "Name|string|name|0;Controller|string||0;Parameters|string||0;Age|string||0",
    |o, ages| {
        let parameters = match o.has("spec.parameters") {
            false => "<none>".to_string(),
            true => {
                let mut kind = o.text("spec.parameters.kind").to_string();
                if o.has("spec.parameters.apiGroup") {
                    kind = format!("{kind}.{}", o.text("spec.parameters.apiGroup"));
                }
                format!("{kind}/{}", o.text("spec.parameters.name"))
            }
        };
        let annotations = ["ingressclass.kubernetes.io/is-default-class"];
        vec![
            default_name(o, &annotations),
            o.text("spec.controller").into(),
            parameters.into(),
            age(o, ages),
        ]
    }
);

printer!(
    INGRESS,
    "Name|string|name|0;Class|string||0;Hosts|string||0;Address|string||0;Ports|string||0;Age|string||0",
    |o, ages| {
        let rules = o.list("spec.rules");
        let hosts: Vec<&str> = rules
            .iter()
            .map(|r| r.text("host"))
            .filter(|h| !h.is_empty())
            .take(3)
            .collect();
        let hosts = match (hosts.is_empty(), rules.len() > 3) {
            (true, _) => "*".to_string(),
            (false, false) => hosts.join(","),
            (false, true) => format!("{} + {} more...", hosts.join(","), rules.len() - 3),
        };
        let ports = if o.list("spec.tls").is_empty() {
            "80"
        } else {
            "80, 443"
        };
        vec![
            name(o),
            match o.dig("spec.ingressClassName").as_str() {
                Some(class) => class.into(),
                None => "<none>".into(),
            },
            hosts.into(),
            load_balancer(o).into(),
            ports.into(),
            age(o, ages),
        ]
    }
);

printer!(IP_ADDRESS, "Name|string|name|0;ParentRef|string||0", |o, ages| {
    let parent = o.dig("spec.parentRef");
    let text = match parent.is_null() {
        true => "<none>".to_string(),
        false => {
            let mut text = parent.text("resource").to_lowercase();
            if !parent.text("group").is_empty() {
                text = format!("{text}.{}", parent.text("group").to_lowercase());
            }
            if !parent.text("namespace").is_empty() {
                text = format!("{text}/{}", parent.text("namespace"));
            }
            format!("{text}/{}", parent.text("name"))
        }
    };
    // Upstream prints the age here too, without a heading for it.
    vec![name(o), text.into(), age(o, ages)]
});

printer!(
    NETWORK_POLICY,
    "Name|string|name|0;Pod-Selector|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        format_selector(&match o.dig("spec.podSelector") {
            Value::Null => json!({}),
            selector => selector.clone(),
        })
        .into(),
        age(o, ages)
    ]
);

printer!(
    SERVICE_CIDR,
    "Name|string|name|0;CIDRs|string||0;Age|string||0",
    |o, ages| vec![
        name(o),
        o.strings("spec.cidrs").collect::<Vec<_>>().join(",").into(),
        age(o, ages)
    ]
);

printer!(
    ENDPOINT_SLICE,
    "Name|string|name|0;AddressType|string||0;Ports|string||0;Endpoints|string||0;Age|string||0",
    |o, ages| {
        let ports: Vec<String> = o
            .list("ports")
            .iter()
            .map(|p| match (p.int("port"), p.dig("name").as_str()) {
                (Some(port), _) => port.to_string(),
                (None, Some(name)) => name.to_string(),
                (None, None) => "*".to_string(),
            })
            .collect();
        let addresses: Vec<String> = o
            .list("endpoints")
            .iter()
            .flat_map(|e| e.strings("addresses").map(str::to_string))
            .collect();
        vec![
            name(o),
            o.text("addressType").into(),
            three(&ports).into(),
            three(&addresses).into(),
            age(o, ages),
        ]
    }
);

/// The first three, and how many more.
fn three(list: &[String]) -> String {
    match list.len() {
        0 => "<unset>".into(),
        1..=3 => list.join(","),
        n => format!("{} + {} more...", list[..3].join(","), n - 3),
    }
}

fn endpoints(object: &Value) -> String {
    let subsets = object.list("subsets");
    if subsets.is_empty() {
        return "<none>".into();
    }
    // Each address times each port: three are shown, the rest is counted.
    let (mut shown, mut count) = (Vec::new(), 0usize);
    for subset in subsets {
        let addresses = || subset.list("addresses").iter().map(|a| a.text("ip"));
        let ports = subset.list("ports");
        count = count.saturating_add(addresses().len().saturating_mul(ports.len().max(1)));
        let room = 3 - shown.len();
        if ports.is_empty() {
            shown.extend(addresses().map(str::to_string).take(room));
            continue;
        }
        let pairs = ports.iter().take(room).flat_map(|port| {
            let port = port.int("port").unwrap_or_default();
            addresses().take(room).map(move |ip| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            })
        });
        shown.extend(pairs.take(room));
    }
    match count {
        0..=3 => shown.join(","),
        n => format!("{} + {} more...", shown.join(","), n - 3),
    }
}

fn service_port(port: &Value) -> String {
    let number = port.int("port").unwrap_or_default();
    let protocol = port.text("protocol");
    match port.int("nodePort").unwrap_or_default() {
        0 => format!("{number}/{protocol}"),
        node_port => format!("{number}:{node_port}/{protocol}"),
    }
}

fn load_balancer(object: &Value) -> String {
    let mut all: Vec<&str> = object
        .list("status.loadBalancer.ingress")
        .iter()
        .map(|i| or(i.text("ip"), i.text("hostname")))
        .filter(|text| !text.is_empty())
        .collect();
    all.sort_unstable();
    all.dedup();
    all.join(",")
}

fn external_ip(object: &Value) -> String {
    let external = object.strings("spec.externalIPs").collect::<Vec<_>>().join(",");
    match object.text("spec.type") {
        "ClusterIP" | "NodePort" => or(&external, "<none>").to_string(),
        "LoadBalancer" => match (load_balancer(object), external) {
            (lb, external) if lb.is_empty() && external.is_empty() => "<pending>".into(),
            (lb, external) if external.is_empty() => lb,
            (lb, external) if lb.is_empty() => external,
            (lb, external) => format!("{lb},{external}"),
        },
        "ExternalName" => object.text("spec.externalName").into(),
        _ => "<unknown>".into(),
    }
}
