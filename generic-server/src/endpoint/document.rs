//! Documents that are served outside the API: JSON that is rendered in advance, `/version`, and the text of `/metrics`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderValue, header};

use super::Endpoint;
use crate::request::{Authorized, Request, Response, full};
use crate::version;

/// `/version`: the version that this server is compatible with.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    major: &'static str,
    minor: &'static str,
    emulation_major: &'static str,
    emulation_minor: &'static str,
    min_compatibility_major: &'static str,
    min_compatibility_minor: &'static str,
    git_version: String,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: String,
}

impl Default for Version {
    fn default() -> Self {
        Version {
            major: version::MAJOR,
            minor: version::MINOR,
            emulation_major: version::MAJOR,
            emulation_minor: version::MINOR,
            min_compatibility_major: version::MAJOR,
            min_compatibility_minor: version::MIN_COMPATIBILITY_MINOR,
            git_version: format!("v{}+rust{}", version::KUBERNETES, version::OWN),
            git_commit: "",
            git_tree_state: "",
            build_date: "1970-01-01T00:00:00Z",
            go_version: "",
            compiler: "rustc",
            platform: format!("{}/{}", std::env::consts::OS, go_arch()),
        }
    }
}

impl Version {
    /// The structure as Go prints it with its field names: `--version=raw` of upstream.
    pub fn go_syntax(&self) -> String {
        let fields = [
            ("Major", self.major),
            ("Minor", self.minor),
            ("EmulationMajor", self.emulation_major),
            ("EmulationMinor", self.emulation_minor),
            ("MinCompatibilityMajor", self.min_compatibility_major),
            ("MinCompatibilityMinor", self.min_compatibility_minor),
            ("GitVersion", &self.git_version),
            ("GitCommit", self.git_commit),
            ("GitTreeState", self.git_tree_state),
            ("BuildDate", self.build_date),
            ("GoVersion", self.go_version),
            ("Compiler", self.compiler),
            ("Platform", &self.platform),
        ];
        let fields = fields.map(|(name, value)| format!("{name}:{}", machinery::go::quote(value)));
        format!("version.Info{{{}}}", fields.join(", "))
    }
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Serves a JSON document that is rendered in advance, to GET and at its path alone.
#[derive(Debug)]
pub struct StaticJson {
    document: ArcSwap<Bytes>,
    media: &'static str,
    /// For how many seconds anyone may keep it, where it is not to be asked for each time.
    lifetime: Option<Lifetime>,
}

struct Lifetime(Box<dyn Fn() -> u64 + Send + Sync>);

impl std::fmt::Debug for Lifetime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lifetime").finish_non_exhaustive()
    }
}

const JSON: &str = "application/json";

fn accepts(request: &Request, media: &str) -> bool {
    let mut given = request.headers().get_all(header::ACCEPT).iter().peekable();
    given.peek().is_none()
        || given.filter_map(|value| value.to_str().ok()).any(|value| {
            value.is_empty()
                || ["*/*", "application/*", media]
                    .iter()
                    .any(|kind| value.contains(kind))
        })
}

impl StaticJson {
    /// A document, compact.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn new(document: &serde_json::Value) -> Result<Arc<Self>, serde_json::Error> {
        Self::of_type(JSON, document)
    }

    /// The same with a media type of its own; it is served to clients that accept it.
    ///
    /// # Errors
    /// As there.
    pub fn of_type(
        media: &'static str,
        document: &serde_json::Value,
    ) -> Result<Arc<Self>, serde_json::Error> {
        let document = ArcSwap::from_pointee(serde_json::to_vec(document)?.into());
        Ok(Arc::new(StaticJson {
            document,
            media,
            lifetime: None,
        }))
    }

    /// The same, which anyone may keep for as many seconds as `lifetime` says then.
    ///
    /// # Errors
    /// As there.
    pub fn cached(
        media: &'static str,
        document: &serde_json::Value,
        lifetime: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Arc<Self>, serde_json::Error> {
        Ok(Arc::new(StaticJson {
            document: ArcSwap::from_pointee(serde_json::to_vec(document)?.into()),
            media,
            lifetime: Some(Lifetime(Box::new(lifetime))),
        }))
    }

    /// Serves this one from now on.
    ///
    /// # Errors
    /// When it cannot be written as JSON; then the one before stays.
    pub fn replace(&self, document: &serde_json::Value) -> Result<(), serde_json::Error> {
        self.document
            .store(Arc::new(serde_json::to_vec(document)?.into()));
        Ok(())
    }

    /// `/version`.
    ///
    /// # Errors
    /// Never in practice: the document is plain strings.
    pub fn version() -> Result<Arc<Self>, serde_json::Error> {
        Ok(Arc::new(StaticJson {
            document: ArcSwap::from_pointee(serde_json::to_vec_pretty(&Version::default())?.into()),
            media: JSON,
            lifetime: None,
        }))
    }
}

#[async_trait::async_trait]
impl Endpoint for StaticJson {
    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        let mut response = document_response(&request, self.media, || self.document.load().as_ref().clone());
        if let Some(lifetime) = &self.lifetime
            && response.status().is_success()
            && let Ok(value) = HeaderValue::from_str(&format!("public, max-age={}", (lifetime.0)()))
        {
            response.headers_mut().insert(header::CACHE_CONTROL, value);
        }
        response
    }
}

/// A JSON document, for GET requests that accept JSON.
pub(crate) fn json_response(request: &Request, document: impl FnOnce() -> Bytes) -> Response {
    document_response(request, JSON, document)
}

fn document_response(request: &Request, media: &'static str, document: impl FnOnce() -> Bytes) -> Response {
    if request.method() != http::Method::GET {
        return crate::respond::error(&machinery::ApiError::method_not_allowed());
    }
    if !accepts(request, media) {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {media}");
        let refusal = machinery::ApiError::new(406, machinery::Reason::NotAcceptable, message)
            .with_details(machinery::status::Details::default());
        return crate::respond::error(&refusal);
    }
    let mut response = Response::new(full(document()));
    let kind = HeaderValue::from_static(media);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Serves `/metrics`.
#[async_trait::async_trait]
impl Endpoint for crate::metrics::Metrics {
    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        // Upstream sets all metrics back; here counters never go back.
        if request.method() == http::Method::DELETE {
            return crate::respond::error(&machinery::ApiError::method_not_allowed());
        }
        let mut response = Response::new(full(self.render()));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
