//! The parts of a pod that the checks of its containers need.

use serde_json::Value;

use super::resources::Claims;
use super::volumes::Volumes;

/// The parts of the pod that the checks of a container need.
pub(super) struct Pod<'a> {
    pub(super) spec: &'a Value,
    pub(super) volumes: &'a Volumes<'a>,
    pub(super) claims: &'a Claims<'a>,
    pub(super) grace: Option<i64>,
    pub(super) host_users: bool,
}
