//! The only place where an [`ApiError`] becomes a Status on the wire, and where JSON becomes a response: encoded, indented,
//! compressed.

pub(crate) mod cbor;
pub(crate) mod gzip;
pub(crate) mod json;
pub(crate) mod protobuf;

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use machinery::ApiError;
use serde_json::Value;

use crate::negotiate::{DocumentForm, ErrorForm, Media, Negotiated, View, takes_gzip, wants_pretty};
use crate::request::audit::{ResponseObject, StatusText};
use crate::request::{Response, full};

/// Bodies up to this size are never compressed (upstream's figure).
pub(crate) const GZIP_ABOVE: usize = 128 * 1024;
/// Headers that answers mostly have; room for them is made at once.
const HEADERS: usize = 8;

/// The error as a JSON Status, regardless of the accepted media types.
pub fn error(error: &ApiError) -> Response {
    negotiated(
        error,
        ErrorForm {
            media: Media::Json,
            pretty: false,
        },
    )
}

/// What an endpoint outside the API answers: JSON as it is, or the error.
pub fn plain(answer: Result<Value, ApiError>) -> Response {
    match answer {
        Ok(answer) => {
            let mut response = Response::new(full(answer.to_string()));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(error) => self::error(&error),
    }
}

/// The error in the form that the client takes.
pub(crate) fn negotiated(error: &ApiError, form: ErrorForm) -> Response {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let negotiated = Negotiated {
        media: form.media,
        view: View::Object,
        pretty: form.pretty,
        gzip: false,
        recorded: false,
    };
    let text = json::status(&error.to_value());
    // What auditing records: it never reads bodies, which may be indented, encoded or another server's.
    let status = StatusText(Bytes::copy_from_slice(&text));
    let mut response = finish(&negotiated, text, code).unwrap_or_else(|_| {
        // A Status always has a form; should an encoder think otherwise, the code still says what matters.
        let mut response = Response::new(full(Bytes::new()));
        *response.status_mut() = code;
        response
    });
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response.extensions_mut().insert(status);
    response
}

/// Answers a Status that is no error.
pub(crate) fn status(negotiated: &Negotiated, status: Value, code: StatusCode) -> Result<Response, ApiError> {
    let text = json::status(&status);
    let recorded = StatusText(Bytes::copy_from_slice(&text));
    let mut response = finish(negotiated, text, code)?;
    response.extensions_mut().insert(recorded);
    Ok(response)
}

/// Answers a JSON document in a form.
pub(crate) fn in_form(head: &Parts, form: DocumentForm, document: &Bytes) -> Response {
    let media = match form {
        DocumentForm::Json | DocumentForm::AggregatedDiscovery => Media::Json,
        DocumentForm::Yaml => Media::Yaml,
        DocumentForm::Protobuf => Media::Protobuf,
        DocumentForm::Cbor => Media::Cbor,
    };
    let negotiated = Negotiated {
        media,
        view: View::Object,
        pretty: wants_pretty(&head.uri, &head.headers),
        gzip: takes_gzip(&head.headers),
        recorded: false,
    };
    self::document(&negotiated, document)
}

/// Answers compact JSON of an object in an encoding.
pub(crate) fn object(head: &Parts, media: Media, text: Vec<u8>) -> Result<Response, ApiError> {
    let negotiated = Negotiated {
        media,
        view: View::Object,
        pretty: wants_pretty(&head.uri, &head.headers),
        gzip: false,
        recorded: false,
    };
    finish(&negotiated, text, StatusCode::OK)
}

/// A body that is ready, compressed when it is large and the client takes that. The caller sets the content type.
pub(crate) fn maybe_gzip(headers: &HeaderMap, body: Bytes) -> Response {
    bytes(body, takes_gzip(headers))
}

/// Answers a JSON document that is no object of a resource.
fn document(negotiated: &Negotiated, document: &Bytes) -> Response {
    let text = document.trim_ascii_end();
    let json = Negotiated {
        media: Media::Json,
        ..*negotiated
    };
    // A document without a message is JSON, regardless of the accepted media types.
    finish(negotiated, text.to_vec(), StatusCode::OK)
        .or_else(|_| finish(&json, text.to_vec(), StatusCode::OK))
        .unwrap_or_else(|why| error(&why))
}

/// Compact JSON in the negotiated encoding, as a response.
pub(crate) fn finish(
    negotiated: &Negotiated,
    mut text: Vec<u8>,
    code: StatusCode,
) -> Result<Response, ApiError> {
    let object = negotiated
        .recorded
        .then(|| ResponseObject(Bytes::copy_from_slice(&text)));
    let body = match negotiated.media {
        Media::Json if negotiated.pretty => json::pretty(&text),
        Media::Json => {
            text.push(b'\n');
            text
        }
        Media::Yaml => {
            let value: Value = serde_json::from_slice(&text).map_err(ApiError::internal)?;
            machinery::codec::yaml::to_string(&value).into_bytes()
        }
        Media::Protobuf => protobuf::of_json(&text)?,
        Media::Cbor => cbor::of_json(&text)?,
    };
    let mut response = ready(negotiated, body, code);
    if let Some(object) = object {
        response.extensions_mut().insert(object);
    }
    Ok(response)
}

/// An encoded body as a response.
pub(crate) fn ready(negotiated: &Negotiated, body: Vec<u8>, code: StatusCode) -> Response {
    let mut response = bytes(body.into(), negotiated.gzip);
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static(negotiated.media.content_type());
    let headers = response.headers_mut();
    headers.reserve(HEADERS);
    headers.insert(header::CONTENT_TYPE, content_type);
    response
}

/// A body that is ready, compressed when it is large and the client takes that.
pub(crate) fn bytes(body: Bytes, gzip: bool) -> Response {
    if !gzip || body.len() <= GZIP_ABOVE {
        return Response::new(full(body));
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    let compressed = encoder.write_all(&body).and_then(|()| encoder.finish());
    let Ok(compressed) = compressed else {
        return Response::new(full(body));
    };
    let mut response = Response::new(full(compressed));
    mark_gzip(&mut response);
    response
}

/// Says that a body is compressed.
pub(crate) fn mark_gzip(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}
