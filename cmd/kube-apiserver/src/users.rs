//! Users of a plane in process, and how their clients reach it.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::{ControlPlane, StartError, User};

/// The user who may do everything: `kubernetes-admin` in `system:masters`.
pub fn administrator() -> User {
    User {
        name: "kubernetes-admin".into(),
        groups: vec!["system:masters".into()],
        ..User::default()
    }
}

impl ControlPlane {
    /// A bearer token that is this user's for as long as the plane runs. The groups are those of the user and `system:authenticated`; what
    /// the user may do is for RBAC to say.
    pub fn token_for(&self, user: &User) -> String {
        self.tokens.token_for(user)
    }

    /// A kubeconfig for this user, with the token and the certificate authority embedded. As [`ControlPlane::kubeconfig`] it does not work
    /// with a serving certificate that is given by a flag.
    pub fn kubeconfig_for(&self, user: &User) -> String {
        let credentials = json!({"token": self.token_for(user)});
        document(&self.url(), self.ca_certificate(), &user.name, &credentials)
    }

    /// Writes that kubeconfig into a file that only its owner can read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_kubeconfig(&self, path: impl AsRef<Path>, user: &User) -> Result<(), StartError> {
        let path = path.as_ref();
        // Beside its place and moved there: a file or link that is there would keep its mode and its owner.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let fresh = path.with_file_name(format!(".{name}.{}", uuid::Uuid::new_v4()));
        let mut file = std::fs::File::options();
        file.write(true).create_new(true).mode(0o600);
        file.open(&fresh)
            .and_then(|mut file| file.write_all(self.kubeconfig_for(user).as_bytes()))
            .and_then(|()| std::fs::rename(&fresh, path))
            .map_err(|error| {
                // It may not have been made.
                let _ = std::fs::remove_file(&fresh);
                StartError::Option(format!("cannot write the kubeconfig {}: {error}", path.display()))
            })
    }
}

/// A kubeconfig with one context, whose cluster has this address and authority (PEM).
pub(crate) fn document(server: &str, authority: &str, user: &str, credentials: &Value) -> String {
    let cluster = json!({"server": server, "certificate-authority-data": BASE64_STANDARD.encode(authority)});
    // JSON is YAML, and quotes whatever is in a name.
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": cluster}],
        "contexts": [{"name": "kubernetes", "context": {"cluster": "kubernetes", "user": user}}],
        "current-context": "kubernetes",
        "users": [{"name": user, "user": credentials}],
    });
    format!("{document:#}\n")
}
