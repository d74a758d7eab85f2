//! The pod's cells.

use machinery::table::Ages;
use serde_json::{Value, json};

use super::*;
use crate::unique::{Seen, first_by};

printer!(
    POD,
    "Name|string|name|0;Ready|string||0;Status|string||0;Restarts|string||0;Age|string||0;IP|string||1;Node|string||1;Nominated Node|string||1;Readiness Gates|string||1",
    pod,
    completed
);

/// Pods that have run are marked, so that they can be hidden.
fn completed(pod: &Value) -> Option<Value> {
    let phase = pod.text("status.phase");
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

/// The pod's row: readiness, a status condensed from phase, conditions and container states, restarts.
fn pod(o: &Value, ages: &Ages) -> Vec<Value> {
    let init = o.list("spec.initContainers");
    let sidecars = || init.iter().filter(|c| c.text("restartPolicy") == "Always");
    let restartable: Seen<&str> = sidecars().map(|c| c.text("name")).collect();
    let total = o.list("spec.containers").len() + sidecars().count();
    let condition = |kind: &str| {
        o.list("status.conditions")
            .iter()
            .find(|c| c.text("type") == kind)
    };
    let phase = o.text("status.phase");
    let mut reason = or(o.text("status.reason"), phase).to_string();
    if condition("PodScheduled").is_some_and(|c| c.text("reason") == "SchedulingGated") {
        reason = "SchedulingGated".into();
    }
    let (mut restarts, mut side_restarts, mut ready) = (0, 0, 0);
    let (mut last, mut side_last) = (String::new(), String::new());
    let finished = |status: &Value| status.text("lastState.terminated.finishedAt").to_string();
    let mut initializing = false;
    for (index, status) in o.list("status.initContainerStatuses").iter().enumerate() {
        let count = status.int("restartCount").unwrap_or_default();
        let sidecar = restartable.has(status.text("name"));
        restarts += count;
        last = last.max(finished(status));
        if sidecar {
            side_restarts += count;
            side_last = side_last.max(finished(status));
        }
        let terminated = status.dig("state.terminated");
        let waiting = status.text("state.waiting.reason");
        if !terminated.is_null() && terminated.int("exitCode").unwrap_or_default() == 0 {
            continue;
        }
        if sidecar && status.flag("started") {
            ready += i64::from(status.flag("ready"));
            continue;
        }
        reason = if !terminated.is_null() {
            match (
                terminated.text("reason"),
                terminated.int("signal").unwrap_or_default(),
            ) {
                ("", 0) => format!("Init:ExitCode:{}", terminated.int("exitCode").unwrap_or_default()),
                ("", signal) => format!("Init:Signal:{signal}"),
                (text, _) => format!("Init:{text}"),
            }
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", init.len())
        };
        initializing = true;
        break;
    }
    if !initializing || condition("Initialized").is_some_and(|c| c.text("status") == "True") {
        (restarts, last) = (side_restarts, side_last);
        let mut running = false;
        let mut error = String::new();
        for status in o.list("status.containerStatuses").iter().rev() {
            restarts += status.int("restartCount").unwrap_or_default();
            last = last.max(finished(status));
            let terminated = status.dig("state.terminated");
            let waiting = status.text("state.waiting.reason");
            if !waiting.is_empty() {
                reason = waiting.into();
            } else if !terminated.is_null() {
                let code = terminated.int("exitCode").unwrap_or_default();
                reason = match (
                    terminated.text("reason"),
                    terminated.int("signal").unwrap_or_default(),
                ) {
                    ("", 0) => format!("ExitCode:{code}"),
                    ("", signal) => format!("Signal:{signal}"),
                    (text, _) => text.into(),
                };
                if code != 0 {
                    error.clone_from(&reason);
                }
            } else if status.flag("ready") && status.has("state.running") {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            if running && condition("Ready").is_some_and(|c| c.text("status") == "True") {
                reason = "Running".into();
            } else if !error.is_empty() {
                reason = error;
            } else if running {
                reason = "NotReady".into();
            }
        }
    }
    if o.has("metadata.deletionTimestamp") {
        if o.text("status.reason") == "NodeLost" {
            reason = "Unknown".into();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            reason = "Terminating".into();
        }
    }
    let restarts = match (restarts, last.as_str()) {
        (0, _) | (_, "") => restarts.to_string(),
        (n, last) => format!("{n} ({} ago)", since(ages, last)),
    };
    let gates = o.list("spec.readinessGates");
    let gates = match gates.len() {
        0 => "<none>".to_string(),
        n => {
            let conditions = first_by(o.list("status.conditions"), "type");
            let status = |gate: &Value| {
                conditions
                    .get(gate.text("conditionType"))
                    .map(|c| c.text("status"))
            };
            let passed = gates.iter().filter(|gate| status(gate) == Some("True"));
            format!("{}/{n}", passed.count())
        }
    };
    let ip = o.list("status.podIPs").first().map_or("", |ip| ip.text("ip"));
    vec![
        name(o),
        format!("{ready}/{total}").into(),
        reason.into(),
        restarts.into(),
        age(o, ages),
        or(ip, "<none>").into(),
        or(o.text("spec.nodeName"), "<none>").into(),
        or(o.text("status.nominatedNodeName"), "<none>").into(),
        gates.into(),
    ]
}
