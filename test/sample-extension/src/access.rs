//! Who asks and what they may: both are the main API server's to say.

use std::path::Path;
use std::sync::Arc;

use generic_server::authn::anonymous::Anonymous;
use generic_server::authn::bearer::Bearer;
use generic_server::authn::request_header::{RequestHeader, RequestHeaderOptions};
use generic_server::authn::token_cache::TokenCache;
use generic_server::authn::union::Authentication;
use generic_server::authn::x509::X509;
use generic_server::authn::{Authenticator, TokenAuthenticator};
use generic_server::authz::{Authorizer, Privileged, Union};
use generic_server::delegated::{self, AccessReviews, FrontProxy, KubeClient, Kubeconfig, TokenReviews};

use crate::{Options, StartError};

/// The authenticator and the authorizer that the options ask for.
pub(crate) async fn build(
    options: &Options,
) -> Result<(Arc<dyn Authenticator>, Arc<dyn Authorizer>), StartError> {
    let other = |error: &dyn std::fmt::Display| StartError::Access(error.to_string());
    let client = match &options.kubeconfig {
        Some(file) => {
            let config = Kubeconfig::read(file).map_err(|e| other(&e))?;
            Some(KubeClient::new(&config).map_err(|e| other(&e))?)
        }
        None => None,
    };
    let mut trust = match &client {
        Some(client) => delegated::front_proxy(client).await.map_err(|e| other(&e))?,
        None => FrontProxy {
            client_ca: String::new(),
            proxy_ca: String::new(),
            options: RequestHeaderOptions::default(),
        },
    };
    if let Some(file) = &options.requestheader_client_ca_file {
        trust.proxy_ca = read(file)?;
        trust.options = RequestHeaderOptions {
            allowed_names: options.requestheader_allowed_names.clone(),
            ..RequestHeaderOptions::default()
        };
    }
    if let Some(file) = &options.client_ca_file {
        trust.client_ca = read(file)?;
    }
    let [clients, proxies] = trust.authorities().map_err(|e| other(&e))?;
    let mut ways: Vec<Arc<dyn Authenticator>> = Vec::new();
    if let Some(proxies) = proxies {
        ways.push(Arc::new(RequestHeader::new(proxies, trust.options)));
    }
    if let Some(clients) = clients {
        ways.push(Arc::new(X509::new(clients)));
    }
    let mut asked: Vec<Arc<dyn Authorizer>> = vec![Arc::new(Privileged::default())];
    if let Some(client) = client {
        let reviews: Arc<dyn TokenAuthenticator> = Arc::new(TokenReviews(client.clone()));
        let cache = TokenCache::new(reviews).map_err(|_| StartError::Access("no randomness".into()))?;
        ways.push(Arc::new(Bearer(cache)));
        asked.push(Arc::new(AccessReviews::new(client)));
    }
    let authentication = Authentication::new(ways, Some(Anonymous::default()));
    Ok((Arc::new(authentication), Arc::new(Union(asked))))
}

fn read(file: &Path) -> Result<String, StartError> {
    std::fs::read_to_string(file)
        .map_err(|error| StartError::Access(format!("cannot read `{}`: {error}", file.display())))
}
