//! The configurations that are refused, with upstream's texts, and some that are not.

use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";

/// The outcome for a whole file.
#[track_caller]
fn check(text: &str, expected: Result<(), &str>) {
    let text = format!("{HEAD}{text}");
    let config = AuthenticationConfiguration::parse(text.as_bytes()).expect("it can be read");
    let disallowed = ["https://own".to_owned(), "https://older".to_owned()];
    let outcome = validate(&config, &disallowed).map(|_| ());
    assert_eq!(outcome, expected.map_err(str::to_owned), "{text}");
}

/// The outcome for one authenticator, of which parts are replaced. Paths in the text begin below it.
#[track_caller]
fn one(parts: &[(&str, &str)], expected: Result<(), &str>) {
    let mut all = vec![
        ("issuer", "{url: 'https://i', audiences: [a]}"),
        ("claimMappings", "{username: {claim: sub, prefix: ''}}"),
    ];
    for (name, value) in parts {
        all.retain(|(known, _)| known != name);
        all.push((name, value));
    }
    let members: Vec<String> = all
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let text = format!("jwt: [{{{}}}]", members.join(", "));
    check(&text, expected);
}

#[track_caller]
fn issuer(value: &str, expected: Result<(), &str>) {
    one(&[("issuer", value)], expected);
}

#[track_caller]
fn mappings(value: &str, expected: Result<(), &str>) {
    one(&[("claimMappings", value)], expected);
}

#[test]
fn configurations_as_a_whole() {
    check("", Ok(()));
    check("jwt: []", Ok(()));
    one(&[], Ok(()));
    check(
        "anonymous: {enabled: true, conditions: [{path: /healthz}]}",
        Ok(()),
    );
    check("anonymous: {enabled: false}", Ok(()));
    check(
        "anonymous: {enabled: false, conditions: [{path: /healthz}]}",
        Err(
            "anonymous.conditions: Invalid value: [{\"path\":\"/healthz\"}]: enabled should be set to true when conditions are defined",
        ),
    );
    let jwt = |url: &str, more: &str| {
        format!(
            "{{issuer: {{url: '{url}', audiences: [a]{more}}}, claimMappings: {{username: {{claim: sub, prefix: ''}}}}}}"
        )
    };
    let of = |all: Vec<String>| format!("jwt: [{}]", all.join(", "));
    check(
        &of(vec![jwt("https://i", ""), jwt("https://i", "")]),
        Err("jwt[1].issuer.url: Duplicate value: \"https://i\""),
    );
    let discovery = ", discoveryURL: 'https://d'";
    check(
        &of(vec![jwt("https://i", discovery), jwt("https://j", discovery)]),
        Err("jwt[1].issuer.discoveryURL: Duplicate value: \"https://d\""),
    );
    let many = |count: usize| of((0..count).map(|at| jwt(&format!("https://i/{at}"), "")).collect());
    check(&many(limits::JWT_AUTHENTICATORS), Ok(()));
    check(
        &many(limits::JWT_AUTHENTICATORS + 1),
        Err("jwt: Too many: 65: must have at most 64 items"),
    );
}

#[test]
fn issuers() {
    let url = |url: &str| format!("{{url: '{url}', audiences: [a]}}");
    issuer("{audiences: [a]}", Err("jwt[0].issuer.url: Required value"));
    issuer(
        &url("http://i"),
        Err("jwt[0].issuer.url: Invalid value: \"http://i\": URL scheme must be https"),
    );
    issuer(
        &url("https://u:p@i?q=1#f"),
        Err(
            "[jwt[0].issuer.url: Invalid value: \"https://u:p@i?q=1#f\": URL must not contain a username or password, \
             jwt[0].issuer.url: Invalid value: \"https://u:p@i?q=1#f\": URL must not contain a query, \
             jwt[0].issuer.url: Invalid value: \"https://u:p@i?q=1#f\": URL must not contain a fragment]",
        ),
    );
    issuer(
        &url(":i"),
        Err("jwt[0].issuer.url: Invalid value: \":i\": parse \":i\": missing protocol scheme"),
    );
    issuer(
        &url("https://own"),
        Err(
            "jwt[0].issuer.url: Invalid value: \"https://own\": URL must not overlap with disallowed issuers: [https://older https://own]",
        ),
    );
    issuer(
        "{url: 'https://i', discoveryURL: 'https://i/', audiences: [a]}",
        Err(
            "jwt[0].issuer.discoveryURL: Invalid value: \"https://i/\": discoveryURL must be different from URL",
        ),
    );
    issuer(
        "{url: 'https://i', discoveryURL: 'http://d', audiences: [a]}",
        Err("jwt[0].issuer.discoveryURL: Invalid value: \"http://d\": URL scheme must be https"),
    );
    // A discovery URL is no issuer.
    issuer(
        "{url: 'https://i', discoveryURL: 'https://own', audiences: [a]}",
        Ok(()),
    );
    issuer(
        "{url: 'https://i', audiences: [a], egressSelectorType: etcd}",
        Err(
            "jwt[0].issuer.egressSelectorType: Invalid value: \"etcd\": egress selector must be either controlplane or cluster",
        ),
    );
    issuer(
        "{url: 'https://i', audiences: [a], egressSelectorType: cluster}",
        Ok(()),
    );
    issuer(
        "{url: 'https://i', audiences: [a], certificateAuthority: 'none'}",
        Err(
            "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid RSA or ECDSA certificates",
        ),
    );
}

#[test]
fn audiences() {
    let of = |rest: &str| format!("{{url: 'https://i', {rest}}}");
    issuer(
        &of("audiences: []"),
        Err("jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"),
    );
    issuer(
        &of("audiences: ['', a, a], audienceMatchPolicy: MatchAny"),
        Err(
            "[jwt[0].issuer.audiences[0]: Required value, jwt[0].issuer.audiences[2]: Duplicate value: \"a\"]",
        ),
    );
    issuer(&of("audiences: [a], audienceMatchPolicy: MatchAny"), Ok(()));
    issuer(&of("audiences: [a, b], audienceMatchPolicy: MatchAny"), Ok(()));
    issuer(
        &of("audiences: [a, b]"),
        Err(
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
        ),
    );
    issuer(
        &of("audiences: [a], audienceMatchPolicy: MatchAll"),
        Err(
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"MatchAll\": audienceMatchPolicy must be empty or MatchAny for single audience",
        ),
    );
}

#[test]
fn rules_of_claims_and_users() {
    let claims = |value: &str, expected| one(&[("claimValidationRules", value)], expected);
    claims(
        "[{claim: hd, requiredValue: x}, {expression: 'claims.exp > 1', message: m}]",
        Ok(()),
    );
    claims(
        "[{claim: a, expression: b}, {}]",
        Err(
            "[jwt[0].claimValidationRules[0]: Invalid value: \"a\": claim and expression can't both be set, \
             jwt[0].claimValidationRules[1]: Required value: claim or expression is required]",
        ),
    );
    claims(
        "[{claim: a, message: m}, {claim: a}]",
        Err(
            "[jwt[0].claimValidationRules[0].message: Invalid value: \"m\": may not be specified when claim is set, \
             jwt[0].claimValidationRules[1].claim: Duplicate value: \"a\"]",
        ),
    );
    claims(
        "[{expression: 'true', requiredValue: v}, {expression: 'true'}]",
        Err(
            "[jwt[0].claimValidationRules[0].requiredValue: Invalid value: \"v\": may not be specified when expression is set, \
             jwt[0].claimValidationRules[1].expression: Duplicate value: \"true\"]",
        ),
    );
    claims(
        "[{expression: claims.exp}]",
        Err(
            "jwt[0].claimValidationRules[0].expression: Invalid value: \"claims.exp\": must evaluate to bool",
        ),
    );
    let users = |value: &str, expected| one(&[("userValidationRules", value)], expected);
    users("[{expression: \"user.username != ''\"}]", Ok(()));
    users(
        "[{message: m}, {expression: 'true'}, {expression: 'true'}, {expression: '1'}]",
        Err("[jwt[0].userValidationRules[0].expression: Required value, \
             jwt[0].userValidationRules[2].expression: Duplicate value: \"true\", \
             jwt[0].userValidationRules[3].expression: Invalid value: \"1\": must evaluate to bool]"),
    );
    users(
        "[{expression: claims.sub}]",
        Err(
            "jwt[0].userValidationRules[0].expression: Invalid value: \"claims.sub\": compilation failed: ERROR: <input>:1:1: undeclared \
             reference to 'claims' (in container '')\n | claims.sub\n | ^",
        ),
    );
}

#[test]
fn mappings_of_claims() {
    mappings(
        "{username: {expression: claims.sub}, groups: {claim: g, prefix: 'p:'}, uid: {claim: sub}}",
        Ok(()),
    );
    mappings(
        "{username: {claim: sub, prefix: ''}, groups: {}, uid: {}}",
        Ok(()),
    );
    mappings(
        "{}",
        Err("jwt[0].claimMappings.username: Required value: claim or expression is required"),
    );
    mappings(
        "{username: {claim: sub}, groups: {claim: g}}",
        Err(
            "[jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to \
             disable prefixing, jwt[0].claimMappings.groups.prefix: Required value: prefix is required when claim is set. It can be set to an \
             empty string to disable prefixing]",
        ),
    );
    mappings(
        "{username: {claim: sub, expression: claims.sub}, uid: {claim: a, expression: b}}",
        Err(
            "[jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both be set, \
             jwt[0].claimMappings.uid: Invalid value: \"\": claim and expression can't both be set]",
        ),
    );
    mappings(
        "{username: {prefix: p, expression: claims.sub}}",
        Err(
            "jwt[0].claimMappings.username.prefix: Invalid value: \"p\": may not be specified when expression is set",
        ),
    );
    mappings(
        "{username: {expression: foo}}",
        Err(
            "jwt[0].claimMappings.username.expression: Invalid value: \"foo\": compilation failed: ERROR: <input>:1:1: undeclared reference to \
             'foo' (in container '')\n | foo\n | ^",
        ),
    );
}

#[test]
fn extra_attributes() {
    #[track_caller]
    fn extra(value: &str, expected: Result<(), &str>) {
        let text = format!("{{username: {{claim: sub, prefix: ''}}, extra: {value}}}");
        mappings(&text, expected);
    }
    extra("[{key: example.com/a, valueExpression: claims.a}]", Ok(()));
    extra(
        "[{key: a, valueExpression: claims.a}]",
        Err(
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    );
    extra(
        "[{key: example.com/A, valueExpression: ''}, {key: example.com/A}]",
        Err(
            "[jwt[0].claimMappings.extra[0].key: Invalid value: \"example.com/A\": must be lowercase, \
             jwt[0].claimMappings.extra[0].valueExpression: Required value, \
             jwt[0].claimMappings.extra[1].key: Invalid value: \"example.com/A\": must be lowercase, \
             jwt[0].claimMappings.extra[1].key: Duplicate value: \"example.com/A\"]",
        ),
    );
    for key in ["kubernetes.io/a", "a.kubernetes.io/a", "k8s.io/a", "a.b.k8s.io/a"] {
        let why = format!(
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"{key}\": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
        );
        extra(&format!("[{{key: {key}, valueExpression: claims.a}}]"), Err(&why));
    }
    extra("[{key: notk8s.io/a, valueExpression: claims.a}]", Ok(()));
}

#[test]
fn an_email_has_to_be_verified() {
    let unverified = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or \
                      claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
    let refused = |expression: &str| {
        let why = format!(
            "jwt[0].claimMappings.username.expression: Invalid value: {}: {unverified}",
            go::quote(expression)
        );
        mappings(
            &format!("{{username: {{expression: \"{expression}\"}}}}"),
            Err(&why),
        );
    };
    refused("claims.email");
    refused("claims.?email.orValue('')");
    refused("has(claims.email) ? 'a' : 'b'");
    refused("[claims.email].map(a, 'x' + a)[0]");
    let email = "{username: {expression: claims.email}}";
    one(
        &[
            ("claimMappings", email),
            (
                "claimValidationRules",
                "[{expression: 'claims.?email_verified.orValue(true) == true'}]",
            ),
        ],
        Ok(()),
    );
    mappings(
        "{username: {expression: claims.email}, extra: [{key: example.com/a, valueExpression: string(claims.email_verified)}]}",
        Ok(()),
    );
    mappings(
        "{username: {expression: \"claims.email_verified ? claims.email : claims.sub\"}}",
        Ok(()),
    );
    // Only these forms count as uses of the claim, as upstream has it.
    mappings("{username: {expression: \"claims['email']\"}}", Ok(()));
    mappings("{username: {expression: claims.sub.email}}", Ok(()));
}
