//! `/debug/api_priority_and_fairness/*`: the levels, queues and requests as tables, in upstream's form.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderValue, header};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::FlowControl;
use super::level::{Level, Requester, now};
use super::queue_set::Queuing;
use super::snapshot::distinguish;
use super::work::{SeatTime, Width};
use crate::endpoint::{Endpoint, Endpoints};
use crate::request::{Authorized, Request, Response, full};
use crate::request_info::query_value;

/// Queues of one level that are listed. Upstream lists all of them, of which there may be ten millions; empty ones past this are left out.
const LISTED_QUEUES: u32 = 1_024;

/// One of the tables.
#[derive(Debug, Clone, Copy)]
enum Table {
    Levels,
    Queues,
    Requests,
}

#[derive(Debug)]
struct Dump {
    control: Arc<FlowControl>,
    table: Table,
}

impl FlowControl {
    /// Serves the dumps.
    pub fn install(self: &Arc<Self>, endpoints: &mut Endpoints) {
        for (name, table) in [
            ("dump_priority_levels", Table::Levels),
            ("dump_queues", Table::Queues),
            ("dump_requests", Table::Requests),
        ] {
            let control = self.clone();
            let path = format!("/debug/api_priority_and_fairness/{name}");
            endpoints.add(&path, Arc::new(Dump { control, table }));
        }
    }

    /// The levels by name, and whether each is to go.
    fn levels(&self) -> Vec<(Arc<Level>, bool)> {
        let objects = self.config.lock();
        let states = objects.config.levels.values();
        states
            .map(|state| (state.level.clone(), state.quiescing))
            .collect()
    }
}

#[async_trait::async_trait]
impl Endpoint for Dump {
    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        let query = request.uri().query().unwrap_or_default();
        let text = match self.table {
            Table::Levels => levels(&self.control.levels()),
            Table::Queues => queues(&self.control.levels()),
            Table::Requests => {
                let details = query_value(query, "includeRequestDetails");
                requests(
                    &self.control.levels(),
                    details.is_some_and(|value| !value.is_empty()),
                )
            }
        };
        let mut response = Response::new(full(text));
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
        response
    }
}

/// Rows whose cells are as wide as the widest of their column, as Go's `tabwriter` aligns them.
struct Rows(Vec<Vec<String>>);

impl Rows {
    fn new(headers: &[&str]) -> Self {
        Rows(vec![headers.iter().map(ToString::to_string).collect()])
    }

    fn print(&self) -> String {
        /// Upstream's `minwidth` and `padding`.
        const LEAST: usize = 8;
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.0 {
            for (column, cell) in row.iter().enumerate() {
                // The comma and a space follow.
                let width = (cell.chars().count() + 2).max(LEAST);
                match widths.get_mut(column) {
                    Some(known) => *known = width.max(*known),
                    None => widths.push(width),
                }
            }
        }
        let mut out = String::new();
        for row in &self.0 {
            for (column, cell) in row.iter().enumerate() {
                if column + 1 == row.len() {
                    out.push_str(cell);
                } else {
                    let width = widths.get(column).copied().unwrap_or_default();
                    // Writing to a string does not fail.
                    let _ = write!(out, "{:width$}", format!("{cell},"));
                }
            }
            out.push('\n');
        }
        out
    }
}

fn levels(all: &[(Arc<Level>, bool)]) -> String {
    let mut rows = Rows::new(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ]);
    for (level, quiescing) in all {
        let set = &level.lock().set;
        let totals = set.totals();
        let active = set.queues().filter(|(_, queue)| !queue.waiting.is_empty());
        rows.0.push(vec![
            level.name().to_string(),
            active.count().to_string(),
            set.is_idle().to_string(),
            quiescing.to_string(),
            totals.waiting.to_string(),
            totals.executing.to_string(),
            totals.dispatched.to_string(),
            totals.rejected.to_string(),
            // Upstream counts none of these: requests whose time is over are among the cancelled.
            "0".into(),
            totals.cancelled.to_string(),
        ]);
    }
    rows.print()
}

fn queues(all: &[(Arc<Level>, bool)]) -> String {
    let mut rows = Rows::new(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ]);
    for (level, _) in all {
        let set = &level.lock().set;
        let used: HashMap<u32, _> = set.queues().collect();
        let configured = match set.queuing() {
            Queuing::Queue { queues, .. } => queues.min(LISTED_QUEUES),
            Queuing::Exempt | Queuing::Reject => 0,
        };
        let mut indices: Vec<u32> = (0..configured).chain(used.keys().copied()).collect();
        indices.sort_unstable();
        indices.dedup();
        for index in indices {
            let queue = used.get(&index);
            let sum = |seats: fn(&Width) -> u32| {
                let waiting = queue.into_iter().flat_map(|queue| queue.waiting.values());
                waiting
                    .map(|one| u64::from(seats(&one.width)))
                    .sum::<u64>()
                    .to_string()
            };
            let zero = SeatTime::default;
            rows.0.push(vec![
                level.name().to_string(),
                index.to_string(),
                queue.map_or(0, |queue| queue.waiting.len()).to_string(),
                queue.map_or(0, |queue| queue.executing).to_string(),
                queue.map_or(0, |queue| queue.seats_in_use).to_string(),
                queue.map_or_else(zero, |queue| queue.next).to_string(),
                sum(|width| width.initial_seats),
                sum(Width::most_seats),
                queue.map_or_else(zero, |queue| queue.waiting_work()).to_string(),
            ]);
        }
    }
    rows.print()
}

fn requests(all: &[(Arc<Level>, bool)], details: bool) -> String {
    let mut headers = vec![
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        // As upstream spells it.
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ];
    if details {
        headers.extend([
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]);
    }
    let mut rows = Rows::new(&headers);
    let clock = Clock::new();
    for (level, _) in all {
        let set = &level.lock().set;
        let name = level.name();
        let mut queues: Vec<_> = set.queues().collect();
        queues.sort_by_key(|(index, _)| *index);
        for (index, queue) in queues {
            for (at, one) in queue.waiting.values().enumerate() {
                let places = [index.to_string(), at.to_string()];
                let times = (clock.show(Some(one.arrived)), clock.show(None));
                rows.0
                    .push(request(name, places, &one.info, &one.width, times, details));
            }
        }
        for one in set.executing() {
            let index = one.queue.map_or("-1".to_string(), |index| index.to_string());
            let times = (clock.show(Some(one.arrived)), clock.show(Some(one.started)));
            let places = [index, "-1".to_string()];
            rows.0
                .push(request(name, places, &one.info, &one.width, times, details));
        }
    }
    rows.print()
}

fn request(
    level: &str,
    [queue, place]: [String; 2],
    requester: &Requester,
    width: &Width,
    (arrived, started): (String, String),
    details: bool,
) -> Vec<String> {
    let (user, info) = (&requester.context.user, &requester.context.info);
    let mut row = vec![
        level.to_string(),
        requester.flow.schema.to_string(),
        queue,
        place,
        distinguish(requester.by, user, info).to_string(),
        arrived,
        width.initial_seats.to_string(),
        width.final_seats.to_string(),
        shown(width.additional_latency),
        started,
    ];
    if details {
        let version = match info.group.as_str() {
            "" => info.version.clone(),
            group => format!("{group}/{}", info.version),
        };
        row.extend([
            user.name.clone(),
            info.verb.to_string(),
            info.path.clone(),
            info.namespace.clone(),
            info.name.clone(),
            version,
            info.resource.clone(),
            info.subresource.clone(),
        ]);
    }
    row
}

/// As Go prints durations below a minute.
fn shown(duration: Duration) -> String {
    match duration.is_zero() {
        true => "0s".into(),
        false => format!("{duration:?}"),
    }
}

/// From instants to the time of day.
struct Clock {
    instant: Instant,
    time: SystemTime,
}

impl Clock {
    fn new() -> Self {
        Clock {
            instant: now(),
            time: SystemTime::now(),
        }
    }

    /// Go's zero time for none.
    fn show(&self, instant: Option<Instant>) -> String {
        let zero = || "0001-01-01T00:00:00Z".to_string();
        let Some(instant) = instant else {
            return zero();
        };
        let ago: Duration = self.instant.saturating_duration_since(instant);
        let time = self.time.checked_sub(ago).map(OffsetDateTime::from);
        time.and_then(|time| time.format(&Rfc3339).ok())
            .unwrap_or_else(zero)
    }
}
