//! Who may ask and who may do what: the authenticators and authorizers that the options name, and what keeps them current.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use generic_server::authn::anonymous::Anonymous;
use generic_server::authn::bearer::Bearer;
use generic_server::authn::request_header::{RequestHeader, RequestHeaderOptions};
use generic_server::authn::union::Authentication;
use generic_server::authn::x509::{ClientAuthorities, X509};
use generic_server::authn::{Authenticator, TokenAuthenticator};
use generic_server::authz::rbac::{self, Rbac};
use generic_server::authz::{AlwaysAllow, AlwaysDeny, Authorizer, Privileged, Union};
use generic_server::health::StaticJson;
use generic_server::pki::Pki;
use generic_server::registry::Directory;
use generic_server::registry::cache::{ChangeKind, Interest};
use kube_apiserver::{ClusterAuthorities, TokenIssuer};
use machinery::GroupResource;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use tokio::sync::watch;

use crate::compose::patiently;
use crate::reload::Reload;
use crate::{Options, StartError, tokens};

/// The server's trust.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) tokens: Arc<dyn TokenAuthenticator>,
    pub(crate) issuer: Arc<dyn TokenIssuer>,
    pub(crate) rbac: Option<Arc<Rbac>>,
    /// What extension servers are told of the authorities, kept in step with the files.
    pub(crate) cluster_authorities: watch::Receiver<ClusterAuthorities>,
    /// Common names that front proxies may have.
    pub(crate) front_proxy_names: Vec<String>,
    /// The documents about service account tokens, by path.
    pub(crate) endpoints: Vec<(&'static str, Arc<StaticJson>)>,
    /// The files of all this.
    pub(crate) reload: Reload,
}

pub(crate) fn build(options: &Options, pki: &Pki, directory: &Arc<Directory>) -> Result<Access, StartError> {
    let mut reload = Reload::default();
    let authorities = ClientAuthorities::new(&client_ca(
        &pki.ca.certificate,
        options.client_ca_file.as_deref(),
    )?)
    .map(Arc::new)
    .map_err(|error| StartError::Option(format!("--client-ca-file: {error}")))?;
    watch_authorities(
        &mut reload,
        "client CA",
        &pki.ca.certificate,
        options.client_ca_file.as_ref(),
        &authorities,
    );
    let front_proxy_ca_pem = pem(
        &pki.front_proxy_ca.certificate,
        options.requestheader_client_ca_file.as_deref(),
    )?;
    let front_proxies = ClientAuthorities::new(&certificates(&front_proxy_ca_pem)?)
        .map(Arc::new)
        .map_err(|error| StartError::Option(format!("--requestheader-client-ca-file: {error}")))?;
    watch_authorities(
        &mut reload,
        "request header CA",
        &pki.front_proxy_ca.certificate,
        options.requestheader_client_ca_file.as_ref(),
        &front_proxies,
    );
    let authorities_now = cluster_authorities(options, pki);
    let (told, cluster_authorities) = watch::channel(authorities_now()?);
    reload.afterwards(move || {
        let now = authorities_now().map_err(|error| error.to_string())?;
        told.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        Ok(())
    });
    let front_proxy_names = front_proxy_names(options);
    let request_header = RequestHeaderOptions {
        allowed_names: front_proxy_names.clone(),
        ..RequestHeaderOptions::default()
    };
    let tokens::Tokens {
        authenticator: tokens,
        issuer,
        endpoints,
    } = tokens::build(options, pki, directory, &mut reload)?;
    let ways: Vec<Arc<dyn Authenticator>> = vec![
        Arc::new(RequestHeader::new(front_proxies, request_header)),
        Arc::new(X509::new(authorities)),
        Arc::new(Bearer(tokens.clone())),
    ];
    let anonymous = options.anonymous_auth.then(Anonymous::default);
    let (authorizer, rbac) = authorizer(options);
    Ok(Access {
        authenticator: Arc::new(Authentication::new(ways, anonymous)),
        authorizer,
        tokens,
        issuer,
        rbac,
        cluster_authorities,
        front_proxy_names,
        endpoints,
        reload,
    })
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, StartError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| StartError::Option(format!("a CA file holds no certificates: {error}")))
}

/// The server's own authority and those of a file.
fn client_ca(own: &str, file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let mut all = certificates(own)?;
    if let Some(file) = file {
        all.extend(generic_server::serve::read_certificates(file)?);
    }
    Ok(all)
}

fn watch_authorities(
    reload: &mut Reload,
    name: &'static str,
    own: &str,
    file: Option<&PathBuf>,
    authorities: &Arc<ClientAuthorities>,
) {
    let Some(file) = file.cloned() else { return };
    let (own, authorities) = (own.to_string(), authorities.clone());
    reload.watch(name, [file.clone()], move || {
        let all = client_ca(&own, Some(&file)).map_err(|error| error.to_string())?;
        authorities.reload(&all).map_err(|error| error.to_string())
    });
}

/// Reads what extension servers are told of the authorities.
fn cluster_authorities(
    options: &Options,
    pki: &Pki,
) -> impl Fn() -> Result<ClusterAuthorities, StartError> + Send + Sync + 'static {
    let own = [&pki.ca.certificate, &pki.front_proxy_ca.certificate].map(String::clone);
    let files = [
        options.client_ca_file.clone(),
        options.requestheader_client_ca_file.clone(),
    ];
    move || {
        Ok(ClusterAuthorities {
            client: pem(&own[0], files[0].as_deref())?,
            front_proxy: pem(&own[1], files[1].as_deref())?,
        })
    }
}

/// The server's own CA, with what a file adds.
fn pem(own: &str, file: Option<&Path>) -> Result<String, StartError> {
    let mut all = own.to_string();
    if let Some(file) = file {
        let more = std::fs::read_to_string(file)
            .map_err(|error| StartError::Option(format!("cannot read {}: {error}", file.display())))?;
        all.push_str(&more);
    }
    Ok(all)
}

/// The names that the options allow, and that of the server's own front-proxy certificate.
fn front_proxy_names(options: &Options) -> Vec<String> {
    let mut names = options.requestheader_allowed_names.clone();
    if options.requestheader_client_ca_file.is_none() || !names.is_empty() {
        names.push("front-proxy-client".into());
    }
    names
}

fn authorizer(options: &Options) -> (Arc<dyn Authorizer>, Option<Arc<Rbac>>) {
    let mut rbac = None;
    let mut all: Vec<Arc<dyn Authorizer>> = vec![Arc::new(Privileged::default())];
    for mode in &options.authorization_mode {
        match mode.as_str() {
            "AlwaysAllow" => all.push(Arc::new(AlwaysAllow)),
            "AlwaysDeny" => all.push(Arc::new(AlwaysDeny)),
            _ => all.push(rbac.get_or_insert_with(Rbac::new).clone()),
        }
    }
    (Arc::new(Union(all)), rbac)
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
        let snapshot = patiently(|| registered.store.fresh())
            .await
            .map_err(StartError::Bootstrap)?;
        let objects: Vec<Value> = snapshot.objects.values().map(|entry| entry.value()).collect();
        rbac.replace(kind, &objects);
        let (rbac, store, mut after) = (rbac.clone(), registered.store.clone(), snapshot.revision);
        tasks.push(async move {
            loop {
                let Ok(cache) = store.cache().await else {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
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
