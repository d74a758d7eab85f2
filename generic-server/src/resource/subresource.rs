//! The kinds of subresources: a view of the object, its scale, a create whose object is answered rather than stored, or a
//! stream. A kind names a capability and implements what is its own; bodies, negotiation, validation of fields, admission,
//! dry run and managed fields are the handlers' (`handlers/subresource.rs`).

use std::fmt::Debug;
use std::sync::Arc;

use machinery::{ApiError, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use crate::registry::strategy::Strategy;
use crate::request::{Authorized, Request, RequestInfo, Response};

/// A subresource.
#[derive(Debug, Clone)]
pub enum Subresource {
    /// The whole object, read and written with another strategy: `status`, `approval`, `ephemeralcontainers`, `resize`.
    /// Offers get, patch and update.
    View(Arc<dyn Strategy>),
    /// `autoscaling/v1, Kind=Scale` over these paths. Offers get, patch and update.
    Scale(ScalePaths),
    /// An object of a kind of its own is posted, and an answer comes back: `binding`, `eviction`, `token`. Offers create.
    Create(Arc<dyn NamedCreate>),
    /// A stream to what runs the object: `exec`, `proxy`, `log`.
    Connect(Arc<dyn Connect>),
}

impl Subresource {
    /// Whether discovery and OpenAPI list it.
    pub(crate) fn is_published(&self) -> bool {
        match self {
            Self::View(_) | Self::Scale(_) | Self::Connect(_) => true,
            Self::Create(creator) => creator.is_published(),
        }
    }
}

/// Where a scale's values are in the object. Paths are of object keys: `["spec", "replicas"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The number of replicas that is wanted.
    pub spec_replicas: Vec<String>,
    /// The number of replicas that there are.
    pub status_replicas: Vec<String>,
    /// A string, or a LabelSelector object (built-in kinds).
    pub selector: Option<Vec<String>>,
    /// The number of replicas that is wanted in other versions, by `apiVersion`; `None` where a version has no scale. Fields are owned
    /// in any of them.
    pub others: Vec<(String, Option<Vec<String>>)>,
}

/// A subresource to which an object of its own kind is posted (upstream's `NamedCreater`).
#[async_trait::async_trait]
pub trait NamedCreate: Send + Sync + Debug {
    /// The kind of the posted object: `policy/v1, Kind=Eviction`. Bodies are decoded by its built-in schema.
    fn kind(&self) -> GroupVersionKind;

    /// Other API versions of the same shape that clients may send: `policy/v1beta1`.
    fn other_versions(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether discovery and OpenAPI list it. Subresources that upstream does not have are left out, so that the documents
    /// equal upstream's.
    fn is_published(&self) -> bool {
        true
    }

    /// Whether `metadata.uid` of the posted object is kept, as a precondition (upstream's `SubresourceObjectMetaPreserver`).
    fn keeps_uid(&self) -> bool {
        false
    }

    /// Fills in the defaults of the posted object, before mutating admission.
    fn default(&self, _object: &mut Value) {}

    /// Does the work. The object is decoded and defaulted and has passed mutating admission; the implementation checks it and
    /// then calls [`CreateCall::validate`], which gives the proof that an [`Answer`] is made of.
    ///
    /// # Errors
    /// The error for the client; nothing may have been changed for [`CreateCall::dry_run`].
    async fn create(&self, call: &CreateCall<'_>, object: Value) -> Result<Answer, ApiError>;
}

/// Validating admission for one request.
#[async_trait::async_trait]
pub(crate) trait Validation: Send + Sync {
    /// Refuses the object or lets it pass.
    async fn validate(&self, object: &Value) -> Result<(), ApiError>;
}

/// A create whose object is answered rather than stored: the caller, and the object that it is about.
pub struct CreateCall<'a> {
    /// The proof of authorization, with the request's information.
    pub authorized: &'a Authorized,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The name in the path, else that of the posted object.
    pub name: &'a str,
    /// Everything runs, nothing is stored.
    pub dry_run: bool,
    pub(crate) validation: &'a dyn Validation,
}

impl Debug for CreateCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateCall")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl CreateCall<'_> {
    /// Runs validating admission on the object as it is going to be acted on.
    ///
    /// # Errors
    /// The refusal of a plugin.
    pub async fn validate(&self, object: &Value) -> Result<Admitted, ApiError> {
        self.validation.validate(object).await?;
        Ok(Admitted(()))
    }
}

/// The proof that validating admission has let an object pass: no [`Answer`] without it.
#[derive(Debug)]
#[must_use = "an answer is made of it"]
pub struct Admitted(());

impl Admitted {
    /// Answers 201 with an object.
    pub fn created(self, object: Value) -> Answer {
        Answer(Outcome::Created(object))
    }

    /// Answers 201 with a Status that says `Success`.
    pub fn done(self) -> Answer {
        Answer(Outcome::Done)
    }

    /// Answers 200 with a report, which nothing was created for.
    pub fn report(self, report: Value) -> Answer {
        Answer(Outcome::Report(report))
    }
}

/// The answer of a create.
#[derive(Debug)]
pub struct Answer(pub(crate) Outcome);

#[derive(Debug)]
pub(crate) enum Outcome {
    Created(Value),
    Done,
    Report(Value),
}

/// A subresource that is a stream, whose options are in the query (upstream's `Connecter`).
#[async_trait::async_trait]
pub trait Connect: Send + Sync + Debug {
    /// The verbs that it offers.
    fn verbs(&self) -> &'static [&'static str];

    /// The kind of its options: `v1, Kind=PodExecOptions`.
    fn kind(&self) -> GroupVersionKind;

    /// Whether it only reads the object (`pods/log`): admission is not asked then.
    fn is_read(&self) -> bool {
        false
    }

    /// Whether HEAD and OPTIONS are passed on, too: by the verb `get`, and by none.
    fn passes_all_methods(&self) -> bool {
        false
    }

    /// The options of a request as an object of [`Connect::kind`], which admission sees and may change. What follows the subresource in
    /// the path is in `info`.
    ///
    /// # Errors
    /// 400 when they cannot be read.
    fn options(&self, info: &RequestInfo, query: &str) -> Result<Value, ApiError>;

    /// Answers a request that admission has let pass.
    ///
    /// # Errors
    /// The error for the client.
    async fn connect(&self, call: ConnectCall<'_>, request: Request) -> Result<Response, ApiError>;
}

/// Which object a stream is of.
#[derive(Debug, Clone, Copy)]
pub struct ConnectCall<'a> {
    /// The proof of authorization; `info().parts` has what follows the subresource in the path.
    pub authorized: &'a Authorized,
    /// The parent resource.
    pub gvr: &'a GroupVersionResource,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The parent's name.
    pub name: &'a str,
    /// The options, as admission left them.
    pub options: &'a Value,
}
