//! `apiserver_flowcontrol_*`, with upstream's names, labels and buckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::FlowControl;
use super::config::LevelState;
use super::demand::seats_f64;
use super::level::now;
use super::queue_set::{Queuing, Refused};
use super::series::FlowSeries;
use super::utilization::Timed;
use super::work::SeatTime;
use crate::metrics::{Collect, Histogram, family, sample};

type Labels<'a> = [(&'static str, &'a str)];

/// The state that the metrics of a level are made of, read at once.
struct Read<'a> {
    name: Arc<str>,
    state: &'a LevelState,
    current_r: f64,
    dispatch_r: f64,
    latest_s: f64,
    bounds: Option<[(SeatTime, SeatTime); 2]>,
    queuing: Queuing,
}

impl Collect for FlowControl {
    fn collect(&self, out: &mut String) {
        let objects = self.config.lock();
        let now = now();
        let levels: Vec<Read<'_>> = objects
            .config
            .levels
            .iter()
            .map(|(name, state)| {
                let mut locked = state.level.lock();
                // Time goes on in the histograms while nothing happens.
                locked.utilization.pass(now);
                let last = locked.set.last_dispatch();
                Read {
                    name: name.clone(),
                    state,
                    current_r: locked.set.virtual_time().as_f64(),
                    dispatch_r: last.r.as_f64(),
                    latest_s: last.s.as_f64(),
                    bounds: locked.set.bounds(),
                    queuing: locked.set.queuing(),
                }
            })
            .collect();
        for_levels(out, &levels);
        for_bounds(out, &levels);
        self.mixture.write(out, now);
        for_utilization(out, &levels);
        let series: Vec<&Arc<FlowSeries>> = objects.config.series().collect();
        for_flows(out, &series);
        for_histograms(out, &series);
        for_queues(out, &series, &levels);
        self.mixture.write_waiting(out);
        gauge(
            out,
            "seat_fair_frac",
            "Fair fraction of server's concurrency to allocate to each priority level that can use it",
        );
        sample(out, &name("seat_fair_frac"), &[], objects.config.fair_fraction);
    }
}

fn name(short: &str) -> String {
    format!("apiserver_flowcontrol_{short}")
}

fn gauge(out: &mut String, short: &str, help: &str) {
    family(out, &name(short), "gauge", help);
}

fn for_levels(out: &mut String, levels: &[Read<'_>]) {
    type Value = fn(&Read<'_>) -> f64;
    let families: [(&str, &str, Value); 13] = [
        (
            "nominal_limit_seats",
            "Nominal number of execution seats configured for each priority level",
            |l| seats_f64(l.state.seats.nominal),
        ),
        (
            "request_concurrency_limit",
            "Nominal number of execution seats configured for each priority level",
            |l| seats_f64(l.state.seats.nominal),
        ),
        (
            "lower_limit_seats",
            "Configured lower bound on number of execution seats available to each priority level",
            |l| seats_f64(l.state.seats.least),
        ),
        (
            "upper_limit_seats",
            "Configured upper bound on number of execution seats available to each priority level",
            |l| seats_f64(l.state.seats.most),
        ),
        (
            "current_limit_seats",
            "current derived number of execution seats available to each priority level",
            |l| seats_f64(l.state.seats.current),
        ),
        (
            "demand_seats_high_watermark",
            "High watermark, over last adjustment period, of demand_seats",
            |l| seats_f64(l.state.demand.last.most),
        ),
        (
            "demand_seats_average",
            "Time-weighted average, over last adjustment period, of demand_seats",
            |l| l.state.demand.last.average,
        ),
        (
            "demand_seats_stdev",
            "Time-weighted standard deviation, over last adjustment period, of demand_seats",
            |l| l.state.demand.last.deviation,
        ),
        ("demand_seats_smoothed", "Smoothed seat demands", |l| {
            l.state.demand.seats
        }),
        ("target_seats", "Seat allocation targets", |l| l.state.target),
        ("current_r", "R(time of last change)", |l| l.current_r),
        ("dispatch_r", "R(time of last dispatch)", |l| l.dispatch_r),
        ("latest_s", "S(most recently dispatched request)", |l| l.latest_s),
    ];
    for (short, help, value) in families {
        gauge(out, short, help);
        for level in levels {
            sample(
                out,
                &name(short),
                &[("priority_level", &*level.name)],
                value(level),
            );
        }
    }
}

/// Of the levels in which requests wait.
fn for_bounds(out: &mut String, levels: &[Read<'_>]) {
    let families = [
        (
            "next_s_bounds",
            "min and max, over queues, of S(oldest waiting request in queue)",
        ),
        (
            "next_discounted_s_bounds",
            "min and max, over queues, of S(oldest waiting request in queue) - estimated work in progress",
        ),
    ];
    for (index, (short, help)) in families.into_iter().enumerate() {
        gauge(out, short, help);
        for level in levels {
            let Some((least, most)) = level.bounds.and_then(|bounds| bounds.get(index).copied()) else {
                continue;
            };
            for (bound, value) in [("min", least), ("max", most)] {
                let labels = [("priority_level", &*level.name), ("bound", bound)];
                sample(out, &name(short), &labels, value.as_f64());
            }
        }
    }
}

fn for_utilization(out: &mut String, levels: &[Read<'_>]) {
    type Write = fn(&LevelState, &mut dyn FnMut(&Timed, &Labels<'_>));
    let families: [(&str, &str, Write); 3] = [
        (
            "priority_level_seat_utilization",
            "Observations, at the end of every nanosecond, of utilization of seats for any stage of execution (but only initial stage for WATCHes)",
            |state, write| write(&state.level.lock().utilization.seats, &[("phase", "executing")]),
        ),
        (
            "priority_level_request_utilization",
            "Observations, at the end of every nanosecond, of number of requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial stage for WATCHes)",
            |state, write| {
                let locked = state.level.lock();
                write(&locked.utilization.executing, &[("phase", "executing")]);
                write(&locked.utilization.waiting, &[("phase", "waiting")]);
            },
        ),
        (
            "demand_seats",
            "Observations, at the end of every nanosecond, of (the number of seats each priority level could use) / (nominal number of seats for that level)",
            |state, write| write(&state.level.lock().utilization.demand, &[]),
        ),
    ];
    for (short, help, write) in families {
        family(out, &name(short), "histogram", help);
        for level in levels {
            write(level.state, &mut |timed, more| {
                let own = ("priority_level", &*level.name);
                let labels: Vec<_> = more.iter().copied().chain([own]).collect();
                timed.write(out, &name(short), &labels);
            });
        }
    }
}

fn for_flows(out: &mut String, series: &[&Arc<FlowSeries>]) {
    type Value = fn(&FlowSeries) -> &AtomicI64;
    let families: [(&str, &str, Value); 5] = [
        (
            "current_executing_requests",
            "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
            |flow| &flow.executing,
        ),
        (
            "current_executing_seats",
            "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
            |flow| &flow.executing_seats,
        ),
        (
            "request_concurrency_in_use",
            "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
            |flow| &flow.executing_seats,
        ),
        (
            "current_inqueue_requests",
            "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
            |flow| &flow.waiting,
        ),
        (
            "current_inqueue_seats",
            "Number of seats currently pending in queues of the API Priority and Fairness subsystem",
            |flow| &flow.waiting_seats,
        ),
    ];
    for (short, help, value) in families {
        gauge(out, short, help);
        for flow in series {
            sample(
                out,
                &name(short),
                &flow.labels(),
                value(flow).load(Ordering::Relaxed),
            );
        }
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let short = "dispatched_requests_total";
    family(
        out,
        &name(short),
        "counter",
        "Number of requests executed by API Priority and Fairness subsystem",
    );
    for flow in series {
        sample(out, &name(short), &flow.labels(), count(&flow.dispatched));
    }
    let short = "request_dispatch_no_accommodation_total";
    family(
        out,
        &name(short),
        "counter",
        "Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats",
    );
    for flow in series {
        match count(&flow.no_accommodation) {
            0 => {}
            short_of_seats => sample(out, &name(short), &flow.labels(), short_of_seats),
        }
    }
    let short = "rejected_requests_total";
    family(
        out,
        &name(short),
        "counter",
        "Number of requests rejected by API Priority and Fairness subsystem",
    );
    for flow in series {
        for why in [Refused::ConcurrencyLimit, Refused::QueueFull, Refused::TimeOut] {
            let [level, schema] = flow.labels();
            let labels = [level, schema, ("reason", why.reason())];
            match count(&flow.rejected[why as usize]) {
                0 => {}
                rejected => sample(out, &name(short), &labels, rejected),
            }
        }
    }
}

fn for_histograms(out: &mut String, series: &[&Arc<FlowSeries>]) {
    type Parts = for<'a> fn(&'a FlowSeries) -> Vec<(Option<(&'static str, &'static str)>, &'a Histogram)>;
    let families: [(&str, &str, Parts); 3] = [
        (
            "request_execution_seconds",
            "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
            |flow| {
                let [watches, regular] = &flow.durations;
                vec![
                    (Some(("type", "watch")), watches),
                    (Some(("type", "regular")), regular),
                ]
            },
        ),
        (
            "work_estimated_seats",
            "Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
            |flow| vec![(None, &flow.estimated_seats)],
        ),
        (
            "watch_count_samples",
            "count of watchers for mutating requests in API Priority and Fairness",
            |flow| vec![(None, &flow.watches)],
        ),
    ];
    for (short, help, parts) in families {
        family(out, &name(short), "histogram", help);
        for flow in series {
            for (more, histogram) in parts(flow) {
                // As upstream's vectors: a series is there from its first observation on.
                if histogram.count() > 0 {
                    let labels: Vec<_> = flow.labels().into_iter().chain(more).collect();
                    histogram.write(out, &name(short), &labels);
                }
            }
        }
    }
}

/// Upstream puts each request of a level with queues into one, if only for a moment. Here one that finds seats has none, and is counted when the
/// metrics are read: it waited for no time, in a queue of its own.
fn for_queues(out: &mut String, series: &[&Arc<FlowSeries>], levels: &[Read<'_>]) {
    let queuing = |flow: &FlowSeries| {
        let level = levels.iter().find(|level| level.name == flow.level);
        level.map_or(Queuing::Exempt, |level| level.queuing)
    };
    let at_once = |flow: &FlowSeries| {
        let dispatched = flow.dispatched.load(Ordering::Relaxed);
        dispatched.saturating_sub(flow.waits[0].count())
    };
    let short = "request_wait_duration_seconds";
    family(
        out,
        &name(short),
        "histogram",
        "Length of time a request spent waiting in its queue",
    );
    for flow in series {
        let [served, refused] = &flow.waits;
        let more = match queuing(flow) {
            Queuing::Exempt => 0,
            Queuing::Reject | Queuing::Queue { .. } => at_once(flow),
        };
        for (execute, histogram, more) in [("true", served, more), ("false", refused, 0)] {
            if histogram.count() + more > 0 {
                let labels: Vec<_> = flow.labels().into_iter().chain([("execute", execute)]).collect();
                histogram.write_with(out, &name(short), &labels, (more, Duration::ZERO));
            }
        }
    }
    let short = "request_queue_length_after_enqueue";
    family(
        out,
        &name(short),
        "histogram",
        "Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
    );
    for flow in series {
        let more = match queuing(flow) {
            Queuing::Exempt | Queuing::Reject => 0,
            Queuing::Queue { .. } => at_once(flow),
        };
        if flow.lengths.count() + more > 0 {
            let one = Duration::from_secs(1);
            flow.lengths
                .write_with(out, &name(short), &flow.labels(), (more, one));
        }
    }
}

impl FlowSeries {
    fn labels(&self) -> [(&'static str, &str); 2] {
        [("flow_schema", &*self.schema), ("priority_level", &*self.level)]
    }
}
