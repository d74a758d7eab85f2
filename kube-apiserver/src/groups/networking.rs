//! The networking.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod ingress;
mod ingress_class;
mod ip_address;
mod network_policy;
mod service_cidr;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("ingressclasses", "IngressClass")
            .cluster()
            .table(&table::INGRESS_CLASS)
            .rules(&ingress_class::RULES),
        b.kind("ingresses", "Ingress")
            .short(&["ing"])
            .prefix("ingress")
            .table(&table::INGRESS)
            .rules(&ingress::RULES),
        b.kind("ipaddresses", "IPAddress")
            .cluster()
            .short(&["ip"])
            .table(&table::IP_ADDRESS)
            .rules(&ip_address::RULES),
        b.kind("networkpolicies", "NetworkPolicy")
            .short(&["netpol"])
            .table(&table::NETWORK_POLICY)
            .rules(&network_policy::RULES),
        b.kind("servicecidrs", "ServiceCIDR")
            .cluster()
            .table(&table::SERVICE_CIDR)
            .rules(&service_cidr::RULES),
    ]
}
