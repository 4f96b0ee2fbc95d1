//! Contract B.

use std::fmt::Display;

use evidence_agent::endpoint::{Problem, ProblemCode};
use evidence_core::cursor::{self, READ_TOOL_SCHEMA, ReadArguments, ReadRefusal};
use evidence_core::envelope::{self, MaxInputBytes};
use evidence_core::tool_output::{Handles, READ_TOOL, ToolOutputRef};
use evidence_core::{ArtifactDescriptor, JobId, SessionId, Sha256Digest, ToolCallId, ToolResult};
use evidence_store::{ToolOutputError, ToolOutputs};

use crate::bindings::exports::bounded_evidence::evidence::tool_output::{
    Artifact, Code, EnvelopeCheck, Error, Guest, JobRecord, JobStatus, JobUsage, Outcome,
    ReadAnswer, ReadRequest, RecordOptions,
};
use crate::blobs::HostBlobs;
use crate::{Component, now};

pub const OUTPUTS: ToolOutputs<HostBlobs> = ToolOutputs::new(HostBlobs);

impl Error {
    /// An argument is not of the form that it must have.
    pub fn invalid(reason: impl Display) -> Self {
        Self {
            code: Code::InvalidArgument,
            message: reason.to_string(),
        }
    }
}

impl From<ToolOutputError> for Error {
    fn from(error: ToolOutputError) -> Self {
        let problem = Problem::from(error.clone());
        let code = match (problem.code(), error) {
            (ProblemCode::Unavailable, _) => Code::Unavailable,
            (ProblemCode::Conflict, _) => Code::Conflict,
            (ProblemCode::ResultTooLarge, _) => Code::ResultTooLarge,
            (_, ToolOutputError::Read(ReadRefusal::OutOfRange { bytes })) => {
                Code::OutOfRange(bytes)
            }
            (_, ToolOutputError::Read(ReadRefusal::LimitTooSmall { needed })) => {
                Code::MidCodepoint(Some(needed))
            }
            (ProblemCode::MidCodepoint, _) => Code::MidCodepoint(None),
            (ProblemCode::IntegrityFailure, _) => Code::IntegrityFailure,
            (ProblemCode::StorageUnavailable, _) => Code::StorageUnavailable,
            (ProblemCode::StorageExhausted, _) => Code::StorageExhausted,
            // The others are of requests over HTTP.
            _ => Code::InvalidRequest,
        };
        Self {
            code,
            message: problem.detail().to_owned(),
        }
    }
}

impl From<ReadRefusal> for Error {
    fn from(refusal: ReadRefusal) -> Self {
        ToolOutputError::from(refusal).into()
    }
}

impl From<evidence_core::JobStatus> for JobStatus {
    fn from(status: evidence_core::JobStatus) -> Self {
        use evidence_core::JobStatus as Status;
        match status {
            Status::Active => Self::Active,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::Cancelled => Self::Cancelled,
            Status::Archived => Self::Archived,
        }
    }
}

impl From<JobStatus> for evidence_core::JobStatus {
    fn from(status: JobStatus) -> Self {
        match status {
            JobStatus::Active => Self::Active,
            JobStatus::Completed => Self::Completed,
            JobStatus::Failed => Self::Failed,
            JobStatus::Cancelled => Self::Cancelled,
            JobStatus::Archived => Self::Archived,
        }
    }
}

impl From<evidence_store::tool_output::JobRecord> for JobRecord {
    fn from(record: evidence_store::tool_output::JobRecord) -> Self {
        Self {
            status: record.status.into(),
            created_at_ms: record.created_at_ms,
            terminal_at_ms: record.terminal_at_ms,
        }
    }
}

impl From<evidence_store::Outcome> for Outcome {
    fn from(outcome: evidence_store::Outcome) -> Self {
        Self {
            result: outcome.result,
            reference: outcome.reference,
        }
    }
}

impl From<envelope::EnvelopeCheck> for EnvelopeCheck {
    fn from(check: envelope::EnvelopeCheck) -> Self {
        Self {
            fits: check.fits,
            bytes: check.bytes,
            limit: check.limit,
        }
    }
}

pub fn session_id(session: &str) -> Result<SessionId, Error> {
    session.parse().map_err(Error::invalid)
}

fn job_id(job: &str) -> Result<JobId, Error> {
    job.parse().map_err(Error::invalid)
}

fn digest(sha256: &str) -> Result<Sha256Digest, Error> {
    sha256.parse().map_err(Error::invalid)
}

impl Guest for Component {
    fn create_job(session: String, job: String, now_ms: u64) -> Result<JobRecord, Error> {
        let (session, job) = (session_id(&session)?, job_id(&job)?);
        let (record, _) = now(OUTPUTS.create_job(&session, &job, now_ms))?;
        Ok(record.into())
    }

    fn job(session: String, job: String) -> Result<(JobRecord, JobUsage), Error> {
        let (session, job) = (session_id(&session)?, job_id(&job)?);
        let (record, usage) = now(OUTPUTS.job(&session, &job))?;
        let usage = JobUsage {
            artifact_bytes: usage.artifact_bytes,
            artifact_count: usage.artifact_count,
        };
        Ok((record.into(), usage))
    }

    fn jobs(session: String) -> Result<Vec<String>, Error> {
        let jobs = now(OUTPUTS.jobs(&session_id(&session)?))?;
        Ok(jobs.iter().map(JobId::to_string).collect())
    }

    fn set_status(
        session: String,
        job: String,
        status: JobStatus,
        now_ms: u64,
    ) -> Result<JobRecord, Error> {
        let (session, job) = (session_id(&session)?, job_id(&job)?);
        Ok(now(OUTPUTS.set_status(&session, &job, status.into(), now_ms))?.into())
    }

    fn delete_job(session: String, job: String) -> Result<(), Error> {
        let (session, job) = (session_id(&session)?, job_id(&job)?);
        Ok(now(OUTPUTS.delete_job(&session, &job))?)
    }

    fn record(
        session: String,
        job: String,
        result: String,
        options: RecordOptions,
    ) -> Result<Outcome, Error> {
        let (session, job) = (session_id(&session)?, job_id(&job)?);
        let call = options.tool_call_id.map(|id| id.parse::<ToolCallId>());
        let call = call.transpose().map_err(Error::invalid)?;
        let handles = options.handles.map(|handles| Handles::parse(&handles));
        let handles = handles.transpose().map_err(Error::invalid)?;
        let parsed = ToolResult::parse(&result).map_err(Error::invalid)?;
        // It has everything, and the memory is needed.
        drop(result);
        let outcome = now(OUTPUTS.record(&session, &job, call.as_ref(), parsed, handles))?;
        Ok(outcome.into())
    }

    fn read(
        session: String,
        job: String,
        sha256: String,
        request: ReadRequest,
    ) -> Result<ReadAnswer, Error> {
        let (session, job, sha256) = (session_id(&session)?, job_id(&job)?, digest(&sha256)?);
        let request = cursor::ReadRequest::new(request.offset, request.limit)?;
        let range = now(OUTPUTS.read(&session, &job, sha256, request))?;
        let answer = range.answer()?;
        Ok(ReadAnswer {
            sha256: answer.sha256.to_string(),
            bytes: answer.bytes,
            offset: answer.offset,
            next_offset: answer.next_offset,
            done: answer.done,
            data: answer.text.as_bytes().to_vec(),
        })
    }

    fn read_tool(session: String, current_job: String, arguments: String) -> Result<String, Error> {
        let (session, job) = (session_id(&session)?, job_id(&current_job)?);
        let arguments = ReadArguments::parse(&arguments)?;
        Ok(now(OUTPUTS.read_tool(&session, &job, &arguments))?)
    }

    fn read_whole(session: String, job: String, sha256: String) -> Result<Vec<u8>, Error> {
        let (session, job, sha256) = (session_id(&session)?, job_id(&job)?, digest(&sha256)?);
        Ok(now(OUTPUTS.read_whole(&session, &job, sha256))?.into())
    }

    fn artifacts(session: String, job: String) -> Result<Vec<Artifact>, Error> {
        let (session, job) = (session_id(&session)?, job_id(&job)?);
        let artifacts = now(OUTPUTS.artifacts(&session, &job))?;
        let artifact = |stored: ArtifactDescriptor| Artifact {
            sha256: stored.sha256.to_string(),
            byte_count: stored.byte_count,
            path: ToolOutputRef::path_of(&job, stored.sha256),
        };
        Ok(artifacts.into_iter().map(artifact).collect())
    }

    fn parse_query(query: String) -> Result<ReadRequest, Error> {
        let request = cursor::ReadRequest::from_query(&query)?;
        Ok(ReadRequest {
            offset: request.offset(),
            limit: request.limit(),
        })
    }

    fn read_tool_name() -> String {
        READ_TOOL.to_owned()
    }

    fn read_tool_schema() -> String {
        READ_TOOL_SCHEMA.to_owned()
    }

    fn check_envelope(body: String, max_input_bytes: Option<i64>) -> Result<EnvelopeCheck, Error> {
        let limit = max_input_bytes.map(MaxInputBytes::new).transpose();
        let limit = limit.map_err(Error::invalid)?.unwrap_or_default();
        Ok(limit.check(&body).into())
    }

    fn check_message(message: String) -> EnvelopeCheck {
        envelope::check_message(&message).into()
    }
}
