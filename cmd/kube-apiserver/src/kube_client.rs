//! Clients of kube-rs (the feature `kube`).

use generic_server::request::Body;
use http::header::{AUTHORIZATION, HeaderValue};
use http_body_util::BodyExt as _;
use kube::config::AuthInfo;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tower::ServiceExt as _;

use crate::{ControlPlane, StartError, User};

impl ControlPlane {
    /// A client of this user without a socket: its requests go straight into the chain, through the layers of
    /// [`Builder::layer`](crate::Builder::layer), and are authenticated, authorized and audited as those of a connection. It keeps the chain,
    /// not the plane: when that has stopped it is answered with errors.
    ///
    /// # Errors
    /// When the token of the user cannot be a header, which no token of the plane is.
    pub fn client(&self, user: &User) -> Result<kube::Client, StartError> {
        let mut bearer = HeaderValue::try_from(self.bearer(user))
            .map_err(|_| StartError::Build("a token is not a header"))?;
        bearer.set_sensitive(true);
        let service = self
            .service()
            .map_request(move |mut request: http::Request<kube::client::Body>| {
                request.headers_mut().insert(AUTHORIZATION, bearer.clone());
                request.map(|body| -> Body { body.map_err(Into::into).boxed_unsync() })
            });
        Ok(kube::Client::new(service, "default"))
    }

    /// The configuration of a client of this user that connects with TLS. As [`ControlPlane::kubeconfig`] it does not work with a serving
    /// certificate that is given by a flag.
    ///
    /// # Errors
    /// When the certificate authority cannot be read.
    pub fn config(&self, user: &User) -> Result<kube::Config, StartError> {
        let url = self
            .url()
            .parse()
            .map_err(|_| StartError::Build("the own address is no URL"))?;
        let authority = CertificateDer::from_pem_slice(self.ca_certificate().as_bytes())
            .map_err(|_| StartError::Build("the own authority is no certificate"))?;
        let mut config = kube::Config::new(url);
        config.root_cert = Some(vec![authority.to_vec()]);
        config.auth_info = AuthInfo {
            token: Some(self.token_for(user).into()),
            ..AuthInfo::default()
        };
        Ok(config)
    }
}
