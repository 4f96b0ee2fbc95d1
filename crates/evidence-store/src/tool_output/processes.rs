//! What is recorded of processes and kept of their output.
//!
//! A process has a record from before it is started. What it wrote is stored when it has ended,
//! complete, together with how it ended, in one commit: until then nothing of it is durable but what
//! polls have shown, which stands in the records of their calls. So a record that says that a process
//! runs, of a host that is gone, is one of a process whose output was never captured.

use bytes::Bytes;
use evidence_core::process::{self, ProcessFacts, ProcessStatus, Stream, StreamFacts};
use evidence_core::{
    Generation, JobId, ProcessId, SessionId, Sha256Digest, ToolCallId, ToolResult,
};
use serde::{Deserialize, Serialize};

use super::keys::JobKeys;
use super::{
    CallRecord, JobRecord, JobUsage, MAX_ATTEMPTS, Outcome, Prepared, ToolOutputError, ToolOutputs,
    answered,
};
use crate::blob;
use crate::digest::manifest_of;
use crate::record::Record;
use crate::store::{Batch, Expectation, Store, StoreError};

/// One start of a process, which no other start is called. A [`ProcessId`] alone does not say which
/// process is meant: a job that was deleted and created again gives its ids anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The host that started it. Another host cannot know it.
    pub generation: Generation,
    /// Which of the host's starts it was.
    pub number: u64,
}

/// What is recorded of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRecord {
    /// The host that started it.
    pub generation: Generation,
    /// Which of the host's starts it was.
    pub number: u64,
    /// Where it stands.
    pub status: ProcessStatus,
    /// The exit code, of a process that exited.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it, if one did.
    pub signal: Option<i32>,
    /// When it ended, in milliseconds since 1970; none while it runs.
    pub ended_at_ms: Option<u64>,
    /// What was captured; none while it runs, and when the capture is not there (any more).
    pub captured: Option<Captured>,
}

/// What was captured of both streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Captured {
    /// Standard output.
    pub stdout: StreamFacts,
    /// Standard error.
    pub stderr: StreamFacts,
}

impl Captured {
    /// The bytes of both streams.
    pub const fn byte_count(&self) -> u64 {
        self.stdout.bytes.saturating_add(self.stderr.bytes)
    }
}

impl ProcessRecord {
    /// Its start.
    pub fn launch(&self) -> Launch {
        Launch {
            generation: self.generation.clone(),
            number: self.number,
        }
    }

    /// Another start under the same id is another process, and that of `launch` is not there any more.
    fn expect_launch(&self, launch: &Launch) -> Result<(), ToolOutputError> {
        if self.launch() == *launch {
            Ok(())
        } else {
            Err(ToolOutputError::Unavailable)
        }
    }

    /// What a poll can say of the process; none when its output is not stored.
    pub fn facts(&self, process_id: ProcessId) -> Option<ProcessFacts> {
        let Captured { stdout, stderr } = self.captured?;
        Some(ProcessFacts {
            process_id,
            status: self.status,
            exit_code: self.exit_code,
            signal: self.signal,
            stdout,
            stderr,
        })
    }
}

/// How a process ended, and what it wrote.
#[derive(Debug, Clone)]
pub struct EndedProcess {
    /// Its start.
    pub launch: Launch,
    /// What is known of it.
    pub facts: ProcessFacts,
    /// The captured standard output.
    pub stdout: Bytes,
    /// The captured standard error.
    pub stderr: Bytes,
}

/// What a call to start a process comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// The process is recorded and is to be started.
    New {
        /// Its id.
        process_id: ProcessId,
        /// What the call is answered when it has started.
        outcome: Outcome,
    },
    /// The call was answered before.
    Answered(Outcome),
}

/// What a poll shows.
#[derive(Debug, Clone)]
pub enum Observation {
    /// The JSON of a cursor poll, which has the size of a tool result at most.
    Cursor(String),
    /// The result of a plain poll, which is bounded like any other.
    Plain(ToolResult),
}

impl<S: Store> ToolOutputs<S> {
    /// Records a process that a host is about to start for a tool call.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::JobEnded`], [`ToolOutputError::CallReused`], and those of
    /// [`record`](Self::record); nothing must be started then.
    pub async fn begin_process(
        &self,
        session: &SessionId,
        job: &JobId,
        call: &ToolCallId,
        request: Sha256Digest,
        launch: &Launch,
    ) -> Result<Begun, ToolOutputError> {
        let keys = JobKeys::new(session, job);
        for _ in 0..MAX_ATTEMPTS {
            let call_key = keys.call(call);
            let [stored_job, stored_usage, earlier] = self
                .get([keys.job(), keys.usage(), call_key.clone()])
                .await?;
            let stored_job = stored_job.ok_or(ToolOutputError::Unavailable)?;
            let stored_usage = stored_usage.ok_or(ToolOutputError::Integrity)?;
            if let Some(earlier) = earlier {
                return Ok(Begun::Answered(answered(&earlier, request)?));
            }
            let record: JobRecord = Record::decode(&stored_job)?;
            if record.status.is_terminal() {
                return Err(ToolOutputError::JobEnded);
            }
            let mut usage: JobUsage = Record::decode(&stored_usage)?;
            usage.process_count = usage.process_count.saturating_add(1);
            usage.change_count = usage.change_count.saturating_add(1);
            let process_id: ProcessId = format!("process-{}", usage.process_count)
                .parse()
                .map_err(|_| ToolOutputError::Integrity)?;
            let outcome = Outcome {
                result: process::started(&process_id).serialize(),
                reference: None,
            };
            let record = ProcessRecord {
                generation: launch.generation.clone(),
                number: launch.number,
                status: ProcessStatus::Running,
                exit_code: None,
                signal: None,
                ended_at_ms: None,
                captured: None,
            };
            let process_key = keys.process(&process_id);
            let batch = Batch {
                expect: vec![
                    (keys.job(), Expectation::Value(stored_job)),
                    (keys.usage(), Expectation::Value(stored_usage)),
                    (call_key.clone(), Expectation::Absent),
                    (process_key.clone(), Expectation::Absent),
                ],
                put: vec![
                    (keys.usage(), Record(usage).encode()?),
                    (process_key, Record(record).encode()?),
                    (
                        call_key,
                        Record(CallRecord::new(request, &outcome)).encode()?,
                    ),
                ],
                delete: Vec::new(),
            };
            match self.store().commit(batch).await {
                Err(StoreError::Conflict) => {}
                committed => {
                    return Ok(committed.map(|()| Begun::New {
                        process_id,
                        outcome,
                    })?);
                }
            }
        }
        Err(StoreError::Conflict.into())
    }

    /// Records that the process of [`begin_process`](Self::begin_process) could not be started, and
    /// why; the answer to its call from now on.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Unavailable`] and [`ToolOutputError::Integrity`].
    pub async fn abandon_process(
        &self,
        session: &SessionId,
        job: &JobId,
        call: &ToolCallId,
        (process_id, launch): (&ProcessId, &Launch),
        result: &ToolResult,
    ) -> Result<Outcome, ToolOutputError> {
        let keys = JobKeys::new(session, job);
        let (call_key, process_key) = (keys.call(call), keys.process(process_id));
        let outcome = Outcome {
            result: result.serialize(),
            reference: None,
        };
        let [call, process] = self.get([call_key.clone(), process_key.clone()]).await?;
        let process = process.ok_or(ToolOutputError::Unavailable)?;
        let record: ProcessRecord = Record::decode(&process)?;
        record.expect_launch(launch)?;
        let call = call.ok_or(ToolOutputError::Integrity)?;
        let record: CallRecord = Record::decode(&call)?;
        let batch = Batch {
            expect: vec![
                (call_key.clone(), Expectation::Value(call)),
                (process_key.clone(), Expectation::Value(process)),
            ],
            put: vec![(
                call_key,
                Record(CallRecord::new(record.request, &outcome)).encode()?,
            )],
            delete: vec![process_key],
        };
        self.store().commit(batch).await?;
        Ok(outcome)
    }

    /// What is recorded of a process.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Unavailable`] and [`ToolOutputError::Integrity`].
    pub async fn process(
        &self,
        session: &SessionId,
        job: &JobId,
        process_id: &ProcessId,
    ) -> Result<ProcessRecord, ToolOutputError> {
        let keys = JobKeys::new(session, job);
        let [stored] = self.get([keys.process(process_id)]).await?;
        let stored = stored.ok_or(ToolOutputError::Unavailable)?;
        Ok(Record::decode(&stored)?)
    }

    /// Stores how a process ended together with all that was captured of it, at the time `now_ms`
    /// (milliseconds since 1970). A process that is recorded as ended already is left as it is.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError`]; nothing of the end must be shown then.
    pub async fn finish_process(
        &self,
        session: &SessionId,
        job: &JobId,
        ended: &EndedProcess,
        now_ms: u64,
    ) -> Result<ProcessRecord, ToolOutputError> {
        let EndedProcess {
            launch,
            facts,
            stdout,
            stderr,
        } = ended;
        let ended_at_ms = self.stamp(now_ms).await?;
        let captures = [
            (Stream::Stdout, manifest_of(stdout).await, stdout),
            (Stream::Stderr, manifest_of(stderr).await, stderr),
        ];
        let process = (&facts.process_id, launch);
        self.change_process(session, job, process, |record, batch, keys| {
            if record.status.is_terminal() {
                return false;
            }
            record.status = facts.status;
            record.exit_code = facts.exit_code;
            record.signal = facts.signal;
            record.ended_at_ms = Some(ended_at_ms);
            record.captured = Some(Captured {
                stdout: facts.stdout,
                stderr: facts.stderr,
            });
            for (stream, manifest, bytes) in &captures {
                let place = keys.capture(&facts.process_id, *stream);
                blob::stage(batch, &place, manifest, bytes);
            }
            true
        })
        .await
    }

    /// Records that the host of a process is gone, at the time `now_ms` (milliseconds since 1970).
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Unavailable`] and [`ToolOutputError::Integrity`].
    pub async fn interrupt_process(
        &self,
        session: &SessionId,
        job: &JobId,
        process: (&ProcessId, &Launch),
        now_ms: u64,
    ) -> Result<ProcessRecord, ToolOutputError> {
        let ended_at_ms = self.stamp(now_ms).await?;
        self.change_process(session, job, process, |record, _, _| {
            let runs = !record.status.is_terminal();
            if runs {
                record.status = ProcessStatus::Interrupted;
                record.ended_at_ms = Some(ended_at_ms);
            }
            runs
        })
        .await
    }

    /// Changes the record of a process, and whatever `change` adds to the batch with it; nothing when
    /// that answers false. The job's counters move with it, so that no deletion of the job leaves
    /// something behind.
    async fn change_process(
        &self,
        session: &SessionId,
        job: &JobId,
        (process_id, launch): (&ProcessId, &Launch),
        change: impl Fn(&mut ProcessRecord, &mut Batch, &JobKeys) -> bool,
    ) -> Result<ProcessRecord, ToolOutputError> {
        let keys = JobKeys::new(session, job);
        for _ in 0..MAX_ATTEMPTS {
            let process_key = keys.process(process_id);
            let [stored, stored_usage] = self.get([process_key.clone(), keys.usage()]).await?;
            let stored = stored.ok_or(ToolOutputError::Unavailable)?;
            let stored_usage = stored_usage.ok_or(ToolOutputError::Integrity)?;
            let mut record: ProcessRecord = Record::decode(&stored)?;
            record.expect_launch(launch)?;
            let mut usage: JobUsage = Record::decode(&stored_usage)?;
            usage.change_count = usage.change_count.saturating_add(1);
            let mut batch = Batch {
                expect: vec![
                    (process_key.clone(), Expectation::Value(stored)),
                    (keys.usage(), Expectation::Value(stored_usage)),
                ],
                ..Batch::default()
            };
            if !change(&mut record, &mut batch, &keys) {
                return Ok(record);
            }
            batch.put.push((keys.usage(), Record(usage).encode()?));
            batch.put.push((process_key, Record(&record).encode()?));
            match self.store().commit(batch).await {
                Err(StoreError::Conflict) => {}
                committed => return Ok(committed.map(|()| record)?),
            }
        }
        Err(StoreError::Conflict.into())
    }

    /// The bytes `range` of what was captured of a stream, each chunk that it touches verified.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Unavailable`] when the capture has expired, [`ToolOutputError::Integrity`].
    pub async fn read_capture(
        &self,
        session: &SessionId,
        job: &JobId,
        facts: &ProcessFacts,
        stream: Stream,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, ToolOutputError> {
        let place = JobKeys::new(session, job).capture(&facts.process_id, stream);
        let manifest = blob::manifest(self.store(), &place)
            .await?
            .ok_or(ToolOutputError::Unavailable)?;
        let of = facts.stream(stream);
        if (manifest.sha256, manifest.byte_count) != (of.sha256, of.bytes) {
            return Err(ToolOutputError::Integrity);
        }
        self.read_blob(&place, &manifest, range).await
    }

    /// What a poll with these arguments was answered before under the same call id.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::CallReused`] when the id was used for anything else.
    pub async fn answered_call(
        &self,
        session: &SessionId,
        job: &JobId,
        call: &ToolCallId,
        request: Sha256Digest,
    ) -> Result<Option<Outcome>, ToolOutputError> {
        let keys = JobKeys::new(session, job);
        let [earlier] = self.get([keys.call(call)]).await?;
        earlier
            .map(|earlier| answered(&earlier, request))
            .transpose()
    }

    /// Records what a call observed of a process, before it is shown. The first observation under an id
    /// is the one that every delivery of the call is answered.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError`]; nothing must be shown then.
    pub async fn record_observation(
        &self,
        session: &SessionId,
        job: &JobId,
        call: &ToolCallId,
        request: Sha256Digest,
        (process_id, launch): (&ProcessId, &Launch),
        observation: Observation,
    ) -> Result<Outcome, ToolOutputError> {
        let mut prepared = match observation {
            Observation::Plain(result) => {
                Prepared::new(job, result, None).await?.answering(request)
            }
            Observation::Cursor(answer) => Prepared {
                artifact: None,
                request,
                outcome: Outcome {
                    result: answer,
                    reference: None,
                },
                observed: None,
            },
        };
        let keys = JobKeys::new(session, job);
        for _ in 0..MAX_ATTEMPTS {
            let key = keys.process(process_id);
            let [stored] = self.get([key.clone()]).await?;
            let stored = stored.ok_or(ToolOutputError::Unavailable)?;
            let record: ProcessRecord = Record::decode(&stored)?;
            record.expect_launch(launch)?;
            prepared.observed = Some((key, stored));
            match self.try_record(&keys, Some(call), &prepared).await {
                Err(ToolOutputError::Store(StoreError::Conflict)) => {}
                outcome => return outcome,
            }
        }
        Err(StoreError::Conflict.into())
    }
}
