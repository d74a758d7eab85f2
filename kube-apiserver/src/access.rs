//! Who may ask and who may do what: the authenticators and authorizers that the options name, and what keeps them current.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use generic_server::authn::anonymous::Anonymous;
use generic_server::authn::bearer::Bearer;
use generic_server::authn::request_header::RequestHeader;
use generic_server::authn::union::Authentication;
use generic_server::authn::x509::{ClientAuthorities, X509};
use generic_server::authn::{Authenticator, TokenAuthenticator};
use generic_server::authz::{AlwaysAllow, AlwaysDeny, Authorizer, Privileged, Union};
use generic_server::directory::Directory;
use generic_server::health::StaticJson;
use generic_server::pki::Pki;
use generic_server::registry::cache::{ChangeKind, Interest};
use kube_apiserver::authorization::node::NodeAuthorizer;
use kube_apiserver::rbac::{self, Rbac};
use kube_apiserver::{ClusterAuthorities, TokenIssuer};
use machinery::GroupResource;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use tokio::sync::watch;

use crate::compose::patiently;
use crate::config::Config;
use crate::options::AuthorizationMode;
use crate::reload::Reload;
use crate::{StartError, tokens};

/// The server's trust.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) tokens: Arc<dyn TokenAuthenticator>,
    pub(crate) issuer: Arc<dyn TokenIssuer>,
    pub(crate) rbac: Option<Arc<Rbac>>,
    pub(crate) nodes: Option<Arc<NodeAuthorizer>>,
    /// What extension servers are told of the authorities, kept in step with the files.
    pub(crate) cluster_authorities: watch::Receiver<ClusterAuthorities>,
    /// The documents about service account tokens, by path.
    pub(crate) endpoints: Vec<(&'static str, Arc<StaticJson>)>,
    /// The files of all this.
    pub(crate) reload: Reload,
}

pub(crate) fn build(config: &Config, pki: &Pki, directory: &Arc<Directory>) -> Result<Access, StartError> {
    let mut reload = Reload::default();
    let clients = Bundle {
        flag: "--client-ca-file",
        own: pki.ca.certificate.clone(),
        file: config.client_ca_file.clone(),
    };
    let proxies = Bundle {
        flag: "--requestheader-client-ca-file",
        own: pki.front_proxy_ca.certificate.clone(),
        file: config.front_proxy.ca_file.clone(),
    };
    let authorities = clients.authorities("client CA", &mut reload)?;
    let front_proxies = proxies.authorities("request header CA", &mut reload)?;
    let authorities_now = move || -> Result<ClusterAuthorities, StartError> {
        Ok(ClusterAuthorities {
            client: clients.pem()?,
            front_proxy: proxies.pem()?,
        })
    };
    let (told, cluster_authorities) = watch::channel(authorities_now()?);
    reload.afterwards(move || {
        let now = authorities_now().map_err(|error| error.to_string())?;
        told.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        Ok(())
    });
    let tokens::Tokens {
        authenticator: tokens,
        issuer,
        endpoints,
    } = tokens::build(config, pki, directory, &mut reload)?;
    let ways: Vec<Arc<dyn Authenticator>> = vec![
        Arc::new(RequestHeader::new(front_proxies, config.front_proxy.headers())),
        Arc::new(X509::new(authorities)),
        Arc::new(Bearer(tokens.clone())),
    ];
    let anonymous = config.anonymous_auth.then(Anonymous::default);
    let Authorizers { union, rbac, nodes } = authorizers(&config.authorization_mode);
    Ok(Access {
        authenticator: Arc::new(Authentication::new(ways, anonymous)),
        authorizer: union,
        tokens,
        issuer,
        rbac,
        nodes,
        cluster_authorities,
        endpoints,
        reload,
    })
}

/// One root of trust: the authorities of a file, or without one the server's own. Never both: whoever names a file has decided
/// whom to trust, and a key in the data directory is not among them.
#[derive(Debug, Clone)]
struct Bundle {
    flag: &'static str,
    own: String,
    file: Option<PathBuf>,
}

impl Bundle {
    /// The certificates, PEM.
    fn pem(&self) -> Result<String, StartError> {
        let Some(file) = &self.file else {
            return Ok(self.own.clone());
        };
        std::fs::read_to_string(file)
            .map_err(|error| self.fault(&format!("cannot read {}: {error}", file.display())))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, StartError> {
        let pem = self.pem()?;
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let name = || {
            self.file
                .as_deref()
                .unwrap_or(Path::new("the server's own CA"))
                .display()
        };
        match all {
            Ok(all) if all.is_empty() => Err(self.fault(&format!("{} holds no certificate in PEM", name()))),
            Ok(all) => Ok(all),
            Err(error) => Err(self.fault(&format!(
                "{} holds a certificate that cannot be read: {error}",
                name()
            ))),
        }
    }

    fn fault(&self, why: &str) -> StartError {
        StartError::Option(format!("{}: {why}", self.flag))
    }

    /// What connections are verified against, kept in step with the file.
    fn authorities(
        &self,
        name: &'static str,
        reload: &mut Reload,
    ) -> Result<Arc<ClientAuthorities>, StartError> {
        let made = ClientAuthorities::new(&self.certificates()?);
        let authorities = made
            .map(Arc::new)
            .map_err(|error| self.fault(&error.to_string()))?;
        let (bundle, kept) = (self.clone(), authorities.clone());
        reload.watch(name, self.file.clone(), move || {
            let all = bundle.certificates().map_err(|error| error.to_string())?;
            kept.reload(&all).map_err(|error| error.to_string())
        });
        Ok(authorities)
    }
}

/// The authorizers that were asked for, as one, and those of them that have objects to follow.
struct Authorizers {
    union: Arc<dyn Authorizer>,
    rbac: Option<Arc<Rbac>>,
    nodes: Option<Arc<NodeAuthorizer>>,
}

fn authorizers(modes: &[AuthorizationMode]) -> Authorizers {
    let (mut rbac, mut nodes) = (None, None);
    let mut all: Vec<Arc<dyn Authorizer>> = vec![Arc::new(Privileged::default())];
    for mode in modes {
        match mode {
            AuthorizationMode::AlwaysAllow => all.push(Arc::new(AlwaysAllow)),
            AuthorizationMode::AlwaysDeny => all.push(Arc::new(AlwaysDeny)),
            AuthorizationMode::Node => all.push(nodes.get_or_insert_with(NodeAuthorizer::new).clone()),
            AuthorizationMode::Rbac => all.push(rbac.get_or_insert_with(Rbac::new).clone()),
        }
    }
    Authorizers {
        union: Arc::new(Union(all)),
        rbac,
        nodes,
    }
}

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const RBAC_KINDS: [(&str, rbac::Kind); 4] = [
    ("roles", rbac::Kind::Role),
    ("clusterroles", rbac::Kind::ClusterRole),
    ("rolebindings", rbac::Kind::RoleBinding),
    ("clusterrolebindings", rbac::Kind::ClusterRoleBinding),
];

/// Loads the roles and bindings that are stored, and gives a task per kind that keeps the index in step with them.
pub(crate) async fn follow_rbac(
    rbac: Arc<Rbac>,
    directory: &Directory,
) -> Result<Vec<impl Future<Output = ()> + Send + use<>>, StartError> {
    let mut tasks = Vec::new();
    for (resource, kind) in RBAC_KINDS {
        let Some(registered) = directory.get(&GroupResource::new(RBAC_GROUP, resource)) else {
            return Err(StartError::Build("the RBAC kinds are not served"));
        };
        let snapshot = patiently(|| registered.store.as_system().fresh())
            .await
            .map_err(StartError::Bootstrap)?;
        let objects: Vec<Value> = snapshot.objects.values().map(|entry| entry.value()).collect();
        rbac.replace(kind, &objects);
        let (rbac, store, mut after) = (rbac.clone(), registered.store.clone(), snapshot.revision);
        tasks.push(async move {
            loop {
                let cache = match store.as_system().cache().await {
                    Ok(cache) => cache,
                    Err(error) => {
                        tracing::warn!(resource, %error, "cannot list; what was read before stays in force");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        continue;
                    }
                };
                let mut feed = match cache.feed(after, Interest::All).await {
                    Ok(feed) => feed,
                    Err(_) => {
                        // Too far behind: everything anew.
                        let snapshot = cache.snapshot();
                        let objects: Vec<Value> =
                            snapshot.objects.values().map(|entry| entry.value()).collect();
                        rbac.replace(kind, &objects);
                        after = snapshot.revision;
                        continue;
                    }
                };
                let mut changes = Vec::new();
                while feed.next(&mut changes).await.is_ok() {
                    for change in changes.drain(..) {
                        let entry = &change.entry;
                        if change.kind == ChangeKind::Deleted {
                            rbac.apply([rbac::Change::delete(kind, entry.namespace(), entry.name())]);
                        } else {
                            rbac.apply([rbac::Change::put(kind, &entry.value())]);
                        }
                        after = change.revision;
                    }
                }
            }
        });
    }
    Ok(tasks)
}
