//! The second round of mutating admission: when a webhook or policy has changed an object, every plugin sees it once more, and
//! of the webhooks and policies those that asked for it. Mirrors upstream's reinvocation contexts.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use serde_json::Value;

/// The state that the rounds of one write share.
#[derive(Debug, Default)]
pub struct Reinvocation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// This is the second round.
    second: bool,
    /// There has to be one.
    wanted: bool,
    plugins: HashMap<&'static str, Plugin>,
}

#[derive(Debug, Default)]
struct Plugin {
    /// Hooks that want to see later changes, invoked since the last change.
    invoked: BTreeSet<String>,
    /// Those that have a change to see.
    due: BTreeSet<String>,
    /// The object as the plugin left it.
    output: Option<Value>,
}

impl Plugin {
    fn changed(&mut self) {
        self.due.append(&mut self.invoked);
    }
}

impl Reinvocation {
    /// Begins the second round when one is wanted.
    pub(crate) fn again(&self) -> bool {
        let mut state = self.0.lock();
        let again = state.wanted && !state.second;
        state.second |= again;
        again
    }

    /// Whether this is the second round.
    pub(crate) fn is_second(&self) -> bool {
        self.0.lock().second
    }

    /// A plugin begins its part: in the second round it looks whether others have changed the object since.
    pub(crate) fn enter(&self, plugin: &'static str, object: Option<&Value>) {
        let mut state = self.0.lock();
        let second = state.second;
        let own = state.plugins.entry(plugin).or_default();
        if second && own.output.as_ref().is_some_and(|output| Some(output) != object) {
            own.changed();
        }
    }

    /// Whether a hook is called in this round.
    pub(crate) fn calls(&self, plugin: &'static str, hook: &str) -> bool {
        let state = self.0.lock();
        !state.second
            || state
                .plugins
                .get(plugin)
                .is_some_and(|own| own.due.contains(hook))
    }

    /// A hook has changed the object.
    pub(crate) fn changed(&self, plugin: &'static str) {
        let mut state = self.0.lock();
        state.wanted = true;
        state.plugins.entry(plugin).or_default().changed();
    }

    /// A hook that wants to see later changes was called.
    pub(crate) fn invoked(&self, plugin: &'static str, hook: &str) {
        let mut state = self.0.lock();
        let own = state.plugins.entry(plugin).or_default();
        own.invoked.insert(hook.to_string());
    }

    /// The object leaves a plugin that has called a webhook or policy.
    pub(crate) fn leave(&self, plugin: &'static str, object: Option<&Value>) {
        let mut state = self.0.lock();
        state.plugins.entry(plugin).or_default().output = object.cloned();
    }
}
