//! Where a job's values stand. Ids hold no `/`, so that one job's prefix is never the start of
//! another's.

use evidence_core::process::Stream;
use evidence_core::{JobId, ProcessId, SessionId, Sha256Digest, ToolCallId};

use crate::blob::Place;
use crate::store::Key;

/// What the keys of all of a session's jobs begin with.
pub(super) fn session_prefix(session: &SessionId) -> String {
    format!("tool-output/{session}/")
}

/// The keys of one job of one session.
pub(super) struct JobKeys {
    owner: String,
    prefix: String,
}

impl JobKeys {
    pub(super) fn new(session: &SessionId, job: &JobId) -> Self {
        Self {
            owner: format!("job/{job}"),
            prefix: format!("{}{job}/", session_prefix(session)),
        }
    }

    /// What every key but the owner's begins with.
    pub(super) fn prefix(&self) -> String {
        self.prefix.clone()
    }

    /// The session that has the job id.
    pub(super) fn owner(&self) -> Key {
        Key::new(&self.owner)
    }

    pub(super) fn job(&self) -> Key {
        self.key("job")
    }

    pub(super) fn usage(&self) -> Key {
        self.key("usage")
    }

    pub(super) fn artifact_prefix(&self) -> String {
        format!("{}artifact/", self.prefix)
    }

    pub(super) fn artifact(&self, sha256: Sha256Digest) -> Place {
        Place {
            manifest: Key::new(format!("{}{sha256}", self.artifact_prefix())),
            chunk_prefix: format!("{}chunk/", self.prefix),
        }
    }

    /// Tool call ids are other people's text; their digest is a key in any store.
    pub(super) fn call(&self, call: &ToolCallId) -> Key {
        let sha256 = Sha256Digest::of(call.as_str().as_bytes());
        self.key(&format!("call/{sha256}"))
    }

    /// The record of a process.
    pub(super) fn process(&self, process: &ProcessId) -> Key {
        self.key(&format!("process/{process}"))
    }

    /// What the keys of a process's capture begin with.
    pub(super) fn capture_prefix(&self, process: &ProcessId) -> String {
        format!("{}capture/{process}/", self.prefix)
    }

    /// What a process wrote to a stream.
    pub(super) fn capture(&self, process: &ProcessId, stream: Stream) -> Place {
        let stream = stream.as_str();
        Place::under(&format!("{}{stream}/", self.capture_prefix(process)))
    }

    fn key(&self, name: &str) -> Key {
        Key::new(format!("{}{name}", self.prefix))
    }
}
