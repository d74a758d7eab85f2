//! The messages of `v1.ExternalJWTSigner`.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct SignRequest {
    /// The second part of the token, as it is to be.
    #[prost(string, tag = "1")]
    pub(super) claims: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SignResponse {
    #[prost(string, tag = "1")]
    pub(super) header: String,
    #[prost(string, tag = "2")]
    pub(super) signature: String,
}

/// The request of both other methods.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeysResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) keys: Vec<Key>,
    #[prost(message, optional, tag = "2")]
    pub(super) data_timestamp: Option<Timestamp>,
    #[prost(int64, tag = "3")]
    pub(super) refresh_hint_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Key {
    #[prost(string, tag = "1")]
    pub(super) key_id: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) key: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub(super) exclude_from_oidc_discovery: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl Timestamp {
    /// Whether it is a moment of the years 1 to 9999, as protobuf has them.
    pub(super) fn is_valid(self) -> bool {
        (-62_135_596_800..253_402_300_800).contains(&self.seconds) && (0..1_000_000_000).contains(&self.nanos)
    }

    pub(super) fn as_seconds(self) -> f64 {
        // A gauge needs no more precision.
        let seconds = self.seconds as f64;
        seconds + f64::from(self.nanos) / 1e9
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetadataResponse {
    #[prost(int64, tag = "1")]
    pub(super) max_token_expiration_seconds: i64,
}
