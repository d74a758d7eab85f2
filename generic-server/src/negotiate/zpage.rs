//! The form of a page about the server itself (`/statusz`). Mirrors `apiserver/pkg/server/statusz/negotiate`.

use http::{HeaderMap, header};
use machinery::ApiError;

use super::{Media, accept, text};

/// The media types of the pages, as 406 lists them.
const TYPES: &[&str] = &["application/json", "application/yaml", "text/plain"];

/// How a page is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// For people.
    Text,
    /// An object of `config.k8s.io` at this version.
    Object(Media, &'static str),
}

/// The form of a page whose object is of this kind. Text is for those who do not ask for the object by its type.
pub(crate) fn page(headers: &HeaderMap, kind: &str) -> Result<Page, ApiError> {
    let accept = text(headers, header::ACCEPT);
    if accept.trim().is_empty() {
        return Ok(Page::Text);
    }
    for clause in accept::parse(accept) {
        let asked = ["as", "g", "v"].map(|name| clause.param(name));
        match (clause.kind, clause.subtype, asked) {
            ("text", "plain" | "*", [None, None, None]) | ("*", "*", [None, None, None]) => {
                return Ok(Page::Text);
            }
            ("application", "json" | "yaml", [Some(asked), Some("config.k8s.io"), Some(version)])
                if asked == kind =>
            {
                let version = match version {
                    "v1beta1" => "v1beta1",
                    "v1alpha1" => "v1alpha1",
                    _ => continue,
                };
                let media = match clause.subtype {
                    "json" => Media::Json,
                    _ => Media::Yaml,
                };
                return Ok(Page::Object(media, version));
            }
            _ => {}
        }
    }
    Err(ApiError::not_acceptable(TYPES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_asked_for_by_their_type() {
        #[track_caller]
        fn check(accept: &'static str, expected: Option<Page>) {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, header::HeaderValue::from_static(accept));
            assert_eq!(page(&headers, "Statusz").ok(), expected, "{accept}");
        }
        check("", Some(Page::Text));
        check("*/*", Some(Page::Text));
        check("text/plain", Some(Page::Text));
        check("application/json", None);
        check("application/vnd.kubernetes.protobuf", None);
        check(
            "application/json;g=config.k8s.io;v=v1beta1;as=Statusz",
            Some(Page::Object(Media::Json, "v1beta1")),
        );
        check(
            "application/yaml;g=config.k8s.io;v=v1alpha1;as=Statusz",
            Some(Page::Object(Media::Yaml, "v1alpha1")),
        );
        check("application/json;g=config.k8s.io;v=v1beta1;as=Flagz", None);
        check(
            "application/json;g=config.k8s.io;v=v2;as=Statusz,text/plain",
            Some(Page::Text),
        );
    }
}
