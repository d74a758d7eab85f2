//! OpenAPI of CRDs. Mirrors `pkg/controller/openapi/builder`.

mod pieces;
mod routes;
mod source;
mod template;
