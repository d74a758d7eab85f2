use serde_json::json;
use tempfile::TempDir;

use super::*;

/// A directory with these files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).expect("it is written");
    }
    folder
}

async fn read(plugin: Plugin, folder: &TempDir) -> Result<Set, String> {
    let files = files::read(folder.path())?;
    let read = kinds::accept(plugin, &files.documents).await;
    // Errors name files by their whole path.
    let prefix = format!("{}/", folder.path().display());
    read.map_err(|why| why.replace(&prefix, ""))
}

fn configuration(name: &str, client: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{"name": "hook.example.com", "clientConfig": client, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]})
}

fn policy(name: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"validations": [{"expression": "true"}], "matchConstraints": {"resourceRules":
            [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}}})
}

fn binding(name: &str, policy: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": policy, "validationActions": ["Deny"]}})
}

fn by_url() -> Value {
    json!({"url": "https://hooks.example.com/"})
}

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(machinery::meta::name).collect()
}

#[tokio::test]
async fn files_hold_documents_and_lists() {
    let [a, b, c, d] =
        ["a", "b", "c", "d"].map(|name| configuration(&format!("{name}.static.k8s.io"), &by_url()));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [b, {"apiVersion": "v1", "kind": "List", "items": [c]}]});
    let mut bare = d;
    bare.as_object_mut().expect("an object").remove("kind");
    let own = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfigurationList", "items": [bare]});
    let folder = directory(&[
        ("2.yaml", &format!("---\n{a}\n--- \n\n---\n{own}\n")),
        ("1.JSON", &list.to_string()),
        ("notes.txt", "no manifest"),
        ("empty.yml", ""),
    ]);
    std::fs::create_dir(folder.path().join("dir.yaml")).expect("a directory");
    let set = read(Plugin::ValidatingWebhooks, &folder)
        .await
        .expect("they are taken");
    let expected = ["a", "b", "c", "d"].map(|name| format!("{name}.static.k8s.io"));
    assert_eq!(names(&set.objects), expected);
    assert_eq!(
        set.objects[0]["webhooks"][0]["failurePolicy"], "Fail",
        "they are defaulted"
    );
    assert_eq!(set.objects[0]["webhooks"][0]["timeoutSeconds"], 10);
}

#[tokio::test]
async fn what_files_cannot_have_is_refused() {
    let check = async |plugin, objects: &[Value], expected: &str| {
        let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
        let folder = directory(&[("a.yaml", &text.join("\n---\n"))]);
        let expected = expected.replace("FILE", "error loading a.yaml: ");
        assert_eq!(
            read(plugin, &folder).await.err().as_deref(),
            Some(&*expected),
            "{objects:?}"
        );
    };
    let hooks = Plugin::ValidatingWebhooks;
    let policies = Plugin::ValidatingPolicies;
    let name = "a.static.k8s.io";
    let good = configuration(name, &by_url());
    check(
        hooks,
        &[configuration("a", &by_url())],
        "FILE\"a\" in file \"a.yaml\" must have a name ending with \".static.k8s.io\"",
    )
    .await;
    check(
        hooks,
        &[good.clone(), good.clone()],
        "FILEduplicate name \"a.static.k8s.io\" found in file \"a.yaml\" (previously seen in \"a.yaml\")",
    )
    .await;
    let service = json!({"service": {"namespace": "n", "name": "s"}});
    check(hooks, &[configuration(name, &service)],
        "FILEwebhook \"hook.example.com\" in \"a.static.k8s.io\" (file \"a.yaml\"): clientConfig.service is not supported for \
         static manifests; use clientConfig.url instead").await;
    check(
        Plugin::MutatingWebhooks,
        std::slice::from_ref(&good),
        "FILEunsupported resource type *v1.ValidatingWebhookConfiguration",
    )
    .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let mut beta = good.clone();
    beta["apiVersion"] = "admissionregistration.k8s.io/v1beta1".into();
    check(
        hooks,
        &[beta],
        "FILEunsupported resource type *v1beta1.ValidatingWebhookConfiguration",
    )
    .await;
    check(
        hooks,
        &[map],
        "FILEno kind \"ConfigMap\" is registered for version \"v1\"",
    )
    .await;
    let mut odd = good.clone();
    odd["odd"] = 1.into();
    check(hooks, &[odd], "FILEstrict decoding error: unknown field \"odd\"").await;
    check(
        hooks,
        &[json!({"metadata": {}})],
        "FILEObject 'Kind' is missing in '{\"metadata\":{}}'",
    )
    .await;
    let mut invalid = good.clone();
    invalid["webhooks"][0]["sideEffects"] = "Some".into();
    check(hooks, &[invalid],
        "FILEValidatingWebhookConfiguration \"a.static.k8s.io\": webhooks[0].sideEffects: Unsupported value: \"Some\": \
         supported values: \"None\", \"NoneOnDryRun\"").await;
    let mut wrong = policy(name);
    wrong["spec"]["validations"][0]["expression"] = "1 +".into();
    let folder = directory(&[("a.yaml", &wrong.to_string())]);
    let why = read(policies, &folder).await.expect_err("it does not compile");
    assert!(why.starts_with("error loading a.yaml: ValidatingAdmissionPolicy \"a.static.k8s.io\": spec.validations[0].expression: Invalid value: \"1 +\": compilation failed: ERROR: <input>:1:4: Syntax error"), "{why}");
    let mut with_params = policy(name);
    with_params["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    check(policies, &[with_params],
        "FILEValidatingAdmissionPolicy \"a.static.k8s.io\": spec.paramKind is not supported for static manifests").await;
    check(
        policies,
        &[policy(name), binding(name, "other")],
        "FILEbinding \"a.static.k8s.io\": spec.policyName \"other\" must end with \".static.k8s.io\"",
    )
    .await;
    check(policies, &[binding(name, "gone.static.k8s.io")],
        "binding \"a.static.k8s.io\" references policy \"gone.static.k8s.io\" which does not exist in the manifest directory").await;
    let mut with_reference = binding(name, name);
    with_reference["spec"]["paramRef"] = json!({"name": "x", "parameterNotFoundAction": "Deny"});
    check(
        policies,
        &[policy(name), with_reference],
        "FILEbinding \"a.static.k8s.io\": spec.paramRef is not supported for static manifests",
    )
    .await;
    let set = read(
        policies,
        &directory(&[(
            "a.yaml",
            &format!("{}\n---\n{}", binding(name, name), policy(name)),
        )]),
    )
    .await;
    let set = set.expect("a policy and its binding may have one name");
    assert_eq!(
        (names(&set.objects), names(&set.bindings)),
        (vec![name], vec![name])
    );
}

#[tokio::test]
async fn a_bad_reload_keeps_the_set_in_use() {
    let one = configuration("one.static.k8s.io", &by_url()).to_string();
    let folder = directory(&[("a.yaml", &one)]);
    let reloads = Arc::new(ManifestReloads::default());
    let opened = Manifests::open(Plugin::ValidatingWebhooks, folder.path().into(), reloads.clone()).await;
    let manifests = opened.expect("it is read");
    let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let kept = seen.clone();
    manifests.connect(move |set| {
        let names = names(&set.objects).into_iter().map(str::to_string).collect();
        kept.lock().push(names);
    });
    assert!(!manifests.look().await, "nothing has changed");
    let file = folder.path().join("a.yaml");
    std::fs::write(&file, "kind: Odd").expect("it is written");
    assert!(!manifests.look().await);
    let two = configuration("two.static.k8s.io", &by_url()).to_string();
    std::fs::write(&file, two).expect("it is written");
    assert!(manifests.look().await);
    // An empty directory is a set without objects.
    std::fs::remove_file(&file).expect("it is removed");
    assert!(manifests.look().await);
    let expected: [&[&str]; 3] = [&["one.static.k8s.io"], &["two.static.k8s.io"], &[]];
    assert_eq!(*seen.lock(), expected);
    let mut out = String::new();
    generic_server::metrics::Collect::collect(&*reloads, &mut out);
    let server = generic_server::metrics::server_hash();
    for (status, count) in [("success", 3), ("failure", 1)] {
        let line = format!(
            "apiserver_manifest_admission_config_controller_automatic_reloads_total{{apiserver_id_hash=\"{server}\",plugin=\"ValidatingAdmissionWebhook\",status=\"{status}\"}} {count}\n"
        );
        assert!(out.contains(&line), "{out}");
    }
}
