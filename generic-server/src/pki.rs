//! The server's own certificates and keys, for when the operator brings none.
//!
//! A [`Pki`] is made on first start, kept in a directory of files that only the owner may read, and reused; a certificate that
//! is about to expire or no longer fits (other names, another authority) is reissued. For tests and embedding there is one in
//! memory. Files that the operator names are read by the TLS and authentication modules, not here.

mod authority;
mod files;
mod shared;
mod subject;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

pub use authority::{Authority, Issued};
pub use files::{expires, issuer_among, validity};
pub use shared::Shared;

/// An error about certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or directory cannot be read or written.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file's content is not what it should be.
    #[error("`{}` {problem}; repair it, or remove it to have a new one made", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// A certificate cannot be made.
    #[error("cannot issue a certificate: {0}")]
    Issue(String),
}

impl PkiError {
    /// Whether a file could not be written for want of room.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, PkiError::File { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}

/// The names that the server is reached by.
#[derive(Debug, Clone, Default)]
pub struct ServingNames {
    /// DNS names and addresses beside the standard ones: host name, advertised address, what the operator adds.
    pub extra: Vec<String>,
    /// The `kubernetes` service's addresses.
    pub service_ips: Vec<IpAddr>,
    /// The cluster's DNS domain; empty for `cluster.local`.
    pub domain: String,
}

impl ServingNames {
    /// All of them, sorted, each once.
    pub fn all(&self) -> Vec<String> {
        let domain = if self.domain.is_empty() {
            "cluster.local"
        } else {
            &self.domain
        };
        let mut names: Vec<String> = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "localhost",
        ]
        .map(str::to_string)
        .into();
        names.push(format!("kubernetes.default.svc.{domain}"));
        names.extend(["127.0.0.1".into(), "::1".into()]);
        names.extend(self.service_ips.iter().map(IpAddr::to_string));
        names.extend(self.extra.iter().filter(|name| !name.is_empty()).cloned());
        names.sort();
        names.dedup();
        names
    }
}

/// Every certificate and key that a server needs.
#[derive(Debug)]
pub struct Pki {
    /// Where it is kept; nowhere when it is in memory.
    directory: Option<PathBuf>,
    /// Signs serving and client certificates.
    pub ca: Authority,
    /// Signs the certificates that vouch for front-proxy headers.
    pub front_proxy_ca: Authority,
    /// The server's certificate.
    pub serving: Issued,
    /// The certificate that the aggregator presents to extension servers.
    pub front_proxy_client: Issued,
    /// `kubernetes-admin` in `system:masters`.
    pub admin: Issued,
    /// Signs service account tokens: an ECDSA P-256 private key, PKCS#8 in PEM.
    pub service_account_key: String,
    /// The public keys of tokens that are accepted, that of the signing key among them: PEM.
    pub service_account_public_keys: String,
}

impl Pki {
    /// A new one that is nowhere but in memory.
    ///
    /// # Errors
    /// When a name is neither a DNS name nor an address.
    pub fn in_memory(names: &ServingNames) -> Result<Self, PkiError> {
        let ca = Authority::generate("kubernetes")?;
        let front_proxy_ca = Authority::generate("front-proxy-ca")?;
        let service_account_key = authority::generate_key()?;
        Ok(Pki {
            directory: None,
            serving: ca.server("kube-apiserver", &names.all())?,
            front_proxy_client: front_proxy_ca.client("front-proxy-client", "")?,
            admin: ca.client("kubernetes-admin", "system:masters")?,
            service_account_public_keys: authority::public_key(&service_account_key)?,
            service_account_key,
            ca,
            front_proxy_ca,
        })
    }

    /// The one in a directory, completed and renewed as needed.
    ///
    /// # Errors
    /// When files cannot be read or written, or hold something else than they should.
    pub fn open(directory: &Path, names: &ServingNames) -> Result<Self, PkiError> {
        files::open(directory, names)
    }

    /// The same, nowhere but in memory: for a server beside this one, to which its directory does not belong.
    ///
    /// # Errors
    /// When its keys cannot be read, which `open` rules out.
    pub fn in_memory_copy(self: Arc<Self>) -> Result<Arc<Self>, PkiError> {
        if self.directory.is_none() {
            return Ok(self);
        }
        let copy = |authority: &Authority| Authority::load(&authority.certificate, &authority.key);
        Ok(Arc::new(Pki {
            directory: None,
            ca: copy(&self.ca)?,
            front_proxy_ca: copy(&self.front_proxy_ca)?,
            serving: self.serving.clone(),
            front_proxy_client: self.front_proxy_client.clone(),
            admin: self.admin.clone(),
            service_account_key: self.service_account_key.clone(),
            service_account_public_keys: self.service_account_public_keys.clone(),
        }))
    }

    /// A file of its directory, such as `ca.crt`; `None` for one in memory. It changes when something is renewed or rotated while a
    /// server runs.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.join(name))
    }

    /// The serving certificate for TLS.
    ///
    /// # Errors
    /// When the pair does not fit, which `open` rules out.
    pub fn serving_key(&self) -> Result<Arc<CertifiedKey>, PkiError> {
        self.serving.certified_key()
    }

    /// The authority for client certificates.
    ///
    /// # Errors
    /// When it cannot be read, which `open` rules out.
    pub fn client_ca(&self) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        certificates(&self.ca.certificate)
    }

    /// A kubeconfig for the administrator, everything embedded.
    pub fn kubeconfig(&self, server: &str) -> String {
        kubeconfig(server, &self.ca.certificate, &self.admin)
    }

    /// Writes that kubeconfig, readable for the owner alone.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_kubeconfig(&self, path: &Path, server: &str) -> Result<(), PkiError> {
        files::write(path, self.kubeconfig(server).as_bytes())
    }
}

impl Issued {
    /// The pair for TLS.
    ///
    /// # Errors
    /// When certificate and key do not belong together.
    pub fn certified_key(&self) -> Result<Arc<CertifiedKey>, PkiError> {
        let key =
            PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| PkiError::Issue(e.to_string()))?;
        let chain = certificates(&self.certificate)?;
        let provider = crate::crypto::provider();
        let pair =
            CertifiedKey::from_der(chain, key, &provider).map_err(|e| PkiError::Issue(e.to_string()))?;
        Ok(Arc::new(pair))
    }
}

/// The certificates of a PEM text.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| PkiError::Issue(e.to_string()))
}

/// A kubeconfig with one context, for a user with a client certificate.
pub fn kubeconfig(server: &str, ca: &str, user: &Issued) -> String {
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    let (ca, certificate, key) = (encode(ca), encode(&user.certificate), encode(&user.key));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster:
    server: {server}
    certificate-authority-data: {ca}
contexts:
- name: kubernetes-admin@kubernetes
  context:
    cluster: kubernetes
    user: kubernetes-admin
current-context: kubernetes-admin@kubernetes
users:
- name: kubernetes-admin
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
    )
}
