//! Plays attacks, and reports them: a line of JSON each, and tables of such lines.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::prober::Prober;
use crate::{Arena, Attack, Error, Outcome, Place, Server, Site, Strain};

/// How the attacks are played.
#[derive(Debug, Default)]
pub struct Plan {
    /// Only those whose name or finding has this.
    pub only: Option<String>,
    /// Only the quick ones.
    pub quick: bool,
}

impl Plan {
    fn has(&self, attack: &Attack) -> bool {
        let all = crate::attacks::all();
        let named = self.only.as_deref().is_none_or(|only| {
            let is_finding = all.iter().any(|attack| attack.finding == only);
            match is_finding {
                true => attack.finding == only,
                false => attack.name.to_lowercase().contains(&only.to_lowercase()),
            }
        });
        named && (!self.quick || attack.place == Place::Quick)
    }
}

/// Plays attacks one after another, those that mostly wait beside each other, and hands each line to `said`. A server that was started
/// here is restarted where an attack broke it.
///
/// # Errors
/// When there is no server to attack.
pub async fn play(
    site: Site,
    mut server: Option<Server>,
    plan: &Plan,
    mut said: impl FnMut(&Value),
) -> Result<(), Error> {
    let mut arena = Arena::build(site).await?;
    let chosen: Vec<Attack> = crate::attacks::all()
        .into_iter()
        .filter(|a| plan.has(a))
        .collect();
    for attack in chosen.iter().filter(|attack| attack.place != Place::Patient) {
        // Those with a server of their own say nothing about this one.
        let watched = if attack.place == Place::Own {
            None
        } else {
            arena.pid
        };
        let prober = Prober::start(&arena.target, watched, server.is_some());
        let outcome = arena.play(attack).await;
        let line = line(attack, &outcome, &prober.end());
        said(&line);
        if line["verdict"] == "falls"
            && let Some(broken) = &mut server
        {
            // Whether it still computes, or holds what it took: the next attack finds a fresh one.
            let fresh = Server::start(&broken.binary, &[]).await?;
            arena = Arena::build(Site::of(&fresh)).await?;
            *broken = fresh;
        }
    }
    let patient: Vec<&Attack> = chosen
        .iter()
        .filter(|attack| attack.place == Place::Patient)
        .collect();
    if patient.is_empty() {
        return Ok(());
    }
    let prober = Prober::start(&arena.target, arena.pid, server.is_some());
    let arena = std::sync::Arc::new(arena);
    let mut playing = tokio::task::JoinSet::new();
    for attack in patient {
        let (arena, attack) = (arena.clone(), attack.clone());
        playing.spawn(async move {
            let outcome = arena.play(&attack).await;
            (attack, outcome)
        });
    }
    let mut played = Vec::new();
    while let Some(one) = playing.join_next().await {
        played.push(one?);
    }
    let strain = prober.end();
    for (attack, outcome) in &played {
        said(&line(attack, outcome, &strain));
    }
    Ok(())
}

/// The outcome of an attack, and the verdict.
fn line(attack: &Attack, outcome: &Outcome, strain: &Strain) -> Value {
    let bound = &attack.bound;
    let mut faults = bound.faults(outcome);
    if attack.place != Place::Own {
        faults.extend(strain.faults(bound));
    }
    let verdict = match (&outcome.skipped, faults.is_empty()) {
        (Some(_), _) => "skipped",
        (None, true) => "holds",
        (None, false) => "falls",
    };
    json!({
        "attack": attack.name, "finding": attack.finding, "bound": bound.describe(), "verdict": verdict,
        "seen": seen(attack, outcome, strain), "faults": faults,
    })
}

fn seen(attack: &Attack, outcome: &Outcome, strain: &Strain) -> String {
    if let Some(why) = &outcome.skipped {
        return why.clone();
    }
    let mut parts = Vec::new();
    let codes: Vec<String> = outcome
        .codes
        .iter()
        .map(|(code, count)| {
            let code = if *code == 0 {
                "closed".into()
            } else {
                code.to_string()
            };
            if *count == 1 {
                code
            } else {
                format!("{code} x {count}")
            }
        })
        .collect();
    if !codes.is_empty() {
        parts.push(codes.join(", "));
    }
    if outcome.largest > 1024 {
        parts.push(format!("{} KiB", outcome.largest / 1024));
    }
    parts.extend(outcome.broken.clone());
    if !outcome.note.is_empty() && outcome.broken.as_ref() != Some(&outcome.note) {
        parts.push(outcome.note.clone());
    }
    if attack.place != Place::Own {
        parts.push(strain.describe());
    }
    parts.join("; ")
}

/// The head of a table of attacks.
pub const HEAD: &str = "| finding | attack | bound | seen | verdict |\n|---|---|---|---|---|";

/// A row of a table.
pub fn row(line: &Value) -> String {
    let cell = |key: &str| line[key].as_str().unwrap_or_default().replace('|', "\\|");
    format!(
        "| {} | {} | {} | {} | {} |",
        cell("finding"),
        cell("attack"),
        cell("bound"),
        cell("seen"),
        cell("verdict")
    )
}

/// Two plays side by side, as Markdown.
///
/// # Errors
/// When a file is no such play.
pub fn compare(before: &Path, after: &Path) -> Result<String, Error> {
    let read = |path: &Path| -> Result<Vec<Value>, Error> {
        let text = std::fs::read_to_string(path)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    let (before, after) = (read(before)?, read(after)?);
    let mut table = String::from("| finding | attack | bound | before | after |\n|---|---|---|---|---|\n");
    let text = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap_or_default().replace('|', "\\|");
        format!("{}: {}", text("verdict"), text("seen"))
    };
    for line in &before {
        let other = after.iter().find(|other| other["attack"] == line["attack"]);
        writeln!(
            table,
            "| {} | {} | {} | {} | {} |",
            line["finding"].as_str().unwrap_or_default(),
            line["attack"].as_str().unwrap_or_default().replace('|', "\\|"),
            line["bound"].as_str().unwrap_or_default(),
            text(line),
            other.map_or(String::new(), text),
        )?;
    }
    Ok(table)
}
