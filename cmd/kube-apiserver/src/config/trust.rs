//! Options about the server's trust and its own certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use generic_server::authn::request_header::RequestHeaderOptions;
use kube_apiserver::{
    AccessOptions, JwtSource, OidcOptions, TokenLifetimes, TokenOptions, TokenWebhookOptions,
};
use machinery::go;

use super::Findings;
use crate::options::{AuthenticationFlags, AuthorizationFlags, OwnTokenFlags, TokenReviewVersion};

/// A certificate (PEM, with chain) and its key.
#[derive(Debug, Clone)]
pub(crate) struct KeyFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl KeyFiles {
    /// Both files, or none: that they go together is checked when they are parsed.
    pub(crate) fn of(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Option<Self> {
        let (certificate, key) = (certificate?, key?);
        Some(KeyFiles { certificate, key })
    }

    /// For [`generic_server::reload::Reload::watch`].
    pub(crate) fn both(&self) -> [PathBuf; 2] {
        [self.certificate.clone(), self.key.clone()]
    }
}

/// The options about authentication and authorization.
pub(super) struct AccessFlags {
    pub(super) client_ca_file: Option<PathBuf>,
    pub(super) token_auth_file: Option<PathBuf>,
    pub(super) token_webhook_config_file: Option<PathBuf>,
    pub(super) token_webhook_version: TokenReviewVersion,
    pub(super) token_webhook_cache_ttl: Duration,
    pub(super) authentication: AuthenticationFlags,
    pub(super) front_proxy: FrontProxy,
    pub(super) tokens: ServiceAccountTokens,
    pub(super) authorization: AuthorizationFlags,
}

impl AccessFlags {
    /// `proxy_client`: there is a certificate that this server shows extension servers.
    pub(super) fn read(self, found: &mut Findings, proxy_client: bool) -> AccessOptions {
        self.front_proxy
            .check(found, self.client_ca_file.as_deref(), proxy_client);
        self.tokens.check(found);
        let (version, cache_ttl) = (self.token_webhook_version.into(), self.token_webhook_cache_ttl);
        AccessOptions {
            client_ca_file: self.client_ca_file,
            token_auth_file: self.token_auth_file,
            issued_tokens: Arc::default(),
            token_webhook: self
                .token_webhook_config_file
                .map(|config_file| TokenWebhookOptions {
                    config_file,
                    version,
                    cache_ttl,
                }),
            jwt: jwt_source(&self.authentication, found),
            anonymous: self.authentication.anonymous_auth,
            front_proxy: self.front_proxy.headers(),
            front_proxy_ca_file: self.front_proxy.ca_file,
            bootstrap_tokens: self.tokens.own.enable_bootstrap_token_auth,
            tokens: self.tokens.into_options(),
            authorization: self.authorization.read(found),
        }
    }
}

/// The file, or the flags that stand for one.
fn jwt_source(flags: &AuthenticationFlags, found: &mut Findings) -> JwtSource {
    let text = |flag: &Option<String>| flag.clone().unwrap_or_default();
    let file = flags.authentication_config.as_ref();
    if let Some(file) = file.filter(|file| !file.as_os_str().is_empty()) {
        if flags.has_oidc() {
            found.fault("authentication-config file and oidc-* flags are mutually exclusive");
        }
        return JwtSource::File(file.clone());
    }
    if !flags.has_oidc() {
        return JwtSource::None;
    }
    let (issuer_url, client_id) = (text(&flags.oidc_issuer_url), text(&flags.oidc_client_id));
    if issuer_url.is_empty() || client_id.is_empty() {
        found.fault(
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
        );
        return JwtSource::None;
    }
    // As in Go, a list without text is none.
    let algorithms = flags.oidc_signing_algs.iter().filter(|name| !name.is_empty());
    let algorithms: Vec<String> = algorithms.cloned().collect();
    JwtSource::Oidc(Box::new(OidcOptions {
        issuer_url,
        client_id,
        ca_file: flags.oidc_ca_file.clone(),
        username_claim: flags.oidc_username_claim.clone().unwrap_or_else(|| "sub".into()),
        username_prefix: text(&flags.oidc_username_prefix),
        groups_claim: text(&flags.oidc_groups_claim),
        groups_prefix: text(&flags.oidc_groups_prefix),
        required_claims: flags.oidc_required_claim.clone(),
        signing_algs: match algorithms.is_empty() {
            true => vec!["RS256".into()],
            false => algorithms,
        },
    }))
}

/// The credentials and headers by which a front proxy is trusted.
#[derive(Debug)]
pub(super) struct FrontProxy {
    /// The CAs; the server's own front-proxy CA when unset.
    pub(super) ca_file: Option<PathBuf>,
    pub(super) allowed_names: Vec<String>,
    pub(super) username_headers: Vec<String>,
    pub(super) uid_headers: Vec<String>,
    pub(super) group_headers: Vec<String>,
    pub(super) extra_prefixes: Vec<String>,
}

impl FrontProxy {
    fn check(&self, found: &mut Findings, client_ca_file: Option<&Path>, proxy_client: bool) {
        let lists = [
            (
                "requestheader-username-headers",
                &self.username_headers,
                "X-Remote-User",
            ),
            ("requestheader-uid-headers", &self.uid_headers, "X-Remote-Uid"),
            (
                "requestheader-group-headers",
                &self.group_headers,
                "X-Remote-Group",
            ),
            (
                "requestheader-extra-headers-prefix",
                &self.extra_prefixes,
                "X-Remote-Extra-",
            ),
        ];
        for (flag, values, standard) in lists {
            if values.iter().any(|value| value.trim().is_empty()) {
                found.fault(format!("empty value in \"{flag}\""));
            } else if !values.iter().any(|value| value.eq_ignore_ascii_case(standard)) {
                let text = format!(
                    "--{flag} is set without specifying the standard {standard} header - API aggregation will not work"
                );
                // Upstream refuses the one flag that was added later, and warns of the others.
                match flag {
                    "requestheader-uid-headers" => found.fault(text),
                    _ => found.warn(text),
                }
            }
        }
        if self.allowed_names.iter().any(|name| name.trim().is_empty()) {
            found.fault("empty value in \"requestheader-allowed-names\"");
        }
        let Some(file) = &self.ca_file else { return };
        if Some(file.as_path()) == client_ca_file && self.allowed_names.is_empty() {
            found.fault("--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating proxy headers for arbitrary users");
        }
        if !proxy_client {
            found.warn("--requestheader-client-ca-file without --proxy-client-cert-file: extension servers do not trust the certificate that this server shows them");
        }
    }

    /// Common names that proxies may have. A client with a certificate of the server's own CA is the server itself.
    fn names(&self) -> Vec<String> {
        let mut names = self.allowed_names.clone();
        if self.ca_file.is_none() {
            names.push("front-proxy-client".into());
        }
        names
    }

    /// The headers, in lower case.
    fn headers(&self) -> RequestHeaderOptions {
        let lower = |list: &[String]| list.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
        RequestHeaderOptions {
            allowed_names: self.names(),
            username_headers: lower(&self.username_headers),
            uid_headers: lower(&self.uid_headers),
            group_headers: lower(&self.group_headers),
            extra_prefixes: lower(&self.extra_prefixes),
        }
    }
}

/// Service account tokens.
#[derive(Debug)]
pub(super) struct ServiceAccountTokens {
    /// The first issues, all are accepted.
    pub(super) issuers: Vec<String>,
    pub(super) audiences: Vec<String>,
    /// More keys that are accepted.
    pub(super) key_files: Vec<PathBuf>,
    /// The key that signs; made by the server when unset.
    pub(super) signing_key_file: Option<PathBuf>,
    /// The socket of a program that signs instead.
    pub(super) signing_endpoint: Option<String>,
    /// How long they hold, and which others of the server's own are accepted.
    pub(super) own: OwnTokenFlags,
}

/// The longest that tokens can be bounded to, in seconds. Upstream's figures.
const TOKEN_BOUNDS: std::ops::RangeInclusive<u64> = 3600..=1 << 32;

impl ServiceAccountTokens {
    fn check(&self, found: &mut Findings) {
        let most = self.own.service_account_max_token_expiration;
        if !most.is_zero()
            && (most.as_secs() < *TOKEN_BOUNDS.start() || most > Duration::from_secs(*TOKEN_BOUNDS.end()))
        {
            found.fault("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds");
        }
        if let Some(socket) = &self.signing_endpoint {
            if self.signing_key_file.is_some() || !self.key_files.is_empty() {
                found.fault("can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with `--service-account-signing-endpoint` (They are mutually exclusive)");
            }
            if socket
                .strip_prefix('@')
                .is_some_and(|name| !is_abstract_socket(name))
            {
                found.fault(format!(
                    "invalid value {} passed for `--service-account-signing-endpoint`, when prefixed with @ must be a valid abstract socket name",
                    go::quote(socket)
                ));
            }
        }
        if let Some(uri) = &self.own.service_account_jwks_uri
            && !is_https(uri)
        {
            found.fault(format!(
                "service-account-jwks-uri requires https scheme, parsed as: {uri}"
            ));
        }
        if self.issuers.is_empty() {
            found.fault("service-account-issuer is a required flag");
        }
        for (index, issuer) in self.issuers.iter().enumerate() {
            if issuer.is_empty() {
                found.fault("service-account-issuer should not be an empty string");
            } else if self.issuers[..index].contains(issuer) {
                found.fault(format!(
                    "service-account-issuer {} is already specified",
                    go::quote(issuer)
                ));
            } else if issuer.contains(':') && !is_https(issuer) {
                found.fault(format!(
                    "--service-account-issuer: {} is no https URL: name one such as https://kubernetes.default.svc, which clients verify tokens with",
                    go::quote(issuer)
                ));
            }
        }
    }

    /// With the issuers as audiences where none are named.
    fn into_options(self) -> TokenOptions {
        TokenOptions {
            audiences: match self.audiences.is_empty() {
                true => self.issuers.clone(),
                false => self.audiences,
            },
            issuers: self.issuers,
            key_files: self.key_files,
            signing_key_file: self.signing_key_file,
            signing_endpoint: self.signing_endpoint.map(PathBuf::from),
            lifetimes: TokenLifetimes {
                most_seconds: i64::try_from(self.own.service_account_max_token_expiration.as_secs())
                    .ok()
                    .filter(|most| *most > 0),
                extends: self.own.service_account_extend_token_expiration,
                most_extended_seconds: None,
            },
            jwks_uri: self.own.service_account_jwks_uri,
        }
    }
}

/// Whether the name has parts of letters, digits, `_` and `-`, with dots between them.
fn is_abstract_socket(name: &str) -> bool {
    let is_part = |part: &str| {
        let mut bytes = part.bytes();
        !part.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    name.split('.').all(is_part)
}

fn is_https(issuer: &str) -> bool {
    let uri = issuer.parse::<http::Uri>().ok();
    uri.is_some_and(|uri| {
        uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty())
    })
}
