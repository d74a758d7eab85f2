//! Compiling the expressions of policies and webhooks: in slices on the CPU pool, in a task of its own for each object.
//!
//! The match rules of an object are known as soon as it has been read; its expressions may be tens of thousands. Until they are
//! compiled, the writes that match are refused, like those that arrive before the configuration has been read. Other writes
//! proceed.

use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use machinery::{limits, meta};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::cpu::{self, Lane, Pool};
use crate::registry::{Entry, Synced};

/// The user name under which the server takes its turns.
const SERVER: &str = "system:apiserver";

/// An object that configures admission: one that is stored, or one of a file.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    Stored(Arc<Entry>),
    Manifest(Arc<Value>),
}

impl Origin {
    pub(super) fn name(&self) -> &str {
        match self {
            Origin::Stored(entry) => entry.name(),
            Origin::Manifest(object) => meta::name(object),
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Origin::Stored(entry) => entry.value(),
            Origin::Manifest(object) => Value::clone(object),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Origin::Stored(entry) => entry.untyped().len(),
            Origin::Manifest(object) => object.to_string().len(),
        }
    }
}

/// Where objects are compiled. Clones are the same place.
#[derive(Debug, Clone)]
pub(super) struct Compiler {
    pool: Arc<Pool>,
    /// One permit for each byte of the objects that are compiled at once.
    room: Arc<Semaphore>,
}

impl Compiler {
    /// The one of this process.
    pub(super) fn shared() -> Self {
        static SHARED: LazyLock<Compiler> = LazyLock::new(|| Compiler::of(Pool::shared().clone()));
        SHARED.clone()
    }

    pub(super) fn of(pool: Arc<Pool>) -> Self {
        Compiler {
            pool,
            room: Arc::new(Semaphore::new(limits::COMPILED_BYTES)),
        }
    }

    /// Takes all room, so that nothing is compiled until it is dropped.
    #[cfg(test)]
    pub(super) fn hold(&self) -> tokio::sync::OwnedSemaphorePermit {
        let all = u32::try_from(limits::COMPILED_BYTES).expect("it is a number of permits");
        let held = self.room.clone().try_acquire_many_owned(all);
        held.expect("nothing is being compiled")
    }

    /// Compiles an object of this many bytes in slices, once there is room for it. `None`: the process ends.
    pub(super) async fn run<T>(&self, bytes: usize, work: impl Future<Output = T> + Send) -> Option<T> {
        // Nothing else waits while it holds room, so that all get their turn.
        let bytes = u32::try_from(bytes.min(limits::COMPILED_BYTES)).unwrap_or(u32::MAX);
        let _room = self.room.acquire_many(bytes).await.ok()?;
        let work = async {
            cpu::pause(Lane::Bodies).await;
            work.await
        };
        Some(cpu::offload(&self.pool, cpu::user_key(SERVER), None, work).await)
    }

    /// Starts to compile an object with a function that ends slices ([`cpu::slice`]) between expressions. Has to be called on a runtime.
    pub(super) fn start<T, F>(
        &self,
        origin: &Origin,
        compile: impl FnOnce(Value) -> F + Send + 'static,
    ) -> Compiled<T>
    where
        T: Send + Sync + 'static,
        F: Future<Output = T> + Send,
    {
        let made: Arc<Synced<T>> = Arc::default();
        let (here, origin, result) = (self.clone(), origin.clone(), made.clone());
        let span = tracing::debug_span!("compile", name = origin.name());
        let task = async move {
            // The object is parsed once there is room for it.
            let work = async { compile(origin.value()).await };
            if let Some(made) = here.run(origin.bytes(), work).await {
                result.set(made);
            }
        };
        Compiled {
            made,
            _task: Some(AbortOnDropHandle::new(tokio::spawn(task.instrument(span)))),
        }
    }
}

/// The compiled form of an object: absent until compilation ends, which is aborted when the last reference is dropped.
#[derive(Debug)]
pub(super) struct Compiled<T> {
    made: Arc<Synced<T>>,
    _task: Option<AbortOnDropHandle<()>>,
}

impl<T> Compiled<T> {
    /// A value that needs no compilation.
    pub(super) fn done(value: T) -> Self {
        let made = Synced::default();
        made.set(value);
        Compiled {
            made: Arc::new(made),
            _task: None,
        }
    }
}

impl<T> Deref for Compiled<T> {
    type Target = Arc<Synced<T>>;

    fn deref(&self) -> &Arc<Synced<T>> {
        &self.made
    }
}
