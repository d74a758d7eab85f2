//! Whole control planes in process, asked over TLS as any client would. One test binary; every test has a server of its own on a
//! free port, in memory.
#![cfg(test)]

mod access;
mod admission;
mod aggregation;
mod alpha_kinds;
mod audit;
mod authorizers;
mod break_glass;
mod cbor;
mod custom_answers;
mod custom_bounds;
mod custom_conversion;
mod custom_migration;
mod discovery;
mod disk;
mod dry_run;
mod egress;
mod encryption;
mod equivalence;
mod etcd;
mod fairness;
mod garbage;
mod interop;
mod issuers;
mod linearizable;
mod lists;
mod manifests;
mod metrics;
mod nodes;
mod objects;
mod permissions;
mod pod_certificates;
mod protobuf;
mod resource_versions;
mod routes;
mod service_ranges;
mod signer;
mod sockets;
mod subresources;
mod trust_bundles;
mod ui;
mod workloads;
mod writing;
mod zpages;
