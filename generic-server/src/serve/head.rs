//! Checks of a request's head, and the answer to clients that speak HTTP on a TLS port.

use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};

use crate::request::{Response, full};

/// The answer to clients that speak HTTP without TLS, in Go's words.
pub(super) const PLAIN_HTTP: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// How many bytes of a connection say whether it is TLS.
pub(super) const RECORD_HEADER: usize = 5;

/// Whether a connection begins as requests do, by the beginnings that Go knows.
pub(super) fn looks_like_http(start: &[u8]) -> bool {
    matches!(start, b"GET /" | b"HEAD " | b"POST " | b"PUT /" | b"OPTIO")
}

/// Go's checks before any handler runs: an HTTP/1.1 request needs exactly one `Host`, which must be well-formed.
pub(super) fn check(version: Version, method: &Method, headers: &HeaderMap) -> Result<(), Box<Response>> {
    if version >= Version::HTTP_2 {
        return Ok(());
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_11 && *method != Method::CONNECT => {
            Err(bad_request("400 Bad Request: missing required Host header"))
        }
        (Some(_), Some(_)) => Err(bad_request("400 Bad Request")),
        (Some(host), None) if !host.as_bytes().iter().all(|byte| is_host(*byte)) => {
            Err(bad_request("400 Bad Request: malformed Host header"))
        }
        _ => Ok(()),
    }
}

/// The bytes that Go takes in a `Host` header.
fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&()*+,-.:;='[]_~".contains(&byte)
}

fn bad_request(text: &'static str) -> Box<Response> {
    let mut response = Response::new(full(text));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Box::new(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        #[track_caller]
        fn verdict(version: Version, method: &Method, hosts: &[&'static str], expected: u16) {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            let status =
                check(version, method, &headers).map_or_else(|refusal| refusal.status().as_u16(), |()| 200);
            assert_eq!(status, expected, "{version:?} {method} {hosts:?}");
        }
        let check =
            |hosts: &[&'static str], expected| verdict(Version::HTTP_11, &Method::GET, hosts, expected);
        check(&["a"], 200);
        check(&["[::1]:6443"], 200);
        check(&[""], 200);
        check(&[], 400);
        check(&["a", "b"], 400);
        check(&["a", "a"], 400);
        check(&["a b"], 400);
        check(&["a/b"], 400);
        check(&["a@b"], 400);
        verdict(Version::HTTP_10, &Method::GET, &[], 200);
        verdict(Version::HTTP_10, &Method::GET, &["a", "b"], 400);
        verdict(Version::HTTP_11, &Method::CONNECT, &[], 200);
        verdict(Version::HTTP_2, &Method::GET, &[], 200);
    }
}
