//! The bounds on the cost of one request, one object and one client, in one place.
//!
//! Each constant says what it counts, upstream's figure where upstream has one, and what happens to a request that passes it.
//! Together with one rule they keep the server responsive: a pass over a client's bytes costs at most n log n of their number.
//! A new decoder, validation rule or cache takes its bound from here, with a test at the limit and one past it that names the constant.

use std::time::Duration;

/// Bytes of a request body. Upstream's figure (`MaxRequestBodyBytes`, twice etcd's limit). Past it: 413.
pub const BODY_BYTES: usize = 3 * 1024 * 1024;

// Decoding.

/// How deep objects and lists may nest. Go allows 10,000; nothing that Kubernetes stores comes near this. Past it: 400.
pub const DEPTH: usize = 250;

/// Bytes that the aliases of one YAML document may add to it, and as many that its anchors may stand for, with four more for each node
/// of either, so that no document expands to more than a JSON body may have.
/// Upstream bounds the share of nodes that come from aliases instead. Past it: 400, `document contains excessive aliasing`.
pub const YAML_ALIAS_BYTES: usize = BODY_BYTES;

/// Spaces that the indentation of one printed YAML document may take: deep lists of short items grow by it a hundred times. Upstream
/// has no bound. Past it: the document is printed as JSON, which is YAML.
pub const YAML_INDENTATION_BYTES: usize = 16 << 20;

/// Nodes of one YAML document with its aliases expanded. Past it: 400.
pub const YAML_NODES: usize = 500_000;

/// Memory that one decoded body may take, as the decoders estimate it: a two-byte empty message of protobuf becomes a struct of
/// a kilobyte. Enough for a body of nothing but numbers; real objects take a tenth. Upstream has no bound. Past it: 400.
pub const DECODED_BYTES: usize = 128 << 20;

/// Memory that the defaults of one custom object may take that a client sends, as the decoders estimate it: a list of empty items has a default
/// of any length for each. More than the store takes of one object. Upstream has no bound. Past it: 400.
pub const DEFAULTED_BYTES: usize = 16 << 20;

/// Unknown and duplicate fields that are reported of one body, and bytes of their paths ([`MESSAGE_BYTES`]); the others are
/// passed over, as upstream does past the same figure.
pub const STRICT_ERRORS: usize = 100;

// Errors.

/// Causes in `details` of one Status, and faults in its message. Upstream has no bound. Past it: the message ends in `and N more`.
pub const CAUSES: usize = 100;

/// Field errors that one check gathers: far more than are shown. Upstream has no bound. Past it: further ones are passed over.
pub const FIELD_ERRORS: usize = 1_000;

/// Bytes of one value, path or detail that is shown in an error. Upstream has no bound. Past it: the value is cut and ends in `...`.
pub const SHOWN_VALUE_BYTES: usize = 10 * 1024;

/// Bytes of the message of one Status, escaped as in JSON. Upstream has no bound. Past it: the message is cut and ends in `...`.
pub const MESSAGE_BYTES: usize = 256 * 1024;

/// Bytes of the field errors that the validation of one object gathers. Upstream has no bound. Past it: further ones are passed over.
pub const FIELD_ERROR_BYTES: usize = 4 << 20;

// Metadata and patches.

/// Entries of `metadata.ownerReferences`. Upstream has no bound. Past it: 422.
pub const OWNER_REFERENCES: usize = 5_000;

/// Entries of `metadata.finalizers`. Upstream has no bound. Past it: 422.
pub const FINALIZERS: usize = 5_000;

/// Entries of `metadata.managedFields`, once those of many updates have been merged; the entry of the write itself is one of them.
/// Upstream has no bound. Past it: 422.
pub const MANAGED_FIELDS: usize = 5_000;

/// Operations of one JSON patch. Upstream's figure. Past it: 413.
pub const JSON_PATCH_OPERATIONS: usize = 10_000;

/// Bytes that the copies of one JSON patch may add. Upstream's figure. Past it: 422.
pub const JSON_PATCH_COPY_BYTES: usize = 3 * 1024 * 1024;

/// How deep a JSON patch may nest the object. Upstream has no bound of its own. Past it: 422.
pub const JSON_PATCH_DEPTH: usize = 128;

/// Values that the operations of one JSON patch may visit or move, list items included: an insertion in a list moves those behind
/// it. Upstream has no bound. Past it: 422.
pub const JSON_PATCH_STEPS: usize = 20_000_000;

// Requests.

/// Bytes of a request's target. Go bounds the whole head by 1 MiB; the library that parses targets ends at 64 KiB. Past it: 414, without a
/// text.
pub const TARGET_BYTES: usize = 65_534;

/// Bytes of group, version and resource of a request that are looked up among those that are served, slashes included: names are
/// 253 bytes at most, versions 63. Upstream has no bound. Past it: nothing is found, 404.
pub const ROUTE_BYTES: usize = 384;

/// Bytes of all request headers. Upstream's figure. Past it: 431, without Go's text: the library answers before a handler could.
pub const HEADER_BYTES: usize = 1 << 20;

/// Warnings of one answer, as many as faults are shown in an error. Upstream bounds their text alone (4 KiB, and 256 runes of each past
/// that), which holds here too. Past it: further ones are passed over.
pub const WARNINGS: usize = CAUSES;

/// Number of request headers on HTTP/1.1. Upstream bounds their bytes alone; here it is what the parser has room for without
/// allocating, as a table of 1,000 costs every request some 3 us. HTTP/2 has no such bound. Past it: 431.
pub const HEADERS: usize = 100;

/// Bytes of a `User-Agent` in logs and audit records. Upstream's figure. Past it: it is cut and ends in `...TRUNCATED`.
pub const USER_AGENT_BYTES: usize = 1024;

/// Bytes of one object that is recorded by auditing. Upstream has no bound. Past it: it is left out, and the event says `truncated`.
pub const AUDIT_OBJECT_BYTES: usize = 32 << 20;

/// Bytes of the events that wait for one sink of auditing. Upstream bounds their number alone. Past it: they are lost, and counted.
pub const AUDIT_QUEUED_BYTES: usize = 128 << 20;

/// Bytes of the events of one batch of auditing, where no flag says so; more if it is one event. Upstream has no bound. Past it: the others
/// are the next batch.
pub const AUDIT_BATCH_BYTES: usize = 10 << 20;

/// Batches of events that are on their way to one webhook. Upstream has no bound. Past it: the others wait in the queue.
pub const AUDIT_DELIVERIES: usize = 16;

/// Requests whose events wait to be written to the audit log. Past it: the others wait, as upstream's wait for the file.
pub const AUDIT_LOG_WRITES: usize = 1_024;

/// Bytes that are written to the audit log at once; more if it is one event or batch. Past it: the others are written next.
pub const AUDIT_LOG_WRITE_BYTES: usize = 1 << 20;

/// Bytes of an `Audit-Id` that a client may choose. Upstream has no bound, but for logs. Past it: the request gets an id of its own.
pub const AUDIT_ID_BYTES: usize = 1024;

/// Alternatives of one `Accept` header that are looked at, and parameters of each. Upstream has no bound. Past it: they are
/// passed over.
pub const ACCEPT_CLAUSES: usize = 64;

/// Pairs of one query. Go's figure (`urlmaxqueryparams`). Past it: 400.
pub const QUERY_PAIRS: usize = 10_000;

/// Requirements of one label or field selector, and values of one requirement. Upstream has no bound. Past it: 400.
pub const SELECTOR_REQUIREMENTS: usize = 10_000;

/// Values that one JSONPath of a printer column may lead to, steps on the way included. Upstream has no bound. Past it: the
/// column is empty.
pub const JSON_PATH_VALUES: usize = 100_000;

/// States of the compiled patterns of one definition's schemas, as they are estimated. Upstream bounds each pattern alone: repetitions to
/// 1,000, nested ones to 1,000 together, which holds here too. Past it: 422.
pub const PATTERN_WEIGHT: usize = 2_000_000;

/// States of the patterns of one schema from which the validation of its objects leaves the threads that serve connections: some ten
/// milliseconds to compile them. Upstream has no such figure.
pub const HEAVY_PATTERN_WEIGHT: usize = 20_000;

/// Validation rules (`x-kubernetes-validations`) of one definition, of all its versions. Upstream bounds their estimated cost alone, which holds here too.
/// Past it: 422.
pub const DEFINITION_RULES: usize = 5_000;

/// Body bytes from which a request's computation leaves the threads that serve connections. Below, the move costs more than it spares.
pub const HEAVY_BYTES: usize = 64 * 1024;

/// Body bytes from which a request counts towards [`WORK_BYTES_PER_CORE`].
pub const WORK_COUNTS_BYTES: usize = 16 * 1024;

/// Bytes of large bodies, and of the large objects that they change, that are worked on at once, for each core and as for two at
/// least; one user has half of it. Objects decoded from them take up to some 150 times as much memory. Past it: requests wait with
/// their bodies undecoded, users in turn, until their deadline.
pub const WORK_BYTES_PER_CORE: usize = 4 << 20;

/// Bytes of policies and webhook configurations whose expressions are compiled at once. Upstream has no bound. Past it: the others wait,
/// and with them the writes that they are about.
pub const COMPILED_BYTES: usize = 8 << 20;

/// Kinds that the expressions of one policy are checked against. Upstream has the bound of ten for each rule alone. Past it: the others are not
/// checked.
pub const CHECKED_KINDS: usize = 50;

/// Bytes of the warnings about the expressions of one policy in its status. Upstream has no bound. Past it: the last warning says that there
/// are more.
pub const EXPRESSION_WARNING_BYTES: usize = 128 << 10;

/// Bytes of the manifests of one admission plugin. Upstream has no bound. Past it: the start fails, or the manifests before stay in use.
pub const MANIFEST_BYTES: usize = 16 << 20;

/// Buckets of one limit of events (the plugin EventRateLimit), unless its configuration says otherwise. Upstream's figure. Past it: the one that
/// was not used for longest goes, and is full when it comes back.
pub const EVENT_BUCKETS: usize = 4096;

/// How long a heavy request computes before others have their turn.
pub const TURN: Duration = Duration::from_millis(20);

/// Selector requirements that a list looks at before it lets others have their turn; an object without any counts as one.
pub const SLICE_STEPS: usize = 32 * 1024;

// Access control.

/// Strings looked at to decide whether a role or binding grants more than its writer holds. Upstream has no bound. Past it: 403.
pub const ESCALATION_STEPS: usize = 5_000_000;

/// Tokens that one webhook of authentication, or one issuer, is asked about at once. Upstream has no bound. Past it: the others wait in order.
pub const TOKEN_LOOKUPS: usize = 256;

/// Tokens that are being looked up or wait for it, requests with the same token together. Upstream has no bound. Past it: 401, as for any
/// lookup that fails.
pub const TOKEN_LOOKUPS_WAITING: usize = 8_192;

/// How long the lookup of a token may take, its turn and all attempts included. Upstream's figure (`sharedLookupTimeout`). Past it: 401.
pub const TOKEN_LOOKUP_TIME: Duration = Duration::from_secs(30);

/// Tokens whose owners one cache remembers. Upstream has no bound. Past it: the oldest are forgotten.
pub const TOKENS_REMEMBERED: usize = 16 * 1024;

/// Verdicts on images that are remembered. Upstream's figure. Past it: the oldest are forgotten.
pub const IMAGE_VERDICTS: usize = 1024;

/// The longest verdict on images that is remembered, in bytes. Upstream has no bound. Past it: the webhook is asked each time.
pub const IMAGE_VERDICT_BYTES: usize = 16 * 1024;

/// Series of one metric of webhooks or policies. Upstream has no bound. Past it: new names are counted as `other`.
pub const ADMISSION_SERIES: usize = 2048;

/// Match conditions of one webhook, of admission or of authorization. Upstream's figure. Past it: its configuration is refused.
pub const MATCH_CONDITIONS: usize = 64;

/// Bytes of the rules in the answer to a `SelfSubjectRulesReview`. Upstream has no bound. Past it: the list ends and is marked as
/// incomplete.
pub const RESOLVED_RULES_BYTES: usize = 16 << 20;

/// Bytes of a signed token (JWT). Upstream bounds headers alone (1 MiB), and a TokenReview may have more. Past it: 401.
pub const SIGNED_TOKEN_BYTES: usize = 128 * 1024;

/// JWT authenticators of one configuration. Upstream's figure. Past it: the configuration is refused.
pub const JWT_AUTHENTICATORS: usize = 64;

/// Bytes of one answer of a token issuer: its discovery document, its keys, a distributed claim. Upstream has no bound. Past it: the answer
/// cannot be used.
pub const ISSUER_ANSWER_BYTES: usize = 1 << 20;

/// How long a token issuer may take for one answer. Upstream's figure. Past it: the answer cannot be used.
pub const ISSUER_TIMEOUT: Duration = Duration::from_secs(30);

/// Keys of one issuer; a token that names none is tried with all. Upstream has no bound. Past it: further ones are passed over.
pub const ISSUER_KEYS: usize = 256;

/// How long the keys of an issuer are not fetched again for tokens that none of them has signed. Upstream fetches for each such token, unless
/// the issuer says how long its keys hold. Past it: the token is refused.
pub const ISSUER_KEYS_PAUSE: Duration = Duration::from_secs(1);

/// Issuers of distributed claims that one JWT authenticator gets to know. Upstream has no bound. Past it: the token is refused.
pub const CLAIM_ISSUERS: usize = 16;

/// Bytes of claims, or of the attributes of a request, from which the expressions of authentication and authorization leave the threads
/// that serve connections. Upstream has no bound.
pub const ACCESS_EXPRESSION_BYTES: usize = 4 * 1024;

/// Such evaluations at once. Upstream has no bound. Past it: the others wait, for ten seconds at most, and fail then.
pub const ACCESS_EXPRESSIONS: usize = 4;

/// Different authorization checks that the expressions of admission make about one write. Upstream bounds those of one policy, by
/// their cost. Past it: the check is an error of its expression.
pub const CHECKS_PER_WRITE: usize = 1024;

/// Requests that one webhook of authorization, or the main server by an extension server, is asked about at once. Upstream has no bound. Past it:
/// the others wait.
pub const ACCESS_REVIEWS: usize = 128;

/// Requests that wait for one of them. Upstream has no bound. Past it: it counts as failed for the request.
pub const ACCESS_REVIEWS_WAITING: usize = 1_024;

/// Decisions of one of them that are remembered. Upstream's figure. Past it: the oldest are forgotten.
pub const ACCESS_DECISIONS: usize = 8_192;

/// Bytes of a request's attributes with which its decision is remembered; upstream's figure, but that selectors count here.
pub const ACCESS_DECISION_BYTES: usize = 10_000;

// Connections.

/// File descriptors that connections leave to everything else: the store, webhooks, aggregated servers.
pub const RESERVED_DESCRIPTORS: u64 = 768;

/// Connections at once, where the descriptor limit does not say less. Past it: the connection that is idle longest is closed, and
/// when none is idle the new one.
pub const CONNECTIONS: usize = 100_000;

/// Connections to nodes, pods and services for logs, commands, forwarded ports and proxies; a quarter of what descriptors allow at most, and half of them
/// for one user. Upstream has no bound. Past it: 429.
pub const NODE_CONNECTIONS: usize = 8_192;

/// TLS handshakes and first requests that are awaited at once. Past it: the one that has waited longest is closed.
pub const HANDSHAKES: usize = 4_096;

/// Seconds until the head of a request has to be there, from the connection's or the last answer's end on; a handshake counts.
/// Upstream's figure (`ReadHeaderTimeout`).
pub const HEAD_SECONDS: u64 = 32;

/// Seconds that a connection without requests is kept. Upstream's figure (`IdleTimeout`).
pub const IDLE_SECONDS: u64 = 90;

/// Static files that one HTTP/2 connection may ask for without credentials; upstream has one request there, whatever it is for. Past it: the
/// connection ends once its requests are answered.
pub const STATIC_FILES: u32 = 64;

/// Concurrent streams of one HTTP/2 connection. Upstream's figure, which is what Go's clients assume before they have read the settings.
/// Past it: the stream is refused.
pub const STREAMS: u32 = 100;

/// Bytes left of a request's body that are read and dropped before an answer that did not wait for them, so that an HTTP/1.1 connection can
/// go on; for [`LINGER`] at most. Go's figure (`maxPostHandlerReadBytes`). Past it: the answer says `Connection: close`, and the connection
/// lingers.
pub const DROPPED_BODY_BYTES: usize = 256 * 1024;

/// How long a connection that closes while its client sends a body waits for more of it, its write side shut: a reset could overtake the
/// answer. Go's figure (`rstAvoidanceDelay`), which waits once and reads nothing. Past it: it is closed.
pub const LINGER: Duration = Duration::from_millis(500);

/// The same for all of the body, while more of it keeps coming. Past it: the connection is closed.
pub const LINGER_IN_ALL: Duration = Duration::from_secs(5);

/// Bytes that a connection reads and drops while it lingers. Past it: it is closed.
pub const LINGER_BYTES: usize = 64 << 20;

// Streams to nodes.

/// Bytes that are taken from one end of a stream before they are handed to the other. Upstream's figure (Go's `io.Copy`). Past it: the
/// rest waits in the connection.
pub const STREAM_PIECE_BYTES: usize = 32 * 1024;

/// Bytes of a control frame of SPDY. Upstream's library takes 16 MiB. Past it: the connection to the node ends.
pub const SPDY_CONTROL_BYTES: usize = 64 * 1024;

/// Bytes of the headers of one frame of SPDY, decompressed. Upstream's library takes 1,000 headers of 1 MiB. Past it: the connection to the
/// node ends.
pub const SPDY_HEADER_BYTES: usize = 64 * 1024;

/// Bytes of the status that ends a command on a node. Upstream has no bound. Past it: the rest is passed over.
pub const COMMAND_STATUS_BYTES: usize = 64 * 1024;

/// Bytes of one terminal size, as JSON. Upstream has no bound. Past it: further ones are passed over.
pub const TERMINAL_SIZE_BYTES: usize = 4 * 1024;

/// Bytes of a node's answer that are read where it is an error. Upstream's figure (`maxReadLength`). Past it: the message is cut.
pub const NODE_ERROR_BYTES: usize = 50_000;

/// How long a node may take to accept an upgrade, and to accept the streams of a command. Upstream's figure for each stream
/// (`createStreamResponseTimeout`); it has none for upgrades. Past it: 500.
pub const STREAM_WAIT: Duration = Duration::from_secs(30);

/// How often both ends of a stream that is translated are asked whether they are there. Upstream asks nodes alone, as often.
pub const STREAM_PING: Duration = Duration::from_secs(5);

// Answers.

/// Bytes of objects that are parsed and encoded before others have their turn: a few milliseconds.
pub const SLICE_BYTES: usize = 256 * 1024;

/// Bytes of one piece of a streamed answer.
pub const PIECE_BYTES: usize = 128 * 1024;

/// Bytes of a protobuf list that are kept while its length is computed, which comes before its content. The rest is encoded
/// twice instead.
pub const KEPT_BYTES: usize = 1 << 20;

/// Bytes of encoded forms of objects (protobuf, rows of tables) and of compressed blocks of lists that are kept for the next readers, of all
/// resources. Upstream keeps none. Past it: those go that were not asked for within [`FORM_IN_USE`]; while there are none, new ones are made
/// for each request.
pub const FORM_BYTES: usize = 128 << 20;

/// For how long a form that was asked for is not let go of in favour of another.
pub const FORM_IN_USE: Duration = Duration::from_secs(30);

/// For how long a form is kept that nobody asks for, even if there is room. It goes when others are added.
pub const FORM_IDLE: Duration = Duration::from_secs(600);

/// Bytes of a list from which a block of neighbouring objects that is compressed alone may end, at a place that depends on names; and
/// bytes at which it ends in any case. About twice the first on average. A write has one or two blocks compressed again.
pub const BLOCK_LEAST_BYTES: usize = 64 * 1024;

/// See [`BLOCK_LEAST_BYTES`].
pub const BLOCK_MOST_BYTES: usize = SLICE_BYTES;

/// Bytes up to which an answer is handed to the connection at once: neither counted nor holding its seat.
pub const SMALL_RESPONSE_BYTES: usize = 16 * 1024;

/// Bytes of one streamed answer that its connection may leave untaken before no more are made.
pub const RESPONSE_WINDOW_BYTES: usize = 512 * 1024;

/// Bytes of answers that are made and not yet taken by the connection, of all clients. Past it: 429 with `Retry-After`, but for
/// `system:masters`.
pub const RESPONSE_BYTES: usize = 512 << 20;

/// The same of one user, unless it is of `system:masters`. Past it: 429 with `Retry-After`.
pub const RESPONSE_BYTES_PER_USER: usize = 128 << 20;

// Connections through proxies (egress selection).

/// Bytes of the head of a proxy's answer to CONNECT. Upstream: 1 MiB. Past it: the connection fails.
pub const PROXY_HEAD_BYTES: usize = 64 * 1024;

/// Bytes of one packet of a tunnel that this server sends. Upstream sends what is written at once. Past it: more packets.
pub const TUNNEL_CHUNK_BYTES: usize = 32 * 1024;

/// Bytes of a tunnel that have come and are not read yet, beside HTTP/2's windows and one packet. Past it: the peer waits.
pub const TUNNEL_PIPE_BYTES: usize = 64 * 1024;

// Past states.

/// Bytes that snapshots for exact and paged lists and the recent events of all resources may take, unless a flag says otherwise
/// (`--watch-cache-history-mib`). Upstream has no bound. Past it: the one with the largest size times idle time is dropped, and is
/// rebuilt of the store's history when it is asked for.
pub const PAST_BYTES: usize = 128 << 20;

/// The snapshots of one resource may take one part in so many of [`PAST_BYTES`], its recent events one in
/// [`PAST_EVENT_SHARE`]. Past it: as above; a watcher whose events have gone is served from the store's log.
pub const PAST_SHARE: usize = 2;

/// See [`PAST_SHARE`].
pub const PAST_EVENT_SHARE: usize = 4;

/// Bytes of a store that a scrub in the background reads in a second. Upstream has none. Past it: it waits.
pub const SCRUB_BYTES_PER_SECOND: u64 = 8 << 20;
