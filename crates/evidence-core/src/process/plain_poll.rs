//! Plain polls: both streams, clipped to head and tail.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Both, POLL_TOOL, ProcessFacts, ProcessStatus, Stream, StreamFacts, standing};
use crate::job::ProcessId;
use crate::json;
use crate::raw_json::RawJson;
use crate::tool_result::ToolResult;

/// The most bytes of a stream that a plain poll shows: 24 KiB.
const MAX_CLIPPED_BYTES: u64 = 24 * 1024;

/// Which bytes of a stream a plain poll shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clip {
    /// From the start on. The whole stream, when it fits.
    pub head: Range<u64>,
    /// At the end; empty when the head is the whole.
    pub tail: Range<u64>,
}

impl Clip {
    /// The clip of a stream; empty when the stream is not text.
    pub const fn of(facts: &StreamFacts) -> Self {
        let bytes = facts.bytes;
        if !facts.is_text {
            return Self {
                head: 0..0,
                tail: bytes..bytes,
            };
        }
        if bytes <= MAX_CLIPPED_BYTES {
            return Self {
                head: 0..bytes,
                tail: bytes..bytes,
            };
        }
        let half = MAX_CLIPPED_BYTES / 2;
        Self {
            head: 0..half,
            tail: bytes - half..bytes,
        }
    }
}

/// The result of a plain poll, given the fetched bytes of each stream's [`Clip`]: head and tail of
/// standard output, then of standard error.
///
/// The clips are shortened to code points. The result is bounded like any other.
pub fn plain_poll(facts: &ProcessFacts, stdout: [&[u8]; 2], stderr: [&[u8]; 2]) -> ToolResult {
    let (stdout_text, stdout_observed) = section(Stream::Stdout, &facts.stdout, stdout);
    let (stderr_text, stderr_observed) = section(Stream::Stderr, &facts.stderr, stderr);
    let receipt = facts.receipt(Both {
        stdout: stdout_observed,
        stderr: stderr_observed,
    });
    ToolResult {
        success: facts.success(),
        text: format!("{stdout_text}{stderr_text}"),
        data: Some(facts.to_json()),
        receipt: Some(RawJson::from_own(json::to_string(&receipt))),
    }
}

/// The result of a plain poll of a process whose output is not available (yet, or any more): where it
/// stands is known, what it wrote is not.
pub fn unavailable(process_id: &ProcessId, status: ProcessStatus) -> ToolResult {
    let reason = match status {
        ProcessStatus::Interrupted => "the host that ran it ended before its output was captured",
        ProcessStatus::Running => "another host runs it, and stores its output when it has ended",
        _ => "its captured output has expired",
    };
    ToolResult {
        data: Some(standing(process_id, status)),
        ..ToolResult::from_text(
            false,
            format!("the output of {process_id} is not available: {reason}"),
        )
    }
}

/// What is shown of a stream, and which of its bytes these are.
fn section(
    stream: Stream,
    facts: &StreamFacts,
    [head, tail]: [&[u8]; 2],
) -> (String, Vec<[u64; 2]>) {
    let name = stream.as_str();
    let bytes = facts.bytes;
    if bytes == 0 {
        return (String::new(), Vec::new());
    }
    let capped = if facts.capture_truncated() {
        format!(", the first of {}", facts.total_bytes)
    } else {
        String::new()
    };
    let title = format!("{name} ({bytes} bytes{capped}):\n");
    if !facts.is_text {
        let line = format!(
            "{title}[... bytes 0 to {bytes} are not UTF-8; read them with {POLL_TOOL} and {name}_offset ...]\n"
        );
        return (line, Vec::new());
    }
    let (head, tail) = (whole_start(head), whole_end(tail));
    let (head_end, tail_start) = (head.len() as u64, bytes - tail.len() as u64);
    let new_line = if tail.ends_with('\n') || (tail.is_empty() && head.ends_with('\n')) {
        ""
    } else {
        "\n"
    };
    if head_end == tail_start {
        let text = format!("{title}{head}{tail}{new_line}");
        return (text, vec![[0, bytes]]);
    }
    let text = format!(
        "{title}{head}\n[... bytes {head_end} to {tail_start} of {name} are left out; read them with {POLL_TOOL} and {name}_offset ...]\n{tail}{new_line}"
    );
    (text, vec![[0, head_end], [tail_start, bytes]])
}

/// The longest start of whole code points.
fn whole_start(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// The longest end of whole code points.
fn whole_end(bytes: &[u8]) -> &str {
    let start = bytes
        .iter()
        .position(|byte| byte & 0b1100_0000 != 0b1000_0000)
        .unwrap_or(bytes.len());
    core::str::from_utf8(&bytes[start..]).unwrap_or_default()
}
