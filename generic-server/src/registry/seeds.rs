//! States of caches that those of a fork begin with, so that a fork reads and decodes nothing again.
//!
//! A state is that of a revision in the fork's own log: the cache takes it over and follows the log from there, as it does after a list.

use std::collections::HashMap;
use std::sync::Arc;

use super::budget::Budget;
use super::cache::Snapshot;
use super::config::StoreConfig;
use super::forms::FormCache;
use super::store::ObjectStore;

/// The states of the caches of one server, taken before its engine was frozen.
#[derive(Debug)]
pub struct Seeds {
    states: HashMap<String, (StoreConfig, Arc<Snapshot>)>,
    /// Forms are kept with the objects that both have, so that they are counted once.
    forms: Arc<FormCache>,
}

impl Seeds {
    /// What the caches of these stores know. A cache that does not follow its engine is left out.
    pub fn of<'a>(stores: impl IntoIterator<Item = &'a Arc<ObjectStore>>, budget: &Budget) -> Arc<Seeds> {
        let state = |store: &Arc<ObjectStore>| {
            let known = store.started_cache()?.vouched_for()?;
            Some((store.config().prefix.clone(), (store.config().clone(), known)))
        };
        Arc::new(Seeds {
            states: stores.into_iter().filter_map(state).collect(),
            forms: budget.forms().clone(),
        })
    }

    /// The state of a store's objects, where there is one and it has been read by the same rules.
    pub(super) fn state(&self, config: &StoreConfig) -> Option<Arc<Snapshot>> {
        let (of, state) = self.states.get(&config.prefix)?;
        of.reads_as(config).then(|| state.clone())
    }

    /// A budget for the past states of a fork, whose encoded forms are kept with those of what it was forked from.
    pub fn budget(&self, limit: usize) -> Arc<Budget> {
        Budget::with(limit, self.forms.clone())
    }
}
