//! The form of an answer: media type, view (the object, a Table, metadata alone), pretty or not, compressed or not.
//!
//! Decided once per request from its head, before anything is done for it. Mirrors `endpoints/handlers/negotiation` of
//! k8s.io/apiserver and, for built-in kinds, the coarser look that go-restful takes at `Accept` before that.

mod accept;
#[cfg(test)]
mod tests;
mod zpage;

use http::request::Parts;
use http::{HeaderMap, Uri, header};
use machinery::ApiError;

use crate::request::audit::RecordsObjects;
use crate::request_info::query_value;
use accept::Clause;

pub(crate) use zpage::{Page, page};

/// The media types of built-in kinds, as 406 and 415 list it. Custom kinds refuse protobuf, yet upstream's message names it.
pub(crate) const BUILTIN_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// The same with the streaming forms, for lists and watches.
const STREAM_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// Both where CBOR is served.
const BUILTIN_TYPES_WITH_CBOR: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
];
const STREAM_TYPES_WITH_CBOR: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/cbor-seq",
];

/// Marks a request to a server that speaks CBOR (`--feature-gates=CBORServingAndStorage=true`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServesCbor;

/// Whether the answer to a request, and its body, may be CBOR.
pub(crate) fn serves_cbor(head: &Parts) -> bool {
    head.extensions.get::<ServesCbor>().is_some()
}

/// The media types of objects, as 406 and 415 list them.
pub(crate) fn object_types(head: &Parts) -> &'static [&'static str] {
    match serves_cbor(head) {
        true => BUILTIN_TYPES_WITH_CBOR,
        false => BUILTIN_TYPES,
    }
}

/// The media types that events of a watch can be sent in, likewise.
pub(crate) fn watch_types(head: &Parts) -> &'static [&'static str] {
    match serves_cbor(head) {
        true => &[
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
            "application/cbor-seq",
        ],
        false => &[
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ],
    }
}

/// How an answer is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
    /// `application/cbor`, on request alone.
    Cbor,
}

impl Media {
    /// In the order in which wildcards choose.
    const ALL: [Media; 4] = [Media::Json, Media::Yaml, Media::Protobuf, Media::Cbor];

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Cbor => "application/cbor",
        }
    }

    /// Of a watch.
    pub(crate) fn stream_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Cbor => "application/cbor-seq",
        }
    }

    fn subtype(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Protobuf => "vnd.kubernetes.protobuf",
            Self::Cbor => "cbor",
        }
    }
}

/// The version of `meta.k8s.io` that a view is made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The part of the object that a Table's rows carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

/// The view of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum View {
    /// The object itself.
    Object,
    /// `as=Table`.
    Table(MetaVersion, IncludeObject),
    /// `as=PartialObjectMetadata`.
    Partial(MetaVersion),
    /// `as=PartialObjectMetadataList`.
    PartialList(MetaVersion),
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) media: Media,
    pub(crate) view: View,
    pub(crate) pretty: bool,
    /// The client takes gzip; bodies above the threshold are sent so.
    pub(crate) gzip: bool,
    /// The answer's object goes into the audit log, too, as JSON.
    pub(crate) recorded: bool,
}

/// The form of an error: never a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorForm {
    pub(crate) media: Media,
    pub(crate) pretty: bool,
}

/// The properties of the request that decide which media types are offered.
#[derive(Debug, Clone, Copy)]
struct Offer {
    custom: bool,
    stream: bool,
    table: bool,
}

/// The form of an answer about a resource, built-in or custom. 406 in upstream's words when nothing fits; 400 for a bad `includeObject`.
pub(crate) fn negotiate(head: &Parts, custom: bool) -> Result<Negotiated, ApiError> {
    of(
        head,
        Offer {
            custom,
            stream: false,
            table: true,
        },
    )
}

/// The same for what a subresource has made, which has no columns.
pub(crate) fn negotiate_created(head: &Parts, custom: bool) -> Result<Negotiated, ApiError> {
    of(
        head,
        Offer {
            custom,
            stream: false,
            table: false,
        },
    )
}

/// The same for lists and watches, which offer streams too.
pub(crate) fn negotiate_stream(head: &Parts, custom: bool) -> Result<Negotiated, ApiError> {
    of(
        head,
        Offer {
            custom,
            stream: true,
            table: true,
        },
    )
}

fn of(head: &Parts, offer: Offer) -> Result<Negotiated, ApiError> {
    let accept = text(&head.headers, header::ACCEPT);
    let cbor = serves_cbor(head);
    let offers = match (offer.stream, cbor) {
        (true, true) => STREAM_TYPES_WITH_CBOR,
        (true, false) => STREAM_TYPES,
        (false, _) => object_types(head),
    };
    // What most clients ask for is on offer everywhere.
    let common = accept == "application/json";
    if !offer.custom && !common && !accept::produces(accept, offers) {
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            offers.join(", ")
        );
        return Err(ApiError::not_acceptable(offers)
            .with_message(message)
            .with_details(machinery::status::Details::default()));
    }
    let Some((media, view, pretty)) = choose(accept, |media, view| match (media, view) {
        (Media::Cbor, _) if !cbor => false,
        (_, View::Object) => !(offer.custom && media == Media::Protobuf),
        (_, View::Table(..)) => offer.table && matches!(media, Media::Json | Media::Yaml),
        (_, View::Partial(_) | View::PartialList(_)) => true,
    }) else {
        return Err(ApiError::not_acceptable(object_types(head)));
    };
    let view = match view {
        View::Table(version, _) => View::Table(version, include_object(&head.uri)?),
        view => view,
    };
    Ok(Negotiated {
        media,
        view,
        pretty: pretty || wants_pretty(&head.uri, &head.headers),
        gzip: takes_gzip(&head.headers),
        recorded: head.extensions.get::<RecordsObjects>().is_some(),
    })
}

/// The form of an error. Without an acceptable media type it is indented JSON, as upstream has it.
pub(crate) fn error_form(uri: &Uri, headers: &HeaderMap, cbor: bool) -> ErrorForm {
    let allowed = |media, view| view == View::Object && (cbor || media != Media::Cbor);
    match choose(text(headers, header::ACCEPT), allowed) {
        Some((media, _, pretty)) => ErrorForm {
            media,
            pretty: pretty || wants_pretty(uri, headers),
        },
        None => ErrorForm {
            media: Media::Json,
            pretty: true,
        },
    }
}

/// The first media type that the client likes best and `allowed` lets it have, with the view and whether it asked for indentation.
fn choose(accept: &str, allowed: impl Fn(Media, View) -> bool) -> Option<(Media, View, bool)> {
    let common = matches!(accept, "" | "application/json");
    if common && allowed(Media::Json, View::Object) {
        return Some((Media::Json, View::Object, false));
    }
    for clause in accept::parse(accept) {
        let Some(view) = view_of(&clause) else { continue };
        let matching = Media::ALL.into_iter().find(|media| {
            let kind =
                clause.kind == "application" && (clause.subtype == media.subtype() || clause.subtype == "*");
            (kind || (clause.kind == "*" && clause.subtype == "*"))
                && (clause
                    .param("stream")
                    .is_none_or(|s| s == "watch" && *media != Media::Yaml))
                && allowed(*media, view)
        });
        if let Some(media) = matching {
            return Some((media, view, clause.param("pretty") == Some("1")));
        }
    }
    None
}

/// The view that a clause asks for; `None` when there is none such.
fn view_of(clause: &Clause<'_>) -> Option<View> {
    let (kind, group, version) = (clause.param("as"), clause.param("g"), clause.param("v"));
    if kind.is_none() && group.is_none() && version.is_none() {
        return Some(View::Object);
    }
    if clause.param("sv").is_some_and(|v| !v.is_empty() && v != "v1") || group != Some("meta.k8s.io") {
        return None;
    }
    let version = match version? {
        "v1" => MetaVersion::V1,
        "v1beta1" => MetaVersion::V1Beta1,
        _ => return None,
    };
    match kind? {
        "Table" => Some(View::Table(version, IncludeObject::Metadata)),
        "PartialObjectMetadata" => Some(View::Partial(version)),
        "PartialObjectMetadataList" => Some(View::PartialList(version)),
        _ => None,
    }
}

fn include_object(uri: &Uri) -> Result<IncludeObject, ApiError> {
    match query_value(uri.query().unwrap_or_default(), "includeObject").as_deref() {
        None | Some("" | "Metadata") => Ok(IncludeObject::Metadata),
        Some("Object") => Ok(IncludeObject::Object),
        Some("None") => Ok(IncludeObject::None),
        Some(other) => Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
            machinery::go::quote(other)
        ))),
    }
}

/// `pretty` in the query, else whether the client is one that people look at.
pub(crate) fn wants_pretty(uri: &Uri, headers: &HeaderMap) -> bool {
    let asked = uri.query().filter(|q| q.contains("pretty")).unwrap_or_default();
    if let Some(value) = query_value(asked, "pretty").filter(|v| !v.is_empty()) {
        return matches!(&*value, "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = text(headers, header::USER_AGENT);
    ["curl", "Wget", "Mozilla/5.0"]
        .iter()
        .any(|known| agent.starts_with(known))
}

/// Whether the client names gzip among the encodings it takes (a quality makes it another token, as upstream reads it).
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    text(headers, header::ACCEPT_ENCODING)
        .split(',')
        .any(|token| token.trim() == "gzip")
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default()
}

/// Which of these subtypes of `application/` a client would rather have; `None` when none will do.
pub(crate) fn pick(headers: &HeaderMap, offers: &[&str]) -> Option<usize> {
    let accept = text(headers, header::ACCEPT);
    let accept = if accept.is_empty() { "*/*" } else { accept };
    accept::parse(accept)
        .filter(|clause| matches!(clause.kind, "application" | "*"))
        .find_map(|clause| {
            offers
                .iter()
                .position(|offer| clause.subtype == "*" || clause.subtype == *offer)
        })
}

/// The form of a document that is no resource (discovery, versions).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentForm {
    Json,
    Yaml,
    Protobuf,
    Cbor,
    /// `as=APIGroupDiscoveryList` of `apidiscovery.k8s.io/v2`.
    AggregatedDiscovery,
}

/// The form of a document; `aggregated` says that the aggregated form is on offer, and `cbor` that CBOR is. 406 when nothing fits.
pub(crate) fn document(headers: &HeaderMap, aggregated: bool, cbor: bool) -> Result<DocumentForm, ApiError> {
    let accept = text(headers, header::ACCEPT);
    if aggregated {
        let mut clauses = accept::parse(accept);
        let is_aggregated = |clause: &Clause<'_>| {
            clause.kind == "application"
                && clause.subtype == "json"
                && clause.param("g") == Some("apidiscovery.k8s.io")
                && clause.param("v") == Some("v2")
                && clause.param("as") == Some("APIGroupDiscoveryList")
        };
        // A client that accepts it gets it, even if it accepts others too.
        if clauses.any(|clause| is_aggregated(&clause)) {
            return Ok(DocumentForm::AggregatedDiscovery);
        }
    }
    let allowed = |media, view| view == View::Object && (cbor || media != Media::Cbor);
    match choose(accept, allowed) {
        Some((Media::Cbor, ..)) => Ok(DocumentForm::Cbor),
        Some((Media::Json, ..)) => Ok(DocumentForm::Json),
        Some((Media::Yaml, ..)) => Ok(DocumentForm::Yaml),
        Some((Media::Protobuf, ..)) => Ok(DocumentForm::Protobuf),
        None => Err(ApiError::not_acceptable(BUILTIN_TYPES)),
    }
}
