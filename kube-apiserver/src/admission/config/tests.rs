use super::*;

fn selection(enable: &[&str]) -> PluginSelection {
    let enable: Vec<String> = enable.iter().map(|name| name.to_string()).collect();
    PluginSelection::new(&enable, &[]).expect("a selection").0
}

#[track_caller]
fn check(text: &str, enable: &[&str], expected: Result<&[&str], &str>) {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("admission.yaml");
    std::fs::write(&file, text).expect("it is written");
    let nested = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n";
    std::fs::write(folder.path().join("nested.yaml"), nested).expect("it is written");
    let read = PluginConfigs::read(Some(&file), &selection(enable), false);
    let outcome = read.map(|(_, warnings)| warnings);
    let expected = expected.map(|warnings| warnings.iter().map(|text| text.to_string()).collect());
    let expected: Result<Vec<String>, String> = expected.map_err(str::to_string);
    assert_eq!(outcome, expected, "{text}");
}

fn plugins(entries: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: {entries}\n")
}

#[test]
fn files_without_faults() {
    check(&plugins("[]"), &[], Ok(&[]));
    check(&plugins("[{name: PodSecurity, path: nested.yaml}]"), &[], Ok(&[]));
    check(&plugins("[{name: LimitRanger, path: ''}]"), &[], Ok(&[]));
    check(
        "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b, one: c=d}\n",
        &["PodNodeSelector"],
        Ok(&[]),
    );
    for (kind, version) in [
        ("ResourceQuotaConfiguration", "apiserver.config.k8s.io/v1"),
        ("Configuration", "resourcequota.admission.k8s.io/v1beta1"),
    ] {
        let limited = "limitedResources: [{resource: pods, matchContains: [cpu], matchScopes: [{scopeName: PriorityClass, operator: Exists}]}]";
        check(
            &plugins(&format!(
                "[{{name: ResourceQuota, configuration: {{kind: {kind}, apiVersion: {version}, {limited}}}}}]"
            )),
            &[],
            Ok(&[]),
        );
    }
    let events = "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 1, burst: 1}]}";
    check(
        &plugins(&format!("[{{name: EventRateLimit, configuration: {events}}}]")),
        &["EventRateLimit"],
        Ok(&[]),
    );
}

#[test]
fn entries_without_effect_are_named() {
    check(
        &plugins(
            "[{name: Bogus}, {name: PodNodeSelector, configuration: {}}, {name: LimitRanger, configuration: {}}, \
             {name: PodSecurity, path: nested.yaml}, {name: PodSecurity, path: gone.yaml}]",
        ),
        &[],
        Ok(&[
            "--admission-control-config-file: plugin \"Bogus\" is unknown, its entry has no effect",
            "--admission-control-config-file: plugin \"PodNodeSelector\" is off, its entry has no effect",
            "--admission-control-config-file: plugin \"LimitRanger\" takes no configuration, its entry has no effect",
            "--admission-control-config-file: plugin \"PodSecurity\" is there more than once: only its first entry has an effect",
        ]),
    );
}

#[test]
fn faults_are_named() {
    let refused = |text: &str, enable: &[&str], expected: &str| {
        check(
            text,
            enable,
            Err(&format!("--admission-control-config-file: {expected}")),
        );
    };
    refused("", &[], "Object 'Kind' is missing");
    refused(
        "kind: AdmissionConfiguration",
        &[],
        "Object 'apiVersion' is missing",
    );
    refused(
        "kind: AdmissionConfiguration\napiVersion: v1",
        &[],
        "no kind \"AdmissionConfiguration\" is registered for version \"v1\"",
    );
    refused(
        &plugins("[{name: PodSecurity, file: x}]"),
        &[],
        "strict decoding error: unknown field `file`, expected one of `name`, `path`, `configuration`",
    );
    let webhooks = |fields: &str| {
        let kind = "apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration";
        plugins(&format!(
            "[{{name: ValidatingAdmissionWebhook, configuration: {{{kind}, {fields}}}}}]"
        ))
    };
    refused(
        &webhooks("kubeConfigFile: hooks.kubeconfig"),
        &[],
        "couldn't init admission plugin \"ValidatingAdmissionWebhook\": kubeConfigFile: Invalid value: \"hooks.kubeconfig\": \
         must be an absolute file path",
    );
    refused(
        &webhooks("staticManifestsDir: /manifests"),
        &[],
        "couldn't init admission plugin \"ValidatingAdmissionWebhook\": staticManifestsDir: Forbidden: \
         staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled",
    );
    refused(
        &plugins(
            "[{name: ValidatingAdmissionWebhook, configuration: {kind: WebhookAdmission, apiVersion: apiserver.config.k8s.io/v1}}]",
        ),
        &[],
        "couldn't init admission plugin \"ValidatingAdmissionWebhook\": no kind \"WebhookAdmission\" is registered for version \
         \"apiserver.config.k8s.io/v1\"",
    );
    refused(
        &plugins(
            "[{name: ResourceQuota, configuration: {kind: ResourceQuotaConfiguration, apiVersion: apiserver.config.k8s.io/v1, \
                  limitedResources: [{matchContains: [x]}]}}]",
        ),
        &[],
        "couldn't init admission plugin \"ResourceQuota\": limitedResources[0].resource: Required value",
    );
    refused(
        &plugins("[{name: ImagePolicyWebhook}]"),
        &["ImagePolicyWebhook"],
        "couldn't init admission plugin \"ImagePolicyWebhook\": no config specified",
    );
    refused(
        &plugins(
            "[{name: ImagePolicyWebhook, configuration: {imagePolicy: {kubeConfigFile: /nowhere, allowTTL: 2000}}}]",
        ),
        &["ImagePolicyWebhook"],
        "couldn't init admission plugin \"ImagePolicyWebhook\": valid value is between 1s and 30m0s, got 33m20s",
    );
    refused(
        &plugins("[]"),
        &["EventRateLimit"],
        "couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: null: must not be empty",
    );
    let security = "{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, \
                    defaults: {enforce: x, warn-version: v2}, exemptions: {usernames: [''], namespaces: [a, a], runtimeClasses: [A]}}";
    refused(
        &plugins(&format!("[{{name: PodSecurity, configuration: {security}}}]")),
        &[],
        "couldn't init admission plugin \"PodSecurity\": [defaults.enforce: Invalid value: \"x\": must be one of privileged, baseline, restricted, \
         defaults.warn-version: Invalid value: \"v2\": must be \"latest\" or \"v1.x\", \
         exemptions.namespaces[1]: Duplicate value: \"a\", \
         exemptions.runtimeClasses[0]: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
         '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), \
         exemptions.usernames[0]: Invalid value: \"\": username must not be empty]",
    );
    refused(
        "podNodeSelectorPluginConfig: {one: a}\n",
        &["PodNodeSelector"],
        "one: invalid selector: [a]",
    );
}

#[test]
fn files_that_are_not_there_are_named() {
    let outcome = PluginConfigs::read(Some(Path::new("/nowhere/a.yaml")), &selection(&[]), false);
    let why = outcome.expect_err("it is not there");
    assert!(
        why.starts_with(
            "--admission-control-config-file: unable to read admission control configuration from \"/nowhere/a.yaml\": "
        ),
        "{why}"
    );
    assert!(PluginConfigs::read(None, &selection(&["EventRateLimit"]), false).is_err());
}
