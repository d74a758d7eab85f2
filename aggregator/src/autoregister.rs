//! Keeps an APIService for every group version that is served here.
//!
//! Built-in ones (`onstart`) are created and repaired at start, and recreated when deleted; those of CRDs (`true`) are kept
//! as they should be at any time and go with their CRD. An APIService without the label is its owner's and never touched.
//! Mirrors upstream's `autoregister_controller.go`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::future::join_all;
use generic_server::admission::AdmissionChain;
use generic_server::discovery::DiscoverySource;
use generic_server::registry::cache::Snapshot;
use generic_server::request::Authorized;
use generic_server::resource::ServedResource;
use generic_server::write::{self, DeleteOptions, Preconditions, UpdateRules, WriteCall};
use machinery::{ApiError, Reason, meta};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::apiservice::{self, GROUP, VERSION};
use crate::local::{CUSTOM_PRIORITY, LocalVersion, Priorities};

/// The label that says how an APIService is managed.
const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Keeps the APIServices of local group versions.
#[derive(Debug)]
pub(crate) struct AutoRegister {
    resource: Arc<ServedResource>,
    sources: Vec<Arc<dyn DiscoverySource>>,
    priorities: Priorities,
    /// Built-in ones that have been repaired once: later edits are respected.
    reconciled: Mutex<BTreeSet<String>>,
    quiet: Mutex<Quiet>,
}

/// APIServices without a difference: the compared revision, and the wanted spec.
type Quiet = HashMap<String, (u64, Option<LocalVersion>)>;

/// An APIService that is there.
struct Live<'a> {
    name: &'a str,
    revision: u64,
    read: &'a dyn Fn() -> Value,
}

/// The action for one APIService.
#[derive(Debug, PartialEq)]
enum Step {
    Create(Value),
    /// Its spec should be this one.
    Repair(Value),
    /// It is of this uid.
    Delete(String),
    /// It is served here and does not say that it is available.
    Confirm,
}

impl AutoRegister {
    pub(crate) fn new(
        resource: Arc<ServedResource>,
        sources: Vec<Arc<dyn DiscoverySource>>,
        priorities: Priorities,
    ) -> Self {
        AutoRegister {
            resource,
            sources,
            priorities,
            reconciled: Mutex::default(),
            quiet: Mutex::default(),
        }
    }

    /// Every group version that is served here, by the name of its APIService.
    fn wanted(&self) -> BTreeMap<String, LocalVersion> {
        let mut wanted = BTreeMap::new();
        for source in &self.sources {
            for group in source.groups().iter() {
                for version in &group.versions {
                    let name = format!("{}.{}", version.version, group.group);
                    wanted.entry(name).or_insert_with(|| {
                        let builtin = (self.priorities)(&group.group, &version.version);
                        LocalVersion {
                            group: group.group.to_string(),
                            version: version.version.to_string(),
                            priority: builtin.unwrap_or(CUSTOM_PRIORITY),
                            custom: builtin.is_none(),
                        }
                    });
                }
            }
        }
        wanted
    }

    /// Brings the APIServices in step, all at once.
    ///
    /// # Errors
    /// The first that cannot be written; the others may have been.
    pub(crate) async fn sync(&self, snapshot: &Snapshot) -> Result<(), ApiError> {
        let wanted = self.wanted();
        let steps = {
            let (reconciled, mut quiet) = (self.reconciled.lock(), self.quiet.lock());
            let mut plan = Plan::new(&wanted, &reconciled, &mut quiet);
            for entry in snapshot.objects.values() {
                plan.diff_one(&Live {
                    name: entry.name(),
                    revision: entry.revision.0,
                    read: &|| entry.value(),
                });
            }
            plan.finish()
        };
        let outcomes = join_all(steps.iter().map(|(name, step)| self.execute_step(name, step))).await;
        outcomes.into_iter().collect::<Result<Vec<()>, _>>()?;
        let mut reconciled = self.reconciled.lock();
        reconciled.extend(
            wanted
                .into_iter()
                .filter(|(_, v)| !v.custom)
                .map(|(name, _)| name),
        );
        Ok(())
    }

    async fn removed_damaged(&self, name: &str) -> Result<bool, ApiError> {
        match self.resource.store() {
            Some(store) => store.as_system().remove_damaged("", name).await,
            None => Ok(false),
        }
    }

    async fn execute_step(&self, name: &str, step: &Step) -> Result<(), ApiError> {
        let (authorized, none) = (Authorized::system(), AdmissionChain::default());
        let call = WriteCall::internal(&self.resource, &authorized, &none, "");
        let outcome = match step {
            Step::Create(object) => match write::create(&call, object.clone()).await {
                // All of it is known here: a damaged one is no reason not to serve its group.
                Err(error)
                    if error.reason() == Reason::AlreadyExists && self.removed_damaged(name).await? =>
                {
                    tracing::warn!(name, "a damaged APIService of a local group version is recreated");
                    write::create(&call, object.clone()).await.map(|_| ())
                }
                done => done.map(|_| ()),
            },
            Step::Repair(spec) => {
                let rules = UpdateRules {
                    retry: true,
                    ..UpdateRules::default()
                };
                let mut transform = |live: Option<&Value>| {
                    let mut object = live.cloned().unwrap_or_default();
                    if managed(&object).is_some() {
                        object["spec"] = spec.clone();
                    }
                    Ok(object)
                };
                write::update(&call, name, &rules, &mut transform)
                    .await
                    .map(|_| ())
            }
            Step::Delete(uid) => {
                let options = DeleteOptions {
                    preconditions: Preconditions {
                        uid: Some(uid.clone()),
                        ..Preconditions::default()
                    },
                    ..DeleteOptions::default()
                };
                write::delete(&call, name, &options).await.map(|_| ())
            }
            Step::Confirm => {
                crate::available::write_status(&self.resource, name, &mut |object| {
                    if needs_confirming(object) {
                        crate::available::replace_condition(object, apiservice::local_condition());
                        return true;
                    }
                    false
                })
                .await
            }
        };
        match outcome {
            // Another writer was faster: its write is read next.
            Err(error)
                if matches!(
                    error.reason(),
                    Reason::AlreadyExists | Reason::NotFound | Reason::Conflict
                ) =>
            {
                Ok(())
            }
            done => done,
        }
    }
}

fn managed(object: &Value) -> Option<&str> {
    meta::labels(object)?
        .get(LABEL)?
        .as_str()
        .filter(|how| matches!(*how, "true" | "onstart"))
}

fn needs_confirming(object: &Value) -> bool {
    let local = !meta::dig(object, &["spec", "service"]).is_some_and(Value::is_object);
    local
        && apiservice::condition(object, "Available").is_none_or(|c| meta::dig_str(c, &["reason"]) != "Local")
}

fn spec_of(version: &LocalVersion) -> Value {
    let priority = version.priority;
    let mut spec = json!({
        "version": version.version, "groupPriorityMinimum": priority.0, "versionPriority": priority.1,
    });
    if !version.group.is_empty() {
        spec["group"] = version.group.as_str().into();
    }
    spec
}

/// The actions of one pass, computed APIService by APIService.
struct Plan<'a> {
    missing: BTreeMap<&'a String, &'a LocalVersion>,
    reconciled: &'a BTreeSet<String>,
    /// As it was, and as it will be.
    quiet: (&'a mut Quiet, Quiet),
    steps: Vec<(String, Step)>,
}

impl<'a> Plan<'a> {
    fn new(
        wanted: &'a BTreeMap<String, LocalVersion>,
        reconciled: &'a BTreeSet<String>,
        quiet: &'a mut Quiet,
    ) -> Self {
        Plan {
            missing: wanted.iter().collect(),
            reconciled,
            quiet: (quiet, Quiet::new()),
            steps: Vec::new(),
        }
    }

    fn diff_one(&mut self, live: &Live<'_>) {
        let name = live.name.to_string();
        let desired = self.missing.remove(&name);
        let state = (live.revision, desired.cloned());
        // One without a difference is not read again until it, or its wanted spec, changes.
        if self.quiet.0.get(live.name) == Some(&state) {
            self.quiet.1.insert(name, state);
            return;
        }
        match self.step(&(live.read)(), &name, desired) {
            Some(step) => self.steps.push((name, step)),
            None => {
                self.quiet.1.insert(name, state);
            }
        }
    }

    fn step(&self, object: &Value, name: &str, desired: Option<&LocalVersion>) -> Option<Step> {
        let confirm = || needs_confirming(object).then_some(Step::Confirm);
        let Some(how) = managed(object) else {
            return confirm();
        };
        let step = match desired {
            // An APIService that is labelled `onstart` while the server runs is to be deleted at the next start.
            None if how == "onstart" && !self.reconciled.is_empty() => None,
            None => Some(Step::Delete(meta::uid(object).to_string())),
            Some(desired) if !desired.custom && self.reconciled.contains(name) => None,
            Some(desired) => {
                let spec = spec_of(desired);
                (object.get("spec") != Some(&spec)).then_some(Step::Repair(spec))
            }
        };
        step.or_else(confirm)
    }

    /// The steps, with those for missing APIServices.
    fn finish(mut self) -> Vec<(String, Step)> {
        for (name, version) in self.missing {
            let how = if version.custom { "true" } else { "onstart" };
            let object = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "APIService",
                "metadata": {"name": name, "labels": {LABEL: how}},
                "spec": spec_of(version),
            });
            self.steps.push((name.clone(), Step::Create(object)));
        }
        *self.quiet.0 = self.quiet.1;
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(all: &[(&str, &str, bool)]) -> BTreeMap<String, LocalVersion> {
        let one = |(group, version, custom): &(&str, &str, bool)| {
            let version = LocalVersion {
                group: (*group).into(),
                version: (*version).into(),
                priority: match custom {
                    true => CUSTOM_PRIORITY,
                    false => (17_800, 15),
                },
                custom: *custom,
            };
            (format!("{}.{group}", version.version), version)
        };
        all.iter().map(one).collect()
    }

    fn live(name: &str, how: &str, spec: Value) -> Value {
        let labels = if how.is_empty() {
            json!({})
        } else {
            json!({LABEL: how})
        };
        json!({"metadata": {"name": name, "uid": "u", "labels": labels}, "spec": spec,
               "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]}})
    }

    #[track_caller]
    fn check(
        wanted: &BTreeMap<String, LocalVersion>,
        live: Vec<Value>,
        reconciled: &[&str],
        expected: &[&str],
    ) {
        let reconciled = reconciled.iter().map(|s| (*s).to_string()).collect();
        let mut quiet = Quiet::new();
        let mut steps = Vec::new();
        // The second time those that were fine are not read again, and the plan is the same.
        for _ in 0..2 {
            let mut plan = Plan::new(wanted, &reconciled, &mut quiet);
            for object in &live {
                plan.diff_one(&Live {
                    name: meta::name(object),
                    revision: 1,
                    read: &|| object.clone(),
                });
            }
            steps = plan.finish();
        }
        let actual: Vec<String> = steps
            .iter()
            .map(|(name, step)| match step {
                Step::Create(object) => format!("create {name} {}", object["spec"]["groupPriorityMinimum"]),
                Step::Repair(spec) => format!("repair {name} {}", spec["versionPriority"]),
                Step::Delete(uid) => format!("delete {name} {uid}"),
                Step::Confirm => format!("confirm {name}"),
            })
            .collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn steps() {
        let apps = wanted(&[("apps", "v1", false)]);
        let good = spec_of(&apps["v1.apps"]);
        let mut edited = good.clone();
        edited["versionPriority"] = 3.into();
        check(&apps, vec![], &[], &["create v1.apps 17800"]);
        check(&apps, vec![], &["v1.apps"], &["create v1.apps 17800"]);
        check(&apps, vec![live("v1.apps", "onstart", good.clone())], &[], &[]);
        check(
            &apps,
            vec![live("v1.apps", "onstart", edited.clone())],
            &[],
            &["repair v1.apps 15"],
        );
        check(
            &apps,
            vec![live("v1.apps", "onstart", edited.clone())],
            &["v1.apps"],
            &[],
        );
        check(&apps, vec![live("v1.apps", "", edited)], &[], &[]);

        let custom = wanted(&[("a.io", "v1", true)]);
        let good = spec_of(&custom["v1.a.io"]);
        let mut edited = good.clone();
        edited["versionPriority"] = 3.into();
        check(&custom, vec![], &["x"], &["create v1.a.io 1000"]);
        check(
            &custom,
            vec![live("v1.a.io", "true", edited.clone())],
            &["x"],
            &["repair v1.a.io 100"],
        );
        check(&custom, vec![live("v1.a.io", "", edited)], &["x"], &[]);

        let none = wanted(&[]);
        check(
            &none,
            vec![live("v1.a.io", "true", good.clone())],
            &["x"],
            &["delete v1.a.io u"],
        );
        check(&none, vec![live("v1.a.io", "", good.clone())], &["x"], &[]);
        check(
            &none,
            vec![live("v9.apps", "onstart", good.clone())],
            &[],
            &["delete v9.apps u"],
        );
        check(&none, vec![live("v9.apps", "onstart", good.clone())], &["x"], &[]);

        let mut unsaid = live("v1.b.io", "", good.clone());
        unsaid["status"] = json!({});
        check(&none, vec![unsaid.clone()], &["x"], &["confirm v1.b.io"]);
        unsaid["spec"]["service"] = json!({"name": "s"});
        check(&none, vec![unsaid], &["x"], &[]);
    }
}
