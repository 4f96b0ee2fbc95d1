//! The host's blobs as a store.

use bytes::Bytes;
use evidence_store::{Batch, Expectation, Key, Store, StoreError};

use crate::bindings::bounded_evidence::evidence::blobs;

/// The blobs that the host supplies. What they answer is checked before it is used.
#[derive(Debug, Clone, Copy)]
pub struct HostBlobs;

impl From<blobs::Error> for StoreError {
    fn from(error: blobs::Error) -> Self {
        match error {
            blobs::Error::Conflict => Self::Conflict,
            blobs::Error::Exhausted => Self::Exhausted,
            blobs::Error::Unavailable(reason) => Self::Unavailable { reason },
            blobs::Error::Damaged(reason) => Self::Damaged { reason },
        }
    }
}

fn damaged(reason: &str) -> StoreError {
    StoreError::Damaged {
        reason: reason.to_owned(),
    }
}

impl Store for HostBlobs {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let names: Vec<&str> = keys.iter().map(Key::as_str).collect();
        let values = blobs::get(&names)?;
        if values.len() != keys.len() {
            return Err(damaged("get answered another number of values than keys"));
        }
        let values = values.into_iter();
        Ok(values.map(|value| value.map(Bytes::from)).collect())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        let mut keys = blobs::list(prefix)?;
        if keys.iter().any(|key| !key.starts_with(prefix)) {
            return Err(damaged("list answered a key that lacks the prefix"));
        }
        keys.sort_unstable();
        Ok(keys.into_iter().map(Key::new).collect())
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        let Batch {
            expect,
            put,
            delete,
        } = &batch;
        let expect: Vec<_> = expect.iter().map(expectation).collect();
        let put: Vec<_> = put
            .iter()
            .map(|(key, value)| blobs::Entry {
                key: key.as_str(),
                value,
            })
            .collect();
        let delete: Vec<&str> = delete.iter().map(Key::as_str).collect();
        Ok(blobs::commit(blobs::Batch {
            expect: &expect,
            put: &put,
            delete: &delete,
        })?)
    }
}

fn expectation((key, expectation): &(Key, Expectation)) -> blobs::Expectation<'_> {
    blobs::Expectation {
        key: key.as_str(),
        value: match expectation {
            Expectation::Absent => None,
            Expectation::Value(value) => Some(value),
        },
    }
}
