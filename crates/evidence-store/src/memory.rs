//! A store that lives as long as its process or page.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;

use crate::store::{Batch, Key, Store, StoreError};

/// Keeps everything in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: RwLock<BTreeMap<Key, Bytes>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

// A panic while the lock is held cannot leave a batch half applied: the changes themselves do not
// panic. That is why a poisoned lock is entered all the same.
impl Store for MemoryStore {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        Ok(keys.iter().map(|key| values.get(key).cloned()).collect())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        Ok(values
            .range(Key::new(prefix)..)
            .map(|(key, _)| key)
            .take_while(|key| key.as_str().starts_with(prefix))
            .cloned()
            .collect())
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        let met = |(key, expectation): &(Key, crate::Expectation)| {
            expectation.is_met_by(values.get(key).map(|value| &value[..]))
        };
        if !batch.expect.iter().all(met) {
            return Err(StoreError::Conflict);
        }
        for key in &batch.delete {
            values.remove(key);
        }
        values.extend(batch.put);
        Ok(())
    }
}
