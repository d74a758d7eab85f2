//! A request's way through priority and fairness.

use std::future::Future;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::estimate;
use super::level::{Entry, Level, Requester, Seat, Waiting, now};
use super::queue_set::Caller;
use super::snapshot::{FlowHeaders, Schema};
use super::watches::Watch;
use super::work::Width;
use super::{FlowControl, LONGEST_WAIT};
use crate::request::RequestContext;

/// A request that is to be admitted.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The user and what is asked for.
    pub context: &'a Arc<RequestContext>,
    /// The query.
    pub query: &'a str,
    /// It lasts for long.
    pub long_running: bool,
    /// It is a health check of the server, which always has an answer.
    pub probe: bool,
    /// When it came.
    pub received: Instant,
    /// When it has to be answered.
    pub deadline: Option<Instant>,
}

/// How a request was classified.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) headers: FlowHeaders,
    level: Arc<Level>,
    /// It is a watch, and is counted as one for as long as this is there.
    pub(crate) watch: Option<Watch>,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It is not limited, and perhaps not classified.
    Free(Option<FlowHeaders>),
    Runs(Flow, Seat),
    Waits(Flow, Waits),
    Refused(Flow),
}

/// A request in a queue. It leaves the queue when this is dropped.
#[derive(Debug)]
pub(crate) struct Waits {
    waiting: Waiting,
    end: Instant,
}

impl Waits {
    /// The seat, if there is one in time.
    pub(crate) fn seat(self) -> impl Future<Output = Option<Seat>> + Send {
        let seat = self.waiting.seat(self.end);
        async { seat.await.ok() }
    }
}

impl Flow {
    /// After how long a refused client may come back.
    pub(crate) fn retry_after(&self) -> Duration {
        self.level.retry_after(now())
    }
}

impl FlowControl {
    /// Takes in a request. Nothing here waits.
    pub(crate) fn enter(&self, asked: &Asked<'_>) -> Turn {
        let (user, info) = (&asked.context.user, &asked.context.info);
        let watches = info.verb == "watch";
        if asked.long_running && !watches {
            return Turn::Free(None);
        }
        let snapshot = self.snapshot.load();
        let schema = snapshot.classify(user, info);
        if asked.probe && !schema.exempt {
            return Turn::Free(Some(schema.headers.clone()));
        }
        self.wake();
        let width = self.width(schema, asked);
        schema.series.estimated(width.most_seats());
        let requester = Requester {
            context: asked.context.clone(),
            flow: schema.series.clone(),
            by: schema.distinguisher,
        };
        let flow = Flow {
            headers: schema.headers.clone(),
            level: schema.level.clone(),
            watch: watches.then(|| self.watches.register(info)).flatten(),
        };
        let caller = Caller {
            flow: schema.hash(user, info),
            user: match schema.exempt {
                true => 0,
                false => self.user_hashes.hash_one(&user.name),
            },
        };
        match schema.level.enter(caller, width, requester, now()) {
            Entry::Runs(seat) => Turn::Runs(flow, seat),
            Entry::Refused => Turn::Refused(flow),
            Entry::Waits(waiting) => {
                let end = self.end_of_wait(asked);
                Turn::Waits(flow, Waits { waiting, end })
            }
        }
    }

    /// A quarter of a request's time may be spent in a queue.
    fn end_of_wait(&self, asked: &Asked<'_>) -> Instant {
        let quarter = |deadline: Instant| deadline.saturating_duration_since(asked.received) / 4;
        let wait = asked.deadline.map_or(self.wait, quarter);
        asked.received + wait.min(LONGEST_WAIT)
    }

    fn width(&self, schema: &Schema, asked: &Asked<'_>) -> Width {
        let info = &asked.context.info;
        match &*info.verb {
            "list" | "watch" if info.is_resource => {
                let directory = self.directory.as_deref();
                estimate::list(info, asked.query, directory, schema.level.widest())
            }
            "create" | "update" | "patch" | "delete" if info.is_resource => {
                let watches = self.watches.interested_in(info);
                schema.series.watched(watches);
                estimate::write(info, watches, schema.level.widest())
            }
            _ => Width::ONE,
        }
    }
}
