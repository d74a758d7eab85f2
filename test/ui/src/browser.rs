//! A browser of its own for each test, with a profile of its own.

use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use test_support::{PATIENCE, eventually, tool};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::webdriver::command;

/// Nothing of it asks for anything outside this machine.
const ARGUMENTS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en",
];

/// Answers that the tests provoke, which the console reports.
const EXPECTED: [&str; 3] = ["status of 401", "status of 403", "status of 409"];

pub(crate) struct Browser {
    port: u16,
    session: String,
    // Dropped after the browser has ended.
    _profile: tempfile::TempDir,
    _driver: Child,
}

/// The program that a variable names, else the one on the `PATH`.
fn program(variable: &str, name: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .or_else(|| tool(name))
}

impl Browser {
    /// `None` where there is no browser, which is said.
    pub(crate) async fn start() -> Option<Self> {
        let driver = program("CHROMEDRIVER", "chromedriver")?;
        let chromium = program("CHROMIUM", "chromium")?;
        let profile = tempfile::tempdir().expect("a directory");
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver runs");
        let mut lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
        let port = tokio::time::timeout(PATIENCE, async {
            while let Some(line) = lines.next_line().await.expect("a line") {
                let port = line.split("started successfully on port ").nth(1);
                if let Some(port) = port {
                    return port.trim_end_matches('.').parse().expect("a port");
                }
            }
            panic!("chromedriver has ended");
        });
        let port: u16 = port.await.expect("a port in time");
        let mut arguments: Vec<String> = ARGUMENTS.iter().map(ToString::to_string).collect();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            // The server's certificate is of its own authority.
            "acceptInsecureCerts": true,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
        }}});
        let session = command(port, "POST", "/session", &capabilities)
            .await
            .expect("a session");
        let browser = Browser {
            port,
            session: session["sessionId"].as_str().expect("an id").into(),
            _profile: profile,
            _driver: driver,
        };
        browser.size(1280, 860).await;
        Some(browser)
    }

    async fn session(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        let answer = command(self.port, method, &path, body).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) async fn open(&self, url: &str) {
        self.session("POST", "/url", &json!({"url": url})).await;
    }

    /// The value of the body of a function.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.session("POST", "/execute/sync", &json!({"script": script, "args": []}))
            .await
    }

    /// The same for one that calls its last argument when it is done.
    pub(crate) async fn run_to_end(&self, script: &str) -> Value {
        self.session("POST", "/execute/async", &json!({"script": script, "args": []}))
            .await
    }

    async fn devtools(&self, name: &str, params: Value) {
        self.session(
            "POST",
            "/goog/cdp/execute",
            &json!({"cmd": name, "params": params}),
        )
        .await;
    }

    pub(crate) async fn size(&self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// `light` or `dark`, as the system would say.
    pub(crate) async fn scheme(&self, name: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": name}]});
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    async fn wait(&self, what: String, caller: &'static Location<'static>) {
        let script = format!("return Boolean({what})");
        let deadline = Instant::now() + PATIENCE;
        while self.run(&script).await != json!(true) {
            if Instant::now() > deadline {
                let shown = self.run("return document.body.innerText").await;
                let shown = shown.as_str().unwrap_or_default();
                let console = self.session("POST", "/se/log", &json!({"type": "browser"})).await;
                panic!("{caller}: `{what}` is not true; console: {console:#}; the page shows:\n{shown}");
            }
            // The browser is another process; there is nothing to be woken by.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn until(&self, what: &str) -> impl Future<Output = ()> + use<'_> {
        self.wait(what.to_string(), Location::caller())
    }

    /// Waits until the page shows a text.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> impl Future<Output = ()> + use<'_> {
        let what = format!("document.body.innerText.includes({})", json!(text));
        self.wait(what, Location::caller())
    }

    /// Waits until the page has this heading.
    #[track_caller]
    pub(crate) fn heading(&self, text: &str) -> impl Future<Output = ()> + use<'_> {
        let what = format!("document.querySelector('h1')?.textContent === {}", json!(text));
        self.wait(what, Location::caller())
    }

    /// Clicks on the first button or link with this text, as soon as it can be.
    #[track_caller]
    pub(crate) fn click(&self, text: &str) -> impl Future<Output = ()> + use<'_> {
        let what = format!(
            "(() => {{ const found = [...document.querySelectorAll('button, a, summary')].find((e) => e.textContent.trim() === {} && !e.disabled && e.checkVisibility()); found?.click(); return found; }})()",
            json!(text)
        );
        self.wait(what, Location::caller())
    }

    /// Presses keys, as a user would.
    pub(crate) async fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [
                    json!({"type": "keyDown", "value": key}),
                    json!({"type": "keyUp", "value": key}),
                ]
            })
            .collect();
        self.session(
            "POST",
            "/actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}),
        )
        .await;
    }

    /// Writes what the window shows into a file.
    pub(crate) async fn screenshot(&self, file: &Path) {
        let image = self.session("GET", "/screenshot", &Value::Null).await;
        let image = base64::engine::general_purpose::STANDARD.decode(image.as_str().expect("an image"));
        std::fs::write(file, image.expect("base64")).expect("the file is written");
    }

    /// Ends it. Nothing was asked outside `origin`, and the console has no errors but of answers that every test may provoke.
    pub(crate) async fn finish(self, origin: &str) {
        self.finish_with(origin, &[]).await;
    }

    /// The same where the console may have other messages too.
    pub(crate) async fn finish_with(self, origin: &str, also: &[&str]) {
        let console = self.session("POST", "/se/log", &json!({"type": "browser"})).await;
        for entry in console.as_array().expect("entries") {
            let message = entry["message"].as_str().unwrap_or_default();
            let expected = EXPECTED.iter().chain(also).any(|one| message.contains(one));
            assert!(
                expected || entry["level"] == "INFO" || entry["level"] == "DEBUG",
                "{entry}"
            );
        }
        let network = self
            .session("POST", "/se/log", &json!({"type": "performance"}))
            .await;
        let mut asked = 0;
        for entry in network.as_array().expect("entries") {
            let entry: Value = serde_json::from_str(entry["message"].as_str().expect("text")).expect("JSON");
            let message = &entry["message"];
            if message["method"] == "Network.requestWillBeSent" {
                let url = message["params"]["request"]["url"].as_str().expect("a URL");
                // The tab that the browser begins with is its own.
                let own = ["data:", "chrome:"].iter().any(|scheme| url.starts_with(scheme));
                assert!(own || url.starts_with(origin), "{url} is not of {origin}");
                asked += 1;
            }
        }
        assert!(asked > 20, "{asked} requests are recorded");
        let path = format!("/session/{}", self.session);
        command(self.port, "DELETE", &path, &Value::Null)
            .await
            .expect("an end");
    }
}

/// Waits until an answer of the server is as wanted.
pub(crate) async fn served(client: &test_support::Client, path: &str, wanted: impl Fn(&Value) -> bool) {
    eventually("the server's state", || async {
        let answer = client.get(path).await;
        (answer.status == 200 && wanted(&answer.json)).then_some(())
    })
    .await;
}
