//! The endpoint of contract B, as a function from requests to responses.
//!
//! ```text
//! PUT   /v1/jobs/{job}                                 creates a job
//! PATCH /v1/jobs/{job}                                 {"status"}
//! POST  /v1/jobs/{job}/tool-results                    a tool result in, the bounded one out
//! GET   /v1/jobs/{job}/tool-output/{sha256}?offset=0&limit=8192
//! POST  /v1/jobs/{job}/tools/akh_read_tool_output      the same for the model
//! POST  /v1/jobs/{job}/tools/exec_start                starts a process; exec_poll and exec_stop
//! POST  /v1/envelope-check                             {"max_input_bytes"?,"body"}
//! ```
//!
//! A page's service worker and a server call the same [`Endpoint::respond`]. It knows nothing of
//! sockets, tokens and clocks: who asks and what time it is come with the request.

mod problem;
mod route;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use evidence_core::cursor::{ReadArguments, ReadRequest};
use evidence_core::envelope::{InvalidMaxInputBytes, MaxInputBytes};
use evidence_core::raw_json::{self, ObjectReader};
use evidence_core::tool_output::Handles;
use evidence_core::tool_result::ToolResultBuilder;
use evidence_core::{JobId, JobStatus, SessionId, Sha256Digest, ToolCallId};
use evidence_store::{Store, ToolOutputs};
use serde::{Deserialize, Serialize};

use crate::process::{NoProcesses, ProcessCall, ProcessTools};

pub use self::problem::{Problem, ProblemCode};
pub use self::route::Route;

/// A request, as it stands in HTTP.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The path and the query, percent-encoded, from `/v1/` on.
    pub target: &'a str,
    /// The header [`TOOL_CALL_ID`], if there is one.
    pub tool_call_id: Option<&'a str>,
    /// The body.
    pub body: Bytes,
}

/// The header that makes the delivery of a tool result idempotent.
pub const TOOL_CALL_ID: &str = "tool-call-id";

/// The largest body that is worth reading.
///
/// A result of 16 MiB in which a client has escaped every character that is not ASCII has up to three
/// times its size. What is beyond is too large in any spelling that a JSON library writes.
pub const MAX_BODY_BYTES: usize = 48 * 1024 * 1024;

/// A response, as it stands in HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The headers, also those that every response has.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
    /// What was asked for: one of a few words, fit for a metric's label.
    pub route: Route,
    /// Why it was refused, if it was.
    pub code: Option<ProblemCode>,
}

impl Response {
    fn json(status: u16, body: String, route: Route) -> Self {
        Self::new(status, "application/json", body, route, None)
    }

    fn new(
        status: u16,
        content_type: &str,
        body: String,
        route: Route,
        code: Option<ProblemCode>,
    ) -> Self {
        // A later session of the same browser must not find it, and a browser must not guess a type.
        let headers = vec![
            ("content-type", content_type.to_owned()),
            ("cache-control", "no-store".to_owned()),
            ("x-content-type-options", "nosniff".to_owned()),
        ];
        Self {
            status,
            headers,
            body,
            route,
            code,
        }
    }

    /// A refusal.
    pub fn problem(problem: &Problem, route: Route) -> Self {
        let code = Some(problem.code());
        let body = problem.to_json();
        let mut response = Self::new(
            problem.status(),
            "application/problem+json",
            body,
            route,
            code,
        );
        response.headers.extend(problem.header());
        response
    }
}

/// Answers requests from the tool output of a [`Store`], and carries out calls of process tools where
/// there are processes.
#[derive(Debug, Clone)]
pub struct Endpoint<S, P = NoProcesses> {
    outputs: ToolOutputs<S>,
    processes: P,
}

/// The answer about a job.
#[derive(Serialize)]
struct JobAnswer<'a> {
    job_id: &'a JobId,
    status: JobStatus,
}

impl JobAnswer<'_> {
    fn respond(&self, status: u16, route: Route) -> Result<Response, Problem> {
        // Ids and words have a JSON.
        let body = serde_json::to_string(self).map_err(|_| Problem::integrity_failure())?;
        Ok(Response::json(status, body, route))
    }
}

impl<S: Store> Endpoint<S> {
    /// An endpoint over `store`.
    pub const fn new(store: S) -> Self {
        Self {
            outputs: ToolOutputs::new(store),
            processes: NoProcesses,
        }
    }
}

impl<S: Store, P: ProcessTools> Endpoint<S, P> {
    /// The same with `processes`, which are recorded in the same store.
    pub fn with_processes<Q: ProcessTools>(self, processes: Q) -> Endpoint<S, Q> {
        Endpoint {
            outputs: self.outputs,
            processes,
        }
    }

    /// The tool output behind it.
    pub const fn outputs(&self) -> &ToolOutputs<S> {
        &self.outputs
    }

    /// Answers `request` of the authenticated `session`, at the time `now_ms` (milliseconds since
    /// 1970). Without a session nothing is answered but that one is needed.
    pub async fn respond(
        &self,
        session: Option<&SessionId>,
        request: Request<'_>,
        now_ms: u64,
    ) -> Response {
        let Some(session) = session else {
            return Response::problem(&Problem::unauthenticated(), Route::Unknown);
        };
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((request.target, ""));
        let (route, segments) = match route::parse(request.method, path) {
            Ok(parsed) => parsed,
            Err(problem) => return Response::problem(&problem, Route::Unknown),
        };
        let answer = match (route, segments.as_slice()) {
            (Route::ReadToolOutput, [job, sha256]) => self.read(session, job, sha256, query).await,
            _ if !query.is_empty() => Err(Problem::invalid("this address takes no query")),
            (Route::CreateJob, [job]) => self.create(session, job, &request.body, now_ms).await,
            (Route::ChangeJob, [job]) => self.change(session, job, &request.body, now_ms).await,
            (Route::RecordToolResult, [job]) => self.record(session, job, request).await,
            (Route::CallReadTool, [job]) => self.call_read_tool(session, job, &request.body).await,
            (Route::CallProcessTool, [job, tool]) => {
                self.call_process_tool(session, job, tool, &request).await
            }
            (Route::CheckEnvelope, []) => check_envelope(&request.body),
            _ => Err(Problem::unavailable()),
        };
        answer.unwrap_or_else(|problem| Response::problem(&problem, route))
    }

    async fn create(
        &self,
        session: &SessionId,
        job: &str,
        body: &[u8],
        now_ms: u64,
    ) -> Result<Response, Problem> {
        if !matches!(body.trim_ascii(), b"" | b"{}") {
            return Err(Problem::invalid("a job is created without a body"));
        }
        let job: JobId = parsed(job)?;
        let (record, created) = self.outputs.create_job(session, &job, now_ms).await?;
        let answer = JobAnswer {
            job_id: &job,
            status: record.status,
        };
        answer.respond(if created { 201 } else { 200 }, Route::CreateJob)
    }

    async fn change(
        &self,
        session: &SessionId,
        job: &str,
        body: &[u8],
        now_ms: u64,
    ) -> Result<Response, Problem> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Change {
            status: JobStatus,
        }
        let job: JobId = parsed(job)?;
        let Ok(Change { status }) = raw_json::from_str(text(body)?) else {
            return Err(Problem::invalid(
                "the body is {\"status\":…} with one of active, completed, failed, cancelled and archived",
            ));
        };
        let record = self
            .outputs
            .set_status(session, &job, status, now_ms)
            .await?;
        let answer = JobAnswer {
            job_id: &job,
            status: record.status,
        };
        answer.respond(200, Route::ChangeJob)
    }

    async fn record(
        &self,
        session: &SessionId,
        job: &str,
        request: Request<'_>,
    ) -> Result<Response, Problem> {
        let job: JobId = parsed(job)?;
        let call: Option<ToolCallId> = request.tool_call_id.map(parsed).transpose()?;
        let mut result = ToolResultBuilder::default();
        let mut handles = None;
        let mut reader = ObjectReader::new(text(&request.body)?);
        while let Some(name) = reader.next_name().map_err(Problem::invalid)? {
            let is_result = result.read_member(&name, &mut reader);
            if is_result.map_err(Problem::invalid)? {
                continue;
            }
            if name != "handles" {
                return Err(Problem::invalid(
                    "the body has the members success, text, data, receipt and handles and no other",
                ));
            }
            let value = reader.value().map_err(Problem::invalid)?;
            let value = Handles::parse(value.as_str()).map_err(Problem::invalid)?;
            if handles.replace(value).is_some() {
                return Err(Problem::invalid("the member \"handles\" stands twice"));
            }
        }
        let result = result.build().map_err(Problem::invalid)?;
        // The result has what the body had; a large one is not held twice while it is stored.
        drop(request);
        let outcome = self
            .outputs
            .record(session, &job, call.as_ref(), result, handles)
            .await?;
        Ok(Response::json(200, outcome.result, Route::RecordToolResult))
    }

    async fn read(
        &self,
        session: &SessionId,
        job: &str,
        sha256: &str,
        query: &str,
    ) -> Result<Response, Problem> {
        let (job, sha256): (JobId, Sha256Digest) = (parsed(job)?, parsed(sha256)?);
        let request = ReadRequest::from_query(query)?;
        let range = self.outputs.read(session, &job, sha256, request).await?;
        let body = range.answer()?.to_json();
        Ok(Response::json(200, body, Route::ReadToolOutput))
    }

    async fn call_read_tool(
        &self,
        session: &SessionId,
        current_job: &str,
        body: &[u8],
    ) -> Result<Response, Problem> {
        let current_job: JobId = parsed(current_job)?;
        let arguments = ReadArguments::parse(text(body)?)?;
        let body = self
            .outputs
            .read_tool(session, &current_job, &arguments)
            .await?;
        Ok(Response::json(200, body, Route::CallReadTool))
    }

    async fn call_process_tool(
        &self,
        session: &SessionId,
        job: &str,
        tool: &str,
        request: &Request<'_>,
    ) -> Result<Response, Problem> {
        let job: JobId = parsed(job)?;
        let id = request.tool_call_id.ok_or(Problem::invalid(
            "a call of a process tool needs the header Tool-Call-Id, under which its answer is kept",
        ))?;
        let id: ToolCallId = parsed(id)?;
        let call = ProcessCall::parse(tool, text(&request.body)?)
            .ok_or(Problem::unavailable())?
            .map_err(Problem::invalid)?;
        let outcome = self.processes.call(session, &job, Some(&id), &call).await?;
        Ok(Response::json(200, outcome.result, Route::CallProcessTool))
    }
}

/// Measures a provider request. A string is the serialized body itself; of any other value the
/// compact serialization is measured.
fn check_envelope(body: &[u8]) -> Result<Response, Problem> {
    let mut max_input_bytes = None;
    let mut envelope = None;
    let mut reader = ObjectReader::new(text(body)?);
    while let Some(name) = reader.next_name().map_err(Problem::invalid)? {
        let value = reader.value().map_err(Problem::invalid)?;
        let seen = match name.as_str() {
            "max_input_bytes" => {
                let limit: MaxInputBytes = raw_json::from_str(value.as_str())
                    .map_err(|_| Problem::invalid(InvalidMaxInputBytes))?;
                max_input_bytes.replace(limit).is_some()
            }
            "body" => envelope.replace(value).is_some(),
            _ => {
                return Err(Problem::invalid(
                    "the body has the members max_input_bytes and body and no other",
                ));
            }
        };
        if seen {
            return Err(Problem::invalid("a member stands twice"));
        }
    }
    let envelope = envelope.ok_or(Problem::invalid("the member \"body\" is missing"))?;
    let limit = max_input_bytes.unwrap_or_default();
    let check = match envelope.to_text() {
        Some(serialized) => limit.check(&serialized),
        None => limit.check(envelope.as_str()),
    };
    let body = serde_json::to_string(&check).map_err(|_| Problem::integrity_failure())?;
    Ok(Response::json(200, body, Route::CheckEnvelope))
}

fn text(body: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(body).map_err(|_| Problem::invalid("the body is not UTF-8"))
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, Problem>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(Problem::invalid)
}
