//! Authentication and authorization, both delegated to the main API server.

use std::path::Path;
use std::sync::Arc;

use generic_server::authn::anonymous::Anonymous;
use generic_server::authn::bearer::Bearer;
use generic_server::authn::request_header::RequestHeaderOptions;
use generic_server::authn::token_cache::TokenCache;
use generic_server::authn::token_metrics::TokenCacheMetrics;
use generic_server::authn::union::Authentication;
use generic_server::authn::x509::X509;
use generic_server::authn::{Authenticator, TokenAuthenticator};
use generic_server::authz::{Authorizer, Privileged, Union};
use generic_server::client::egress::Route;
use generic_server::delegated::{
    self, AccessReviews, FrontProxy, KubeClient, Kubeconfig, Lookups, TokenReviews, Trust,
};
use generic_server::spawn::Tasks;

use crate::{Options, StartError};

/// The authenticator and the authorizer that the options ask for.
pub(crate) async fn build(
    options: &Options,
    tasks: &Tasks,
) -> Result<(Arc<dyn Authenticator>, Arc<dyn Authorizer>), StartError> {
    let other = |error: &dyn std::fmt::Display| StartError::Access(error.to_string());
    let client = match &options.kubeconfig {
        Some(file) => {
            let config = Kubeconfig::read(file).map_err(|e| other(&e))?;
            Some(KubeClient::new(&config, &Route::Direct).map_err(|e| other(&e))?)
        }
        None => None,
    };
    let own = OwnTrust::read(options)?;
    let known = match &client {
        Some(client) => delegated::front_proxy(client).await.map_err(|e| other(&e))?,
        None => FrontProxy {
            client_ca: String::new(),
            proxy_ca: String::new(),
            options: RequestHeaderOptions::default(),
        },
    };
    let trust = Trust::new(own.over(known)).map_err(StartError::Access)?;
    let mut ways: Vec<Arc<dyn Authenticator>> = vec![
        trust.front_proxies().clone(),
        Arc::new(X509::new(trust.clients().clone())),
    ];
    if let Some(client) = client.clone() {
        // The main server's authorities are rotated now and then.
        tasks.spawn("trust", async move {
            trust.follow(&client, |known| own.over(known)).await;
        });
    }
    let mut asked: Vec<Arc<dyn Authorizer>> = vec![Arc::new(Privileged::default())];
    if let Some(client) = client {
        let reviews: Arc<dyn TokenAuthenticator> = Arc::new(TokenReviews(client.clone()));
        let counts = Arc::<TokenCacheMetrics>::default();
        let cache = TokenCache::new(Lookups::new(reviews, counts.clone()), Box::new(|| 0), counts)
            .map_err(|_| StartError::Access("no randomness".into()))?;
        ways.push(Arc::new(Bearer(cache)));
        asked.push(Arc::new(AccessReviews::new(client)));
    }
    // Without a credential there is nothing to see but whether the server is well.
    let anonymous = Anonymous {
        paths: ["/healthz", "/livez", "/readyz"].map(str::to_string).into(),
    };
    let authentication = Authentication::new(ways, Some(anonymous));
    Ok((Arc::new(authentication), Arc::new(Union(asked))))
}

/// The trust that flags configure; it overrides the main server's.
struct OwnTrust {
    client_ca: Option<String>,
    proxies: Option<(String, RequestHeaderOptions)>,
}

impl OwnTrust {
    fn read(options: &Options) -> Result<Self, StartError> {
        let proxies = match &options.requestheader_client_ca_file {
            None => None,
            Some(file) => Some((
                read(file)?,
                RequestHeaderOptions {
                    allowed_names: options.requestheader_allowed_names.clone(),
                    ..RequestHeaderOptions::default()
                },
            )),
        };
        Ok(OwnTrust {
            client_ca: options.client_ca_file.as_deref().map(read).transpose()?,
            proxies,
        })
    }

    fn over(&self, mut known: FrontProxy) -> FrontProxy {
        if let Some((ca, options)) = &self.proxies {
            known.proxy_ca.clone_from(ca);
            known.options.clone_from(options);
        }
        if let Some(ca) = &self.client_ca {
            known.client_ca.clone_from(ca);
        }
        known
    }
}

fn read(file: &Path) -> Result<String, StartError> {
    std::fs::read_to_string(file)
        .map_err(|error| StartError::Access(format!("cannot read `{}`: {error}", file.display())))
}
