//! What CRDs publish in OpenAPI. Mirrors `pkg/controller/openapi/builder`.

mod pieces;
mod routes;
mod source;
mod template;
