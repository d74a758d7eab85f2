//! The users that claims make, and the claims that make none.

use serde_json::json;

use super::super::config::AuthenticationConfiguration;
use super::super::validation;
use super::*;

/// The user of claims, or why there is none. The configuration is that of an authenticator without its issuer.
#[track_caller]
fn check(config: &str, claims: Value, expected: Result<Value, &str>) {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n\
         jwt: [{{issuer: {{url: 'https://i', audiences: [a]}}, {config}}}]"
    );
    let mut parsed = AuthenticationConfiguration::parse(text.as_bytes()).expect("it can be read");
    let mut mappers = validation::validate(&parsed, &[]).expect("it is sound");
    let mapping = Mapping::new(parsed.jwt.remove(0), mappers.remove(0));
    let Value::Object(map) = claims.clone() else {
        panic!("no claims: {claims}");
    };
    let expected = expected.map_err(str::to_owned);
    assert_eq!(
        mapping.user(map).map(|user| user_value(&user)),
        expected,
        "{config}: {claims}"
    );
}

fn user(name: &str, uid: &str, groups: &[&str], extra: Value) -> Result<Value, &'static str> {
    Ok(json!({"username": name, "uid": uid, "groups": groups, "extra": extra}))
}

const PLAIN: &str = "claimMappings: {username: {claim: sub, prefix: 'o:'}}";

#[test]
fn names_come_from_claims() {
    check(PLAIN, json!({"sub": "jane"}), user("o:jane", "", &[], json!({})));
    check(
        PLAIN,
        json!({"sub": "jane", "jti": "7"}),
        user(
            "o:jane",
            "",
            &[],
            json!({"authentication.kubernetes.io/credential-id": ["JTI=7"]}),
        ),
    );
    check(
        PLAIN,
        json!({"sub": "jane", "jti": 7}),
        user("o:jane", "", &[], json!({})),
    );
    check(
        PLAIN,
        json!({}),
        Err("oidc: parse username claims \"sub\": claim not present"),
    );
    check(
        PLAIN,
        json!({"sub": 1}),
        Err(
            "oidc: parse username claims \"sub\": json: cannot unmarshal number into Go value of type string",
        ),
    );
    let email = "claimMappings: {username: {claim: email, prefix: ''}}";
    check(email, json!({"email": "a@b"}), user("a@b", "", &[], json!({})));
    check(
        email,
        json!({"email": "a@b", "email_verified": true}),
        user("a@b", "", &[], json!({})),
    );
    for unverified in [json!(false), json!(null)] {
        check(
            email,
            json!({"email": "a@b", "email_verified": unverified}),
            Err("oidc: email not verified"),
        );
    }
    check(
        email,
        json!({"email": "a@b", "email_verified": "true"}),
        Err("oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool"),
    );
}

#[test]
fn groups_and_uids_come_from_claims() {
    let config = "claimMappings: {username: {claim: sub, prefix: ''}, groups: {claim: g, prefix: 'p:'}, uid: {claim: id}}";
    check(
        config,
        json!({"sub": "j", "g": ["a", "b"], "id": "1"}),
        user("j", "1", &["p:a", "p:b"], json!({})),
    );
    check(
        config,
        json!({"sub": "j", "g": "a", "id": "1"}),
        user("j", "1", &["p:a"], json!({})),
    );
    check(
        config,
        json!({"sub": "j", "id": "1"}),
        user("j", "1", &[], json!({})),
    );
    check(
        config,
        json!({"sub": "j", "g": ["a", 1], "id": "1"}),
        Err("oidc: parse groups claim \"g\": json: cannot unmarshal array into Go value of type string"),
    );
    check(
        config,
        json!({"sub": "j"}),
        Err("oidc: parse uid claim \"id\": claim not present"),
    );
}

#[test]
fn expressions_make_users() {
    let config = "claimMappings: {username: {expression: \"'e:' + claims.sub\"}, groups: {expression: \"claims.roles.split(',')\"}, \
                  uid: {expression: claims.id}, extra: [{key: example.com/team, valueExpression: claims.team}, \
                  {key: example.com/none, valueExpression: \"''\"}]}";
    check(
        config,
        json!({"sub": "j", "roles": "a,b", "id": "1", "team": ["x", "y"]}),
        user("e:j", "1", &["a", "b"], json!({"example.com/team": ["x", "y"]})),
    );
    check(
        config,
        json!({"sub": 1}),
        Err(
            "oidc: error evaluating username claim expression: expression ''e:' + claims.sub' resulted in error: no such overload",
        ),
    );
    check(
        config,
        json!({"sub": "j", "roles": "a", "id": 1}),
        Err("oidc: error evaluating uid claim expression: uid claim expression must return a string"),
    );
    check(
        config,
        json!({"sub": "j", "roles": "a", "id": "1", "team": 1}),
        Err(
            "oidc: error evaluating extra claim expression: expression must return a string or a list of strings",
        ),
    );
    let name = "claimMappings: {username: {expression: claims.sub}}";
    check(
        name,
        json!({"sub": ""}),
        Err("oidc: empty username via CEL expression is not allowed"),
    );
    check(
        name,
        json!({"sub": []}),
        Err(
            "oidc: error evaluating username claim expression: username claim expression must return a string",
        ),
    );
}

#[test]
fn rules_refuse_tokens() {
    let config = "claimMappings: {username: {claim: sub, prefix: ''}}, \
                  claimValidationRules: [{claim: hd, requiredValue: x}, {expression: 'claims.exp - claims.nbf <= 10', message: too long}], \
                  userValidationRules: [{expression: \"!user.username.startsWith('system:')\", message: reserved}]";
    let claims = |change: Value| {
        let mut claims = json!({"sub": "j", "hd": "x", "exp": 20, "nbf": 10});
        for (name, value) in change.as_object().expect("members") {
            claims[name] = value.clone();
        }
        claims
    };
    check(config, claims(json!({})), user("j", "", &[], json!({})));
    check(
        config,
        json!({"sub": "j"}),
        Err("oidc: required claim hd not present in ID token"),
    );
    check(
        config,
        claims(json!({"hd": "y"})),
        Err("oidc: required claim hd value does not match. Got = y, want = x"),
    );
    check(
        config,
        claims(json!({"hd": 1})),
        Err("oidc: parse claim hd: json: cannot unmarshal number into Go value of type string"),
    );
    check(
        config,
        claims(json!({"exp": 21})),
        Err(
            "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.nbf <= 10' failed: too long",
        ),
    );
    check(
        config,
        claims(json!({"sub": "system:admin"})),
        Err(
            "oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith('system:')' failed: reserved",
        ),
    );
}
