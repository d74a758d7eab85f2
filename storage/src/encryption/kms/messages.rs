//! The messages of the KMS v2 plugin API and of the stored envelope, declared by hand so that the build needs no `protoc`.
//! Field numbers are those of `k8s.io/kms/apis/v2/api.proto` and of `storage/value/encrypt/envelope/kmsv2/v2/api.proto`.

use std::collections::BTreeMap;

use bytes::Bytes;

pub(super) const STATUS: &str = "/v2.KeyManagementService/Status";
pub(super) const DECRYPT: &str = "/v2.KeyManagementService/Decrypt";
pub(super) const ENCRYPT: &str = "/v2.KeyManagementService/Encrypt";

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(string, tag = "2")]
    pub healthz: String,
    #[prost(string, tag = "3")]
    pub key_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Bytes>,
}

/// The answer holds a key: it is never printed.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct DecryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub plaintext: Bytes,
}

/// The request holds a key: it is never printed.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(super) struct EncryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub plaintext: Bytes,
    #[prost(string, tag = "2")]
    pub uid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EncryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub annotations: BTreeMap<String, Bytes>,
}

macro_rules! undebugged {
    ($($message:ident)*) => {$(
        impl std::fmt::Debug for $message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        }
    )*};
}

undebugged! { DecryptResponse EncryptRequest }

/// The plaintext of `encrypted_source` is a seed for HKDF; with zero, it is the AES-GCM key itself.
pub(super) const SOURCE_SEED: i32 = 1;

/// The message stored after the prefix.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EncryptedObject {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
    #[prost(string, tag = "2")]
    pub key_id: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub encrypted_source: Bytes,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Bytes>,
    #[prost(int32, tag = "5")]
    pub source_type: i32,
}
