//! Attacks on a server with flags of its own: how others fare beside them.

use crate::prober::Prober;
use crate::{Bound, Error, Outcome, Server};

/// Plays something against a server while others ask it, and says how they fared: latencies and memory are held against the bound.
pub(crate) async fn beside_others(
    server: &Server,
    bound: &Bound,
    attack: impl Future<Output = Result<Outcome, Error>>,
) -> Result<Outcome, Error> {
    let prober = Prober::start(&server.target, server.pid(), true);
    let played = attack.await;
    // It ends within moments of its last request.
    let strain = tokio::task::spawn_blocking(move || prober.end()).await?;
    let mut outcome = played?;
    for fault in strain.faults(bound) {
        outcome.broke(fault);
    }
    let note = strain.describe();
    outcome.note = match outcome.note.as_str() {
        "" => note,
        before => format!("{before}; {note}"),
    };
    Ok(outcome)
}
