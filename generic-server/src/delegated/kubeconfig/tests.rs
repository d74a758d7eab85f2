use super::*;

#[test]
fn the_current_context() {
    let text = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
        clusters: [{name: k, cluster: {server: 'https://h:1', certificate-authority-data: LS0tLS1CRUdJTiA=}}]\n\
        users: [{name: u, user: {token: t}}]\n";
    let config = Kubeconfig::parse(text).expect("it is complete");
    let authorities = |pem: &str| ServerTrust::Authorities(pem.to_string());
    assert_eq!(
        (&*config.server, config.trust, config.token.as_deref()),
        ("https://h:1", authorities("-----BEGIN "), Some("t"))
    );
    for missing in ["server: 'https://h:1', ", "current-context: c\n"] {
        assert!(
            Kubeconfig::parse(&text.replace(missing, "")).is_err(),
            "without {missing}"
        );
    }
    // Verification and identity are never weaker than in the file.
    for (before, unsupported) in [
        ("server:", "proxy-url: 'http://h', server:"),
        ("token: t", "token: t, as: admin"),
        ("token: t", "exec: {command: c}"),
    ] {
        let error = Kubeconfig::parse(&text.replace(before, unsupported)).expect_err(unsupported);
        assert!(error.to_string().contains("is not supported"), "{error}");
    }
    let harmless = text.replace("server:", "insecure-skip-tls-verify: false, server:");
    assert!(Kubeconfig::parse(&harmless).is_ok());
    let text = text.replace(", certificate-authority-data: LS0tLS1CRUdJTiA=", "");
    let system = Kubeconfig::parse(&text).expect("the system's authorities");
    assert_eq!(system.trust, ServerTrust::System);
    let anyone = text.replace(
        "server:",
        "insecure-skip-tls-verify: true, tls-server-name: other, server:",
    );
    let anyone = Kubeconfig::parse(&anyone).expect("any server");
    assert_eq!(
        (anyone.trust, anyone.server_name.as_deref()),
        (ServerTrust::Anyone, Some("other"))
    );
    let basic = Kubeconfig::parse(&text.replace("token: t", "username: u, password: p")).expect("a password");
    assert_eq!(basic.password, Some(("u".to_string(), "p".to_string())));
}

#[test]
fn what_is_wrong_is_told_in_upstreams_words() {
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = Kubeconfig::parse(text).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
    }
    let of = |cluster: &str, user: &str| {
        format!(
            "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    };
    let server = "server: 'https://h'";
    for empty in ["", "{}", "kind: Config\napiVersion: v1\n"] {
        check(empty, EMPTY);
    }
    check(&of(server, "").replace("cluster: c,", "cluster: d,"), EMPTY);
    check(
        &of(server, "").replace("current-context: x", "current-context: q"),
        "invalid configuration: [context was not found for specified context: q, cluster has no server defined]",
    );
    check(
        &of("", ""),
        r#"invalid configuration: no server found for cluster "c""#,
    );
    check(
        &of(
            &format!("{server}, certificate-authority: /nope"),
            "client-certificate: /nope, client-key: /nope",
        ),
        "invalid configuration: [unable to read client-cert /nope for u due to open /nope: no such file or directory, \
         unable to read client-key /nope for u due to open /nope: no such file or directory, \
         unable to read certificate-authority /nope for c due to open /nope: no such file or directory]",
    );
    check(
        &of(&format!("{server}, certificate-authority-data: AAAA"), ""),
        "unable to load root certificates: unable to parse bytes as PEM block",
    );
    let trusted = format!("{server}, certificate-authority-data: LS0tLS1CRUdJTiA=");
    check(
        &of(&trusted, "client-certificate-data: AAAA, client-key-data: AAAA"),
        "tls: failed to find any PEM data in certificate input",
    );
    check(
        &of(&trusted, "client-certificate-data: AAAA"),
        "invalid configuration: client-key-data or client-key must be specified for u to use the clientCert authentication method.",
    );
    check(
        &of(&format!("{trusted}, insecure-skip-tls-verify: true"), ""),
        "specifying a root certificates file with the insecure flag is not allowed",
    );
    check(
        &of(&trusted, "token: t, username: u, password: p"),
        "invalid configuration: more than one authentication method found for u; found [token basicAuth], only one is allowed",
    );
    check(
        "clusters: {a: b}",
        "json: cannot unmarshal object into Go struct field Config.clusters of type []v1.NamedCluster",
    );
    check(
        "current-context: true",
        "json: cannot unmarshal bool into Go struct field Config.current-context of type string",
    );
    check(
        "kind: Pod\napiVersion: v1",
        r#"no kind "Pod" is registered for version "v1" in scheme "k8s.io/client-go/tools/clientcmd/api/latest/latest.go:50""#,
    );
    check(
        "x",
        r#"couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#,
    );
    // A user that is not there has no credentials.
    let config = Kubeconfig::parse(&of(&trusted, "token: t").replace("user: u", "user: v"));
    assert_eq!(config.expect("it is complete").token, None);
    let error = Kubeconfig::read(Path::new("/nope")).expect_err("there is no file");
    assert_eq!(error.to_string(), "stat /nope: no such file or directory");
}
