//! Reads an `AuthenticationConfiguration` strictly: unknown and repeated fields are faults, in upstream's words.

use machinery::codec::{StrictError, strict_message, yaml};
use machinery::go::json_kind;
use serde_json::{Map, Value};

use super::{
    AnonymousConfig, AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, ExtraMapping, Issuer,
    JwtConfig, PrefixedClaim, UserValidationRule,
};

const KIND: &str = "AuthenticationConfiguration";
/// All of the same fields.
const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];

impl AuthenticationConfiguration {
    /// Reads a file's text.
    ///
    /// # Errors
    /// It is no such object, or has unknown or repeated fields.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, String> {
        if data.is_empty() {
            return Err("empty config data".into());
        }
        let decoded = yaml::decode(data).map_err(|error| error.to_string())?;
        let text = |key: &str| decoded.value.get(key).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        for (value, name) in [(kind, "Kind"), (version, "apiVersion")] {
            if value.is_empty() {
                return Err(format!("Object '{name}' is missing"));
            }
        }
        if kind != KIND || !VERSIONS.contains(&version) {
            return Err(format!(
                "no kind \"{kind}\" is registered for version \"{version}\""
            ));
        }
        let mut reader = Reader(decoded.strict);
        let config = reader.configuration(&decoded.value)?;
        match reader.0.is_empty() {
            true => Ok(config),
            false => Err(strict_message(&reader.0)),
        }
    }
}

/// Collects the strict errors while it reads.
struct Reader(Vec<StrictError>);

/// An object of the file, and the path to it.
struct Object<'v> {
    /// `None` for null, which is an object without members.
    map: Option<&'v Map<String, Value>>,
    path: String,
}

impl<'v> Object<'v> {
    fn at(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    fn member(&self, key: &str) -> &'v Value {
        self.map.and_then(|map| map.get(key)).unwrap_or(&Value::Null)
    }

    fn optional(&self, key: &str) -> Result<Option<String>, String> {
        match self.member(key) {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            other => Err(mismatch(other, &self.at(key), "string")),
        }
    }

    fn text(&self, key: &str) -> Result<String, String> {
        self.optional(key).map(Option::unwrap_or_default)
    }

    fn flag(&self, key: &str) -> Result<bool, String> {
        match self.member(key) {
            Value::Null => Ok(false),
            Value::Bool(value) => Ok(*value),
            other => Err(mismatch(other, &self.at(key), "bool")),
        }
    }

    fn items(&self, key: &str) -> Result<&'v [Value], String> {
        match self.member(key) {
            Value::Null => Ok(&[]),
            Value::Array(items) => Ok(items),
            other => Err(mismatch(other, &self.at(key), "list")),
        }
    }
}

fn mismatch(value: &Value, path: &str, wanted: &str) -> String {
    format!(
        "json: cannot unmarshal {} into {path} of type {wanted}",
        json_kind(value)
    )
}

impl Reader {
    fn object<'v>(&mut self, value: &'v Value, path: String, known: &[&str]) -> Result<Object<'v>, String> {
        let map = match value {
            Value::Null => None,
            Value::Object(map) => Some(map),
            other => return Err(mismatch(other, &path, "object")),
        };
        let object = Object { map, path };
        for name in map.iter().flat_map(|map| map.keys()) {
            if !known.contains(&name.as_str()) {
                self.0.push(StrictError::Unknown(object.at(name)));
            }
        }
        Ok(object)
    }

    /// The objects of a list, each read by `read`.
    fn each<T>(
        &mut self,
        of: &Object<'_>,
        key: &str,
        known: &[&str],
        read: impl Fn(&mut Self, &Object<'_>) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut all = Vec::new();
        for (index, item) in of.items(key)?.iter().enumerate() {
            let object = self.object(item, format!("{}[{index}]", of.at(key)), known)?;
            all.push(read(self, &object)?);
        }
        Ok(all)
    }

    fn configuration(&mut self, value: &Value) -> Result<AuthenticationConfiguration, String> {
        let root = self.object(value, String::new(), &["apiVersion", "kind", "jwt", "anonymous"])?;
        let known = [
            "issuer",
            "claimValidationRules",
            "claimMappings",
            "userValidationRules",
        ];
        Ok(AuthenticationConfiguration {
            jwt: self.each(&root, "jwt", &known, Self::authenticator)?,
            anonymous: match root.member("anonymous") {
                Value::Null => None,
                value => Some(self.anonymous(value)?),
            },
        })
    }

    fn anonymous(&mut self, value: &Value) -> Result<AnonymousConfig, String> {
        let object = self.object(value, "anonymous".into(), &["enabled", "conditions"])?;
        Ok(AnonymousConfig {
            enabled: object.flag("enabled")?,
            paths: self.each(&object, "conditions", &["path"], |_, condition| {
                condition.text("path")
            })?,
        })
    }

    fn authenticator(&mut self, object: &Object<'_>) -> Result<JwtConfig, String> {
        let rule = ["claim", "requiredValue", "expression", "message"];
        Ok(JwtConfig {
            issuer: self.issuer(object)?,
            claim_validation_rules: self.each(object, "claimValidationRules", &rule, |_, rule| {
                Ok(ClaimValidationRule {
                    claim: rule.text("claim")?,
                    required_value: rule.text("requiredValue")?,
                    expression: rule.text("expression")?,
                    message: rule.text("message")?,
                })
            })?,
            claim_mappings: self.mappings(object)?,
            user_validation_rules: self.each(
                object,
                "userValidationRules",
                &["expression", "message"],
                |_, rule| {
                    Ok(UserValidationRule {
                        expression: rule.text("expression")?,
                        message: rule.text("message")?,
                    })
                },
            )?,
        })
    }

    fn issuer(&mut self, of: &Object<'_>) -> Result<Issuer, String> {
        let known = [
            "url",
            "discoveryURL",
            "certificateAuthority",
            "audiences",
            "audienceMatchPolicy",
            "egressSelectorType",
        ];
        let issuer = self.object(of.member("issuer"), of.at("issuer"), &known)?;
        let mut audiences = Vec::new();
        for (index, audience) in issuer.items("audiences")?.iter().enumerate() {
            match audience {
                Value::String(text) => audiences.push(text.clone()),
                Value::Null => audiences.push(String::new()),
                other => {
                    let path = format!("{}[{index}]", issuer.at("audiences"));
                    return Err(mismatch(other, &path, "string"));
                }
            }
        }
        Ok(Issuer {
            url: issuer.text("url")?,
            discovery_url: issuer.text("discoveryURL")?,
            certificate_authority: issuer.text("certificateAuthority")?,
            audiences,
            audience_match_policy: issuer.text("audienceMatchPolicy")?,
            egress_selector_type: issuer.text("egressSelectorType")?,
        })
    }

    fn mappings(&mut self, of: &Object<'_>) -> Result<ClaimMappings, String> {
        let known = ["username", "groups", "uid", "extra"];
        let mappings = self.object(of.member("claimMappings"), of.at("claimMappings"), &known)?;
        let uid = self.object(
            mappings.member("uid"),
            mappings.at("uid"),
            &["claim", "expression"],
        )?;
        Ok(ClaimMappings {
            username: self.prefixed(&mappings, "username")?,
            groups: self.prefixed(&mappings, "groups")?,
            uid_claim: uid.text("claim")?,
            uid_expression: uid.text("expression")?,
            extra: self.each(&mappings, "extra", &["key", "valueExpression"], |_, mapping| {
                Ok(ExtraMapping {
                    key: mapping.text("key")?,
                    expression: mapping.text("valueExpression")?,
                })
            })?,
        })
    }

    fn prefixed(&mut self, of: &Object<'_>, key: &str) -> Result<PrefixedClaim, String> {
        let object = self.object(of.member(key), of.at(key), &["claim", "prefix", "expression"])?;
        Ok(PrefixedClaim {
            claim: object.text("claim")?,
            prefix: object.optional("prefix")?,
            expression: object.text("expression")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        assert_eq!(
            AuthenticationConfiguration::parse(text.as_bytes()),
            Err(expected.into()),
            "{text}"
        );
    }

    fn of(rest: &str) -> String {
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{rest}")
    }

    #[test]
    fn every_version_is_read_whole() {
        let jwt = "jwt: [{issuer: {url: u, discoveryURL: d, certificateAuthority: c, audiences: [a, b], audienceMatchPolicy: MatchAny, \
                   egressSelectorType: cluster}, claimValidationRules: [{claim: c, requiredValue: v}, {expression: e, message: m}], \
                   claimMappings: {username: {claim: sub, prefix: ''}, groups: {expression: g}, uid: {claim: i, expression: x}, \
                   extra: [{key: k, valueExpression: v}]}, userValidationRules: [{expression: e, message: m}]}]\n\
                   anonymous: {enabled: true, conditions: [{path: /healthz}]}\n";
        let mut all = VERSIONS.map(|version| {
            let text = format!("apiVersion: {version}\nkind: AuthenticationConfiguration\n{jwt}");
            AuthenticationConfiguration::parse(text.as_bytes()).expect(version)
        });
        assert_eq!(all[0], all[1]);
        assert_eq!(all[0], all[2]);
        let text = |text: &str| text.to_owned();
        let jwt = all[0].jwt.pop().expect("one");
        assert_eq!(jwt.issuer.audiences, ["a", "b"]);
        assert_eq!(jwt.issuer.egress_selector_type, "cluster");
        assert_eq!(jwt.claim_validation_rules[0].required_value, "v");
        assert_eq!(jwt.claim_validation_rules[1].message, "m");
        let expected = PrefixedClaim {
            claim: text("sub"),
            prefix: Some(String::new()),
            expression: String::new(),
        };
        assert_eq!(jwt.claim_mappings.username, expected);
        assert_eq!(jwt.claim_mappings.groups.prefix, None);
        assert_eq!(jwt.claim_mappings.extra[0].expression, "v");
        let anonymous = AnonymousConfig {
            enabled: true,
            paths: vec![text("/healthz")],
        };
        assert_eq!(all[1].anonymous, Some(anonymous));
        assert_eq!(
            AuthenticationConfiguration::parse(of("").as_bytes()),
            Ok(AuthenticationConfiguration::default())
        );
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        refused("", "empty config data");
        refused("a: 1", "Object 'Kind' is missing");
        refused(
            "kind: AuthenticationConfiguration",
            "Object 'apiVersion' is missing",
        );
        refused(
            "kind: AuthenticationConfiguration\napiVersion: v1",
            "no kind \"AuthenticationConfiguration\" is registered for version \"v1\"",
        );
        refused(
            &of("jwt: [{issuer: {uri: x}, more: 1}]"),
            "strict decoding error: unknown field \"jwt[0].more\", unknown field \"jwt[0].issuer.uri\"",
        );
        refused(
            &of("jwt: {}"),
            "json: cannot unmarshal object into jwt of type list",
        );
        refused(
            &of("jwt: [{issuer: {audiences: [1]}}]"),
            "json: cannot unmarshal number into jwt[0].issuer.audiences[0] of type string",
        );
        refused(
            &of("anonymous: {enabled: 'yes'}"),
            "json: cannot unmarshal string into anonymous.enabled of type bool",
        );
        refused(
            &of("jwt: []\njwt: []"),
            "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"jwt\" already set in map",
        );
    }
}
