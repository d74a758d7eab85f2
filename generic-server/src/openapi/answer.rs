//! The answers: negotiation, hashes, caching.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::{Form, OpenApi};
use crate::cpu;
use crate::negotiate;
use crate::request::{Response, empty};
use crate::request_info::query_value;

/// Media types of gnostic's messages: their names, and their former names.
const PROTOBUF_V2: [&str; 2] = [
    "com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "com.github.proto-openapi.spec.v2@v1.0+protobuf",
];
const PROTOBUF_V3: [&str; 2] = [
    "com.github.proto-openapi.spec.v3.v1.0+protobuf",
    "com.github.proto-openapi.spec.v3@v1.0+protobuf",
];
const INDEX: &str = "/openapi/v3";

impl OpenApi {
    /// Answers a path of OpenAPI, or `None` when it is none of these documents.
    pub async fn answer(&self, head: &Parts) -> Option<Response> {
        let path = head.uri.path();
        if path != super::V2 && path != INDEX && !path.starts_with("/openapi/v3/") {
            return None;
        }
        let below = path.strip_prefix("/openapi/v3/");
        if let Some(below) = below
            && !self.hashes().contains_key(below)
        {
            return Some(bare(StatusCode::NOT_FOUND));
        }
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return Some(bare(StatusCode::METHOD_NOT_ALLOWED));
        }
        if path == INDEX {
            return Some(self.index(head));
        }
        let protobuf = if below.is_none() {
            &PROTOBUF_V2
        } else {
            &PROTOBUF_V3
        };
        let form = match negotiate::pick(&head.headers, &["json", protobuf[0], protobuf[1]]) {
            None => return Some(bare(StatusCode::NOT_ACCEPTABLE)),
            Some(0) => Form::Json,
            Some(_) => Form::Protobuf,
        };
        // These documents are large: joining them again and compressing them takes long.
        cpu::pause(cpu::Lane::Answers).await;
        let found = match below {
            None => self.v2(form).await,
            Some(below) => self.v3(below, form).await,
        };
        let Some((hash, document)) = found else {
            return Some(bare(StatusCode::SERVICE_UNAVAILABLE));
        };
        let asked = query_value(head.uri.query().unwrap_or_default(), "hash").filter(|h| !h.is_empty());
        let asked = asked.filter(|_| below.is_some());
        if let Some(asked) = &asked
            && **asked != *hash
        {
            let mut response = bare(StatusCode::MOVED_PERMANENTLY);
            insert(&mut response, header::LOCATION, &format!("{path}?hash={hash}"));
            return Some(response);
        }
        let mut response = body(head, document, &hash);
        if form == Form::Protobuf && response.status() == StatusCode::OK {
            let kind = format!("application/{}", protobuf[0]);
            insert(&mut response, header::CONTENT_TYPE, &kind);
        }
        insert(&mut response, header::VARY, "Accept");
        if below.is_none() {
            insert(&mut response, header::VARY, "Accept-Encoding, Accept");
        }
        if asked.is_some() {
            insert(&mut response, header::CACHE_CONTROL, "public, immutable");
            let year = OffsetDateTime::now_utc() + time::Duration::days(365);
            if let Ok(at) = year.format(&Rfc2822) {
                insert(&mut response, header::EXPIRES, &at.replace("+0000", "GMT"));
            }
        }
        Some(response)
    }

    fn index(&self, head: &Parts) -> Response {
        let mut paths = Map::new();
        for (path, (_, hash)) in self.hashes() {
            let url = format!("{INDEX}/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
        let document = Bytes::from(json!({"paths": Value::Object(paths)}).to_string());
        let hash = super::digest(&document);
        let mut response = body(head, document, &hash);
        if response.status() == StatusCode::OK {
            insert(&mut response, header::CONTENT_TYPE, "text/plain; charset=utf-8");
        }
        response
    }
}

/// The document, or 304 when the client has it.
fn body(head: &Parts, document: Bytes, hash: &str) -> Response {
    let etag = format!("\"{hash}\"");
    let known = head
        .headers
        .get(header::IF_NONE_MATCH)
        .and_then(|v| v.to_str().ok());
    let mut response = if known.is_some_and(|known| known.split(',').any(|one| one.trim() == etag)) {
        bare(StatusCode::NOT_MODIFIED)
    } else {
        let mut response = crate::respond::maybe_gzip(&head.headers, document);
        insert(&mut response, header::CONTENT_TYPE, "application/json");
        response
    };
    insert(&mut response, header::ETAG, &etag);
    response
}

fn insert(response: &mut Response, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Nothing but a status.
fn bare(code: StatusCode) -> Response {
    let mut response = Response::new(empty());
    *response.status_mut() = code;
    response
}
