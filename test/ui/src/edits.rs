//! Edits: what is written, what is asked first, and what is never lost.

use serde_json::json;

use crate::browser::{Browser, served};
use crate::page::{MAPS, map, section, sign_in, started, type_into_editor};

/// Presses the button of the open dialog that does what it is about.
async fn agree(browser: &Browser) {
    browser
        .until("document.querySelector('dialog[open] button[value=yes]:not(:disabled)')")
        .await;
    browser
        .run("document.querySelector('dialog[open] button[value=yes]').click()")
        .await;
}

async fn replace_text(browser: &Browser, text: &str) {
    browser.until("document.querySelector('textarea')").await;
    let script = format!(
        "const area = document.querySelector('textarea'); area.value = {}; area.dispatchEvent(new Event('input'));",
        json!(text)
    );
    browser.run(&script).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_go_through_a_dry_run() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    client.post(MAPS, &map("settings", "old")).await.expect(201);
    let path = format!("{MAPS}/settings");
    sign_in(&browser, &plane, &control_plane::administrator()).await;
    section(&browser, "objects/-/v1/configmaps/default/settings", "settings").await;
    assert_eq!(
        browser
            .run("return document.body.innerText.includes('managedFields')")
            .await,
        json!(false)
    );
    browser
        .run("document.querySelector('main input[type=checkbox]').click()")
        .await;
    browser.shows("managedFields").await;

    browser.click("Edit").await;
    type_into_editor(&browser, "value: old", "value: new").await;
    browser.click("Review changes").await;
    browser.shows("Nothing is written yet").await;
    browser.shows("-   value: old").await;
    browser.shows("+   value: new").await;
    assert_eq!(client.get(&path).await.expect(200)["data"]["value"], "old");
    browser.click("Write").await;
    served(&client, &path, |map| map["data"]["value"] == "new").await;
    browser.shows("Written.").await;
    let owners = client.get(&path).await.expect(200)["metadata"]["managedFields"].to_string();
    assert!(owners.contains("kube-apiserver-ui"), "{owners}");

    // Mistakes are refused in the server's words, and so is a write over somebody else's.
    browser.click("Edit").await;
    type_into_editor(&browser, "data:", "dataa:").await;
    browser.click("Review changes").await;
    browser.shows("unknown field \"dataa\"").await;
    type_into_editor(&browser, "dataa:", "data:").await;
    type_into_editor(&browser, "value: new", "value: mine").await;
    let theirs = json!({"data": {"value": "theirs"}});
    client.patch(&path, "merge-patch+json", &theirs).await.expect(200);
    browser.shows("has been changed on the server").await;
    browser.click("Review changes").await;
    browser.shows("the object has been modified").await;
    browser.click("Take what is there now").await;
    browser
        .until("document.querySelector('textarea').value.includes('value: theirs')")
        .await;
    browser
        .until("document.querySelector('textarea.kept').value.includes('value: mine')")
        .await;
    browser.click("Cancel").await;
    browser.click("Discard").await;
    browser.shows("value: theirs").await;
    client.delete(&path).await.expect(200);
    browser.shows("This object has been deleted").await;
    client.post(MAPS, &map("settings", "anew")).await.expect(201);
    browser.shows("value: anew").await;
    browser
        .until("!document.body.innerText.includes('has been deleted') && [...document.querySelectorAll('button')].find((b) => b.textContent === 'Edit' && !b.disabled)")
        .await;

    section(
        &browser,
        "objects/-/v1/configmaps/+new?namespace=default",
        "New ConfigMap",
    )
    .await;
    type_into_editor(&browser, "name: ", "name: made").await;
    browser.click("Review changes").await;
    browser.click("Write").await;
    browser.heading("made").await;
    browser.click("Delete").await;
    browser.until("document.querySelector('dialog[open]')").await;
    browser
        .run("document.querySelector('dialog[open] button[value=yes]').click()")
        .await;
    browser.shows("This object has been deleted").await;
    assert_eq!(client.get(&format!("{MAPS}/made")).await.status, 404);
    let origin = plane.url();
    // The refusals of bad edits are in the console as well.
    browser
        .finish_with(&origin, &["status of 400", "status of 404"])
        .await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_is_not_lost() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    client.post(MAPS, &map("settings", "old")).await.expect(201);
    sign_in(&browser, &plane, &control_plane::administrator()).await;
    section(&browser, "objects/-/v1/configmaps/default/settings", "settings").await;
    browser.click("Edit").await;
    type_into_editor(&browser, "value: old", "value: mine").await;
    let kept = "document.querySelector('textarea')?.value.includes('value: mine') && location.hash.endsWith('/settings')";

    browser.run("location.hash = '#/overview'").await;
    browser.shows("Discard the edit?").await;
    browser.until(kept).await;
    browser.click("Keep editing").await;
    browser.until(kept).await;
    // Esc leaves the text area, and then asks.
    browser.run("document.querySelector('textarea').focus()").await;
    browser.press("\u{E00C}").await;
    browser
        .until("document.activeElement.tagName !== 'TEXTAREA' && !document.querySelector('dialog[open]')")
        .await;
    browser.until(kept).await;
    browser.press("\u{E00C}").await;
    browser.shows("Discard the edit?").await;
    browser.click("Keep editing").await;

    // Credentials that have ended are asked for over it.
    browser
        .run("window.ask = fetch; window.fetch = (url, options) => options.method === 'PUT' ? Promise.resolve(new Response('{\"kind\":\"Status\",\"message\":\"Unauthorized\"}', { status: 401 })) : window.ask.call(window, url, options)")
        .await;
    browser.click("Review changes").await;
    browser
        .until("document.querySelector('dialog[open] #token')")
        .await;
    browser.until(kept).await;
    let token = json!(plane.token_for(&control_plane::administrator()));
    browser
        .run(&format!(
            "window.fetch = window.ask; document.getElementById('token').value = {token}"
        ))
        .await;
    agree(&browser).await;
    browser.until("!document.querySelector('dialog[open]')").await;
    browser.until(kept).await;
    browser.click("Review changes").await;
    browser.click("Write").await;
    served(&client, &format!("{MAPS}/settings"), |map| {
        map["data"]["value"] == "mine"
    })
    .await;
    // Nothing is asked where nothing would be lost.
    browser.shows("Written.").await;
    section(&browser, "storage", "Storage").await;

    section(&browser, "objects/-/v1/configmaps/default/settings", "settings").await;
    browser.click("Edit").await;
    type_into_editor(&browser, "value: mine", "value: other").await;
    browser.run("location.hash = '#/events'").await;
    browser.click("Discard").await;
    browser.heading("Events").await;
    browser.finish(&plane.url()).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_is_where_its_metadata_says() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    sign_in(&browser, &plane, &control_plane::administrator()).await;
    section(
        &browser,
        "objects/-/v1/configmaps/+new?namespace=default",
        "New ConfigMap",
    )
    .await;
    // Refusals are read, with all their causes.
    replace_text(
        &browser,
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: made\ndata:\n  a b: x\n  c d: x\n",
    )
    .await;
    browser.click("Review changes").await;
    browser
        .until("document.querySelectorAll('.note-box li').length === 2")
        .await;
    replace_text(&browser, "apiVersion: v1\ndata:\n  namespace: kube-system\n  name: other\nkind: ConfigMap\nmetadata:\n  generateName: made-\n").await;
    browser.click("Review changes").await;
    browser.click("Write").await;
    browser
        .until("document.querySelector('h1')?.textContent.startsWith('made-')")
        .await;
    browser.shows("in namespace default").await;
    let elsewhere = client
        .get("/api/v1/namespaces/kube-system/configmaps")
        .await
        .expect(200);
    assert!(!elsewhere.to_string().contains("made-"), "{elsewhere}");
    browser.finish_with(&plane.url(), &["status of 422"]).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_secrets_are_hidden() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"password\":\"b2xkdmFsdWU=\"}}"});
    let secret =
        json!({"metadata": {"name": "login", "annotations": applied}, "data": {"password": "b2xkdmFsdWU="}});
    client
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .expect(201);
    sign_in(&browser, &plane, &control_plane::administrator()).await;
    section(&browser, "objects/-/v1/secrets/default/login", "login").await;
    browser.shows("values are hidden").await;
    let hidden = "!document.querySelector('main').textContent.includes('b2xkdmFsdWU=')";
    browser
        .until("document.querySelector('pre.yaml').innerText.includes('password:')")
        .await;
    browser.until(hidden).await;
    browser.click("Show values").await;
    browser.shows("b2xkdmFsdWU=").await;
    browser.click("Hide values").await;
    browser.until(hidden).await;
    browser.click("Edit").await;
    browser.shows("The editor shows the values of this Secret.").await;
    agree(&browser).await;
    type_into_editor(&browser, "password: b2xkdmFsdWU=", "password: bmV3dmFsdWU=").await;
    browser.click("Review changes").await;
    browser.shows("Nothing is written yet").await;
    browser
        .until("document.querySelector('.diff .add') && !document.querySelector('.diff').textContent.includes('bmV3dmFsdWU=')")
        .await;
    browser
        .run("[...document.querySelectorAll('.body button')].find((b) => b.textContent === 'Show values').click()")
        .await;
    browser
        .until("document.querySelector('.diff').textContent.includes('bmV3dmFsdWU=')")
        .await;
    browser.click("Write").await;
    browser.shows("Written.").await;
    browser
        .until("!document.querySelector('main').textContent.includes('bmV3dmFsdWU=')")
        .await;
    browser.finish(&plane.url()).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_deleted_by_its_name() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (plane, client) = started().await;
    client
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}}))
        .await
        .expect(201);
    sign_in(&browser, &plane, &control_plane::administrator()).await;
    section(&browser, "objects/-/v1/namespaces/-/team", "team").await;
    browser.click("Delete").await;
    browser
        .shows("Everything in this namespace will be deleted with it.")
        .await;
    browser
        .until("document.querySelector('dialog[open] button[value=yes]').disabled")
        .await;
    browser
        .run("const field = document.querySelector('dialog[open] input'); field.value = 'team'; field.dispatchEvent(new Event('input'))")
        .await;
    agree(&browser).await;
    browser.shows("eleted").await;
    let answer = client.get("/api/v1/namespaces/team").await;
    assert!(
        answer.status == 404 || answer.json["metadata"]["deletionTimestamp"].is_string(),
        "{}",
        answer.json
    );
    browser.finish_with(&plane.url(), &["status of 404"]).await;
    plane.stop().await;
}
