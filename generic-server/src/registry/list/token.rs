//! Continue tokens: upstream's, readable by any server of the cluster, with one thing more that others ignore.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use storage::Revision;

const VERSION: &str = "meta.k8s.io/v1";

/// Where a list goes on, and at which state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Token {
    #[serde(rename = "v", default)]
    version: String,
    /// Negative: the newest state.
    #[serde(default)]
    rv: i64,
    /// The first key of the page, relative to the list's prefix.
    #[serde(default)]
    start: String,
    /// How many objects there are from `start` on: ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
}

impl Token {
    pub(super) fn at(revision: Revision, start: String) -> Self {
        let rv = i64::try_from(revision.0).unwrap_or(i64::MAX);
        Token {
            version: VERSION.into(),
            rv,
            start,
            left: None,
        }
    }

    /// Goes on at the newest state.
    pub(super) fn unpinned(start: &str) -> Self {
        Token {
            version: VERSION.into(),
            rv: -1,
            start: start.into(),
            left: None,
        }
    }

    pub(super) fn with_left(mut self, left: u64) -> Self {
        self.left = Some(left);
        self
    }

    /// The state to read; `None` for the newest.
    pub(super) fn revision(&self) -> Option<Revision> {
        u64::try_from(self.rv).ok().map(Revision)
    }

    pub(super) fn start(&self) -> &str {
        self.start.trim_start_matches('/')
    }

    pub(super) fn left(&self) -> Option<u64> {
        self.left
    }

    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads a token. The error is upstream's text.
    pub(super) fn decode(text: &str) -> Result<Self, String> {
        const INVALID: &str = "continue key is not valid";
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            // Go names the offset of the first byte that does not belong.
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                _ => text.len(),
            };
            format!("{INVALID}: illegal base64 data at input byte {at}")
        })?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|error| format!("{INVALID}: {error}"))?;
        if token.version != VERSION {
            return Err(format!(
                "{INVALID}: server does not recognize this encoded version {}",
                token.version
            ));
        }
        if token.rv == 0 {
            return Err(format!(
                "{INVALID}: incorrect encoded start resourceVersion (version {VERSION})"
            ));
        }
        if token.start.is_empty() {
            return Err(format!("{INVALID}: encoded start key empty (version {VERSION})"));
        }
        // A key that climbs out of the list's prefix is an attack.
        let climbs = |part: &str| part == "." || part == "..";
        let start = token.start();
        if token.start.starts_with("//")
            || start.split('/').any(climbs)
            || start.contains("//")
            || start.ends_with('/')
        {
            return Err(format!("{INVALID}: {}", token.start));
        }
        Ok(token)
    }
}
