//! `/statusz`: since when the server runs, what it is and which paths it has (KEP-4827). Mirrors `apiserver/pkg/server/statusz`.

use std::time::SystemTime;

use machinery::time::Timestamp;
use serde_json::json;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::endpoint::Endpoint;
use crate::request::{Authorized, Request, Response};
use crate::zpages::{self, COMPONENT};

const KIND: &str = "Statusz";
const BINARY_VERSION: &str = crate::version::KUBERNETES;
const EMULATION_VERSION: &str = crate::version::MAJOR_MINOR;
/// The paths that are told of, where they are served.
const TOLD: [&str; 7] = [
    "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version",
];

/// Serves the page.
#[derive(Debug)]
pub struct Statusz {
    started: SystemTime,
    paths: Vec<String>,
}

impl Statusz {
    /// Where it is served.
    pub const PATH: &str = "/statusz";

    /// Of a server that started just now, with these paths besides.
    pub fn new(paths: &[String]) -> Self {
        let is_served = |path: &&str| *path == Self::PATH || paths.iter().any(|known| known == path);
        Statusz {
            started: SystemTime::now(),
            paths: TOLD.into_iter().filter(is_served).map(String::from).collect(),
        }
    }

    fn uptime(&self) -> u64 {
        self.started.elapsed().unwrap_or_default().as_secs()
    }

    fn text(&self) -> String {
        let format = format_description!(
            "[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] UTC [year]"
        );
        let started = OffsetDateTime::from(self.started);
        let up = self.uptime();
        format!(
            "{}\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nBinary version: {BINARY_VERSION}\nEmulation version: {EMULATION_VERSION}\nPaths: {}",
            zpages::heading("statusz"),
            started.format(&format).unwrap_or_default(),
            up / 3600,
            up / 60 % 60,
            up % 60,
            self.paths.join(" ")
        )
    }

    fn object(&self, version: &str) -> serde_json::Value {
        json!({
            "kind": KIND,
            "apiVersion": format!("config.k8s.io/{version}"),
            "metadata": {"name": COMPONENT},
            "startTime": Timestamp::from(self.started).to_rfc3339(),
            "uptimeSeconds": self.uptime(),
            "goVersion": "",
            "binaryVersion": BINARY_VERSION,
            "emulationVersion": EMULATION_VERSION,
            "paths": self.paths,
        })
    }
}

#[async_trait::async_trait]
impl Endpoint for Statusz {
    async fn serve(&self, authorized: &Authorized, request: Request) -> Response {
        let object = |version: &str| self.object(version);
        zpages::answer(authorized, request, KIND, || self.text(), object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_since_when_and_where() {
        let mut statusz = Statusz::new(&["/version".into(), "/ui/".into(), "/healthz".into()]);
        statusz.started = SystemTime::now() - std::time::Duration::from_secs(3 * 3600 + 61);
        let text = statusz.text();
        assert!(text.contains("\nUp: 3 hr 01 min 01 sec\n"), "{text}");
        assert!(text.ends_with("\nPaths: /healthz /statusz /version"), "{text}");
        let object = statusz.object("v1beta1");
        assert_eq!(object["apiVersion"], "config.k8s.io/v1beta1");
        assert_eq!(object["uptimeSeconds"], 3 * 3600 + 61);
        assert_eq!(object["paths"], json!(["/healthz", "/statusz", "/version"]));
    }
}
