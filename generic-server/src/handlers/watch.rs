//! WATCH: the shared frames of a resource's events, filtered per watcher.
//!
//! A watch is a body that pulls. It owns a position in the cache's events, a timer and a filter; an event is encoded once per
//! form, for all watchers. Mirrors `endpoints/handlers/watch.go` and the cacher's `cache_watcher.go`.

mod body;
mod convert;
mod form;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, header};
use http_body_util::BodyExt;
use machinery::ApiError;
use tokio::time::Instant;

use super::options::parse_list;
use crate::negotiate::{Media, negotiate_stream, watch_types};
use crate::registry::View;
use crate::registry::cache::{Entry, Feed};
use crate::registry::figures::Scope;
use crate::registry::list::{ListOptions, Selection, parse_version};
use crate::request::{Authorized, Response, full};
use crate::resource::ServedResource;
use body::{Counted, WatchBody};
use form::Form;

/// As good as no end, which is what a least time of zero asks for.
const ENDLESS: Duration = Duration::from_secs(365 * 24 * 3600);

/// The first events of a watch.
struct Beginning {
    /// Objects that are sent as ADDED first, and the revision that they are of.
    initial: Vec<Arc<Entry>>,
    /// A bookmark says that the initial events are complete.
    announce: bool,
    feed: Feed,
}

/// Answers a watch: a stream of events that ends with its time, or when the watcher is too slow. (The chain ends it with the server.)
pub(crate) async fn handle(
    resource: &Arc<ServedResource>,
    authorized: &Authorized,
    head: &Parts,
    min_timeout: Duration,
) -> Result<Response, ApiError> {
    let negotiated = negotiate_stream(head, resource.custom)?;
    let store = resource
        .store()
        .ok_or_else(ApiError::method_not_allowed)?
        .view(authorized);
    let info = authorized.info();
    let options = parse_list(head.uri.query(), resource, info, true)?;
    if negotiated.media == Media::Yaml {
        return Err(ApiError::not_acceptable(watch_types(head)));
    }
    let selection = options.selection(&store, &info.namespace);
    // The cache is there, or the failure is a plain one; a later failure is an event of the stream, as upstream has it.
    store.cache().await?;
    let form = Form::new(resource.clone(), &negotiated);
    // A version that is no number is upstream's bare 500.
    parse_version(&options.version).map_err(ApiError::raw_internal)?;
    let timeout = match options.timeout {
        None | Some(0) if min_timeout.is_zero() => ENDLESS,
        // Spread, so that watches which began together do not end together.
        None | Some(0) => min_timeout.min(ENDLESS).mul_f64(rand::random_range(1.0..2.0)),
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).min(ENDLESS),
    };
    let body = match begin(store, &selection, &options).await {
        Err(error) => full(form.error(&error)),
        Ok(beginning) => {
            let deadline = Instant::now() + timeout;
            let seat = head.extensions.get().cloned();
            let counted = Counted {
                figures: store.figures().watches(&resource.gvr.version),
                asked: authorized.context().received,
                scope: Scope::of(&info.name, &info.namespace),
            };
            WatchBody::new(form, selection, beginning, options.bookmarks, deadline, counted)
                .with_seat(seat)
                .boxed_unsync()
        }
    };
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static(negotiated.media.stream_type());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

/// Where the watch begins.
async fn begin(store: View<'_>, selection: &Selection, options: &ListOptions) -> Result<Beginning, ApiError> {
    let cache = store.cache().await?;
    let revision = parse_version(&options.version).map_err(ApiError::raw_internal)?;
    let interest = selection.interest(&store);
    let (initial, after) = match (options.send_initial_events, options.version.as_str()) {
        (Some(true), version) => {
            let snapshot = match version {
                "" => cache.fresh().await?,
                "0" => cache.snapshot(),
                _ => cache.wait_for(revision).await?,
            };
            let initial = selection.gather(&snapshot, None, usize::MAX).await;
            (initial, snapshot.revision)
        }
        (_, "") => (Vec::new(), cache.fresh().await?.revision),
        (_, "0") => (Vec::new(), cache.current()),
        _ => (Vec::new(), revision),
    };
    let announce = options.send_initial_events == Some(true) && options.bookmarks;
    let feed = cache.feed(after, interest).await?;
    Ok(Beginning {
        initial,
        announce,
        feed,
    })
}
