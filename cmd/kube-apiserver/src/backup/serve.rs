//! Serves snapshots of the running store.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use generic_server::endpoint::Endpoint;
use generic_server::request::{Authorized, Body, BoxError, Request, Response, full};
use generic_server::{ApiError, respond};
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use machinery::GroupResource;
use storage::Store;
use tokio_util::io::ReaderStream;

/// The group whose members may do everything.
const MASTERS: &str = "system:masters";

/// GET answers a snapshot of the newest state.
#[derive(Debug)]
pub(crate) struct Backups {
    pub(crate) engine: Arc<dyn Store>,
    /// Where the file lies while it is sent; it has no name by then.
    pub(crate) dir: PathBuf,
}

#[async_trait::async_trait]
impl Endpoint for Backups {
    async fn serve(&self, authorized: &Authorized, request: Request) -> Response {
        let user = authorized.user();
        // A role for all paths (`nonResourceURLs: ["*"]`) is made for documents, not for the content of every secret.
        if !user.groups.iter().any(|group| group == MASTERS) {
            let why = format!(
                "User \"{}\" cannot get path \"{}\": only members of {MASTERS} can",
                user.name,
                super::PATH
            );
            return respond::error(&ApiError::forbidden(&GroupResource::new("", ""), "", why));
        }
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
        }
        match self.snapshot().await {
            Ok((body, damaged)) => {
                let mut response = Response::new(body);
                let kind = http::HeaderValue::from_static("application/octet-stream");
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, kind);
                headers.insert(super::DAMAGED, damaged.into());
                response
            }
            Err(error) => {
                tracing::error!(%error, "a snapshot cannot be made");
                text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "a snapshot cannot be made: the log says why\n",
                )
            }
        }
    }
}

impl Backups {
    /// A snapshot, and how many damaged objects were left out of it.
    async fn snapshot(&self) -> Result<(Body, u64), BoxError> {
        let name = format!("{}{}", super::UNFINISHED, uuid::Uuid::new_v4());
        let path = self.dir.join(name);
        let engine = self.engine.clone();
        // A task of its own: the engine finishes a snapshot although the client has gone, and its file must not be left behind.
        let making = tokio::spawn(async move {
            let opened = match engine.backup(&path).await {
                Ok(info) => match tokio::fs::File::open(&path).await {
                    Ok(file) => Ok((file, info.damaged)),
                    Err(error) => Err(BoxError::from(error)),
                },
                Err(error) => Err(error.into()),
            };
            // It is read by its handle from here on.
            let _ = tokio::fs::remove_file(&path).await;
            opened
        });
        let (file, damaged) = making.await??;
        let frames = ReaderStream::with_capacity(file, 64 * 1024)
            .map_ok(Frame::data)
            .map_err(BoxError::from);
        Ok((StreamBody::new(frames).boxed_unsync(), damaged))
    }
}

fn text(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use test_support::eventually;

    use super::*;

    #[tokio::test]
    async fn a_snapshot_for_a_client_that_has_gone_leaves_no_file() {
        let folder = tempfile::tempdir().expect("a directory");
        let engine: Arc<dyn Store> = storage::memory();
        let others = Arc::strong_count(&engine);
        let backups = Backups {
            engine: engine.clone(),
            dir: folder.path().to_path_buf(),
        };
        let users = || Arc::strong_count(&engine) - others - 1;
        // The client goes while the snapshot is being made, which goes on and has the engine until its file is gone.
        assert!(backups.snapshot().now_or_never().is_none());
        assert_eq!(users(), 1, "the snapshot is still being made");
        eventually("the end of the snapshot", || async {
            (users() == 0).then_some(())
        })
        .await;
        let left = std::fs::read_dir(folder.path()).expect("the directory").count();
        assert_eq!(left, 0);
    }
}
