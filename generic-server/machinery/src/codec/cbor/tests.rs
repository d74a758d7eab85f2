use serde_json::{Value, json};

use super::*;

#[test]
fn documents_survive_the_way_there_and_back() {
    let value = json!({"a": [1, -1, 23, 24, 255, 65_536, -4_294_967_297_i64, i64::MAX, i64::MIN, 1.5, 0.1, 5.960_464_477_539_063e-8, 1e300, true, false, null],
        "bb": {"": "", "\u{e9}": "x".repeat(300)}, "z": {}, "y": []});
    let bytes = encode(&value);
    assert!(bytes.starts_with(PREFIX));
    assert_eq!(decode(&bytes).unwrap(), value);
}

#[test]
fn bytes_are_those_of_upstreams_library() {
    assert_eq!(
        encode(&json!({"bb": 1, "c": "x", "a": 1.5})),
        b"\xd9\xd9\xf7\xa3\x41a\xf9\x3e\x00\x41c\x41x\x42bb\x01"
    );
    assert_eq!(encode(&json!(100_000.5))[3..], [0xfa, 0x47, 0xc3, 0x50, 0x40]);
}

#[test]
fn other_encoders_are_understood() {
    let check = |bytes: &[u8], expected: Value| assert_eq!(decode(bytes).unwrap(), expected, "{bytes:x?}");
    check(b"\x61a", json!("a"));
    check(b"\x7f\x61a\x61b\xff", json!("ab"));
    check(b"\x9f\x01\xff", json!([1]));
    check(b"\xbf\x61a\x01\xff", json!({"a": 1}));
    check(b"\xd6\x42hi", json!("aGk="));
    check(b"\xc1\x00", json!("1970-01-01T00:00:00Z"));
    check(b"\xf9\x3c\x00", json!(1));
    check(b"\xf9\x00\x01", json!(5.960_464_477_539_063e-8));
}

#[test]
fn values_without_a_json_form_are_refused() {
    for bytes in [
        b"".as_slice(),
        b"\xa2\x41a\x01\x41a\x02",
        b"\xa1\x01\x02",
        b"\xf7",
        b"\xf9\x7e\x00",
        b"\xc2\x41\x01",
        b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x61\xff",
        b"\x01\x01",
        b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x1c",
        b"\xff",
        &[0x81; 100_000],
        &[0xc6; 100_000],
    ] {
        assert!(decode(bytes).is_err(), "{:x?}", &bytes[..bytes.len().min(20)]);
    }
}

#[test]
fn memory_is_bounded() {
    // Maps of one empty key, which take two hundred times their three bytes.
    let maps = |count: usize| {
        let mut bytes = vec![0x9a];
        bytes.extend_from_slice(&u32::try_from(count).unwrap().to_be_bytes());
        bytes.extend(b"\xa1\x40\xf6".repeat(count));
        decode(&bytes).map(drop)
    };
    assert_eq!(maps(100_000), Ok(()));
    let error = maps(250_000).unwrap_err().to_string();
    assert!(error.starts_with("decoded object is too large"), "{error}");
    // Lengths that are only declared make nothing.
    assert!(decode(b"\x9a\xff\xff\xff\xff").is_err());
}

#[test]
fn errors_are_those_of_upstreams_library() {
    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(decode(bytes).unwrap_err().to_string(), expected, "{bytes:x?}");
    }
    check(b"", "EOF");
    check(b"\xd9\xd9\xf7", "unexpected EOF");
    check(
        b"\x1c",
        "cbor: invalid additional information 28 for type positive integer",
    );
    check(b"\xff", "cbor: unexpected \"break\" code");
    check(
        b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
        "cbor: byte string length 18446744073709551615 is too large, causing integer overflow",
    );
    check(
        b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        "cbor: array length 18446744073709551615 is too large, it would cause integer overflow",
    );
    check(
        b"\xbb\x7f\xff\xff\xff\xff\xff\xff\xff",
        "cbor: exceeded max number of key-value pairs 2097152 for CBOR map",
    );
    check(
        b"\x5f\x41b\x61c\xff",
        "cbor: wrong element type UTF-8 text string for indefinite-length byte string",
    );
    check(
        b"\xa0\xa0",
        "cbor: 1 bytes of extraneous data starting at index 1",
    );
    check(&[0x81; 100_000], "cbor: exceeded max nested level 250");
    check(
        b"\xf9\x7e\x00",
        "cbor: data item of cbor type primitives is not accepted by protocol: floating-point NaN",
    );
    check(
        b"\xc2\x41\x01",
        "cbor: data item of cbor type tag is not accepted by protocol: bignum",
    );
    check(
        b"\xf7",
        "cbor: data item of cbor type primitives is not accepted by protocol: simple value 23 is not recognized",
    );
    check(
        b"\xa2\x41a\x01\x41a\x02",
        "cbor: found duplicate map key \"a\" at map element index 1",
    );
    check(
        b"\xa1\x01\x02",
        "cbor: cannot unmarshal positive integer into Go value of type string",
    );
}

#[test]
fn documents_say_which_kind_they_are_of() {
    let of = |bytes: &[u8]| interpret(bytes).map_err(|error| error.to_string());
    let found = |version: &str, kind: &str| Ok((version.to_owned(), kind.to_owned()));
    let document = encode(&json!({"metadata": {"kind": "No"}, "kind": "Secret", "apiVersion": "v1"}));
    assert_eq!(of(&document), found("v1", "Secret"));
    assert_eq!(of(b"\xa0"), found("", ""));
    assert_eq!(of(b"\xf6"), found("", ""));
    assert_eq!(of(b"\xa1\x44kind\xf6"), found("", ""));
    assert_eq!(
        of(b"\xa1\x44kind\x01"),
        Err(
            "cbor: cannot unmarshal positive integer into Go struct field v1.TypeMeta.kind of type string"
                .into()
        )
    );
    assert_eq!(
        of(b"\x01"),
        Err("cbor: cannot unmarshal positive integer into Go value of type v1.TypeMeta".into())
    );
}

#[test]
fn bytes_of_built_in_types_are_bytes() {
    let secret = crate::schema::builtin().kind("", "v1", "Secret").unwrap();
    let value = json!({"data": {"a": "aGk="}, "type": "aGk="});
    let encoded = encode_typed(secret.root(), &value);
    assert_eq!(&encoded[3..], b"\xa2\x44data\xa1\x41a\xd6\x42hi\x44type\x44aGk=");
    assert_eq!(decode_bytes_of(secret.root(), &encoded).unwrap(), value);
    // Tags 21 and 23 ask for other texts, which fields of bytes do not have.
    let tagged = b"\xa2\x44data\xa2\x41a\xd5\x42\xff\xff\x41b\xd7\x42hi\x44type\xd7\x42hi";
    let expected = json!({"data": {"a": "//8=", "b": "aGk="}, "type": "6869"});
    assert_eq!(decode_bytes_of(secret.root(), tagged).unwrap(), expected);
    assert_eq!(decode(tagged).unwrap()["data"]["a"], "__8=");
}

#[test]
fn the_first_unknown_field_is_found_by_its_place() {
    let service = crate::schema::builtin().kind("", "v1", "Service").unwrap();
    #[track_caller]
    fn check(root: crate::schema::SchemaRef<'_>, value: Value, expected: Option<usize>) {
        assert_eq!(first_unknown(&encode(&value), root), expected, "{value}");
    }
    // Keys are written in the order of their lengths.
    check(
        service.root(),
        json!({"kind": "Service", "metadata": {"labels": {"any": "x"}}}),
        None,
    );
    check(service.root(), json!({"kind": "Service", "zzzzzz": 1}), Some(1));
    check(
        service.root(),
        json!({"spec": {"ports": [{"port": 1}, {"port": 1, "wrong": 2}]}}),
        Some(1),
    );
}

#[test]
fn documents_in_a_row_are_told_apart() {
    assert_eq!(item_length(b"\xa1\x41a\x01\xa0"), Some(4));
    assert_eq!(item_length(b"\xa1\x41a"), None);
}
