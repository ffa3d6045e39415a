//! Whose a container id or a snapshot key is, as the last looks said: so that an event names its instance.
//!
//! A hint only. What is not in it wakes the whole domain.

use crate::model::{InstanceKey, RuntimeSide};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ids of containers and keys of snapshots, as large as the last whole look plus what was made since.
#[derive(Debug, Default)]
pub struct Known {
    owners: Mutex<HashMap<String, InstanceKey>>,
}

impl Known {
    /// Takes a whole look in.
    pub fn replace(&self, instances: &BTreeMap<InstanceKey, RuntimeSide>) {
        let mut owners = self.lock();
        owners.clear();
        for (key, side) in instances {
            owners.extend(ids(side).map(|id| (id, key.clone())));
        }
    }

    /// Takes a look at one instance in. What is gone stays known until the next whole look: its last events are on
    /// their way.
    pub fn update(&self, key: &InstanceKey, side: &RuntimeSide) {
        self.lock().extend(ids(side).map(|id| (id, key.clone())));
    }

    /// Something is about to be made.
    pub fn add(&self, id: &str, key: &InstanceKey) {
        self.lock().insert(id.to_owned(), key.clone());
    }

    /// Whose it is.
    pub fn owner(&self, id: &str) -> Option<InstanceKey> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, InstanceKey>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ids(side: &RuntimeSide) -> impl Iterator<Item = String> {
    let containers = side.containers.iter().map(|container| container.id.clone());
    containers.chain(side.snapshots.iter().map(|snapshot| snapshot.key.clone()))
}
