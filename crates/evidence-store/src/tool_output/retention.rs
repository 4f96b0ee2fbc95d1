//! Sweeps: what has expired is found by the rules of [`evidence_core::retention`] and deleted, each
//! job and each capture in one transaction.

use std::collections::BTreeMap;

use bytes::Bytes;
use evidence_core::process::ProcessStatus;
use evidence_core::retention::{
    ARTIFACT_LIFETIME_MS, CAPTURE_LIFETIME_MS, OwnerState, RetentionClock, expired_jobs,
    is_capture_expired,
};
use evidence_core::{JobId, ProcessId, SessionId};

use super::keys::JobKeys;
use super::processes::ProcessRecord;
use super::{JobRecord, JobUsage, ToolOutputError, ToolOutputs};
use crate::record::Record;
use crate::store::{Batch, Expectation, Key, Store, StoreError};

/// Where the [`RetentionClock`] stands.
const CLOCK: &str = "retention/clock";
/// What the keys of all jobs begin with.
const JOBS: &str = "tool-output/";

/// What is stored of a job, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredJob {
    /// Whose job it is.
    pub session: SessionId,
    /// The job.
    pub job: JobId,
    /// Whether the job has ended.
    pub owner: OwnerState,
    /// The bytes of its artifacts; 0 where its counters cannot be read.
    pub artifact_bytes: u64,
    /// When its artifacts expire, in milliseconds since 1970; none while the job keeps them.
    pub expires_at_ms: Option<u64>,
    /// What was captured of its processes.
    pub captures: Vec<StoredCapture>,
}

/// A capture, and until when it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCapture {
    /// Of which process.
    pub process_id: ProcessId,
    /// The bytes of both streams.
    pub bytes: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: u64,
}

/// What a sweep deletes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Jobs with all that they hold.
    pub jobs: Vec<(SessionId, JobId)>,
    /// Captures of processes whose jobs stay.
    pub captures: Vec<(SessionId, JobId, ProcessId)>,
}

impl Swept {
    /// Whether there was nothing to delete.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.captures.is_empty()
    }
}

/// What the store holds, as it was read.
struct Survey {
    jobs: BTreeMap<(SessionId, JobId), SurveyedJob>,
}

#[derive(Default)]
struct SurveyedJob {
    record: Option<Bytes>,
    usage: Option<Bytes>,
    processes: Vec<(ProcessId, Bytes)>,
}

impl SurveyedJob {
    fn records(&self) -> impl Iterator<Item = (&ProcessId, &Bytes, Option<ProcessRecord>)> {
        self.processes
            .iter()
            .map(|(id, stored)| (id, stored, Record::decode(stored).ok()))
    }

    /// What retention knows of the job. Whatever cannot be read makes it unknown.
    fn owner(&self) -> OwnerState {
        let Some(record) = &self.record else {
            return OwnerState::Missing;
        };
        let Ok(record) = Record::<JobRecord>::decode(record) else {
            return OwnerState::Unknown;
        };
        if !record.status.is_terminal() {
            return OwnerState::Active;
        }
        let Some(mut since_ms) = record.terminal_at_ms else {
            return OwnerState::Unknown;
        };
        for (_, _, record) in self.records() {
            match record {
                Some(record) if record.status == ProcessStatus::Running => {
                    return OwnerState::Active;
                }
                Some(ProcessRecord {
                    ended_at_ms: Some(ended_at_ms),
                    ..
                }) => since_ms = since_ms.max(ended_at_ms),
                _ => return OwnerState::Unknown,
            }
        }
        OwnerState::Inactive { since_ms }
    }

    /// The captures that are there, with the stored records of their processes.
    fn captures(&self) -> impl Iterator<Item = (&ProcessId, &Bytes, ProcessRecord, u64)> {
        self.records().filter_map(|(id, stored, record)| {
            let record = record?;
            record.captured?;
            let ended_at_ms = record.ended_at_ms?;
            Some((id, stored, record, ended_at_ms))
        })
    }
}

impl<S: Store> ToolOutputs<S> {
    async fn clock(&self) -> Result<Option<(Bytes, RetentionClock)>, ToolOutputError> {
        let [stored] = self.get([Key::new(CLOCK)]).await?;
        let Some(stored) = stored else {
            return Ok(None);
        };
        let clock = Record::decode(&stored)?;
        Ok(Some((stored, clock)))
    }

    /// The time to record of something that ends when the host's clock shows `wall_ms`.
    pub(super) async fn stamp(&self, wall_ms: u64) -> Result<u64, ToolOutputError> {
        let clock = self.clock().await?;
        Ok(RetentionClock::stamp(
            clock.map(|(_, clock)| clock),
            wall_ms,
        ))
    }

    async fn survey(&self) -> Result<Survey, ToolOutputError> {
        let mut jobs: BTreeMap<(SessionId, JobId), SurveyedJob> = BTreeMap::new();
        let mut wanted = Vec::new();
        for key in self.store().list(JOBS).await? {
            let parts: Vec<&str> = key.as_str().split('/').collect();
            let [_, session, job, kind, rest @ ..] = parts.as_slice() else {
                continue;
            };
            // Nothing here writes other keys; what somebody else put there is left alone.
            let (Ok(session), Ok(job)) = (session.parse(), job.parse()) else {
                continue;
            };
            let owner = (session, job);
            let of_interest = match (*kind, rest) {
                ("job" | "usage", []) => Some(None),
                ("process", [process]) => process.parse::<ProcessId>().ok().map(Some),
                _ => None,
            };
            jobs.entry(owner.clone()).or_default();
            if let Some(process) = of_interest {
                wanted.push((owner, process, key));
            }
        }
        let keys: Vec<Key> = wanted.iter().map(|(_, _, key)| key.clone()).collect();
        let values = self.store().get(&keys).await?;
        for ((owner, process, key), value) in wanted.into_iter().zip(values) {
            let surveyed = jobs.entry(owner).or_default();
            match process {
                Some(process) => surveyed
                    .processes
                    .extend(value.map(|value| (process, value))),
                None if key.as_str().ends_with("/job") => surveyed.record = value,
                None => surveyed.usage = value,
            }
        }
        Ok(Survey { jobs })
    }

    /// What is stored of every job, and until when.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`].
    pub async fn stored_jobs(&self) -> Result<Vec<StoredJob>, ToolOutputError> {
        let survey = self.survey().await?;
        let jobs = survey.jobs.into_iter().map(|((session, job), surveyed)| {
            let owner = surveyed.owner();
            let usage = surveyed.usage.as_deref().map(Record::<JobUsage>::decode);
            let captures = surveyed.captures();
            StoredJob {
                owner,
                artifact_bytes: usage
                    .and_then(Result::ok)
                    .map_or(0, |usage| usage.artifact_bytes),
                expires_at_ms: match owner {
                    OwnerState::Inactive { since_ms } => since_ms.checked_add(ARTIFACT_LIFETIME_MS),
                    _ => None,
                },
                captures: captures
                    .map(|(id, _, record, ended_at_ms)| StoredCapture {
                        process_id: id.clone(),
                        bytes: record.captured.map_or(0, |both| both.byte_count()),
                        expires_at_ms: ended_at_ms.saturating_add(CAPTURE_LIFETIME_MS),
                    })
                    .collect(),
                session,
                job,
            }
        });
        Ok(jobs.collect())
    }

    /// What [`sweep`](Self::sweep) would delete now.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`], and [`ToolOutputError::Integrity`] when the time that the last
    /// sweep recorded cannot be read.
    pub async fn plan_sweep(
        &self,
        wall_ms: u64,
        elapsed_ms: Option<u64>,
    ) -> Result<Swept, ToolOutputError> {
        let clock = self.clock().await?.map(|(_, clock)| clock);
        let clock = RetentionClock::advance(clock, wall_ms, elapsed_ms);
        Ok(plan(&self.survey().await?, clock.now_ms()))
    }

    /// Deletes what has expired when the host's clock shows `wall_ms` (milliseconds since 1970).
    /// `elapsed_ms` is what the monotonic clock of this host has counted since its last sweep; none at
    /// its first.
    ///
    /// What somebody changes while the sweep looks at it stays until the next.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`], and [`ToolOutputError::Integrity`] when the time that the last
    /// sweep recorded cannot be read. What is gone until then is gone as a whole.
    pub async fn sweep(
        &self,
        wall_ms: u64,
        elapsed_ms: Option<u64>,
    ) -> Result<Swept, ToolOutputError> {
        let before = self.clock().await?;
        let (expected, clock) = before.map_or((Expectation::Absent, None), |(stored, clock)| {
            (Expectation::Value(stored), Some(clock))
        });
        let clock = RetentionClock::advance(clock, wall_ms, elapsed_ms);
        let batch = Batch {
            expect: vec![(Key::new(CLOCK), expected)],
            put: vec![(Key::new(CLOCK), Record(clock).encode()?)],
            delete: Vec::new(),
        };
        match self.store().commit(batch).await {
            // Somebody else sweeps.
            Err(StoreError::Conflict) => return Ok(Swept::default()),
            outcome => outcome?,
        }
        let survey = self.survey().await?;
        let planned = plan(&survey, clock.now_ms());
        let mut swept = Swept::default();
        for (session, job, process) in planned.captures {
            let surveyed = survey.jobs.get(&(session.clone(), job.clone()));
            let process_record = surveyed.and_then(|surveyed| {
                let mut captures = surveyed.captures();
                captures.find(|(id, ..)| **id == process)
            });
            let Some((_, stored, record, _)) = process_record else {
                continue;
            };
            let keys = JobKeys::new(&session, &job);
            let record = ProcessRecord {
                captured: None,
                ..record
            };
            let key = keys.process(&process);
            let batch = Batch {
                expect: vec![(key.clone(), Expectation::Value(stored.clone()))],
                put: vec![(key, Record(record).encode()?)],
                delete: self.store().list(&keys.capture_prefix(&process)).await?,
            };
            match self.store().commit(batch).await {
                Err(StoreError::Conflict) => {}
                outcome => {
                    outcome?;
                    swept.captures.push((session, job, process));
                }
            }
        }
        for (session, job) in planned.jobs {
            let Some(surveyed) = survey.jobs.get(&(session.clone(), job.clone())) else {
                continue;
            };
            let keys = JobKeys::new(&session, &job);
            let (record, usage) = (surveyed.record.clone(), surveyed.usage.clone());
            match self.delete_as_read(&keys, record, usage).await {
                Err(StoreError::Conflict) => {}
                outcome => {
                    outcome?;
                    swept.jobs.push((session, job));
                }
            }
        }
        Ok(swept)
    }

    /// Records of every process that runs by its record, and is not of the host `generation`, that it
    /// was interrupted. Only the one host of a store may do so, when it begins.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`].
    pub async fn interrupt_processes_of_others(
        &self,
        generation: &str,
        now_ms: u64,
    ) -> Result<(), ToolOutputError> {
        for ((session, job), surveyed) in self.survey().await?.jobs {
            for (id, _, record) in surveyed.records() {
                let is_orphan = record.is_some_and(|record| {
                    record.status == ProcessStatus::Running && record.generation != generation
                });
                if is_orphan {
                    match self.interrupt_process(&session, &job, id, now_ms).await {
                        // Its job was deleted meanwhile, or its records are damaged and stay so.
                        Err(ToolOutputError::Unavailable | ToolOutputError::Integrity) => {}
                        outcome => drop(outcome?),
                    }
                }
            }
        }
        Ok(())
    }
}

/// What has expired at `now_ms`. A capture of a job that goes, goes with it.
fn plan(survey: &Survey, now_ms: u64) -> Swept {
    let owners = survey.jobs.iter();
    let jobs = expired_jobs(now_ms, owners.map(|(id, job)| (id.clone(), job.owner())));
    let mut captures = Vec::new();
    for ((session, job), surveyed) in &survey.jobs {
        if jobs.contains(&(session.clone(), job.clone())) {
            continue;
        }
        for (process, _, _, ended_at_ms) in surveyed.captures() {
            if is_capture_expired(now_ms, ended_at_ms) {
                captures.push((session.clone(), job.clone(), process.clone()));
            }
        }
    }
    Swept { jobs, captures }
}
