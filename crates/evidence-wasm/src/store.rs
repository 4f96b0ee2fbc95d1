//! Opening a store.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use evidence_store::{ArtifactStore, Batch, IndexedDbStore, Key, MemoryStore, Store, StoreError};
use wasm_bindgen::prelude::*;

use crate::argument::Argument;
use crate::artifacts::Artifacts;
use crate::error::{Failure, Result};
use crate::host_store::HostStore;
use crate::tool_output::ToolOutput;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** Where artifacts are kept. */
export type StoreOptions =
  /** As long as the page lives. */
  | {
      /** Which store this is. */
      kind: "memory";
    }
  /** In a database of this origin, "bounded-evidence" when no name is given. */
  | {
      /** Which store this is. */
      kind: "indexeddb";
      /** The name of the database. */
      name?: string;
    }
  /** Where the host keeps them. */
  | {
      /** Which store this is. */
      kind: "custom";
      /** The host's own. */
      store: Store;
    };
"#;

/// One of the stores that a page can have.
#[derive(Debug, Clone)]
pub enum AnyStore {
    Memory(Arc<MemoryStore>),
    IndexedDb(IndexedDbStore),
    Host(HostStore),
}

impl Store for AnyStore {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        match self {
            Self::Memory(store) => store.get(keys).await,
            Self::IndexedDb(store) => store.get(keys).await,
            Self::Host(store) => store.get(keys).await,
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        match self {
            Self::Memory(store) => store.list(prefix).await,
            Self::IndexedDb(store) => store.list(prefix).await,
            Self::Host(store) => store.list(prefix).await,
        }
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.commit(batch).await,
            Self::IndexedDb(store) => store.commit(batch).await,
            Self::Host(store) => store.commit(batch).await,
        }
    }
}

/// Opens a store.
///
/// Rejects with the code `storage_unavailable` when the browser lets this page store nothing, and
/// when another tab holds an older form of the database open.
#[wasm_bindgen(js_name = openStore)]
pub async fn open_store(
    #[wasm_bindgen(unchecked_param_type = "StoreOptions")] options: JsValue,
) -> Result<EvidenceStore> {
    let options = Argument::new("options", options);
    let store = match options.field("kind")?.text()?.as_str() {
        "memory" => AnyStore::Memory(Arc::default()),
        "indexeddb" => {
            let name = match options.field("name")?.optional() {
                Some(name) => name.text()?,
                None => IndexedDbStore::DEFAULT_NAME.to_owned(),
            };
            AnyStore::IndexedDb(IndexedDbStore::open(&name).await?)
        }
        "custom" => AnyStore::Host(HostStore::new(&options.field("store")?)?),
        _ => {
            return Err(Failure::invalid(
                "options.kind must be \"memory\", \"indexeddb\" or \"custom\"",
            ));
        }
    };
    Ok(EvidenceStore {
        store,
        last_sweep: Cell::new(None),
    })
}

/// Asks the browser to keep this origin's data until the user deletes it, and says whether it was
/// granted. Without it a browser that runs short of space may evict everything. Only a window can
/// ask; in a worker the answer is false.
#[wasm_bindgen]
pub async fn persist() -> bool {
    evidence_store::persist().await
}

/// The last sweep of a store by this host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastSweep {
    /// How far the time had got that retention goes by.
    pub now_ms: u64,
    /// When it was, by the monotonic clock.
    pub at: f64,
}

/// An open store.
#[derive(Debug)]
#[wasm_bindgen]
pub struct EvidenceStore {
    store: AnyStore,
    last_sweep: Cell<Option<LastSweep>>,
}

impl EvidenceStore {
    pub(crate) const fn store(&self) -> &AnyStore {
        &self.store
    }

    pub(crate) const fn last_sweep(&self) -> Option<LastSweep> {
        self.last_sweep.get()
    }

    pub(crate) fn set_last_sweep(&self, last: LastSweep) {
        self.last_sweep.set(Some(last));
    }
}

#[wasm_bindgen]
impl EvidenceStore {
    /// The artifacts of one scope, for example of one job. A scope does not answer for what another
    /// registered, and deleting one leaves the others.
    ///
    /// Throws with the code `invalid_argument` unless the scope is 1 to 128 of `A-Z a-z 0-9 . _ -`.
    pub fn artifacts(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] scope: JsValue,
    ) -> Result<Artifacts> {
        let scope = Argument::new("scope", scope).parsed()?;
        Ok(Artifacts::new(ArtifactStore::new(
            self.store.clone(),
            scope,
        )))
    }

    /// The tool output of one session (contract B): structured results, bounded, stored and read by
    /// cursor. What another session owns is not there for this one.
    ///
    /// The session is the caller's word for who is asking: whoever has this object is that session.
    /// Throws with the code `invalid_argument` unless it is 1 to 128 of `A-Z a-z 0-9 . _ -`.
    #[wasm_bindgen(js_name = toolOutput)]
    pub fn tool_output(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] session: JsValue,
    ) -> Result<ToolOutput> {
        let session = Argument::new("session", session).parsed()?;
        Ok(ToolOutput::new(self.store.clone(), session))
    }
}
