//! Contract B: jobs, structured results, reads by cursor, envelopes.

#[cfg(feature = "processes")]
use std::cell::RefCell;
use std::fmt::Display;

use evidence_core::cursor::{MAX_READ_BYTES, READ_TOOL_SCHEMA, ReadArguments, ReadRequest};
use evidence_core::envelope::{self, EnvelopeCheck, MaxInputBytes};
use evidence_core::raw_json::JsonError;
use evidence_core::tool_output::{Handles, HandlesError, READ_TOOL, ToolOutputRef};
use evidence_core::tool_result::ToolResultError;
use evidence_core::{JobId, JobStatus, SessionId, Sha256Digest, ToolCallId, ToolResult};
use evidence_store::tool_output::{JobRecord, JobUsage};
use evidence_store::{Outcome, ToolOutputError, ToolOutputs};
use js_sys::{Array, Date, Uint8Array};
use wasm_bindgen::prelude::*;

use crate::argument::Argument;
use crate::artifacts::object;
use crate::error::{Failure, Result};
#[cfg(feature = "processes")]
use crate::processes::Processes;
use crate::store::AnyStore;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** Where a job stands. It takes results while it is active; what has ended can only be archived. */
export type JobStatus = "active" | "completed" | "failed" | "cancelled" | "archived";

/** What is recorded of a job. Times are milliseconds since 1970. */
export interface JobRecord {
  /** Where it stands. */
  status: JobStatus;
  /** When it was created. */
  createdAtMs: number;
  /** When it ended; null while it is active. */
  terminalAtMs: number | null;
}

/** A job, and how much of its 128 MiB it uses, identical artifacts counted once. */
export interface Job extends JobRecord {
  /** The size of its artifacts. */
  artifactBytes: number;
  /** How many they are. */
  artifactCount: number;
}

/** A value that JSON can hold. */
export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [name: string]: JsonValue | undefined };

/**
 * What a tool answers. What is measured, digested and stored is its JSON.
 *
 * As an object it has the numbers that JavaScript has: an integer beyond 2^53 or 1e400 was changed
 * before it got here, and NaN, infinities, -0 and what else JSON cannot hold are refused. Only the JSON
 * text of a result, passed as a string, keeps every number and every duplicate name exactly as the
 * tool wrote it.
 */
export interface ToolResult {
  /** Whether the tool did what it was asked to do. */
  success: boolean;
  /** What the model reads. */
  text: string;
  /** A structured value. */
  data?: JsonValue;
  /** What the tool's run is proven by. It reaches the model with the excerpt, where it fits. */
  receipt?: JsonValue;
}

/** How a result is recorded. */
export interface RecordOptions {
  /** The id of the tool call: a second delivery under it gets the answer of the first. */
  toolCallId?: string;
  /**
   * The identifiers that the model needs to go on, or their JSON text: at most 2 KiB of them are
   * kept. Left out, they are the data's members id, status, state, exit_code and *_id.
   */
  handles?: { readonly [name: string]: JsonValue | undefined } | string;
}

/** A recorded result. */
export interface RecordedResult {
  /** The JSON of the result as the model sees it: at most 16 KiB. */
  result: string;
  /**
   * The JSON of the reference to the stored result, when it was too large: what the event that records
   * the finished call keeps as provenance.
   */
  reference: string | null;
}

/** Which bytes to read. */
export interface ReadOptions {
  /** Where to begin, in UTF-8 bytes; 0 when left out. */
  offset?: number;
  /** The most bytes, 1 to 8192; 8192 when left out. */
  limit?: number;
}

/** The answer to a read, with the names that the endpoint and the model's tool use. */
export interface ReadAnswer {
  /** The version of this form. */
  schema_version: 1;
  /** The digest of the complete artifact. */
  sha256: string;
  /** The size of the complete artifact. */
  bytes: number;
  /** Where the bytes begin. */
  offset: number;
  /** Where to go on. */
  next_offset: number;
  /** Whether next_offset is the end. */
  done: boolean;
  /** The bytes [offset, next_offset), exactly. */
  text: string;
}

/** A stored result of a job. */
export interface ToolOutputArtifact {
  /** The digest of the complete serialized result. */
  sha256: string;
  /** The size of the complete serialized result. */
  byteCount: number;
  /** The endpoint's path of it. */
  path: string;
}

/** What was measured, against what. */
export interface EnvelopeCheck {
  /** Whether bytes is at most limit. */
  fits: boolean;
  /** What was measured. */
  bytes: number;
  /** The most that fits. */
  limit: number;
}
"#;

/// The jobs of one session and their tool output. Another session's do not exist for it.
#[derive(Debug)]
#[wasm_bindgen]
pub struct ToolOutput {
    outputs: ToolOutputs<AnyStore>,
    session: SessionId,
    #[cfg(feature = "processes")]
    processes: RefCell<Option<Processes>>,
}

impl ToolOutput {
    pub(crate) const fn new(store: AnyStore, session: SessionId) -> Self {
        Self {
            outputs: ToolOutputs::new(store),
            session,
            #[cfg(feature = "processes")]
            processes: RefCell::new(None),
        }
    }

    pub(crate) const fn outputs(&self) -> &ToolOutputs<AnyStore> {
        &self.outputs
    }

    pub(crate) const fn session(&self) -> &SessionId {
        &self.session
    }
}

#[cfg(feature = "processes")]
impl ToolOutput {
    pub(crate) fn processes(&self) -> Option<Processes> {
        self.processes.borrow().clone()
    }

    /// Those that were there before.
    pub(crate) fn set_processes(&self, processes: Option<Processes>) -> Option<Processes> {
        self.processes.replace(processes)
    }
}

#[wasm_bindgen]
impl ToolOutput {
    /// Creates an active job; one that this session has already is left as it is.
    ///
    /// Rejects with the code `conflict` when another session has the id, and with `invalid_argument`
    /// unless it is 1 to 128 of `A-Z a-z 0-9 . _ -` and neither `.` nor `..`.
    #[wasm_bindgen(js_name = createJob, unchecked_return_type = "JobRecord")]
    pub async fn create_job(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
    ) -> Result<JsValue> {
        let job = job_id(job)?;
        let (record, _) = self
            .outputs
            .create_job(&self.session, &job, now_ms())
            .await?;
        Ok(object(record_fields(&record)))
    }

    /// What is recorded of a job.
    #[wasm_bindgen(unchecked_return_type = "Job")]
    pub async fn job(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
    ) -> Result<JsValue> {
        let job = job_id(job)?;
        let (record, usage) = self.outputs.job(&self.session, &job).await?;
        let JobUsage {
            artifact_bytes,
            artifact_count,
            ..
        } = usage;
        let more = [
            ("artifactBytes", number(artifact_bytes)),
            ("artifactCount", number(artifact_count)),
        ];
        Ok(object(record_fields(&record).into_iter().chain(more)))
    }

    /// The ids of the session's jobs.
    #[wasm_bindgen(unchecked_return_type = "string[]")]
    pub async fn jobs(&self) -> Result<Array> {
        let jobs = self.outputs.jobs(&self.session).await?;
        Ok(jobs.iter().map(|job| JsValue::from(job.as_str())).collect())
    }

    /// Changes where a job stands.
    ///
    /// Rejects with the code `conflict` where a job does not go from the one status to the other.
    #[wasm_bindgen(js_name = setStatus, unchecked_return_type = "JobRecord")]
    pub async fn set_status(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
        #[wasm_bindgen(unchecked_param_type = "JobStatus")] status: JsValue,
    ) -> Result<JsValue> {
        let job = job_id(job)?;
        let status: JobStatus = Argument::new("status", status).parsed()?;
        let record = self
            .outputs
            .set_status(&self.session, &job, status, now_ms())
            .await?;
        Ok(object(record_fields(&record)))
    }

    /// Forgets a job and everything that it holds, at once, and ends its processes. One that is not there
    /// is no error.
    #[wasm_bindgen(js_name = deleteJob)]
    pub async fn delete_job(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
    ) -> Result<()> {
        let job = job_id(job)?;
        #[cfg(feature = "processes")]
        if let Some(processes) = self.processes() {
            return Ok(processes.delete_job(&self.session, &job).await?);
        }
        Ok(self.outputs.delete_job(&self.session, &job).await?)
    }

    /// Takes the result of a tool call: an object, or the JSON text of one, which alone keeps numbers
    /// beyond doubles exactly. What the model sees of it is answered once everything that it refers
    /// to is stored.
    ///
    /// When it rejects, nothing is stored and nothing must reach the model: `result_too_large` over
    /// 16 MiB, `storage_exhausted` when the job's 128 MiB or the store are full, `conflict` when the
    /// job has ended or the tool call's id was used for another result.
    #[wasm_bindgen(unchecked_return_type = "RecordedResult")]
    pub async fn record(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
        #[wasm_bindgen(unchecked_param_type = "ToolResult | string")] result: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "RecordOptions")] options: JsValue,
    ) -> Result<JsValue> {
        let job = job_id(job)?;
        let result = tool_result(&Argument::new("result", result))?;
        let (mut call, mut handles) = (None, None);
        if let Some(options) = Argument::new("options", options).optional() {
            if let Some(id) = options.field("toolCallId")?.optional() {
                call = Some(id.parsed::<ToolCallId>()?);
            }
            if let Some(named) = options.field("handles")?.optional() {
                handles = Some(named_handles(&named)?);
            }
        }
        let outcome = self
            .outputs
            .record(&self.session, &job, call.as_ref(), result, handles)
            .await?;
        Ok(recorded(outcome))
    }

    /// Reads exact bytes of a stored result. It ends at a code point; go on at `next_offset`.
    ///
    /// Rejects as the endpoint refuses: `unavailable`, `out_of_range`, `mid_codepoint`,
    /// `integrity_failure`, and `invalid_request` for an offset or a limit that is none.
    #[wasm_bindgen(unchecked_return_type = "ReadAnswer")]
    pub async fn read(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
        #[wasm_bindgen(unchecked_param_type = "string")] sha256: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "ReadOptions")] options: JsValue,
    ) -> Result<JsValue> {
        let job = job_id(job)?;
        let sha256 = digest(sha256)?;
        let request = read_request(Argument::new("options", options))?;
        let range = self
            .outputs
            .read(&self.session, &job, sha256, request)
            .await?;
        let answer = range.answer().map_err(ToolOutputError::from)?;
        Ok(object([
            ("schema_version", answer.schema_version.into()),
            ("sha256", answer.sha256.to_string().into()),
            ("bytes", number(answer.bytes)),
            ("offset", number(answer.offset)),
            ("next_offset", number(answer.next_offset)),
            ("done", answer.done.into()),
            ("text", answer.text.into()),
        ]))
    }

    /// Answers the model's call of the tool `readToolName()`: the JSON to show it, of a `ReadAnswer`
    /// with as much text as fits a tool result. It may be passed on as the data or as the text of a
    /// result and is never stored again.
    ///
    /// `argumentsJson` is what the model wrote. Rejects as `read` does; the message is fit for the
    /// model.
    #[wasm_bindgen(js_name = readTool)]
    pub async fn read_tool(
        &self,
        #[wasm_bindgen(js_name = currentJob, unchecked_param_type = "string")] job: JsValue,
        #[wasm_bindgen(js_name = argumentsJson, unchecked_param_type = "string")]
        arguments: JsValue,
    ) -> Result<String> {
        let job = Argument::new("currentJob", job).parsed()?;
        let arguments = Argument::new("argumentsJson", arguments).text()?;
        let arguments = ReadArguments::parse(&arguments).map_err(ToolOutputError::from)?;
        Ok(self
            .outputs
            .read_tool(&self.session, &job, &arguments)
            .await?)
    }

    /// The complete serialized result, every chunk and the whole verified.
    #[wasm_bindgen(js_name = readWhole)]
    pub async fn read_whole(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
        #[wasm_bindgen(unchecked_param_type = "string")] sha256: JsValue,
    ) -> Result<Uint8Array> {
        let job = job_id(job)?;
        let sha256 = digest(sha256)?;
        let bytes = self.outputs.read_whole(&self.session, &job, sha256).await?;
        Ok(Uint8Array::from(&bytes[..]))
    }

    /// The stored results of a job, by digest.
    #[wasm_bindgen(unchecked_return_type = "ToolOutputArtifact[]")]
    pub async fn artifacts(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
    ) -> Result<Array> {
        let job = job_id(job)?;
        let artifacts = self.outputs.artifacts(&self.session, &job).await?;
        let artifact = |sha256: Sha256Digest, byte_count| {
            object([
                ("sha256", sha256.to_string().into()),
                ("byteCount", number(byte_count)),
                ("path", ToolOutputRef::path_of(&job, sha256).into()),
            ])
        };
        let artifacts = artifacts.iter();
        Ok(artifacts
            .map(|stored| artifact(stored.sha256, stored.byte_count))
            .collect())
    }
}

/// The name of the tool by which the model reads stored results.
#[wasm_bindgen(js_name = readToolName)]
pub fn read_tool_name() -> String {
    READ_TOOL.to_owned()
}

/// What the model is told about that tool: the JSON of an object of `name`, `description` and
/// `parameters` (JSON Schema).
#[wasm_bindgen(js_name = readToolSchema)]
pub fn read_tool_schema() -> String {
    READ_TOOL_SCHEMA.to_owned()
}

/// Measures the complete serialized body of a request to a provider, instructions, schemas and
/// history included, against the limit that the request declares: 1 to 8,388,608 bytes, which is what
/// holds without one. A body that does not fit must not be sent; nothing is dropped to make it fit.
#[wasm_bindgen(js_name = checkEnvelope, unchecked_return_type = "EnvelopeCheck")]
pub fn check_envelope(
    #[wasm_bindgen(unchecked_param_type = "string")] body: JsValue,
    #[wasm_bindgen(js_name = maxInputBytes, unchecked_optional_param_type = "number")]
    limit: JsValue,
) -> Result<JsValue> {
    let limit = max_input_bytes(Argument::new("maxInputBytes", limit))?;
    let body = Argument::new("body", body).text()?;
    Ok(envelope_check(&limit.check(&body)))
}

/// Measures one final, escaped message as the provider gets it, against 64 KiB.
#[wasm_bindgen(js_name = checkMessage, unchecked_return_type = "EnvelopeCheck")]
pub fn check_message(
    #[wasm_bindgen(unchecked_param_type = "string")] message: JsValue,
) -> Result<JsValue> {
    let message = Argument::new("message", message).text()?;
    Ok(envelope_check(&envelope::check_message(&message)))
}

/// The declared limit, or the one that holds without one.
pub fn max_input_bytes(limit: Argument) -> Result<MaxInputBytes> {
    match limit.optional() {
        Some(limit) => {
            MaxInputBytes::new(limit.integer()?).map_err(|error| refused(&limit, &error, None))
        }
        None => Ok(MaxInputBytes::default()),
    }
}

fn envelope_check(check: &EnvelopeCheck) -> JsValue {
    object([
        ("fits", check.fits.into()),
        ("bytes", number(check.bytes)),
        ("limit", number(check.limit)),
    ])
}

#[wasm_bindgen(module = "/src/json.js")]
extern "C" {
    #[wasm_bindgen(catch, js_name = exactJson)]
    fn exact_json(value: &JsValue) -> Result<JsValue, JsValue>;
}

/// JSON text as it is, or the JSON of any other value where there is one that keeps all of it.
fn json_of(value: &Argument) -> Result<String> {
    if value.is_text() {
        return value.text();
    }
    match exact_json(value.value()) {
        Ok(json) => Argument::new(value.name(), json).text(),
        Err(exception) => {
            let message = Argument::new("exception", exception).message();
            Err(value.is_not(&format!(
                "something that JSON can hold exactly ({message}); pass the JSON text itself instead"
            )))
        }
    }
}

/// The failure of JSON that is not what it must be.
fn refused(value: &Argument, error: &impl Display, json_error: Option<JsonError>) -> Failure {
    match json_error {
        // The scanner finds what JSON.stringify has escaped.
        Some(JsonError::LoneSurrogate { .. }) => Failure::lone_surrogate(value.name()),
        _ => Failure::invalid(format!("{}: {error}", value.name())),
    }
}

fn tool_result(value: &Argument) -> Result<ToolResult> {
    ToolResult::parse(&json_of(value)?).map_err(|error| {
        let json_error = match error {
            ToolResultError::Json(error) => Some(error),
            _ => None,
        };
        refused(value, &error, json_error)
    })
}

fn named_handles(value: &Argument) -> Result<Handles> {
    Handles::parse(&json_of(value)?).map_err(|error| {
        let json_error = match error {
            HandlesError::NotAnObject(error) => Some(error),
            HandlesError::DuplicateName => None,
        };
        refused(value, &error, json_error)
    })
}

fn read_request(options: Argument) -> Result<ReadRequest> {
    let (mut offset, mut limit) = (0, MAX_READ_BYTES);
    if let Some(options) = options.optional() {
        let read = |name, default| match options.field(name)?.optional() {
            Some(number) => number.integer().map(|number| u64::try_from(number).ok()),
            None => Ok(Some(default)),
        };
        offset = read("offset", offset)?
            .ok_or_else(|| Failure::invalid("options.offset must not be negative"))?;
        // What is no limit at all is refused as such, in one place.
        limit = read("limit", limit)?.unwrap_or(0);
    }
    Ok(ReadRequest::new(offset, limit).map_err(ToolOutputError::from)?)
}

/// A `RecordedResult`.
pub fn recorded(outcome: Outcome) -> JsValue {
    let reference = outcome.reference.map_or(JsValue::NULL, JsValue::from);
    object([("result", outcome.result.into()), ("reference", reference)])
}

pub fn job_id(job: JsValue) -> Result<JobId> {
    Argument::new("job", job).parsed()
}

fn digest(sha256: JsValue) -> Result<Sha256Digest> {
    Argument::new("sha256", sha256).parsed()
}

fn record_fields(record: &JobRecord) -> [(&'static str, JsValue); 3] {
    [
        ("status", record.status.as_str().into()),
        ("createdAtMs", number(record.created_at_ms)),
        (
            "terminalAtMs",
            record.terminal_at_ms.map_or(JsValue::NULL, number),
        ),
    ]
}

/// Sizes and times of this library are far below 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact below 2^53, as sizes and times are"
)]
pub fn number(number: u64) -> JsValue {
    (number as f64).into()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "milliseconds since 1970 are a positive number of less than 53 bits"
)]
pub fn now_ms() -> u64 {
    Date::now() as u64
}
