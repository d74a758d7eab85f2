//! `/debug/admission`: what each webhook and policy has cost since the start, for users who may get the path.

use std::sync::Arc;

use http::Method;
use machinery::ApiError;

use super::DynamicMetrics;
use crate::endpoint::Endpoint;
use crate::request::{Authorized, Request, Response};
use crate::respond;

/// The endpoint.
#[derive(Debug)]
pub struct AdmissionReport(pub Arc<DynamicMetrics>);

impl AdmissionReport {
    /// Its path.
    pub const PATH: &str = "/debug/admission";
}

#[async_trait::async_trait]
impl Endpoint for AdmissionReport {
    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return respond::error(&ApiError::method_not_allowed());
        }
        respond::plain(Ok(self.0.report()))
    }
}
