//! The identity types: group, version, kind and resource, with upstream's textual forms.

use std::fmt;
use std::sync::Arc;

/// `apps/v1`; the core group is the empty string and prints as the bare version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersion {
    /// The API group, empty for core.
    pub group: Arc<str>,
    /// The version, such as `v1beta1`.
    pub version: Arc<str>,
}

impl GroupVersion {
    /// From its parts.
    pub fn new(group: &str, version: &str) -> Self {
        GroupVersion {
            group: group.into(),
            version: version.into(),
        }
    }

    /// Reads an `apiVersion`. `None` when it has more than one slash.
    pub fn parse(api_version: &str) -> Option<Self> {
        match api_version.split_once('/') {
            None => Some(Self::new("", api_version)),
            Some((_, version)) if version.contains('/') => None,
            Some((group, version)) => Some(Self::new(group, version)),
        }
    }

    /// With a kind.
    pub fn kind(&self, kind: &str) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: kind.into(),
        }
    }

    /// With a resource.
    pub fn resource(&self, resource: &str) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A kind at a version. Prints as `apps/v1, Kind=Deployment`, as upstream does in messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionKind {
    /// The API group, empty for core.
    pub group: Arc<str>,
    /// The version.
    pub version: Arc<str>,
    /// The kind, such as `Deployment`.
    pub kind: Arc<str>,
}

impl GroupVersionKind {
    /// From its parts.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Without the kind.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion {
            group: self.group.clone(),
            version: self.version.clone(),
        }
    }

    /// Without the version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }

    /// The `apiVersion` of objects of this kind.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A resource at a version. Prints as `apps/v1, Resource=deployments`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupVersionResource {
    /// The API group, empty for core.
    pub group: Arc<str>,
    /// The version.
    pub version: Arc<str>,
    /// The plural resource name, such as `deployments`.
    pub resource: Arc<str>,
}

impl GroupVersionResource {
    /// From its parts.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        GroupVersionResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// Without the resource.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion {
            group: self.group.clone(),
            version: self.version.clone(),
        }
    }

    /// Without the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource {
            group: self.group.clone(),
            resource: self.resource.clone(),
        }
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.group, self.version, self.resource)
    }
}

/// A kind without a version. Prints as `Deployment.apps`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// The API group, empty for core.
    pub group: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
}

impl GroupKind {
    /// From its parts.
    pub fn new(group: &str, kind: &str) -> Self {
        GroupKind {
            group: group.into(),
            kind: kind.into(),
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// A resource without a version. Prints as `deployments.apps`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// The API group, empty for core.
    pub group: Arc<str>,
    /// The plural resource name.
    pub resource: Arc<str>,
}

impl GroupResource {
    /// From its parts.
    pub fn new(group: &str, resource: &str) -> Self {
        GroupResource {
            group: group.into(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}
