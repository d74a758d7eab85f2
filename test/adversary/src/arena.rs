//! The fixture that attacks share: the server, users of few rights, and a namespace that one of them administers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Answer, Attack, Credential, Error, Outcome, Server, Shot, Target};

/// How long set-up waits for what a controller does.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where attacks happen.
#[derive(Debug)]
pub struct Arena {
    /// The server.
    pub target: Target,
    /// Its process, when it is another one than this.
    pub pid: Option<u32>,
    /// The program, for attacks that want a server of their own.
    pub binary: Option<PathBuf>,
    /// An authenticated user with the rights of everybody.
    pub nobody: Credential,
    /// A user with the role `admin` in [`Arena::namespace`] and no other rights.
    pub tenant: Credential,
    /// The namespace of the attacks.
    pub namespace: String,
}

/// The components of an arena.
#[derive(Debug, Clone)]
pub struct Site {
    /// The server.
    pub target: Target,
    /// Its process.
    pub pid: Option<u32>,
    /// The program.
    pub binary: Option<PathBuf>,
}

impl Site {
    /// The site of a server that was started here.
    pub fn of(server: &Server) -> Self {
        Site {
            target: server.target.clone(),
            pid: server.pid(),
            binary: Some(server.binary.clone()),
        }
    }
}

impl Arena {
    /// Makes the namespace and the users, where they are not there yet.
    ///
    /// # Errors
    /// When the server does not let the administrator.
    pub async fn build(site: Site) -> Result<Self, Error> {
        let namespace = "adversary".to_string();
        let mut arena = Arena {
            target: site.target,
            pid: site.pid,
            binary: site.binary,
            nobody: Credential::Anonymous,
            tenant: Credential::Anonymous,
            namespace,
        };
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": arena.namespace}});
        arena.made("/api/v1/namespaces", &space).await?;
        for name in ["default", "nobody", "tenant"] {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
            arena.made(&arena.path("serviceaccounts"), &account).await?;
        }
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": arena.namespace}],
        });
        let bindings = format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
            arena.namespace
        );
        arena.made(&bindings, &binding).await?;
        arena.nobody = arena.token("nobody").await?;
        arena.tenant = arena.token("tenant").await?;
        let shot = Shot::get(arena.path("configmaps?limit=1")).by(&arena.tenant);
        arena
            .until("the tenant may list ConfigMaps", shot, |answer| {
                answer.status == 200
            })
            .await?;
        Ok(arena)
    }

    /// The path of something in the namespace, of the core group.
    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// The same of another group's version.
    pub fn path_of(&self, group_version: &str, rest: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{rest}", self.namespace)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn send(&self, shot: Shot) -> Result<Answer, Error> {
        self.target.send(shot).await
    }

    /// Sends one request that is the whole attack.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn shoot(&self, shot: Shot) -> Result<Outcome, Error> {
        self.volley(vec![shot]).await
    }

    /// Sends requests at once, each over a connection of its own.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn volley(&self, shots: Vec<Shot>) -> Result<Outcome, Error> {
        let mut flying = tokio::task::JoinSet::new();
        for shot in shots {
            let target = self.target.clone();
            flying.spawn(async move { target.send(shot).await });
        }
        let mut outcome = Outcome::new();
        while let Some(answer) = flying.join_next().await {
            outcome.count(&answer??);
        }
        Ok(outcome)
    }

    /// Makes an object as the administrator; one that is there is left as it is.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn made(&self, path: &str, object: &Value) -> Result<(), Error> {
        let answer = self.send(Shot::post(path, object)).await?;
        match answer.status {
            201 | 409 => Ok(()),
            other => Err(format!("POST {path}: {other} {}", String::from_utf8_lossy(&answer.body)).into()),
        }
    }

    /// Deletes an object, whether it is there or not.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn gone(&self, path: &str) -> Result<(), Error> {
        self.send(Shot::of("DELETE", path)).await.map(|_| ())
    }

    /// A token of a service account of the namespace.
    ///
    /// # Errors
    /// When there is none.
    pub async fn token(&self, account: &str) -> Result<Credential, Error> {
        let path = self.path(&format!("serviceaccounts/{account}/token"));
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = self.send(Shot::post(path, &request)).await?.json();
        let token = answer["status"]["token"].as_str().ok_or("no token")?;
        Ok(Credential::Token(token.to_string()))
    }

    /// Sends a request again until the answer is as wanted.
    ///
    /// # Errors
    /// When it does not become so, or there is no connection.
    pub async fn until(
        &self,
        what: &str,
        shot: Shot,
        wanted: impl Fn(&Answer) -> bool + Send,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        while !wanted(&self.send(shot.clone()).await?) {
            if begun.elapsed() > PATIENCE {
                return Err(format!("{what}: not within {PATIENCE:?}").into());
            }
            // The condition is of another process.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Plays an attack to its end, or until its time is over.
    pub async fn play(&self, attack: &Attack) -> Outcome {
        let limit = Duration::from_secs(attack.bound.seconds);
        match tokio::time::timeout(limit, (attack.run)(self)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Outcome {
                broken: Some(format!("could not be played to its end: {error}")),
                ..Outcome::default()
            },
            Err(_) => Outcome {
                broken: Some(format!("not over after {} s", limit.as_secs())),
                ..Outcome::default()
            },
        }
    }
}
