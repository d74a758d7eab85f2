//! The version of Kubernetes that this server is compatible with: the one place where it stands.

use crate::endpoint::Version;

/// The release.
pub const KUBERNETES: &str = "1.36.2";
/// Its major version.
pub const MAJOR: &str = "1";
/// Its minor version.
pub const MINOR: &str = "36";
/// Its major and minor version.
pub const MAJOR_MINOR: &str = "1.36";
/// The minor version before it, the oldest that clients may count on.
pub const MIN_COMPATIBILITY_MINOR: &str = "35";
/// The version of this project.
pub const OWN: &str = env!("CARGO_PKG_VERSION");

/// The version in upstream's words, as scripts parse it.
pub fn line() -> String {
    format!("Kubernetes v{KUBERNETES}")
}

/// The version as `--version=raw` of upstream prints it: its structure, in Go's syntax.
pub fn raw() -> String {
    Version::default().go_syntax()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_those_of_the_release() {
        assert_eq!(MAJOR_MINOR, format!("{MAJOR}.{MINOR}"));
        assert!(KUBERNETES.starts_with(&format!("{MAJOR_MINOR}.")));
        assert_eq!(line(), "Kubernetes v1.36.2");
        let start = "version.Info{Major:\"1\", Minor:\"36\", EmulationMajor:\"1\", EmulationMinor:\"36\", MinCompatibilityMajor:\"1\", MinCompatibilityMinor:\"35\", GitVersion:\"v1.36.2+rust";
        assert!(raw().starts_with(start), "{}", raw());
    }
}
