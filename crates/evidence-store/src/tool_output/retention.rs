//! Sweeps: what has expired is found by the rules of [`evidence_core::retention`] and deleted, each
//! job and each capture in one transaction.

use bytes::Bytes;
use evidence_core::process::ProcessStatus;
use evidence_core::retention::{
    ARTIFACT_LIFETIME_MS, CAPTURE_LIFETIME_MS, OwnerState, RetentionClock, expired_jobs,
    is_capture_expired,
};
use evidence_core::{JobId, ProcessId, SessionId};

use super::keys::JobKeys;
use super::processes::{Captured, Launch, ProcessRecord};
use super::{JobRecord, JobUsage, MAX_ATTEMPTS, ToolOutputError, ToolOutputs};
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

/// A process that runs by its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningProcess {
    /// Whose process it is.
    pub session: SessionId,
    /// Of which job.
    pub job: JobId,
    /// Which it is.
    pub process_id: ProcessId,
    /// Its start.
    pub launch: Launch,
}

/// What a sweep deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// How far the time had got that retention goes by, in milliseconds since 1970.
    pub now_ms: u64,
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

/// What the store holds, as it was read, in the order of the keys.
type Survey = Vec<(Owned, SurveyedJob)>;

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
    now_ms: u64,
    jobs: Vec<&'a (Owned, SurveyedJob)>,
    captures: Vec<(&'a Owned, SurveyedCapture<'a>)>,
}

impl Plan<'_> {
    /// What it deletes when nobody changes anything meanwhile.
    fn to_swept(&self) -> Swept {
        let jobs = self.jobs.iter();
        let captures = self.captures.iter();
        Swept {
            now_ms: self.now_ms,
            jobs: jobs.map(|(owned, _)| owned.clone()).collect(),
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

    /// Records how far the time has got that retention goes by.
    async fn advance_clock(
        &self,
        wall_ms: u64,
        limit_ms: Option<u64>,
    ) -> Result<RetentionClock, ToolOutputError> {
        for _ in 0..MAX_ATTEMPTS {
            let (expected, clock) = match self.clock().await? {
                Some((stored, clock)) => (Expectation::Value(stored), Some(clock)),
                None => (Expectation::Absent, None),
            };
            let clock = RetentionClock::advance(clock, wall_ms, limit_ms);
            let batch = Batch {
                expect: vec![(Key::new(CLOCK), expected)],
                put: vec![(Key::new(CLOCK), Record(clock).encode()?)],
                delete: Vec::new(),
            };
            match self.store().commit(batch).await {
                // Somebody else sweeps at the same time.
                Err(StoreError::Conflict) => {}
                committed => return Ok(committed.map(|()| clock)?),
            }
        }
        Err(StoreError::Conflict.into())
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
            // The keys of a job stand together.
            let owned: Owned = (session, job);
            if survey.last().is_none_or(|(last, _)| *last != owned) {
                survey.push((owned, SurveyedJob::default()));
            }
            let part = match rest {
                ["job"] => Part::Job,
                ["usage"] => Part::Usage,
                ["process", id] => match id.parse() {
                    Ok(id) => Part::Process(id),
                    Err(_) => continue,
                },
                _ => continue,
            };
            parts.push((survey.len() - 1, part));
            keys.push(key);
        }
        for ((index, part), stored) in parts.into_iter().zip(self.store().get(&keys).await?) {
            let (_, job) = &mut survey[index];
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
        limit_ms: Option<u64>,
    ) -> Result<Swept, ToolOutputError> {
        let clock = self.clock().await?.map(|(_, clock)| clock);
        let clock = RetentionClock::advance(clock, wall_ms, limit_ms);
        Ok(plan(&self.survey().await?, clock.now_ms()).to_swept())
    }

    /// Deletes what has expired when the host's clock shows `wall_ms` (milliseconds since 1970).
    ///
    /// `limit_ms` is how far the time that retention goes by can have got at most: what it was at this
    /// host's last sweep ([`Swept::now_ms`]) and what the host's monotonic clock has counted since; none
    /// at its first. So a clock that jumps makes nothing older, however many hosts sweep one store.
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
        limit_ms: Option<u64>,
    ) -> Result<Swept, ToolOutputError> {
        let now_ms = self.advance_clock(wall_ms, limit_ms).await?.now_ms();
        let survey = self.survey().await?;
        let plan = plan(&survey, now_ms);
        let mut swept = Swept {
            now_ms,
            jobs: Vec::new(),
            captures: Vec::new(),
        };
        for ((session, job), capture) in plan.captures {
            let SurveyedCapture {
                process, record, ..
            } = capture;
            let keys = JobKeys::new(session, job);
            match self
                .delete_as_captured(&keys, &process.id, &process.stored, record)
                .await
            {
                Err(ToolOutputError::Store(StoreError::Conflict)) => {}
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

    /// Deletes what was captured of a process before it has expired. Its receipts stay, and a read of it
    /// is answered as after its expiry. A capture, process or job that is not there is no error.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`] and [`ToolOutputError::Integrity`].
    pub async fn delete_capture(
        &self,
        session: &SessionId,
        job: &JobId,
        process_id: &ProcessId,
    ) -> Result<(), ToolOutputError> {
        let keys = JobKeys::new(session, job);
        for _ in 0..MAX_ATTEMPTS {
            let [stored] = self.get([keys.process(process_id)]).await?;
            let Some(stored) = stored else {
                return Ok(());
            };
            let record: ProcessRecord = Record::decode(&stored)?;
            if record.captured.is_none() {
                return Ok(());
            }
            match self
                .delete_as_captured(&keys, process_id, &stored, &record)
                .await
            {
                Err(ToolOutputError::Store(StoreError::Conflict)) => {}
                outcome => return outcome,
            }
        }
        Err(StoreError::Conflict.into())
    }

    /// Deletes what is captured of a process whose record, `stored`, is `record`, in one transaction;
    /// a conflict when it has changed.
    async fn delete_as_captured(
        &self,
        keys: &JobKeys,
        process_id: &ProcessId,
        stored: &Bytes,
        record: &ProcessRecord,
    ) -> Result<(), ToolOutputError> {
        let key = keys.process(process_id);
        let record = ProcessRecord {
            captured: None,
            ..record.clone()
        };
        let batch = Batch {
            expect: vec![(key.clone(), Expectation::Value(stored.clone()))],
            put: vec![(key, Record(record).encode()?)],
            delete: self.store().list(&keys.capture_prefix(process_id)).await?,
        };
        Ok(self.store().commit(batch).await?)
    }

    /// The processes that run by their records. Those of a host that is gone do not.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`].
    pub async fn running_processes(&self) -> Result<Vec<RunningProcess>, ToolOutputError> {
        let mut running = Vec::new();
        for ((session, job), surveyed) in self.survey().await? {
            for SurveyedProcess { id, record, .. } in surveyed.processes {
                if let Some(record) = record.filter(|record| !record.status.is_terminal()) {
                    running.push(RunningProcess {
                        session: session.clone(),
                        job: job.clone(),
                        process_id: id,
                        launch: record.launch(),
                    });
                }
            }
        }
        Ok(running)
    }
}

/// What has expired at `now_ms`. A capture of a job that goes, goes with it.
fn plan(survey: &Survey, now_ms: u64) -> Plan<'_> {
    let jobs = survey.iter().enumerate();
    let owners = jobs.clone().map(|(index, (_, job))| (index, job.owner()));
    let expired = expired_jobs(now_ms, owners);
    let captures = jobs
        .filter(|(index, _)| !expired.contains(index))
        .flat_map(|(_, (owned, job))| job.captures().map(move |capture| (owned, capture)))
        .filter(|(_, capture)| is_capture_expired(now_ms, capture.ended_at_ms));
    Plan {
        now_ms,
        captures: captures.collect(),
        jobs: expired.into_iter().map(|index| &survey[index]).collect(),
    }
}
