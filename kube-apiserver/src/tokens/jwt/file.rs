//! The file of `--authentication-config`, followed while the server runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use generic_server::reload::Follow;
use machinery::go;
use parking_lot::Mutex;

use super::config::{AnonymousConfig, AuthenticationConfiguration};
use super::{Authenticators, JwtAuthenticators};

/// How long the issuers of a changed file may take to become known before the file is rejected for now. Upstream waits for a minute; here
/// the next look at the file tries again.
const ISSUERS_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether they have become known.
const HEALTH_INTERVAL: Duration = Duration::from_millis(50);

/// Called when other authenticators are in use.
type Changed = Box<dyn Fn() + Send + Sync>;

/// A file, and the authenticators that it describes.
pub(crate) struct ConfigFile {
    path: PathBuf,
    /// The content that is in use, or that will never hold.
    tracked: Mutex<Vec<u8>>,
    /// What the first content says of anonymous requests, which cannot change.
    anonymous: Option<AnonymousConfig>,
    authenticators: Arc<JwtAuthenticators>,
    changed: OnceLock<Changed>,
    patience: Duration,
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The configuration of a file, and its content.
pub(super) fn read(path: &Path) -> Result<(AuthenticationConfiguration, Vec<u8>), String> {
    let data = std::fs::read(path).map_err(|error| error.to_string())?;
    Ok((AuthenticationConfiguration::parse(&data)?, data))
}

/// Why a changed file is not in use.
enum Fault {
    /// It never will be.
    Content(String),
    /// It may be later.
    Passing(String),
}

impl ConfigFile {
    /// A file whose content is in use.
    pub(super) fn new(
        path: &Path,
        data: Vec<u8>,
        anonymous: Option<AnonymousConfig>,
        authenticators: Arc<JwtAuthenticators>,
    ) -> Self {
        authenticators.context.metrics.configured(&data);
        ConfigFile {
            path: path.to_path_buf(),
            tracked: Mutex::new(data),
            anonymous,
            authenticators,
            changed: OnceLock::new(),
            patience: ISSUERS_TIMEOUT,
        }
    }

    /// Calls this whenever other authenticators are in use.
    pub(crate) fn when_changed(&self, call: impl Fn() + Send + Sync + 'static) {
        // It is called once, by the one who follows the file.
        let _ = self.changed.set(Box::new(call));
    }

    async fn look_quietly(&self) -> Result<bool, Fault> {
        let data = std::fs::read(&self.path).map_err(|error| Fault::Passing(error.to_string()))?;
        if data == *self.tracked.lock() {
            return Ok(false);
        }
        let outcome = self.take_over(&data).await;
        if !matches!(outcome, Err(Fault::Passing(_))) {
            *self.tracked.lock() = data;
        }
        outcome.map(|()| true)
    }

    async fn take_over(&self, data: &[u8]) -> Result<(), Fault> {
        let config = AuthenticationConfiguration::parse(data).map_err(Fault::Content)?;
        let same = config.anonymous == self.anonymous;
        let context = &self.authenticators.context;
        let mut faults: Vec<String> = Vec::new();
        let made = context
            .authenticators(config)
            .map_err(|why| faults.push(why))
            .ok();
        if !same {
            faults.push("anonymous: Forbidden: changed from initial configuration file".into());
        }
        let Some(made) = made.filter(|_| same) else {
            return Err(Fault::Content(go::aggregate(&faults).into_owned()));
        };
        made.start();
        wait_until_healthy(&made, self.patience).await?;
        self.authenticators.replace(made);
        context.metrics.configured(data);
        if let Some(changed) = self.changed.get() {
            changed();
        }
        Ok(())
    }
}

async fn wait_until_healthy(made: &Authenticators, patience: Duration) -> Result<(), Fault> {
    let deadline = tokio::time::Instant::now() + patience;
    while let Err(why) = made.health() {
        if tokio::time::Instant::now() >= deadline {
            return Err(Fault::Passing(why));
        }
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
    Ok(())
}

#[async_trait::async_trait]
impl Follow for ConfigFile {
    fn name(&self) -> &'static str {
        "authentication configuration"
    }

    fn path(&self) -> &Path {
        &self.path
    }

    async fn look(&self) -> bool {
        let metrics = &self.authenticators.context.metrics;
        match self.look_quietly().await {
            Ok(false) => false,
            Ok(true) => {
                metrics.reloaded(true);
                tracing::info!("the authentication configuration was reloaded");
                true
            }
            Err(Fault::Content(error) | Fault::Passing(error)) => {
                metrics.reloaded(false);
                tracing::error!(%error, "the changed authentication configuration cannot be used; the previous one stays in use");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use generic_server::authn::{TokenAuthenticator, TokenVerdict};
    use generic_server::client::egress::EgressSelector;
    use generic_server::spawn::Tasks;

    use super::super::JwtSource;
    use super::*;

    /// A configuration with this issuer.
    fn text(issuer: &str) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{{issuer: {{url: '{issuer}', audiences: [a]}}, \
             claimMappings: {{username: {{claim: sub, prefix: ''}}}}}}]\n"
        )
    }

    #[tokio::test]
    async fn a_file_whose_issuers_do_not_answer_is_tried_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("authentication.yaml");
        // Nothing listens there.
        std::fs::write(&path, text("https://127.0.0.1:1/a")).expect("a file");
        let source = JwtSource::File(path.clone());
        let tasks = Tasks::new();
        let Ok(loaded) = source.load(&[], &[], &EgressSelector::default(), &tasks) else {
            panic!("it is sound");
        };
        let authenticators = loaded.authenticators.expect("one");
        let data = std::fs::read(&path).expect("a file");
        let mut file = ConfigFile::new(&path, data, None, authenticators.clone());
        file.patience = Duration::ZERO;
        assert!(!file.look().await, "nothing has changed");
        std::fs::write(&path, text("https://127.0.0.1:1/b")).expect("a file");
        for round in 1..=2 {
            assert!(!file.look().await);
            let mut metrics = String::new();
            authenticators.metrics().collect(&mut metrics);
            let failures = format!("status=\"failure\"}} {round}\n");
            assert!(metrics.contains(&failures), "{metrics}");
        }
        // The configuration before is in use.
        let token = |issuer: &str| {
            use base64::Engine;
            let claims = format!("{{\"iss\":\"{issuer}\"}}");
            format!("e30.{}.", base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(claims))
        };
        let verdict = authenticators
            .authenticate_token(&token("https://127.0.0.1:1/a"), &[])
            .await;
        assert_eq!(
            verdict,
            TokenVerdict::Failed("oidc: authenticator not initialized".into())
        );
        let verdict = authenticators
            .authenticate_token(&token("https://127.0.0.1:1/b"), &[])
            .await;
        assert_eq!(verdict, TokenVerdict::NotMine);
        tasks.stop(Duration::ZERO).await;
    }
}
