//! Where the page keeps artifacts: the browser's database, or memory where there is none.

use std::sync::Arc;

use bytes::Bytes;
use evidence_agent::process::ProcessHost;
use evidence_core::retention::OwnerState;
use evidence_core::{Generation, JobId, JobStatus, SessionId};
use evidence_store::tool_output::retention::StoredJob;
use evidence_store::{
    ArtifactStore, Batch, Key, MemoryStore, Scope, Store, StoreError, ToolOutputError, ToolOutputs,
};

use leptos::prelude::RwSignal;

#[cfg(target_arch = "wasm32")]
pub use evidence_store::HostLock;
#[cfg(target_arch = "wasm32")]
use evidence_store::IndexedDbStore;

use crate::browser;
use crate::player::{Player, Recording};

/// The page's artifacts.
pub type Artifacts = ArtifactStore<PageStore>;

/// The processes that this tab replays.
pub type Processes = ProcessHost<PageStore, Player>;

/// The page's artifacts among those of others that share the database.
const SCOPE: &str = "playground";

/// What the ids of the page's jobs begin with, among those that others create in its session.
const RUN: &str = "playground-";

/// One store behind one type, so that nothing else of the page knows which it is.
#[derive(Debug, Clone)]
pub enum PageStore {
    /// Artifacts survive a reload.
    #[cfg(target_arch = "wasm32")]
    IndexedDb(IndexedDbStore),
    /// Artifacts live as long as the page.
    Memory(Arc<MemoryStore>),
}

/// What both contracts keep, over one store.
#[derive(Debug, Clone)]
pub struct Storage {
    /// The artifacts of contract A.
    pub artifacts: Artifacts,
    /// The jobs and their tool output of contract B.
    pub outputs: ToolOutputs<PageStore>,
    /// The processes of this tab.
    pub processes: Processes,
    /// The session that owns the jobs: the same in every tab, and in the page's worker.
    pub session: SessionId,
}

/// What the page opened.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The storage, ready for use.
    pub storage: Storage,
    /// Why it will not survive a reload, if it will not.
    pub not_kept: Option<String>,
}

/// A run under contract B, from its start until the page lets go of it.
#[derive(Debug)]
pub struct RunJob {
    /// The job that holds its tool output.
    pub id: JobId,
    /// Tells other tabs that the run is not left behind.
    _lock: HostLock,
}

impl Storage {
    /// Creates the job of a run.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError`].
    pub async fn create_run_job(&self) -> Result<RunJob, ToolOutputError> {
        let id = format!("{RUN}{}", browser::random_id());
        // Names of this form are both.
        let lock = id.parse().map_err(|_| ToolOutputError::Unavailable)?;
        let id: JobId = id.parse().map_err(|_| ToolOutputError::Unavailable)?;
        let lock = HostLock::hold(&lock).await;
        let now_ms = browser::now_ms();
        self.outputs.create_job(&self.session, &id, now_ms).await?;
        Ok(RunJob { id, _lock: lock })
    }

    /// Cancels the runs that tabs left behind, which would keep their tool output forever; whether there
    /// were some.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError`].
    pub async fn cancel_left_runs(&self) -> Result<bool, ToolOutputError> {
        let mut any = false;
        if !HostLock::can_tell() {
            return Ok(any);
        }
        for StoredJob {
            session,
            job,
            owner,
            ..
        } in self.outputs.stored_jobs().await?
        {
            let is_open = session == self.session && owner == OwnerState::Active;
            let lock = job.as_str().parse::<Generation>();
            if let Ok(lock) = lock
                && is_open
                && job.as_str().starts_with(RUN)
                && !HostLock::is_held(&lock).await
            {
                let cancelled = JobStatus::Cancelled;
                let changed = self
                    .outputs
                    .set_status(&session, &job, cancelled, browser::now_ms());
                match changed.await {
                    // It was deleted meanwhile, or has ended and one of its processes runs.
                    Err(ToolOutputError::Unavailable | ToolOutputError::StatusChange { .. }) => {}
                    changed => any |= changed.map(|_| true)?,
                }
            }
        }
        Ok(any)
    }
}

/// Opens the browser's database, or memory in its place. Processes are those of `recording`.
pub async fn open(recording: RwSignal<Option<Recording>>) -> Result<Opened, String> {
    let scope: Scope = SCOPE
        .parse()
        .map_err(|error: evidence_store::artifacts::InvalidScope| error.to_string())?;
    let (store, not_kept) = match open_database().await {
        Ok(store) => (store, None),
        Err(error) => (
            PageStore::Memory(Arc::new(MemoryStore::new())),
            Some(error.to_string()),
        ),
    };
    let outputs = ToolOutputs::new(store.clone());
    let fresh = browser::random_id().parse();
    let fresh = fresh.map_err(|error: evidence_core::InvalidId| error.to_string())?;
    let session = outputs.own_session(fresh).await;
    let generation: Generation = browser::random_id()
        .parse()
        .map_err(|error: evidence_core::InvalidId| error.to_string())?;
    let player = Player::new(recording, HostLock::hold(&generation).await);
    let processes = ProcessHost::open(outputs.clone(), player, generation, browser::now_ms).await;
    let storage = Storage {
        processes: processes.map_err(|error| error.to_string())?,
        artifacts: ArtifactStore::new(store, scope),
        outputs,
        session: session.map_err(|error| error.to_string())?,
    };
    Ok(Opened { storage, not_kept })
}

#[cfg(target_arch = "wasm32")]
async fn open_database() -> Result<PageStore, StoreError> {
    IndexedDbStore::open(IndexedDbStore::DEFAULT_NAME)
        .await
        .map(PageStore::IndexedDb)
}

#[cfg(not(target_arch = "wasm32"))]
#[expect(clippy::unused_async, reason = "the browser's counterpart waits")]
async fn open_database() -> Result<PageStore, StoreError> {
    Err(StoreError::Unavailable {
        reason: "only browsers have IndexedDB".to_owned(),
    })
}

/// Tabs that share a database are a browser's.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
pub struct HostLock;

#[cfg(not(target_arch = "wasm32"))]
#[expect(clippy::unused_async, reason = "the browser's counterpart waits")]
impl HostLock {
    /// Holds nothing.
    pub async fn hold(_generation: &Generation) -> Self {
        Self
    }

    /// There are none.
    pub const fn can_tell() -> bool {
        false
    }

    /// There are no others.
    pub async fn is_held(_generation: &Generation) -> bool {
        false
    }
}

/// Asks the browser not to delete the artifacts when space runs short; whether it promised that.
#[cfg(target_arch = "wasm32")]
pub async fn persist() -> bool {
    evidence_store::persist().await
}

#[cfg(not(target_arch = "wasm32"))]
#[expect(clippy::unused_async, reason = "the browser's counterpart waits")]
pub async fn persist() -> bool {
    false
}

impl Store for PageStore {
    async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>, StoreError> {
        match self {
            #[cfg(target_arch = "wasm32")]
            Self::IndexedDb(store) => store.get(keys).await,
            Self::Memory(store) => store.get(keys).await,
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Key>, StoreError> {
        match self {
            #[cfg(target_arch = "wasm32")]
            Self::IndexedDb(store) => store.list(prefix).await,
            Self::Memory(store) => store.list(prefix).await,
        }
    }

    async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        match self {
            #[cfg(target_arch = "wasm32")]
            Self::IndexedDb(store) => store.commit(batch).await,
            Self::Memory(store) => store.commit(batch).await,
        }
    }
}
