//! What the page shows and does.

use control_plane::{ControlPlane, User};
use serde_json::{Value, json};
use test_support::{Client, kubectl, plane_with, tool};
use test_tools::skipped;

use crate::browser::{Browser, served};

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECTIONS: [&str; 8] = [
    "overview",
    "objects",
    "apis",
    "requests",
    "admission",
    "storage",
    "certificates",
    "events",
];

pub(crate) fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

/// A server that has a lease although it is in memory.
pub(crate) async fn started() -> (ControlPlane, Client) {
    plane_with(|builder| builder.with(|options| options.feature_gates.push("APIServerIdentity=true".into())))
        .await
}

/// Opens the page and signs in.
pub(crate) async fn sign_in(browser: &Browser, plane: &ControlPlane, user: &User) {
    browser.open(&format!("{}/ui/", plane.url())).await;
    browser.until("document.getElementById('token')").await;
    let token = json!(plane.token_for(user));
    browser
        .run(&format!("document.getElementById('token').value = {token}"))
        .await;
    browser.click("Sign in").await;
    browser.until("document.querySelector('nav a')").await;
}

pub(crate) async fn section(browser: &Browser, hash: &str, heading: &str) {
    browser
        .run(&format!("location.hash = {}", json!(format!("#/{hash}"))))
        .await;
    browser
        .until(&format!(
            "document.querySelector('h1')?.textContent === {}",
            json!(heading)
        ))
        .await;
}

pub(crate) async fn type_into_editor(browser: &Browser, from: &str, to: &str) {
    browser.until("document.querySelector('textarea')").await;
    let script = format!(
        "const area = document.querySelector('textarea'); area.value = area.value.replace({}, {}); area.dispatchEvent(new Event('input'));",
        json!(from),
        json!(to)
    );
    browser.run(&script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_the_server_and_objects_as_they_change() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    sign_in(&browser, &plane, &control_plane::administrator()).await;
    browser.shows("all 29 checks pass").await;
    browser.shows("holds its lease").await;
    browser.shows("memory").await;
    browser
        .until("document.getElementById('health').textContent === 'Ready'")
        .await;

    client.post(MAPS, &map("first", "1")).await.expect(201);
    section(&browser, "objects/-/v1/configmaps", "ConfigMap").await;
    browser.shows("first").await;
    browser
        .until("document.getElementById('live').dataset.state === 'live'")
        .await;
    client.post(MAPS, &map("second", "1")).await.expect(201);
    browser.shows("second").await;
    client.delete(&format!("{MAPS}/first")).await.expect(200);
    browser.until("!document.body.innerText.includes('first')").await;
    // Watches end while the page is hidden, and go on from where they were.
    let hide = |is: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {is}, configurable: true }}); document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.run(&hide(true)).await;
    client.post(MAPS, &map("third", "1")).await.expect(201);
    browser.run(&hide(false)).await;
    browser.shows("third").await;
    // The keyboard: filter, leave it, the first row, open it, back.
    browser.press("/second\u{E00C}").await;
    browser
        .until("[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden).length === 1")
        .await;
    browser.run("document.querySelector('[data-key=filter]').value = ''; document.querySelector('[data-key=filter]').dispatchEvent(new Event('input'))").await;
    browser.press("?").await;
    browser.shows("Keyboard shortcuts").await;
    browser.press("\u{E00C}").await;
    browser.press("j\u{E007}").await;
    browser.until("document.querySelector('pre.yaml')").await;
    browser.press("\u{E00C}").await;
    browser.heading("ConfigMap").await;
    browser.press("ge").await;
    browser.heading("Events").await;
    browser.finish(&plane.url()).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_user_may_not_do_is_not_offered() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    client.post(MAPS, &map("settings", "old")).await.expect(201);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]});
    let binding = json!({"metadata": {"name": "reader"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]});
    client.post(&format!("{rbac}/roles"), &role).await.expect(201);
    client
        .post(&format!("{rbac}/rolebindings"), &binding)
        .await
        .expect(201);
    let user = User {
        name: "reader".into(),
        ..User::default()
    };
    sign_in(&browser, &plane, &user).await;
    browser.shows("Not permitted").await;
    for (hash, heading) in [
        ("requests", "Requests"),
        ("storage", "Storage"),
        ("events", "Events"),
        ("objects/-/v1/secrets", "Secret"),
    ] {
        section(&browser, hash, heading).await;
        browser.shows("Not permitted").await;
    }
    section(&browser, "objects/-/v1/configmaps?namespace=default", "ConfigMap").await;
    browser.shows("settings").await;
    browser
        .until("[...document.querySelectorAll('button')].find((b) => b.textContent === 'Create').title")
        .await;
    assert_eq!(browser.run("return [...document.querySelectorAll('button')].find((b) => b.textContent === 'Create').disabled").await, json!(true));
    section(&browser, "objects/-/v1/configmaps/default/settings", "settings").await;
    browser.until("[...document.querySelectorAll('button')].filter((b) => ['Edit', 'Delete'].includes(b.textContent) && b.disabled && b.title).length === 2").await;

    // Where all namespaces are refused, the last one is offered.
    section(&browser, "objects/-/v1/configmaps", "ConfigMap").await;
    browser.click("show default").await;
    browser.shows("settings").await;

    // The token is in memory alone: it is in no address, and gone after a reload.
    let kept = "return [location.href, document.cookie, JSON.stringify(sessionStorage), JSON.stringify(localStorage)].join()";
    let kept = browser.run(kept).await.as_str().expect("text").to_string();
    assert!(!kept.contains(&plane.token_for(&user)), "{kept}");
    browser.run("location.reload()").await;
    browser.until("document.getElementById('token')").await;
    browser
        .run("document.getElementById('token').value = '\u{2026}'")
        .await;
    browser.click("Sign in").await;
    browser.shows("letters, digits and punctuation alone").await;
    browser
        .run("document.getElementById('token').value = 'wrong'")
        .await;
    browser.click("Sign in").await;
    browser.shows("does not take this token").await;
    browser.finish(&plane.url()).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_are_shown_as_texts() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    let hostile =
        "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>${window.hit=1}</textarea></pre>";
    let mut object = map("hostile", hostile);
    object["metadata"]["annotations"] =
        json!({"example.com/a": hostile, "example.com/b": "a: b\n  managedFields:\n# c\n"});
    client.post(MAPS, &object).await.expect(201);
    let event = json!({"metadata": {"name": "hostile", "namespace": "default"}, "involvedObject": {"namespace": "default", "name": hostile}, "reason": hostile, "message": format!("{hostile} turned \u{202e} around"), "type": "Warning"});
    client
        .post("/api/v1/namespaces/default/events", &event)
        .await
        .expect(201);
    let definition = json!({"metadata": {"name": "texts.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "texts", "singular": "text", "kind": "Text"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        "additionalPrinterColumns": [{"name": "<b>Bold</b>", "type": "string", "jsonPath": ".text"}]}]}});
    client
        .post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &definition,
        )
        .await
        .expect(201);
    served(&client, "/apis/example.com/v1/texts", |_| true).await;
    let text =
        json!({"apiVersion": "example.com/v1", "kind": "Text", "metadata": {"name": "one"}, "text": hostile});
    client
        .post("/apis/example.com/v1/namespaces/default/texts", &text)
        .await
        .expect(201);

    sign_in(&browser, &plane, &control_plane::administrator()).await;
    let start = "<img src=x onerror=";
    for (hash, heading) in [
        ("events", "Events"),
        ("objects/example.com/v1/texts", "Text"),
        ("objects/-/v1/configmaps/default/hostile", "hostile"),
    ] {
        section(&browser, hash, heading).await;
        browser.shows(start).await;
        let made = browser
            .run("return document.querySelectorAll('main img, main script, main b').length")
            .await;
        assert_eq!(made, json!(0), "{hash}");
    }
    section(&browser, "events", "Events").await;
    browser.shows("turned U+202E around").await;
    section(&browser, "objects/-/v1/configmaps/default/hostile", "hostile").await;
    browser.click("Edit").await;
    browser
        .until("document.querySelector('textarea')?.value.includes('onerror')")
        .await;
    browser.click("Cancel").await;
    for hash in [
        "objects/<img src=x>/v1/x",
        "objects/-/v1/configmaps/default/%3Cimg%20src=x%3E",
        "<script>",
        "objects/-/v1/configmaps/default/..",
        "objects/-/v1/configmaps?labels=<b>",
    ] {
        browser
            .run(&format!("location.hash = {}", json!(format!("#/{hash}"))))
            .await;
        browser
            .until("document.querySelector('main').innerText.length > 5")
            .await;
    }
    assert_eq!(browser.run("return window.hit ?? null").await, Value::Null);
    browser
        .finish_with(&plane.url(), &["status of 400", "status of 404"])
        .await;
    plane.stop().await;
}

/// Objects that make the pictures worth looking at.
async fn furnish(client: &Client) {
    for name in ["payments", "shop"] {
        client
            .post("/api/v1/namespaces", &json!({"metadata": {"name": name}}))
            .await
            .expect(201);
    }
    for (name, namespace, replicas) in [
        ("api", "payments", 2),
        ("cart", "shop", 2),
        ("checkout", "shop", 3),
        ("web", "shop", 5),
    ] {
        let labels = json!({"app": name});
        let deployment = json!({"metadata": {"name": name, "labels": labels}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": name, "image": format!("registry.example/{name}:1.4")}]}}}});
        client
            .post(
                &format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
                &deployment,
            )
            .await
            .expect(201);
    }
    for (index, (reason, message, kind)) in [
        (
            "Scheduled",
            "Successfully assigned shop/web-1 to node-a",
            "Normal",
        ),
        ("Pulled", "Container image is present on the node", "Normal"),
        ("BackOff", "Back-off restarting failed container", "Warning"),
        (
            "FailedScheduling",
            "0/3 nodes are available: insufficient memory",
            "Warning",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let event = json!({"metadata": {"name": format!("web-{index}"), "namespace": "shop"}, "involvedObject": {"kind": "Pod", "namespace": "shop", "name": format!("web-{index}")},
            "reason": reason, "message": message, "type": kind, "count": index + 1});
        client
            .post("/api/v1/namespaces/shop/events", &event)
            .await
            .expect(201);
    }
}

/// Every section in light and dark, wide and on a phone: nothing is cut off at the side, and axe finds nothing wrong.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_accessible_on_every_screen() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    furnish(&client).await;
    let axe = std::env::var_os("AXE").and_then(|file| std::fs::read_to_string(file).ok());
    if axe.is_none() {
        skipped("`AXE` does not name the axe.js of axe-core: accessibility is not checked");
    }
    let pictures = std::env::var_os("UI_SCREENSHOTS").map(std::path::PathBuf::from);
    let others = [
        ("objects/apps/v1/deployments", "Deployment", "deployments"),
        ("objects/apps/v1/deployments/shop/web", "web", "object"),
    ];
    for (scheme, width) in [("light", 1280), ("dark", 360), ("dark", 1280), ("light", 360)] {
        browser.scheme(scheme).await;
        browser.size(width, if width < 500 { 740 } else { 860 }).await;
        sign_in(&browser, &plane, &control_plane::administrator()).await;
        assert_eq!(
            browser.run("return document.documentElement.dataset.theme").await,
            scheme
        );
        let titles = SECTIONS.map(|hash| {
            let title = if hash == "apis" {
                "APIs".into()
            } else {
                hash[..1].to_uppercase() + &hash[1..]
            };
            (hash, title, hash)
        });
        let all = titles
            .into_iter()
            .chain(others.map(|(hash, title, name)| (hash, title.to_string(), name)));
        for (hash, title, name) in all {
            section(&browser, hash, &title).await;
            browser
                .until("document.querySelector('main .panel, main .stats')")
                .await;
            if hash == "overview" {
                browser.until("document.querySelector('.chart polyline')").await;
            }
            if name == "object" {
                browser.click("Edit").await;
                type_into_editor(&browser, "replicas: 5", "replicas: 8").await;
                browser.click("Review changes").await;
                browser.shows("Nothing is written yet").await;
            }
            let cut = browser
                .run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                .await;
            assert_eq!(cut, json!(0), "{hash} is too wide at {width}");
            if let Some(axe) = &axe {
                let script = format!(
                    "const done = arguments[0]; {axe};\n axe.run(document, {{resultTypes: ['violations']}}).then((found) => done(found.violations.map((one) => `${{one.id}}: ${{one.nodes.slice(0, 3).map((node) => node.html + ' ' + node.failureSummary).join('; ')}}`)), (error) => done([String(error)]))"
                );
                let found = browser.run_to_end(&script).await;
                assert_eq!(found, json!([]), "{hash} {scheme} {width}: {found:#}");
            }
            let wanted = matches!(
                (name, scheme, width),
                ("overview", "light", 1280)
                    | ("object", "dark", 1280)
                    | ("deployments", "light", 1280)
                    | ("requests", "dark", 360)
            );
            if let Some(directory) = pictures.as_ref().filter(|_| wanted) {
                browser
                    .screenshot(&directory.join(format!("ui-{name}.png")))
                    .await;
            }
            if name == "object" {
                browser.click("Edit again").await;
                browser.click("Cancel").await;
                browser.click("Discard").await;
                browser.until("document.querySelector('pre.yaml')").await;
            }
        }
        browser.run("localStorage.clear()").await;
    }
    browser.finish(&plane.url()).await;
    plane.stop().await;
}

/// Through `kubectl proxy`, without a token, below whatever path.
#[tokio::test(flavor = "multi_thread")]
async fn it_works_through_kubectl_proxy() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let Some(program) = tool("kubectl") else { return };
    let (plane, client) = started().await;
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, plane.kubeconfig()).expect("written");
    let (works, _) = kubectl(&program, &kubeconfig, &["get", "--raw", "/ui/"], "").await;
    assert!(works);
    // A watch that is cut off would be an error in the console.
    let mut proxies = Vec::new();
    for prefix in ["/", "/below/"] {
        let port = test_tools::free_port();
        let proxy = tokio::process::Command::new(&program)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["proxy", "--port", &port.to_string(), "--api-prefix", prefix])
            .stdout(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl runs");
        proxies.push(proxy);
        test_tools::listening(port).await;
        browser.open(&format!("http://127.0.0.1:{port}{prefix}ui/")).await;
        browser.shows("kubernetes-admin").await;
        browser.shows("holds its lease").await;
        section(&browser, "objects/-/v1/configmaps", "ConfigMap").await;
        browser
            .until("document.getElementById('live').dataset.state === 'live'")
            .await;
        let name = format!("by-proxy-{}", prefix.len());
        client.post(MAPS, &map(&name, "1")).await.expect(201);
        browser.shows(&name).await;
    }
    browser.finish("http://127.0.0.1:").await;
    plane.stop().await;
}

/// The headers of the files are on refusals too.
#[tokio::test]
async fn refusals_below_the_page_have_its_headers() {
    let (plane, client) = started().await;
    for (method, path, status) in [
        ("POST", "/ui/", 405),
        ("GET", "/ui//", 404),
        ("GET", "/ui//app.js", 404),
    ] {
        let answer = client.raw(method, path, "", "").await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.headers.contains_key("content-security-policy"), "{path}");
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_is_told() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, _) = started().await;
    let origin = plane.url();
    sign_in(&browser, &plane, &control_plane::administrator()).await;
    browser.shows("holds its lease").await;
    browser.until("document.querySelector('.chart polyline')").await;
    plane.stop().await;
    browser.shows("Not answering since").await;
    browser.shows("As of").await;
    browser
        .until("document.getElementById('live').textContent === 'Reconnecting'")
        .await;
    browser.finish_with(&origin, &["net::ERR_"]).await;
}
