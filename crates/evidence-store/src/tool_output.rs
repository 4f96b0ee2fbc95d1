//! Jobs and their tool output (contract B).
//!
//! ```text
//! job/<job>                                             the session that has this job id
//! tool-output/<session>/<job>/job                       the JobRecord
//! tool-output/<session>/<job>/usage                     how much of its budget it uses
//! tool-output/<session>/<job>/artifact/<sha256>         the manifest of an artifact
//! tool-output/<session>/<job>/chunk/<sha256>            a chunk, shared by the job's artifacts
//! tool-output/<session>/<job>/call/<sha256 of the id>   what a tool call was answered
//! tool-output/<session>/<job>/process/<process>         the ProcessRecord
//! tool-output/<session>/<job>/capture/<process>/<…>     what it wrote, as blobs
//! retention/clock                                       the RetentionClock
//! session                                               whose store it is, where it is one person's
//! ```
//!
//! Everything that belongs to a job stands under its session. That is how ownership is checked: with
//! another session the same request asks for other keys, finds nothing, and takes the same steps as
//! for a job that never was.
//!
//! Every change of a job expects the records that it has read to be unchanged. In particular nothing
//! is added beside a deletion or an ending of the job, and two results that arrive together are both
//! counted.

mod keys;
pub mod processes;
pub mod retention;
// They run real processes and threads; the store beneath has its own tests in the browser.
#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests;

use bytes::Bytes;
use evidence_core::chunk::ChunkManifest;
use evidence_core::cursor::{ReadAnswer, ReadArguments, ReadRefusal, ReadRequest};
use evidence_core::tool_output::{self, Handles, MAX_ARTIFACT_BYTES, MAX_JOB_BYTES};
use evidence_core::{
    ArtifactDescriptor, JobId, JobStatus, SessionId, Sha256Digest, ToolCallId, ToolOutputRef,
    ToolResult,
};
use serde::{Deserialize, Serialize};

use self::keys::JobKeys;
use crate::blob::{self, BlobError};
use crate::digest::manifest_of;
use crate::record::{Record, RecordError};
use crate::store::{Batch, Expectation, Key, Store, StoreError};

/// How often a change is tried again when others changed the same job in between. In each round one
/// of the contenders gets through, so that this many of them can meet before one gives up.
const MAX_ATTEMPTS: usize = 1000;

/// Where [`ToolOutputs::own_session`] stands.
const OWN_SESSION: &str = "session";

/// What is recorded of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRecord {
    /// Where it stands.
    pub status: JobStatus,
    /// When it was created, in milliseconds since 1970. A job that was deleted and created again is
    /// another one.
    pub created_at_ms: u64,
    /// When it became terminal, in milliseconds since 1970; none while it is active. Archiving a job
    /// that has ended does not move it.
    pub terminal_at_ms: Option<u64>,
}

/// How much of its budget a job uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobUsage {
    /// The bytes of its artifacts, identical ones counted once.
    pub artifact_bytes: u64,
    /// The number of its artifacts.
    pub artifact_count: u64,
    /// How many processes it has started.
    pub process_count: u64,
    /// How often something was added. Every addition moves it, so that whoever expects the counters
    /// to be unchanged expects that of all of the job's values.
    pub change_count: u64,
}

/// What a tool call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The serialized result that the model sees: at most 16 KiB.
    pub result: String,
    /// The JSON of the [`ToolOutputRef`] when the complete result was stored; the provenance of the
    /// event that records the finished call.
    pub reference: Option<String>,
}

/// What is recorded of a tool call, so that its second delivery gets the same answer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallRecord {
    /// Of the complete serialized result and the handles that came with it.
    request: Sha256Digest,
    result: String,
    reference: Option<String>,
}

impl CallRecord {
    fn new(request: Sha256Digest, outcome: &Outcome) -> Self {
        Self {
            request,
            result: outcome.result.clone(),
            reference: outcome.reference.clone(),
        }
    }
}

/// What the call of a stored record was answered, when it was the same `request`.
fn answered(stored: &[u8], request: Sha256Digest) -> Result<Outcome, ToolOutputError> {
    let record: CallRecord = Record::decode(stored)?;
    if record.request != request {
        return Err(ToolOutputError::CallReused);
    }
    Ok(Outcome {
        result: record.result,
        reference: record.reference,
    })
}

/// Why a request was not carried out. Nothing has changed after any of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolOutputError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No such job or artifact, or it has expired, or it is another session's: which of them is not
    /// said.
    #[error("this tool output is not available")]
    Unavailable,
    /// The id belongs to a job of another session.
    #[error("this job id is taken; choose another")]
    JobTaken,
    /// The job has ended.
    #[error("the job has ended and takes no more tool results")]
    JobEnded,
    /// A job does not go from the one status to the other.
    #[error("a job that is {} cannot become {}", from.as_str(), to.as_str())]
    StatusChange {
        /// Where it stands.
        from: JobStatus,
        /// What was asked for.
        to: JobStatus,
    },
    /// The tool call was answered before, for another result or other arguments.
    #[error("this tool call id was used for another call; every call needs an id of its own")]
    CallReused,
    /// The result is larger than what is stored.
    #[error(
        "the serialized tool result has {byte_count} bytes and may have {MAX_ARTIFACT_BYTES}; let the tool write it in parts"
    )]
    ResultTooLarge {
        /// Its size.
        byte_count: usize,
    },
    /// The job's budget has no room for the result.
    #[error(
        "the job's tool output would exceed {MAX_JOB_BYTES} bytes: nothing was stored; start a new job"
    )]
    JobFull,
    /// What is stored is not what was written. No bytes are returned.
    #[error("stored tool output is missing or is not what was written; no bytes were returned")]
    Integrity,
    /// The read asks for what cannot be answered.
    #[error(transparent)]
    Read(#[from] ReadRefusal),
}

impl From<BlobError> for ToolOutputError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Store(error) => error.into(),
            BlobError::Missing | BlobError::Altered => Self::Integrity,
        }
    }
}

impl From<RecordError> for ToolOutputError {
    fn from(_: RecordError) -> Self {
        Self::Integrity
    }
}

/// The bytes of a read, fetched and verified.
#[derive(Debug, Clone)]
pub struct FetchedRange {
    sha256: Sha256Digest,
    byte_count: u64,
    request: ReadRequest,
    fetched: Bytes,
}

impl FetchedRange {
    /// The answer.
    ///
    /// # Errors
    ///
    /// The [`ReadRefusal`] for an offset or limit that cuts a code point.
    pub fn answer(&self) -> Result<ReadAnswer<'_>, ReadRefusal> {
        self.request
            .answer(self.sha256, self.byte_count, &self.fetched)
    }
}

/// The jobs of all sessions and their tool output, over any [`Store`].
///
/// The session of each call is the one that was authenticated, never one that a request names.
#[derive(Debug, Clone)]
pub struct ToolOutputs<S> {
    store: S,
}

/// A result, measured, digested and bounded: what does not depend on the state of the store.
struct Prepared {
    /// The complete serialization and its chunks; none when the result passes unchanged.
    artifact: Option<(ChunkManifest, Bytes)>,
    request: Sha256Digest,
    outcome: Outcome,
    /// The record of the process that was looked at, when it is a look at one. It must be unchanged. A
    /// look is taken also when the job has ended: what is seen was done before.
    observed: Option<(Key, Bytes)>,
}

impl<S: Store> ToolOutputs<S> {
    /// The tool output in `store`.
    pub const fn new(store: S) -> Self {
        Self { store }
    }

    /// The store beneath.
    pub const fn store(&self) -> &S {
        &self.store
    }

    async fn get<const N: usize>(&self, keys: [Key; N]) -> Result<[Option<Bytes>; N], StoreError> {
        let values = self.store.get(&keys).await?;
        values.try_into().map_err(|_| StoreError::Damaged {
            reason: "the store answered another number of values than it was asked for".to_owned(),
        })
    }

    /// The session of a store that is one person's own, such as a browser's: all tabs and workers have
    /// the same. `fresh` becomes it where there is none yet.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`] and [`ToolOutputError::Integrity`].
    pub async fn own_session(&self, fresh: SessionId) -> Result<SessionId, ToolOutputError> {
        let key = Key::new(OWN_SESSION);
        let [stored] = self.get([key.clone()]).await?;
        if let Some(stored) = stored {
            return Ok(Record::decode(&stored)?);
        }
        let batch = Batch {
            expect: vec![(key.clone(), Expectation::Absent)],
            put: vec![(key.clone(), Record(&fresh).encode()?)],
            delete: Vec::new(),
        };
        match self.store.commit(batch).await {
            // Another tab was first.
            Err(StoreError::Conflict) => {
                let [stored] = self.get([key]).await?;
                let stored = stored.ok_or(ToolOutputError::Unavailable)?;
                Ok(Record::decode(&stored)?)
            }
            committed => Ok(committed.map(|()| fresh)?),
        }
    }

    /// Creates an active job that `session` owns, at the time `now_ms`; the record, and whether it was created now. A job
    /// that the session owns already is left as it is.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::JobTaken`] when another session owns it.
    pub async fn create_job(
        &self,
        session: &SessionId,
        job: &JobId,
        now_ms: u64,
    ) -> Result<(JobRecord, bool), ToolOutputError> {
        let keys = JobKeys::new(session, job);
        for _ in 0..MAX_ATTEMPTS {
            let [owner, stored] = self.get([keys.owner(), keys.job()]).await?;
            if let Some(owner) = owner {
                let owner: SessionId = Record::decode(&owner)?;
                if owner != *session {
                    return Err(ToolOutputError::JobTaken);
                }
                let stored = stored.ok_or(ToolOutputError::Integrity)?;
                return Ok((Record::decode(&stored)?, false));
            }
            let record = JobRecord {
                status: JobStatus::Active,
                created_at_ms: now_ms,
                terminal_at_ms: None,
            };
            let put = vec![
                (keys.owner(), Record(session).encode()?),
                (keys.job(), Record(record).encode()?),
                (keys.usage(), Record(JobUsage::default()).encode()?),
            ];
            let expect = put
                .iter()
                .map(|(key, _)| (key.clone(), Expectation::Absent))
                .collect();
            let delete = Vec::new();
            match self
                .store
                .commit(Batch {
                    expect,
                    put,
                    delete,
                })
                .await
            {
                Err(StoreError::Conflict) => {}
                outcome => return Ok(outcome.map(|()| (record, true))?),
            }
        }
        Err(StoreError::Conflict.into())
    }

    /// What is recorded of a job, and how much it uses.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Unavailable`].
    pub async fn job(
        &self,
        session: &SessionId,
        job: &JobId,
    ) -> Result<(JobRecord, JobUsage), ToolOutputError> {
        let keys = JobKeys::new(session, job);
        match self.get([keys.job(), keys.usage()]).await? {
            [Some(record), Some(usage)] => Ok((Record::decode(&record)?, Record::decode(&usage)?)),
            [None, None] => Err(ToolOutputError::Unavailable),
            _ => Err(ToolOutputError::Integrity),
        }
    }

    /// Changes where a job stands, at the time `now_ms`.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Unavailable`] and [`ToolOutputError::StatusChange`].
    pub async fn set_status(
        &self,
        session: &SessionId,
        job: &JobId,
        status: JobStatus,
        now_ms: u64,
    ) -> Result<JobRecord, ToolOutputError> {
        let keys = JobKeys::new(session, job);
        for _ in 0..MAX_ATTEMPTS {
            let [stored] = self.get([keys.job()]).await?;
            let stored = stored.ok_or(ToolOutputError::Unavailable)?;
            let record: JobRecord = Record::decode(&stored)?;
            if record.status == status {
                return Ok(record);
            }
            if !record.status.may_become(status) {
                return Err(ToolOutputError::StatusChange {
                    from: record.status,
                    to: status,
                });
            }
            let now_ms = self.stamp(now_ms).await?;
            let record = JobRecord {
                status,
                created_at_ms: record.created_at_ms,
                terminal_at_ms: record.terminal_at_ms.or(Some(now_ms)),
            };
            let batch = Batch {
                expect: vec![(keys.job(), Expectation::Value(stored))],
                put: vec![(keys.job(), Record(record).encode()?)],
                delete: Vec::new(),
            };
            match self.store.commit(batch).await {
                Err(StoreError::Conflict) => {}
                outcome => return Ok(outcome.map(|()| record)?),
            }
        }
        Err(StoreError::Conflict.into())
    }

    /// Takes the result of a tool call: what the model sees of it is answered once everything that it
    /// refers to is stored. `handles` are those that the runtime names, if it names any. A second
    /// delivery under the same `call` gets the first one's answer.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError`]; nothing is stored then and nothing must reach the model.
    pub async fn record(
        &self,
        session: &SessionId,
        job: &JobId,
        call: Option<&ToolCallId>,
        result: ToolResult,
        handles: Option<Handles>,
    ) -> Result<Outcome, ToolOutputError> {
        let prepared = Prepared::new(job, result, handles).await?;
        self.record_prepared(&JobKeys::new(session, job), call, &prepared)
            .await
    }

    async fn record_prepared(
        &self,
        keys: &JobKeys,
        call: Option<&ToolCallId>,
        prepared: &Prepared,
    ) -> Result<Outcome, ToolOutputError> {
        for _ in 0..MAX_ATTEMPTS {
            match self.try_record(keys, call, prepared).await {
                Err(ToolOutputError::Store(StoreError::Conflict)) => {}
                outcome => return outcome,
            }
        }
        Err(StoreError::Conflict.into())
    }

    async fn try_record(
        &self,
        keys: &JobKeys,
        call: Option<&ToolCallId>,
        prepared: &Prepared,
    ) -> Result<Outcome, ToolOutputError> {
        let mut batch = Batch::default();
        // Without a call id another key stands in, so that the number of keys is fixed.
        let call_key = call.map(|call| keys.call(call));
        let third_key = call_key.clone().unwrap_or_else(|| keys.job());
        let [job, usage, earlier] = self.get([keys.job(), keys.usage(), third_key]).await?;
        let job = job.ok_or(ToolOutputError::Unavailable)?;
        let stored_usage = usage.ok_or(ToolOutputError::Integrity)?;
        if let Some(key) = call_key {
            if let Some(earlier) = earlier {
                return answered(&earlier, prepared.request);
            }
            let record = CallRecord::new(prepared.request, &prepared.outcome);
            batch.expect.push((key.clone(), Expectation::Absent));
            batch.put.push((key, Record(record).encode()?));
        }
        let record: JobRecord = Record::decode(&job)?;
        if record.status.is_terminal() && prepared.observed.is_none() {
            return Err(ToolOutputError::JobEnded);
        }
        let observed = prepared.observed.clone();
        let expected = observed.map(|(key, stored)| (key, Expectation::Value(stored)));
        batch.expect.extend(expected);
        let mut usage: JobUsage = Record::decode(&stored_usage)?;
        if let Some((manifest, bytes)) = &prepared.artifact {
            self.stage_artifact(keys, manifest, bytes, &mut usage, &mut batch)
                .await?;
        }
        // What is stored already needs no commit.
        if !batch.put.is_empty() {
            usage.change_count = usage.change_count.saturating_add(1);
            batch.expect.push((keys.job(), Expectation::Value(job)));
            batch
                .expect
                .push((keys.usage(), Expectation::Value(stored_usage)));
            batch.put.push((keys.usage(), Record(usage).encode()?));
            self.store.commit(batch).await?;
        }
        Ok(prepared.outcome.clone())
    }

    /// Adds to `batch` and `usage` what is not stored yet of the artifact.
    async fn stage_artifact(
        &self,
        keys: &JobKeys,
        manifest: &ChunkManifest,
        bytes: &Bytes,
        usage: &mut JobUsage,
        batch: &mut Batch,
    ) -> Result<(), ToolOutputError> {
        let place = keys.artifact(manifest.sha256);
        let chunks: Vec<(Key, Bytes)> = blob::chunks(manifest, bytes)
            .map(|(sha256, chunk)| (place.chunk_key(sha256), chunk))
            .collect();
        let mut wanted = vec![place.manifest.clone()];
        wanted.extend(chunks.iter().map(|(key, _)| key.clone()));
        let mut stored = self.store.get(&wanted).await?.into_iter();
        match stored.next().flatten() {
            Some(stored) if blob::decode_manifest(&stored)? == *manifest => {}
            Some(_) => return Err(ToolOutputError::Integrity),
            None => {
                usage.artifact_bytes = usage.artifact_bytes.saturating_add(manifest.byte_count);
                usage.artifact_count = usage.artifact_count.saturating_add(1);
                if usage.artifact_bytes > MAX_JOB_BYTES {
                    return Err(ToolOutputError::JobFull);
                }
                let sealed = blob::encode_manifest(manifest);
                batch.put.push((place.manifest, sealed));
            }
        }
        for ((key, chunk), stored) in chunks.into_iter().zip(stored) {
            match stored {
                // Another artifact of the job has the chunk; it is stored once. It goes only with the
                // whole job, whose counters the batch expects to be unchanged.
                Some(stored) if stored == chunk => {}
                Some(_) => return Err(ToolOutputError::Integrity),
                None => batch.put.push((key, chunk)),
            }
        }
        Ok(())
    }

    /// Reads a range of an artifact. Only the chunks that the range touches are fetched, and each is
    /// verified.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Unavailable`], [`ToolOutputError::Integrity`], [`ToolOutputError::Read`].
    pub async fn read(
        &self,
        session: &SessionId,
        job: &JobId,
        sha256: Sha256Digest,
        request: ReadRequest,
    ) -> Result<FetchedRange, ToolOutputError> {
        let place = JobKeys::new(session, job).artifact(sha256);
        let manifest = self.manifest(&place, sha256).await?;
        let range = request.range(manifest.byte_count)?;
        let fetched = self.read_blob(&place, &manifest, range).await?;
        let fetched = FetchedRange {
            sha256,
            byte_count: manifest.byte_count,
            request,
            fetched,
        };
        fetched.answer().map_err(|refusal| match refusal {
            ReadRefusal::NotText => ToolOutputError::Integrity,
            refusal => refusal.into(),
        })?;
        Ok(fetched)
    }

    /// What the model's tool [`READ_TOOL`](tool_output::READ_TOOL), called in `current_job`, answers:
    /// the JSON of the range, with room left for the result around it.
    ///
    /// # Errors
    ///
    /// As of [`read`](Self::read). The tool is one of a job's, also when it reads another's output:
    /// without the current job it is [`ToolOutputError::Unavailable`].
    pub async fn read_tool(
        &self,
        session: &SessionId,
        current_job: &JobId,
        arguments: &ReadArguments,
    ) -> Result<String, ToolOutputError> {
        self.job(session, current_job).await?;
        let job = arguments.job_id.as_ref().unwrap_or(current_job);
        let range = self
            .read(session, job, arguments.sha256, arguments.request)
            .await?;
        Ok(range.answer()?.for_tool().to_json())
    }

    /// The complete bytes of an artifact, each chunk and the whole verified. This is what finds a
    /// manifest that was forged together with its own digest, which no partial read can.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Unavailable`] and [`ToolOutputError::Integrity`].
    pub async fn read_whole(
        &self,
        session: &SessionId,
        job: &JobId,
        sha256: Sha256Digest,
    ) -> Result<Bytes, ToolOutputError> {
        let place = JobKeys::new(session, job).artifact(sha256);
        let manifest = self.manifest(&place, sha256).await?;
        let whole = 0..manifest.byte_count;
        let bytes = self.read_blob(&place, &manifest, whole).await?;
        if Sha256Digest::of(&bytes) == sha256 {
            Ok(bytes)
        } else {
            Err(ToolOutputError::Integrity)
        }
    }

    /// Reads chunks of a blob whose manifest was just read.
    async fn read_blob(
        &self,
        place: &blob::Place,
        manifest: &ChunkManifest,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, ToolOutputError> {
        match blob::read(&self.store, place, manifest, range).await {
            // What was deleted in between is not there, which is no damage.
            Err(BlobError::Missing) if blob::manifest(&self.store, place).await?.is_none() => {
                Err(ToolOutputError::Unavailable)
            }
            outcome => Ok(outcome?),
        }
    }

    async fn manifest(
        &self,
        place: &blob::Place,
        sha256: Sha256Digest,
    ) -> Result<ChunkManifest, ToolOutputError> {
        let manifest = blob::manifest(&self.store, place)
            .await?
            .ok_or(ToolOutputError::Unavailable)?;
        if manifest.sha256 == sha256 {
            Ok(manifest)
        } else {
            Err(ToolOutputError::Integrity)
        }
    }

    /// The jobs of a session, by id.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`].
    pub async fn jobs(&self, session: &SessionId) -> Result<Vec<JobId>, ToolOutputError> {
        let prefix = keys::session_prefix(session);
        let keys = self.store.list(&prefix).await?;
        let ids = keys.iter().filter_map(|key| {
            let rest = key.as_str().strip_prefix(&prefix)?;
            rest.strip_suffix("/job")?.parse().ok()
        });
        Ok(ids.collect())
    }

    /// The artifacts of a job, by digest.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Integrity`] when a manifest is not what was written.
    pub async fn artifacts(
        &self,
        session: &SessionId,
        job: &JobId,
    ) -> Result<Vec<ArtifactDescriptor>, ToolOutputError> {
        let prefix = JobKeys::new(session, job).artifact_prefix();
        let keys = self.store.list(&prefix).await?;
        let manifests = self.store.get(&keys).await?;
        manifests
            .into_iter()
            .flatten()
            .map(|stored| {
                let manifest = blob::decode_manifest(&stored)?;
                Ok(ArtifactDescriptor::new(
                    manifest.sha256,
                    manifest.byte_count,
                ))
            })
            .collect()
    }

    /// The digests of a job's artifacts, also of those whose manifests are not what was written.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`].
    pub async fn artifact_digests(
        &self,
        session: &SessionId,
        job: &JobId,
    ) -> Result<Vec<Sha256Digest>, ToolOutputError> {
        let prefix = JobKeys::new(session, job).artifact_prefix();
        let keys = self.store.list(&prefix).await?;
        let digest = |key: &Key| key.as_str().strip_prefix(&prefix)?.parse().ok();
        Ok(keys.iter().filter_map(digest).collect())
    }

    /// Forgets a job and everything that it holds, chunks, manifests, counters, calls and the job
    /// itself, in one transaction. A job that is not there is no error.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`]; the job is untouched then.
    pub async fn delete_job(
        &self,
        session: &SessionId,
        job: &JobId,
    ) -> Result<(), ToolOutputError> {
        let keys = JobKeys::new(session, job);
        for _ in 0..MAX_ATTEMPTS {
            let [stored, usage] = self.get([keys.job(), keys.usage()]).await?;
            if stored.is_none() {
                return Ok(());
            }
            match self.delete_as_read(&keys, stored, usage).await {
                Err(StoreError::Conflict) => {}
                outcome => return Ok(outcome?),
            }
        }
        Err(StoreError::Conflict.into())
    }

    /// Deletes a job unless anything was added to it, or it was changed, since `stored` and `usage`
    /// were read.
    async fn delete_as_read(
        &self,
        keys: &JobKeys,
        stored: Option<Bytes>,
        usage: Option<Bytes>,
    ) -> Result<(), StoreError> {
        // The keys are listed after the counters were read: what is added later moves those.
        let mut delete = self.store.list(&keys.prefix()).await?;
        delete.push(keys.owner());
        let expect = vec![(keys.job(), stored.into()), (keys.usage(), usage.into())];
        let put = Vec::new();
        let batch = Batch {
            expect,
            put,
            delete,
        };
        self.store.commit(batch).await
    }
}

impl Prepared {
    /// The same as the answer to another request than to record it.
    fn answering(self, request: Sha256Digest) -> Self {
        Self { request, ..self }
    }

    async fn new(
        job: &JobId,
        result: ToolResult,
        handles: Option<Handles>,
    ) -> Result<Self, ToolOutputError> {
        let byte_count = result.serialized_byte_count();
        if byte_count > MAX_ARTIFACT_BYTES {
            return Err(ToolOutputError::ResultTooLarge { byte_count });
        }
        let serialized = result.serialize();
        let manifest = manifest_of(serialized.as_bytes()).await;
        let named = handles.as_ref().map_or("", Handles::as_str);
        let request = Sha256Digest::of(format!("{}\n{named}", manifest.sha256).as_bytes());
        if tool_output::is_inline(byte_count) {
            return Ok(Self {
                artifact: None,
                request,
                outcome: Outcome {
                    result: serialized,
                    reference: None,
                },
                observed: None,
            });
        }
        let reference = ToolOutputRef {
            job_id: job.clone(),
            sha256: manifest.sha256,
            bytes: manifest.byte_count,
            handles: handles.unwrap_or_else(|| Handles::of_data(result.data.as_ref())),
        };
        let bounded = tool_output::bounded(&result, &reference);
        // The result itself is let go before anything is stored: the serialization has it all.
        drop(result);
        Ok(Self {
            artifact: Some((manifest, serialized.into())),
            request,
            outcome: Outcome {
                result: bounded.serialize(),
                reference: Some(reference.to_json().to_string()),
            },
            observed: None,
        })
    }
}
