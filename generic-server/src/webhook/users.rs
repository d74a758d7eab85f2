//! The credentials that this server shows to webhooks: the users of a kubeconfig that are named after the endpoints that they are for.
//!
//! Mirrors upstream's `util/webhook/authentication.go`. Only users count: clusters say where a server is, which webhooks say themselves, and
//! the current context names the user for all others.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use serde_json::Value;

use crate::client::BearerToken;
use crate::pki::Issued;

/// Fields of users that change who asks, and that this client does not support.
const UNSUPPORTED: [&str; 6] = [
    "exec",
    "auth-provider",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
];

/// The users of a kubeconfig by name. Without any, webhooks are asked anonymously.
#[derive(Debug, Clone, Default)]
pub struct WebhookUsers {
    by_name: HashMap<String, Arc<WebhookUser>>,
    /// Of the current context.
    current: Option<Arc<WebhookUser>>,
}

/// The credentials of one user.
#[derive(Default)]
pub struct WebhookUser {
    certificate: Option<Certificate>,
    authorization: Option<Authorization>,
}

/// Never prints what is secret.
impl std::fmt::Debug for WebhookUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookUser").finish_non_exhaustive()
    }
}

enum Authorization {
    Bearer(BearerToken),
    Basic(HeaderValue),
}

struct Certificate {
    sources: [Source; 2],
    key: ArcSwap<CertifiedKey>,
}

/// Where PEM comes from.
enum Source {
    File(PathBuf),
    Text(String),
}

impl Source {
    fn of(user: &Value, key: &str, base: &Path) -> Result<Option<Self>, String> {
        if let Some(data) = text(user, &format!("{key}-data")) {
            let unusable = || format!("`{key}-data` is not PEM in base64");
            let bytes = BASE64_STANDARD.decode(data).map_err(|_| unusable())?;
            return Ok(Some(Source::Text(
                String::from_utf8(bytes).map_err(|_| unusable())?,
            )));
        }
        Ok(text(user, key).map(|file| Source::File(base.join(file))))
    }

    fn pem(&self) -> Result<String, String> {
        match self {
            Source::Text(text) => Ok(text.clone()),
            Source::File(file) => read(file),
        }
    }
}

impl Certificate {
    fn load(sources: &[Source; 2]) -> Result<Arc<CertifiedKey>, String> {
        let [certificate, key] = sources;
        let unusable =
            |error: &dyn std::fmt::Display| format!("the client certificate cannot be used: {error}");
        let pair = Issued {
            certificate: certificate.pem()?,
            key: key.pem()?,
        };
        pair.certified_key().map_err(|error| unusable(&error))
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.sources.iter().filter_map(|source| match source {
            Source::File(file) => Some(file),
            Source::Text(_) => None,
        })
    }
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read \"{}\": {error}", file.display()))
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key)?.as_str().filter(|text| !text.is_empty())
}

impl WebhookUser {
    fn read(user: &Value, base: &Path) -> Result<Self, String> {
        let set = |field: &&&str| {
            let value = user.get(**field).unwrap_or(&Value::Null);
            !value.is_null() && value.as_str() != Some("")
        };
        if let Some(field) = UNSUPPORTED.iter().find(set) {
            return Err(format!("`{field}` is not supported"));
        }
        let pair = (
            Source::of(user, "client-certificate", base)?,
            Source::of(user, "client-key", base)?,
        );
        let certificate = match pair {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let sources = [certificate, key];
                let key = ArcSwap::new(Certificate::load(&sources)?);
                Some(Certificate { sources, key })
            }
            _ => return Err("a client certificate needs its key, and a key its certificate".into()),
        };
        let token_file = text(user, "tokenFile").map(|file| base.join(file));
        let token = match (text(user, "token"), &token_file) {
            (Some(token), _) => Some(token.to_string()),
            (None, Some(file)) => Some(read(file)?),
            (None, None) => None,
        };
        let basic = ["username", "password"].map(|key| text(user, key).unwrap_or_default());
        let authorization = match (token, basic) {
            (None, ["", ""]) => None,
            (Some(token), ["", ""]) => {
                let token = BearerToken::new(token.trim(), token_file);
                let token = token.map_err(|_| "the token cannot be sent in a header".to_string())?;
                Some(Authorization::Bearer(token))
            }
            (Some(_), _) => {
                return Err("username/password or bearer token may be set, but should not use both".into());
            }
            (None, [name, password]) => {
                let pair = BASE64_STANDARD.encode(format!("{name}:{password}"));
                let header = HeaderValue::from_str(&format!("Basic {pair}"));
                let mut header = header.map_err(|error| error.to_string())?;
                header.set_sensitive(true);
                Some(Authorization::Basic(header))
            }
        };
        Ok(WebhookUser {
            certificate,
            authorization,
        })
    }

    /// Whether it has a client certificate.
    pub(super) fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// The header `Authorization` of a request now.
    pub(super) async fn authorization(&self) -> Option<HeaderValue> {
        match self.authorization.as_ref()? {
            Authorization::Bearer(token) => Some(token.get().await),
            Authorization::Basic(header) => Some(header.clone()),
        }
    }
}

/// Shows the certificate, whatever authorities the server hints at.
impl ResolvesClientCert for WebhookUser {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.certificate.as_ref()?.key.load_full())
    }

    fn has_certs(&self) -> bool {
        self.has_certificate()
    }
}

impl WebhookUsers {
    /// Reads a kubeconfig. Files that it names are relative to it.
    ///
    /// # Errors
    /// It, or a file that it names, cannot be read, or a user cannot be used. Without the file's name.
    pub fn read(path: &Path) -> Result<Self, String> {
        let document = machinery::codec::yaml::decode(read(path)?.as_bytes())
            .map_err(|error| error.to_string())?
            .value;
        let base = path.parent().unwrap_or(Path::new(""));
        let mut by_name: HashMap<String, Arc<WebhookUser>> = HashMap::new();
        for entry in list(&document, "users") {
            let name = text(entry, "name").unwrap_or_default();
            let user = WebhookUser::read(entry.get("user").unwrap_or(&Value::Null), base);
            let user = user.map_err(|why| format!("user \"{name}\": {why}"))?;
            by_name.entry(name.to_string()).or_insert(Arc::new(user));
        }
        let current = text(&document, "current-context").and_then(|current| {
            let mut contexts = list(&document, "contexts").iter();
            let found = contexts.find(|entry| text(entry, "name") == Some(current))?;
            by_name.get(text(found.get("context")?, "user")?).cloned()
        });
        Ok(WebhookUsers { by_name, current })
    }

    /// The user for a target (`host:port`): of that name, of a name that begins with `*.`, without the port where it is 443, of the name `*`,
    /// or that of the current context.
    pub(super) fn of(&self, target: &str) -> Option<&Arc<WebhookUser>> {
        self.named(target)
            .or_else(|| self.named(target.strip_suffix(":443")?))
            .or_else(|| self.by_name.get("*"))
            .or(self.current.as_ref())
    }

    fn named(&self, target: &str) -> Option<&Arc<WebhookUser>> {
        let by_suffix = || {
            let suffixes = target.match_indices('.').map(|(at, _)| &target[at..]);
            suffixes
                .filter_map(|suffix| self.by_name.get(&format!("*{suffix}")))
                .next()
        };
        self.by_name.get(target).or_else(by_suffix)
    }

    /// The files of client certificates, which are to be followed.
    pub fn files(&self) -> Vec<PathBuf> {
        let certificates = self.by_name.values().filter_map(|user| user.certificate.as_ref());
        certificates.flat_map(Certificate::files).cloned().collect()
    }

    /// Reads the client certificates again. Connections that are open go on with the one that they were made with.
    ///
    /// # Errors
    /// The first that cannot be used. Those stay as they were.
    pub fn reload(&self) -> Result<(), String> {
        let mut outcome = Ok(());
        for (name, user) in &self.by_name {
            let Some(certificate) = &user.certificate else {
                continue;
            };
            match Certificate::load(&certificate.sources) {
                Ok(key) => certificate.key.store(key),
                Err(why) => outcome = outcome.and(Err(format!("user \"{name}\": {why}"))),
            }
        }
        outcome
    }
}

fn list<'v>(document: &'v Value, key: &str) -> &'v [Value] {
    document
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Authority;

    fn users(text: &str) -> Result<WebhookUsers, String> {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("hooks.kubeconfig");
        std::fs::write(&file, text).expect("it is written");
        std::fs::write(folder.path().join("token"), "from-file\n").expect("it is written");
        let authority = Authority::generate("test").expect("an authority");
        let pair = authority.client("hooks", "").expect("a certificate");
        std::fs::write(folder.path().join("tls.crt"), &pair.certificate).expect("it is written");
        std::fs::write(folder.path().join("tls.key"), &pair.key).expect("it is written");
        let users = WebhookUsers::read(&file);
        if let Ok(users) = &users {
            assert_eq!(users.reload(), Ok(()));
        }
        users
    }

    #[tokio::test]
    async fn the_most_specific_user_of_an_endpoint() {
        let text = "current-context: c\ncontexts: [{name: c, context: {user: current}}]\nusers:\n\
            - {name: 'hook.ns.svc:443', user: {token: exact}}\n\
            - {name: 'hook.ns.svc', user: {token: late}}\n\
            - {name: '*.ns.svc', user: {token: without-port}}\n\
            - {name: '*.svc:8443', user: {token: with-port}}\n\
            - {name: '*.example.com', user: {tokenFile: token}}\n\
            - {name: 'localhost:1', user: {username: u, password: p}}\n\
            - {name: current, user: {token: current}}\n";
        let known = users(text).expect("users");
        #[track_caller]
        fn header(users: &WebhookUsers, target: &str) -> String {
            let user = users.of(target).expect("a user").clone();
            let header = futures_util::FutureExt::now_or_never(user.authorization()).flatten();
            header.expect("a header").to_str().expect("a text").to_string()
        }
        assert_eq!(header(&known, "hook.ns.svc:443"), "Bearer exact");
        assert_eq!(header(&known, "other.ns.svc:443"), "Bearer without-port");
        assert_eq!(header(&known, "other.ns.svc:8443"), "Bearer with-port");
        assert_eq!(header(&known, "a.b.example.com:443"), "Bearer from-file");
        assert_eq!(header(&known, "a.example.com:444"), "Bearer current");
        assert_eq!(header(&known, "localhost:1"), "Basic dTpw");
        let starred = users(&format!("{text}- {{name: '*', user: {{token: star}}}}\n")).expect("users");
        assert_eq!(header(&starred, "a.example.com:444"), "Bearer star");
        assert!(WebhookUsers::default().of("hook.ns.svc:443").is_none());
        assert!(!format!("{known:?}").contains("exact"));
    }

    #[test]
    fn certificates_and_faults() {
        let named = |user: &str| users(&format!("users: [{{name: a, user: {user}}}]"));
        let known = named("{client-certificate: tls.crt, client-key: tls.key}").expect("users");
        assert_eq!(known.files().len(), 2);
        assert!(known.of("a").expect("a user").has_certs());
        #[track_caller]
        fn refused(users: Result<WebhookUsers, String>, expected: &str) {
            let why = users.expect_err("a fault");
            assert!(why.starts_with(expected), "{why}");
        }
        refused(
            named("{client-certificate: tls.crt}"),
            "user \"a\": a client certificate needs its key",
        );
        refused(
            named("{client-certificate: gone, client-key: tls.key}"),
            "user \"a\": cannot read \"",
        );
        refused(
            named("{client-certificate-data: AAAA, client-key: tls.key}"),
            "user \"a\": the client certificate cannot be used",
        );
        refused(
            named("{exec: {command: c}}"),
            "user \"a\": `exec` is not supported",
        );
        refused(named("{as: admin}"), "user \"a\": `as` is not supported");
        refused(
            named("{token: t, username: u}"),
            "user \"a\": username/password or bearer token may be set",
        );
        refused(named("{tokenFile: gone}"), "user \"a\": cannot read \"");
    }
}
