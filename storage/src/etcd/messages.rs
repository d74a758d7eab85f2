//! The messages of etcd's v3 gRPC API that are used here, declared by hand so that the build needs no `protoc`.
//!
//! Field numbers and names are those of `etcdserverpb/rpc.proto` and `mvccpb/kv.proto`; fields that are neither set nor
//! read are left out, which protobuf allows.

use bytes::Bytes;

pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(super) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Pair {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchEvent {
    /// 0 is a put, 1 a delete.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<Pair>,
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<Pair>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    #[prost(bool, tag = "9")]
    pub count_only: bool,
    #[prost(int64, tag = "10")]
    pub min_mod_revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<Pair>,
    #[prost(bool, tag = "3")]
    pub more: bool,
    #[prost(int64, tag = "4")]
    pub count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResponseOp {
    /// Only ranges have something to say that is read here.
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Compare {
    /// 0 is equal.
    #[prost(int32, tag = "1")]
    pub result: i32,
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(oneof = "CompareTarget", tags = "4, 6")]
    pub value: Option<CompareTarget>,
}

pub(super) const COMPARE_VERSION: i32 = 0;
pub(super) const COMPARE_MOD: i32 = 2;

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum CompareTarget {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

/// Also of the other answers that say nothing but their header.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CompactionResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchRequestKind", tags = "1, 2, 3")]
    pub request: Option<WatchRequestKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum WatchRequestKind {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "2")]
    Cancel(WatchCancelRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
    #[prost(int64, tag = "7")]
    pub watch_id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchCancelRequest {
    #[prost(int64, tag = "1")]
    pub watch_id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub watch_id: i64,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<WatchEvent>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(int64, tag = "3")]
    pub db_size: i64,
}

/// An answer that carries a header.
pub(super) trait Answer: prost::Message + Default + 'static {
    fn header(&self) -> Option<&ResponseHeader>;

    /// The revision the answering member had reached.
    fn revision(&self) -> u64 {
        self.header().map_or(0, |header| unsigned(header.revision))
    }
}

macro_rules! answers {
    ($($message:ty)*) => {$(
        impl Answer for $message {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        }
    )*};
}

answers! { RangeResponse TxnResponse CompactionResponse WatchResponse LeaseGrantResponse StatusResponse }

/// Revisions are positive, although the wire's type is signed.
pub(super) fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

pub(super) fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}
