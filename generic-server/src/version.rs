//! The version of Kubernetes that this server is compatible with: the one place where it stands.

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
/// The processor architecture, by Go's name.
pub const ARCHITECTURE: &str = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => "amd64",
    b"aarch64" => "arm64",
    _ => std::env::consts::ARCH,
};
/// The version of this project.
pub const OWN: &str = env!("CARGO_PKG_VERSION");

/// The version in upstream's words, as scripts parse it.
pub fn line() -> String {
    format!("Kubernetes v{KUBERNETES}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_those_of_the_release() {
        assert_eq!(MAJOR_MINOR, format!("{MAJOR}.{MINOR}"));
        assert!(KUBERNETES.starts_with(&format!("{MAJOR_MINOR}.")));
        assert_eq!(line(), "Kubernetes v1.36.2");
    }
}
