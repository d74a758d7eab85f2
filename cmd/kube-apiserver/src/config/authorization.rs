//! Options about authorization.

use std::time::Duration;

use clap::ValueEnum;
use kube_apiserver::{AuthorizationOptions, AuthorizationSource, AuthorizationWebhookOptions, KindFeatures};
use machinery::go;

use super::Findings;
use crate::options::{AuthorizationFlags, AuthorizationMode, SubjectAccessReviewVersion};

/// Upstream's defaults of the webhook.
const AUTHORIZED_TTL: Duration = Duration::from_mins(5);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

impl AuthorizationFlags {
    /// Checks the flags, in upstream's words.
    pub(super) fn read(self, found: &mut Findings) -> AuthorizationOptions {
        let AuthorizationFlags {
            authorization_mode: mut modes,
            authorization_config: file,
            authorization_policy_file: policy_file,
            authorization_webhook_config_file: config_file,
            authorization_webhook_version: version,
            authorization_webhook_cache_authorized_ttl: authorized_ttl,
            authorization_webhook_cache_unauthorized_ttl: unauthorized_ttl,
        } = self;
        let tunes_webhook = version.is_some() || authorized_ttl.is_some() || unauthorized_ttl.is_some();
        if let Some(file) = file {
            if !modes.is_empty() || config_file.is_some() || tunes_webhook {
                found.fault("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined");
            }
            return AuthorizationOptions {
                source: AuthorizationSource::File(file),
                policy_file,
                features: KindFeatures::default(),
            };
        }
        if modes.is_empty() {
            modes.push(AuthorizationMode::Rbac);
        }
        let has = |mode| modes.contains(&mode);
        if has(AuthorizationMode::Abac) && policy_file.is_none() {
            found.fault("authorization-mode ABAC's authorization policy file not passed: name it with --authorization-policy-file");
        }
        if has(AuthorizationMode::Webhook) && config_file.is_none() {
            found.fault("authorization-mode Webhook's authorization config file not passed: name it with --authorization-webhook-config-file");
        }
        if policy_file.is_some() && !has(AuthorizationMode::Abac) {
            found.fault("cannot specify --authorization-policy-file without mode ABAC");
        }
        if config_file.is_some() && !has(AuthorizationMode::Webhook) {
            found.fault("cannot specify --authorization-webhook-config-file without mode Webhook");
        }
        if tunes_webhook && !has(AuthorizationMode::Webhook) {
            found.warn(
                "the --authorization-webhook-* flags have no effect without --authorization-mode=Webhook",
            );
        }
        let repeated = |mode: &AuthorizationMode| modes.iter().filter(|other| *other == mode).count() > 1;
        if modes.iter().any(repeated) {
            let names = modes.iter().filter_map(ValueEnum::to_possible_value);
            let names: Vec<String> = names.map(|name| go::quote(name.get_name())).collect();
            found.fault(format!(
                "authorization-mode [{}] has mode specified more than once",
                names.join(" ")
            ));
        }
        let version = version.unwrap_or(SubjectAccessReviewVersion::V1beta1);
        let webhook = config_file.map(|config_file| AuthorizationWebhookOptions {
            config_file,
            version: version.into(),
            authorized_ttl: authorized_ttl.unwrap_or(AUTHORIZED_TTL),
            unauthorized_ttl: unauthorized_ttl.unwrap_or(UNAUTHORIZED_TTL),
        });
        AuthorizationOptions {
            source: AuthorizationSource::Modes {
                modes: modes.into_iter().map(Into::into).collect(),
                webhook,
            },
            policy_file,
            features: KindFeatures::default(),
        }
    }
}
