//! Which request a method and a path are.

use evidence_core::cursor::percent_decoded;
use evidence_core::process::{POLL_TOOL, START_TOOL, STOP_TOOL};
use evidence_core::tool_output::READ_TOOL;

use super::problem::Problem;

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// `PUT /v1/jobs/{job}`
    CreateJob,
    /// `PATCH /v1/jobs/{job}`
    ChangeJob,
    /// `POST /v1/jobs/{job}/tool-results`
    RecordToolResult,
    /// `GET /v1/jobs/{job}/tool-output/{sha256}`
    ReadToolOutput,
    /// `POST /v1/jobs/{job}/tools/akh_read_tool_output`
    CallReadTool,
    /// `POST /v1/jobs/{job}/tools/exec_start`, `…/exec_poll` or `…/exec_stop`
    CallProcessTool,
    /// `POST /v1/envelope-check`
    CheckEnvelope,
    /// Anything else, and requests of nobody.
    Unknown,
}

impl Route {
    /// A word for a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CreateJob => "create_job",
            Self::ChangeJob => "change_job",
            Self::RecordToolResult => "record_tool_result",
            Self::ReadToolOutput => "read_tool_output",
            Self::CallReadTool => "call_read_tool",
            Self::CallProcessTool => "call_process_tool",
            Self::CheckEnvelope => "check_envelope",
            Self::Unknown => "unknown",
        }
    }
}

/// The route of a request and the parts of its path that vary, decoded.
pub(super) fn parse(method: &str, path: &str) -> Result<(Route, Vec<String>), Problem> {
    // The parts are decoded after the path is split: an encoded slash is no separator, and no id has
    // one.
    let parts: Option<Vec<String>> = path.split('/').map(percent_decoded).collect();
    let parts = parts.ok_or(Problem::invalid("the path's percent-encoding is invalid"))?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (methods, routes, variables): (_, &[Route], &[&str]) = match parts.as_slice() {
        ["", "v1", "jobs", job] => ("PUT, PATCH", &[Route::CreateJob, Route::ChangeJob], &[*job]),
        ["", "v1", "jobs", job, "tool-results"] => ("POST", &[Route::RecordToolResult], &[*job]),
        ["", "v1", "jobs", job, "tool-output", sha256] => {
            ("GET", &[Route::ReadToolOutput], &[*job, *sha256])
        }
        ["", "v1", "jobs", job, "tools", tool] if *tool == READ_TOOL => {
            ("POST", &[Route::CallReadTool], &[*job])
        }
        ["", "v1", "jobs", job, "tools", tool]
            if [START_TOOL, POLL_TOOL, STOP_TOOL].contains(tool) =>
        {
            ("POST", &[Route::CallProcessTool], &[*job, *tool])
        }
        ["", "v1", "envelope-check"] => ("POST", &[Route::CheckEnvelope], &[]),
        _ => return Err(Problem::unavailable()),
    };
    let mut allowed = methods.split(", ").zip(routes);
    let (_, route) = allowed
        .find(|(allowed, _)| *allowed == method)
        .ok_or(Problem::method_not_allowed(methods))?;
    let variables = variables.iter().copied().map(str::to_owned).collect();
    Ok((*route, variables))
}
