//! Creates at each level of auditing, on one server: the level is that of the namespace.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Request, Rows, Sent};
use crate::client::Error;

/// The policy that the server has to run with.
pub(crate) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, namespaces: [bench-metadata]}
- {level: Request, namespaces: [bench-request]}
- {level: RequestResponse, namespaces: [bench-requestresponse]}
- {level: None}
";

const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];
/// The levels take turns, so that all see the same server.
const TURNS: usize = 4;
/// Bytes of each object's data.
const SIZE: usize = 2048;

pub(super) async fn run(of: &Rows<'_>, print: &mut (dyn FnMut(Value) + Send)) -> Result<(), Error> {
    let namespaces = LEVELS.map(|level| format!("bench-{}", level.to_lowercase()));
    for name in &namespaces {
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        of.make("/api/v1/namespaces", &space).await?;
    }
    let each = of.access.count.div_ceil(TURNS);
    // Names of this run alone.
    let run = std::process::id();
    let mut sums = LEVELS.map(|_| Sent::default());
    // The first turn is not counted.
    for turn in 0..=TURNS {
        for (name, sum) in namespaces.iter().zip(&mut sums) {
            let path = format!("/api/v1/namespaces/{name}/configmaps");
            let create: Arc<Request> = Arc::new(move |index| {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("item-{run}-{index:07}")}, "data": {"text": "x".repeat(SIZE)}});
                ("POST", path.clone(), object.to_string().into())
            });
            let sent = of.send(of.target, (turn * each, each), &create).await?;
            if turn > 0 {
                sum.add(sent);
            }
        }
    }
    for (level, sum) in LEVELS.into_iter().zip(sums) {
        print(of.line(&format!("create, audit {level}"), sum));
    }
    Ok(())
}
