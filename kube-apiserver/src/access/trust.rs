//! Certificate authorities from files, followed while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use generic_server::authn::x509::ClientAuthorities;
use generic_server::reload::Reload;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::AccessError;

/// One root of trust: the authorities of a file, or without one the server's own. Never both: a user who names a file has decided
/// on trust, and a key in the data directory is not among them.
#[derive(Debug, Clone)]
pub(super) struct Bundle {
    /// The prefix of errors: the flag that names the file.
    flag: &'static str,
    /// The server's own authority, PEM, for when there is no file.
    own: String,
    /// The file that the flag names, else the one in which the server keeps its own, which grows by a successor in time.
    file: Option<PathBuf>,
}

impl Bundle {
    /// `own`: the server's own authority, PEM, and where it is kept.
    pub(super) fn new(
        (flag, given): (&'static str, Option<&Path>),
        (own, own_file): (&str, Option<PathBuf>),
    ) -> Self {
        let (flag, file) = match given {
            Some(file) => (flag, Some(file.to_path_buf())),
            None => ("the server's own authority", own_file),
        };
        Bundle {
            flag,
            own: own.to_owned(),
            file,
        }
    }

    /// The certificates, PEM.
    pub(super) fn pem(&self) -> Result<String, AccessError> {
        let Some(file) = &self.file else {
            return Ok(self.own.clone());
        };
        std::fs::read_to_string(file)
            .map_err(|error| self.error(&format!("cannot read {}: {error}", file.display())))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, AccessError> {
        let pem = self.pem()?;
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let name = || {
            self.file
                .as_deref()
                .unwrap_or(Path::new("the server's own CA"))
                .display()
        };
        match all {
            Ok(all) if all.is_empty() => Err(self.error(&format!("{} holds no certificate in PEM", name()))),
            Ok(all) => Ok(all),
            Err(error) => Err(self.error(&format!(
                "{} holds a certificate that cannot be read: {error}",
                name()
            ))),
        }
    }

    fn error(&self, why: &str) -> AccessError {
        AccessError::Option(format!("{}: {why}", self.flag))
    }

    /// The authorities that connections are verified against, kept in step with the file. `name` is what the log calls the file.
    pub(super) fn authorities(
        &self,
        name: &'static str,
        reload: &mut Reload,
    ) -> Result<Arc<ClientAuthorities>, AccessError> {
        let made = ClientAuthorities::new(&self.certificates()?);
        let authorities = made
            .map(Arc::new)
            .map_err(|error| self.error(&error.to_string()))?;
        let (bundle, kept) = (self.clone(), authorities.clone());
        reload.watch(name, self.file.clone(), move || {
            let all = bundle.certificates().map_err(|error| error.to_string())?;
            kept.reload(&all).map_err(|error| error.to_string())
        });
        Ok(authorities)
    }
}
