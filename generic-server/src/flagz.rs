//! `/flagz`: the flags of the command line and their values (KEP-4828). Mirrors `apiserver/pkg/server/flagz`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::endpoint::Endpoint;
use crate::request::{Authorized, Request, Response};
use crate::zpages::{self, COMPONENT};

const KIND: &str = "Flagz";
/// Upstream chooses among these at random, so that nobody takes the text apart.
const DELIMITERS: [&str; 4] = [":", ": ", "=", " "];

/// Serves the page.
#[derive(Debug)]
pub struct Flagz {
    flags: BTreeMap<String, String>,
    delimiter: &'static str,
}

impl Flagz {
    /// Where it is served.
    pub const PATH: &str = "/flagz";

    /// Of a server with these flags. Their values are shown as they are: a secret is not among them.
    pub fn new(flags: BTreeMap<String, String>) -> Self {
        Flagz {
            flags,
            delimiter: DELIMITERS[rand::random_range(0..DELIMITERS.len())],
        }
    }

    fn text(&self) -> String {
        let mut out = zpages::heading("flagz");
        for (flag, value) in &self.flags {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{flag}{}{value}", self.delimiter);
        }
        out
    }

    fn object(&self, version: &str) -> Value {
        json!({
            "kind": KIND,
            "apiVersion": format!("config.k8s.io/{version}"),
            "metadata": {"name": COMPONENT},
            "flags": self.flags,
        })
    }
}

#[async_trait::async_trait]
impl Endpoint for Flagz {
    async fn serve(&self, authorized: &Authorized, request: Request) -> Response {
        let object = |version: &str| self.object(version);
        zpages::answer(authorized, request, KIND, || self.text(), object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_flags_in_order() {
        let flags = [("v", "2"), ("anonymous-auth", "true")].map(|(flag, value)| (flag.into(), value.into()));
        let mut flagz = Flagz::new(flags.into());
        flagz.delimiter = "=";
        let text = flagz.text();
        assert!(text.starts_with("\napiserver flagz\nWarning: "), "{text}");
        assert!(
            text.ends_with("purposes only.\nanonymous-auth=true\nv=2\n"),
            "{text}"
        );
        let object = flagz.object("v1beta1");
        assert_eq!(object["apiVersion"], "config.k8s.io/v1beta1");
        assert_eq!(object["flags"], json!({"anonymous-auth": "true", "v": "2"}));
    }
}
