//! What is seen of a process, while it runs and after (contract B, processes).
//!
//! A plain poll shows both streams, each clipped to its head and tail. A cursor poll answers exact
//! ranges of the streams by byte offset. Both say in a receipt what they observed.

mod arguments;
mod cursor_poll;
mod plain_poll;

use alloc::format;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

pub use self::arguments::{
    InvalidArguments, OutputCursors, POLL_TOOL_SCHEMA, PollArguments, START_TOOL_SCHEMA,
    STOP_TOOL_SCHEMA, StartArguments, StopArguments, request_digest,
};
pub use self::cursor_poll::{CursorPoll, StreamSlice};
pub use self::plain_poll::{Clip, plain_poll, unavailable};
use crate::digest::Sha256Digest;
use crate::job::ProcessId;
use crate::json;
use crate::raw_json::RawJson;
use crate::tool_result::ToolResult;

/// The tool that starts a process.
pub const START_TOOL: &str = "exec_start";
/// The tool that looks at a process.
pub const POLL_TOOL: &str = "exec_poll";
/// The tool that ends a process.
pub const STOP_TOOL: &str = "exec_stop";

/// The most bytes of each stream that are captured: 1 MiB. What comes after is counted and not kept.
pub const MAX_CAPTURE_BYTES: usize = 1024 * 1024;

/// One of the two streams that a process writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// The name in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Where a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessStatus {
    /// It runs, or its output has not ended.
    Running,
    /// It ended by itself, with an exit code.
    Exited,
    /// A signal that nobody asked for here ended it.
    Signaled,
    /// [`STOP_TOOL`] ended it.
    Stopped,
    /// The host that ran it is gone, and what it wrote was not captured.
    Interrupted,
}

impl ProcessStatus {
    /// Whether it has ended.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Running)
    }

    /// The word in answers and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Signaled => "signaled",
            Self::Stopped => "stopped",
            Self::Interrupted => "interrupted",
        }
    }
}

/// What is known of a captured stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamFacts {
    /// The digest of the captured bytes.
    pub sha256: Sha256Digest,
    /// How many bytes are captured.
    pub bytes: u64,
    /// How many bytes the process has written.
    pub total_bytes: u64,
    /// Whether the captured bytes are valid UTF-8 as a whole.
    pub is_text: bool,
}

impl StreamFacts {
    /// The facts of a stream whose `captured` bytes were cut by [`captured`].
    pub fn of(captured: &[u8], total_bytes: u64) -> Self {
        Self {
            sha256: Sha256Digest::of(captured),
            bytes: captured.len() as u64,
            total_bytes,
            is_text: core::str::from_utf8(captured).is_ok(),
        }
    }

    /// Whether the process wrote more than was captured.
    pub const fn capture_truncated(&self) -> bool {
        self.bytes < self.total_bytes
    }
}

/// What counts as captured of the `bytes` at the start of a stream: at most [`MAX_CAPTURE_BYTES`].
///
/// Where more follows, because the stream goes on or was cut at the cap, an incomplete code point at
/// the end waits for its rest: a character that is split between two writes does not turn a text into
/// bytes. Where the stream has ended, every byte counts.
pub fn captured(bytes: &[u8], ended: bool) -> &[u8] {
    let is_cut = bytes.len() > MAX_CAPTURE_BYTES;
    let bytes = &bytes[..bytes.len().min(MAX_CAPTURE_BYTES)];
    if ended && !is_cut {
        return bytes;
    }
    match core::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// What is known of a process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Which process.
    pub process_id: ProcessId,
    /// Where it stands.
    pub status: ProcessStatus,
    /// The exit code, of a process that exited.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: StreamFacts,
    /// Standard error.
    pub stderr: StreamFacts,
}

impl ProcessFacts {
    /// A stream's facts.
    pub const fn stream(&self, stream: Stream) -> &StreamFacts {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    /// Whether it has not failed: it runs, or it exited with 0.
    pub fn success(&self) -> bool {
        match self.status {
            ProcessStatus::Running => true,
            ProcessStatus::Exited => self.exit_code == Some(0),
            ProcessStatus::Signaled | ProcessStatus::Stopped | ProcessStatus::Interrupted => false,
        }
    }

    /// The data of a plain poll: where the process stands, and of each stream its size, total size and
    /// digest, and whether its capture was cut.
    fn to_json(&self) -> RawJson {
        #[derive(Serialize)]
        struct Data<'a> {
            process_id: &'a ProcessId,
            status: ProcessStatus,
            exit_code: Option<i32>,
            signal: Option<i32>,
            stdout: Captured,
            stderr: Captured,
        }
        #[derive(Serialize)]
        struct Captured {
            sha256: Sha256Digest,
            bytes: u64,
            total_bytes: u64,
            capture_truncated: bool,
        }
        let captured = |facts: &StreamFacts| Captured {
            sha256: facts.sha256,
            bytes: facts.bytes,
            total_bytes: facts.total_bytes,
            capture_truncated: facts.capture_truncated(),
        };
        RawJson::from_own(json::to_string(&Data {
            process_id: &self.process_id,
            status: self.status,
            exit_code: self.exit_code,
            signal: self.signal,
            stdout: captured(&self.stdout),
            stderr: captured(&self.stderr),
        }))
    }

    fn receipt(&self, observed: Both<Vec<[u64; 2]>>) -> Receipt<'_> {
        Receipt {
            kind: POLL_TOOL,
            schema_version: 1,
            process_id: &self.process_id,
            status: self.status,
            observed,
            capture_truncated: Both {
                stdout: self.stdout.capture_truncated(),
                stderr: self.stderr.capture_truncated(),
            },
        }
    }
}

/// The result of starting a process.
pub fn started(process_id: &ProcessId) -> ToolResult {
    ToolResult {
        data: Some(standing(process_id, ProcessStatus::Running)),
        ..ToolResult::from_text(
            true,
            format!("{process_id} runs; look at it with {POLL_TOOL}"),
        )
    }
}

/// Where a process stands, and nothing else.
fn standing(process_id: &ProcessId, status: ProcessStatus) -> RawJson {
    // Ids and words hold no character that JSON escapes.
    RawJson::from_own(format!(
        "{{\"process_id\":\"{process_id}\",\"status\":\"{}\"}}",
        status.as_str()
    ))
}

/// Something of each stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Both<T> {
    stdout: T,
    stderr: T,
}

/// What a poll observed: of each stream the ranges `[start, end)` of its bytes that the answer shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Receipt<'a> {
    kind: &'static str,
    schema_version: u8,
    process_id: &'a ProcessId,
    status: ProcessStatus,
    observed: Both<Vec<[u64; 2]>>,
    capture_truncated: Both<bool>,
}

#[cfg(test)]
mod tests;
