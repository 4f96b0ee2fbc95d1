//! How long tool output is kept (contract B).

use evidence_core::retention::{self, OwnerState as State};
use evidence_store::tool_output::retention as stored;

use crate::bindings::exports::bounded_evidence::evidence::retention::{
    Error, Guest, Owner, OwnerState, SessionCapture, SessionJob, StoredCapture, StoredJob, Swept,
};
use crate::tool_output::{OUTPUTS, session_id};
use crate::{Component, now};

impl From<OwnerState> for State {
    fn from(state: OwnerState) -> Self {
        match state {
            OwnerState::Active => Self::Active,
            OwnerState::Inactive(since_ms) => Self::Inactive { since_ms },
            OwnerState::Unknown => Self::Unknown,
            OwnerState::Missing => Self::Missing,
        }
    }
}

impl From<State> for OwnerState {
    fn from(state: State) -> Self {
        match state {
            State::Active => Self::Active,
            State::Inactive { since_ms } => Self::Inactive(since_ms),
            State::Unknown => Self::Unknown,
            State::Missing => Self::Missing,
        }
    }
}

impl From<stored::StoredJob> for StoredJob {
    fn from(stored: stored::StoredJob) -> Self {
        let capture = |capture: stored::StoredCapture| StoredCapture {
            process_id: capture.process_id.to_string(),
            bytes: capture.bytes,
            expires_at_ms: capture.expires_at_ms,
        };
        Self {
            job: stored.job.to_string(),
            owner: stored.owner.into(),
            artifact_bytes: stored.artifact_bytes,
            expires_at_ms: stored.expires_at_ms,
            captures: stored.captures.into_iter().map(capture).collect(),
        }
    }
}

impl From<stored::Swept> for Swept {
    fn from(swept: stored::Swept) -> Self {
        let jobs = swept.jobs.iter().map(|(session, job)| SessionJob {
            session: session.to_string(),
            job: job.to_string(),
        });
        let captures = swept.captures.iter();
        let captures = captures.map(|(session, job, process_id)| SessionCapture {
            session: session.to_string(),
            job: job.to_string(),
            process_id: process_id.to_string(),
        });
        Self {
            now_ms: swept.now_ms,
            jobs: jobs.collect(),
            captures: captures.collect(),
        }
    }
}

impl Guest for Component {
    fn expired_jobs(now_ms: u64, owners: Vec<Owner>) -> Vec<String> {
        let owners = owners.into_iter();
        retention::expired_jobs(now_ms, owners.map(|owner| (owner.job, owner.state.into())))
    }

    fn is_capture_expired(now_ms: u64, ended_at_ms: u64) -> bool {
        retention::is_capture_expired(now_ms, ended_at_ms)
    }

    fn stored_jobs(session: String) -> Result<Vec<StoredJob>, Error> {
        let session = session_id(&session)?;
        let jobs = now(OUTPUTS.stored_jobs())?.into_iter();
        let own = jobs.filter(|job| job.session == session);
        Ok(own.map(StoredJob::from).collect())
    }

    fn plan_sweep(wall_ms: u64, limit_ms: Option<u64>) -> Result<Swept, Error> {
        Ok(now(OUTPUTS.plan_sweep(wall_ms, limit_ms))?.into())
    }

    fn sweep(wall_ms: u64, limit_ms: Option<u64>) -> Result<Swept, Error> {
        Ok(now(OUTPUTS.sweep(wall_ms, limit_ms))?.into())
    }
}
