//! Sweeps: what has expired is found by the rules of [`evidence_core::retention`] and deleted, each
//! job and each capture in one transaction.

use std::collections::BTreeMap;

use bytes::Bytes;
use evidence_core::process::ProcessStatus;
use evidence_core::retention::{
    ARTIFACT_LIFETIME_MS, CAPTURE_LIFETIME_MS, OwnerState, RetentionClock, expired_jobs,
    is_capture_expired,
};
use evidence_core::{Generation, JobId, ProcessId, SessionId};

use super::keys::JobKeys;
use super::processes::{Captured, ProcessRecord};
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

/// Whose job it is, and which.
type Owned = (SessionId, JobId);

/// What the store holds, as it was read.
type Survey = BTreeMap<Owned, SurveyedJob>;

#[derive(Default)]
struct SurveyedJob {
    record: Option<Bytes>,
    usage: Option<Bytes>,
    processes: Vec<SurveyedProcess>,
}

struct SurveyedProcess {
    id: ProcessId,
    stored: Bytes,
    /// None when it cannot be read.
    record: Option<ProcessRecord>,
}

/// A capture that is there.
struct SurveyedCapture<'a> {
    process: &'a SurveyedProcess,
    record: &'a ProcessRecord,
    captured: Captured,
    ended_at_ms: u64,
}

/// One of the records that a survey reads.
enum Part {
    Job,
    Usage,
    Process(ProcessId),
}

/// What has expired.
struct Plan<'a> {
    jobs: Vec<(&'a Owned, &'a SurveyedJob)>,
    captures: Vec<(&'a Owned, SurveyedCapture<'a>)>,
}

impl Plan<'_> {
    /// What it deletes when nobody changes anything meanwhile.
    fn to_swept(&self) -> Swept {
        let jobs = self.jobs.iter();
        let captures = self.captures.iter();
        Swept {
            jobs: jobs.map(|(owned, _)| (*owned).clone()).collect(),
            captures: captures
                .map(|((session, job), capture)| {
                    (session.clone(), job.clone(), capture.process.id.clone())
                })
                .collect(),
        }
    }
}

impl SurveyedJob {
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
        for process in &self.processes {
            match &process.record {
                Some(record) if record.status == ProcessStatus::Running => {
                    return OwnerState::Active;
                }
                Some(ProcessRecord {
                    ended_at_ms: Some(ended_at_ms),
                    ..
                }) => since_ms = since_ms.max(*ended_at_ms),
                _ => return OwnerState::Unknown,
            }
        }
        OwnerState::Inactive { since_ms }
    }

    fn captures(&self) -> impl Iterator<Item = SurveyedCapture<'_>> {
        self.processes.iter().filter_map(|process| {
            let record = process.record.as_ref()?;
            Some(SurveyedCapture {
                process,
                record,
                captured: record.captured?,
                ended_at_ms: record.ended_at_ms?,
            })
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
        let mut survey = Survey::new();
        let (mut parts, mut keys) = (Vec::new(), Vec::new());
        for key in self.store().list(JOBS).await? {
            let names: Vec<&str> = key.as_str().split('/').collect();
            let [_, session, job, rest @ ..] = names.as_slice() else {
                continue;
            };
            // Nothing here writes other keys; what somebody else put there is left alone.
            let (Ok(session), Ok(job)) = (session.parse(), job.parse()) else {
                continue;
            };
            let owned: Owned = (session, job);
            survey.entry(owned.clone()).or_default();
            let part = match rest {
                ["job"] => Part::Job,
                ["usage"] => Part::Usage,
                ["process", id] => match id.parse() {
                    Ok(id) => Part::Process(id),
                    Err(_) => continue,
                },
                _ => continue,
            };
            parts.push((owned, part));
            keys.push(key);
        }
        for ((owned, part), stored) in parts.into_iter().zip(self.store().get(&keys).await?) {
            let job = survey.entry(owned).or_default();
            match part {
                Part::Job => job.record = stored,
                Part::Usage => job.usage = stored,
                Part::Process(id) => job.processes.extend(stored.map(|stored| SurveyedProcess {
                    record: Record::decode(&stored).ok(),
                    id,
                    stored,
                })),
            }
        }
        Ok(survey)
    }

    /// What is stored of every job, and until when.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`].
    pub async fn stored_jobs(&self) -> Result<Vec<StoredJob>, ToolOutputError> {
        let survey = self.survey().await?;
        let jobs = survey.into_iter().map(|((session, job), surveyed)| {
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
                    .map(|capture| StoredCapture {
                        process_id: capture.process.id.clone(),
                        bytes: capture.captured.byte_count(),
                        expires_at_ms: capture.ended_at_ms.saturating_add(CAPTURE_LIFETIME_MS),
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
        Ok(plan(&self.survey().await?, clock.now_ms()).to_swept())
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
        let plan = plan(&survey, clock.now_ms());
        let mut swept = Swept::default();
        for ((session, job), capture) in plan.captures {
            let keys = JobKeys::new(session, job);
            let process = capture.process;
            let record = ProcessRecord {
                captured: None,
                ..capture.record.clone()
            };
            let key = keys.process(&process.id);
            let batch = Batch {
                expect: vec![(key.clone(), Expectation::Value(process.stored.clone()))],
                put: vec![(key, Record(record).encode()?)],
                delete: self.store().list(&keys.capture_prefix(&process.id)).await?,
            };
            match self.store().commit(batch).await {
                Err(StoreError::Conflict) => {}
                outcome => {
                    outcome?;
                    let id = process.id.clone();
                    swept.captures.push((session.clone(), job.clone(), id));
                }
            }
        }
        for ((session, job), surveyed) in plan.jobs {
            let keys = JobKeys::new(session, job);
            let (record, usage) = (surveyed.record.clone(), surveyed.usage.clone());
            match self.delete_as_read(&keys, record, usage).await {
                Err(StoreError::Conflict) => {}
                outcome => {
                    outcome?;
                    swept.jobs.push((session.clone(), job.clone()));
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
        generation: &Generation,
        now_ms: u64,
    ) -> Result<(), ToolOutputError> {
        for ((session, job), surveyed) in self.survey().await? {
            for SurveyedProcess { id, record, .. } in &surveyed.processes {
                let is_orphan = record.as_ref().is_some_and(|record| {
                    record.status == ProcessStatus::Running && record.generation != *generation
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
fn plan(survey: &Survey, now_ms: u64) -> Plan<'_> {
    let owners = survey.iter().map(|(owned, job)| (owned, job.owner()));
    let expired = expired_jobs(now_ms, owners);
    let captures = survey
        .iter()
        .filter(|(owned, _)| !expired.contains(owned))
        .flat_map(|(owned, job)| job.captures().map(move |capture| (owned, capture)))
        .filter(|(_, capture)| is_capture_expired(now_ms, capture.ended_at_ms));
    Plan {
        captures: captures.collect(),
        jobs: expired
            .into_iter()
            .filter_map(|owned| survey.get_key_value(owned))
            .collect(),
    }
}
