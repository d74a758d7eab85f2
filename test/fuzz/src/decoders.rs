//! The decoders of bodies. Decoded values are no larger than the input allows, and survive another round.

use machinery::codec;
use machinery::limits;
use machinery::schema::{KindSchema, builtin};

use crate::weight;

/// Kinds with much in them; the first byte of an input chooses.
const KINDS: &[(&str, &str, &str)] = &[
    ("", "v1", "Pod"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("apps", "v1", "Deployment"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("batch", "v1", "CronJob"),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
];

/// Bytes that a built-in kind's zero values may add for each byte of an input: a container of two bytes has a name and resources.
const ZERO_VALUES: usize = 256;

/// The kind that an input chooses, and the rest of it.
pub(crate) fn chosen(data: &[u8]) -> Option<(KindSchema, String, &'static str, &[u8])> {
    let (first, rest) = data.split_first()?;
    let (group, version, kind) = KINDS[usize::from(*first) % KINDS.len()];
    let schema = builtin().kind(group, version, kind)?;
    let api_version = if group.is_empty() {
        version.to_string()
    } else {
        format!("{group}/{version}")
    };
    Some((schema, api_version, kind, rest))
}

/// JSON without a schema.
pub fn json(data: &[u8]) {
    // The two are alike on what they take, but for the strictness about what stands twice.
    let _ = codec::json::interpret(data);
    let _ = codec::json::decode_exactly(data);
    if let Ok(decoded) = codec::json::decode(data) {
        assert!(
            weight(&decoded.value) <= 4 * data.len() + 1,
            "more than its bytes"
        );
        assert!(
            decoded.strict.len() <= data.len(),
            "a fault for each byte at most"
        );
        let text = decoded.value.to_string();
        let again = codec::json::decode(text.as_bytes()).expect("what was encoded is JSON");
        assert_eq!(again.value, decoded.value, "encoded and decoded");
    }
}

/// JSON of a built-in kind.
pub fn typed(data: &[u8]) {
    let Some((schema, api_version, kind, rest)) = chosen(data) else {
        return;
    };
    let Ok(decoded) = codec::json::decode_typed(rest, schema.root()) else {
        return;
    };
    let bound = ZERO_VALUES * rest.len() + 4_096;
    assert!(weight(&decoded.value) <= bound, "more than its bytes");
    let text = decoded.value.to_string();
    let again =
        codec::json::decode_typed(text.as_bytes(), schema.root()).expect("a normal form is of the kind");
    assert_eq!(again.value, decoded.value, "a normal form is its own");
    // Every form that is stored or sent: the encoder accepts every result of the decoder.
    let mut object = decoded.value;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    let bytes = codec::protobuf::encode(schema.root(), &object);
    let back = codec::protobuf::decode(schema.root(), &bytes).expect("what was encoded is protobuf");
    let bytes_again = codec::protobuf::encode(schema.root(), &back);
    assert_eq!(bytes_again, bytes, "protobuf is the same after a round");
}

/// YAML.
pub fn yaml(data: &[u8]) {
    if let Ok(decoded) = codec::yaml::decode(data) {
        let bound = 8 * data.len() + 2 * limits::YAML_ALIAS_BYTES + 64;
        assert!(weight(&decoded.value) <= bound, "more than its bytes");
        let text = decoded.value.to_string();
        let again = codec::json::decode(text.as_bytes()).expect("YAML becomes JSON");
        assert_eq!(again.value, decoded.value, "the same as JSON");
    }
}

/// Protobuf of a built-in kind, with and without its envelope.
pub fn protobuf(data: &[u8]) {
    let Some((schema, _, _, rest)) = chosen(data) else {
        return;
    };
    if let Ok(envelope) = codec::protobuf::open(rest) {
        assert!(envelope.raw.len() <= rest.len(), "a part of it");
    }
    let _ = codec::protobuf::decode(schema.root(), rest);
    if let Ok(value) = codec::protobuf::decode_message(schema.root(), rest) {
        let bound = ZERO_VALUES * rest.len() + 4_096;
        assert!(weight(&value) <= bound, "more than its bytes");
        let bytes = codec::protobuf::encode_message(schema.root(), &value);
        let again =
            codec::protobuf::decode_message(schema.root(), &bytes).expect("what was encoded is protobuf");
        let bytes_again = codec::protobuf::encode_message(schema.root(), &again);
        assert_eq!(bytes_again, bytes, "the same after a round");
    }
}

/// CBOR.
pub fn cbor(data: &[u8]) {
    if let Ok(value) = codec::cbor::decode(data) {
        // A tagged number of one byte becomes a time of twenty.
        assert!(weight(&value) <= 16 * data.len() + 1, "more than its bytes");
        let bytes = codec::cbor::encode(&value);
        let again = codec::cbor::decode(&bytes).expect("what was encoded is CBOR");
        assert_eq!(again, value, "encoded and decoded");
    }
}
