//! The rows of `docs/benchmarks.md` as one run, and two such runs side by side.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::client::Error;
use crate::{Load, Phase};

/// The phases in order, each with the name of its row. Later ones use what earlier ones made: 10,000 objects are there from the second
/// row on, `objects` of them from the last but one.
pub(crate) fn rows(objects: usize) -> Vec<(String, Phase)> {
    let load = |clients: usize, count: usize, from: usize| Load {
        clients,
        count,
        size: 2048,
        from,
    };
    let list = |count: usize, query: &str| Phase::List {
        count,
        query: query.to_string(),
    };
    let watch = |watchers: usize, events: usize| Phase::Watch {
        watchers,
        events,
        connections: 10,
        collection: None,
        object: crate::CONFIG_MAP.into(),
    };
    let row = |name: &str, phase: Phase| (name.to_string(), phase);
    let mut rows = vec![
        row("memory, idle", Phase::Memory),
        row("create, 1 client", Phase::Create(load(1, 1_000, 0))),
        row("create, 32 clients", Phase::Create(load(32, 9_000, 1_000))),
        row("memory, 10,000 objects", Phase::Memory),
        row("get, 32 clients", Phase::Get(load(32, 10_000, 0))),
        row("list, consistent", list(20, "")),
        row("list, resourceVersion=0", list(20, "resourceVersion=0")),
        row("list, limit=500", list(50, "limit=500")),
        row("list, by label (1 %)", list(50, "labelSelector=group%3D7")),
        row("update, 32 clients", Phase::Update(load(32, 5_000, 0))),
        row("merge patch, 1 client", Phase::MergePatch(load(1, 500, 0))),
        row("merge patch, 32 clients", Phase::MergePatch(load(32, 5_000, 0))),
        row(
            "strategic patch, 32 clients",
            Phase::StrategicPatch(load(32, 5_000, 0)),
        ),
        row("apply create, 32 clients", Phase::ApplyCreate(load(32, 5_000, 0))),
        row("apply update, 32 clients", Phase::ApplyUpdate(load(32, 5_000, 0))),
        row("create pods, 32 clients", Phase::CreatePods(load(32, 2_000, 0))),
        row("watch, 200 x 500", watch(200, 500)),
        row("watch, 1,000 x 1,000", watch(1_000, 1_000)),
        row("create, 256 clients", Phase::Create(load(256, 20_000, 10_000))),
    ];
    if let Some(more) = objects.checked_sub(30_000) {
        if more > 0 {
            rows.push(row("create the rest", Phase::Create(load(64, more, 30_000))));
        }
        rows.push((format!("memory, {objects} objects"), Phase::Memory));
    }
    rows
}

/// Two runs' lines as a table in Markdown: each row's rate, tail and CPU, and how many times less the first one used.
pub(crate) fn compare(ours: &Path, theirs: &Path) -> Result<String, Error> {
    let read = |path: &Path| -> Result<Vec<Value>, Error> {
        let text = std::fs::read_to_string(path)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    let (ours, theirs) = (read(ours)?, read(theirs)?);
    let mut table = String::from("| what | here | there | CPU here is |\n|---|---|---|---|\n");
    for line in &ours {
        let Some(name) = line["row"].as_str() else {
            continue;
        };
        let other = theirs.iter().find(|other| other["row"] == line["row"]);
        let ratio = other.and_then(|other| {
            let key = if line["phase"] == "memory" {
                "rss_mib"
            } else {
                "cpu_ms_each"
            };
            Some((line[key].as_f64()?, other[key].as_f64()?)).filter(|(here, _)| *here > 0.0)
        });
        let ratio = ratio.map_or(String::new(), |(here, there)| format!("1/{:.1}", there / here));
        writeln!(
            table,
            "| {name} | {} | {} | {ratio} |",
            cell(line),
            other.map_or(String::new(), cell)
        )?;
    }
    Ok(table)
}

fn cell(line: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    if line["phase"] == "memory" {
        return format!("{:.0} MiB", number(&line["rss_mib"]));
    }
    let failed = match number(&line["failed"]) + number(&line["missing"]) {
        0.0 => String::new(),
        failed => format!(", **{failed} failed**"),
    };
    let cpu = match line["cpu_ms_each"].as_f64() {
        Some(cpu) => format!(", {cpu:.3} ms CPU"),
        None => String::new(),
    };
    format!(
        "{:.0} /s, p50 {:.1} ms, p99 {:.1} ms{cpu}{failed}",
        number(&line["per_second"]),
        number(&line["ms"]["p50"]),
        number(&line["ms"]["p99"]),
    )
}
