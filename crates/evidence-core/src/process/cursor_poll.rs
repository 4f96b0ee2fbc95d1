//! Cursor polls: exact ranges of the streams.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::{Both, OutputCursors, ProcessFacts, ProcessStatus, Receipt, Stream, StreamFacts};
use crate::cursor::{ReadRefusal, twice_escaped_byte_len};
use crate::digest::Sha256Digest;
use crate::job::ProcessId;
use crate::json;
use crate::tool_output::MAX_RESULT_BYTES;
use crate::tool_result::ToolResult;

impl OutputCursors {
    const fn offset(&self, stream: Stream) -> Option<u64> {
        match stream {
            Stream::Stdout => self.stdout_offset,
            Stream::Stderr => self.stderr_offset,
        }
    }

    /// Which bytes of a stream's capture must be fetched; none of a stream without an offset.
    ///
    /// # Errors
    ///
    /// [`ReadRefusal::OutOfRange`] when the offset is beyond what is captured (so far).
    pub fn range(&self, stream: Stream, facts: &StreamFacts) -> Result<Range<u64>, ReadRefusal> {
        let Some(offset) = self.offset(stream) else {
            return Ok(0..0);
        };
        if offset > facts.bytes {
            return Err(ReadRefusal::OutOfRange { bytes: facts.bytes });
        }
        Ok(offset
            ..offset
                .saturating_add(self.max_output_bytes)
                .min(facts.bytes))
    }
}

/// A range of a stream, as it stands in the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamSlice<'a> {
    /// The digest of the complete captured stream (so far).
    pub sha256: Sha256Digest,
    /// The size of the complete captured stream (so far), in bytes.
    pub bytes: u64,
    /// Where the slice begins, in bytes.
    pub offset: u64,
    /// Where to go on.
    pub next_offset: u64,
    /// Whether `next_offset` is the end and no more will come.
    pub done: bool,
    /// The bytes as text, where the complete captured stream is valid UTF-8.
    pub text: Option<&'a str>,
    /// The bytes, always exact (RFC 4648, section 4).
    pub base64: String,
}

/// The answer to a cursor poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CursorPoll<'a> {
    cursor_mode: bool,
    /// Which process.
    pub process_id: &'a ProcessId,
    /// Where it stands.
    pub status: ProcessStatus,
    /// Whether it has not failed: it runs, or it exited with 0.
    pub success: bool,
    receipt: Receipt<'a>,
    /// The exit code, of a process that exited.
    pub exit_code: Option<i32>,
    /// Standard output.
    pub stdout: StreamSlice<'a>,
    /// Standard error.
    pub stderr: StreamSlice<'a>,
}

impl<'a> CursorPoll<'a> {
    /// The answer, given the fetched bytes of [`OutputCursors::range`] of both streams.
    ///
    /// A slice ends early where a text would be cut in a code point, and where the whole answer would
    /// not fit a tool result: like a read's, also when its JSON is that result's text. Each stream
    /// that is read has the same share of the room, and what one does not use is the other's.
    ///
    /// # Errors
    ///
    /// [`ReadRefusal::MidCodePoint`] and [`ReadRefusal::LimitTooSmall`], in a stream that is text.
    pub fn new(
        facts: &'a ProcessFacts,
        cursors: &OutputCursors,
        stdout: &'a [u8],
        stderr: &'a [u8],
    ) -> Result<Self, ReadRefusal> {
        let stdout = readable(cursors.offset(Stream::Stdout), &facts.stdout, stdout)?;
        let stderr = readable(cursors.offset(Stream::Stderr), &facts.stderr, stderr)?;
        let answer = |stdout: &'a [u8], stderr: &'a [u8]| {
            let slice = |stream, bytes| slice(facts, cursors, stream, bytes);
            let (stdout, stderr) = (slice(Stream::Stdout, stdout), slice(Stream::Stderr, stderr));
            Self {
                cursor_mode: true,
                process_id: &facts.process_id,
                status: facts.status,
                success: facts.success(),
                receipt: facts.receipt(Both {
                    stdout: observed(&stdout),
                    stderr: observed(&stderr),
                }),
                exit_code: facts.exit_code,
                stdout,
                stderr,
            }
        };
        let room =
            MAX_RESULT_BYTES.saturating_sub(POSITIONS_BYTES + answer(&[], &[]).wrapped_len());
        let half = fitting(stdout, facts.stdout.is_text, room / 2);
        let rest = room - cost(&stdout[..half], facts.stdout.is_text);
        let stderr = &stderr[..fitting(stderr, facts.stderr.is_text, rest)];
        let rest = room - cost(stderr, facts.stderr.is_text);
        let stdout = &stdout[..fitting(stdout, facts.stdout.is_text, rest)];
        Ok(answer(stdout, stderr))
    }

    /// The answer's JSON.
    pub fn to_json(&self) -> String {
        json::to_string(self)
    }

    /// The size of a tool result whose text is the answer's JSON.
    fn wrapped_len(&self) -> usize {
        ToolResult::from_text(true, self.to_json()).serialized_byte_count()
    }
}

/// How much longer the positions can become than those of empty slices: of each stream the end, which
/// is written twice, has at most 7 digits; and twice a `false` for a `true`.
const POSITIONS_BYTES: usize = 4 * 7 + 2;

/// What of `fetched` can be answered: all of it, or in a text up to the last whole code point.
fn readable<'a>(
    offset: Option<u64>,
    facts: &StreamFacts,
    fetched: &'a [u8],
) -> Result<&'a [u8], ReadRefusal> {
    let Some(offset) = offset.filter(|_| facts.is_text) else {
        return Ok(fetched);
    };
    // The limit is at least 1 and at most what was fetched, so that the rules of reads hold.
    let limit = (fetched.len() as u64).max(1);
    let request = crate::cursor::ReadRequest::new(offset, limit)?;
    let answer = request.answer(facts.sha256, facts.bytes, fetched)?;
    Ok(&fetched[..answer.text.len()])
}

fn slice<'a>(
    facts: &ProcessFacts,
    cursors: &OutputCursors,
    stream: Stream,
    bytes: &'a [u8],
) -> StreamSlice<'a> {
    let of = facts.stream(stream);
    let offset = cursors.offset(stream).unwrap_or(0);
    let next_offset = offset.saturating_add(bytes.len() as u64);
    StreamSlice {
        sha256: of.sha256,
        bytes: of.bytes,
        offset,
        next_offset,
        done: facts.status.is_terminal() && next_offset == of.bytes,
        text: core::str::from_utf8(bytes).ok().filter(|_| of.is_text),
        base64: STANDARD.encode(bytes),
    }
}

fn observed(slice: &StreamSlice<'_>) -> Vec<[u64; 2]> {
    vec![[slice.offset, slice.next_offset]]
}

/// The longest start of `bytes` that costs at most `room`, at a code point where it is text.
fn fitting(bytes: &[u8], is_text: bool, room: usize) -> usize {
    let mut text_cost = 0;
    let end = bytes.iter().enumerate().position(|(index, byte)| {
        if is_text {
            text_cost += twice_escaped_byte_len(*byte);
        }
        text_cost + encoded_len(index + 1) > room
    });
    let end = end.unwrap_or(bytes.len());
    match core::str::from_utf8(bytes) {
        Ok(text) if is_text => text.floor_char_boundary(end),
        _ => end,
    }
}

/// The bytes that a slice takes in the answer as the text of a result.
fn cost(bytes: &[u8], is_text: bool) -> usize {
    let text: usize = bytes.iter().map(|byte| twice_escaped_byte_len(*byte)).sum();
    encoded_len(bytes.len()) + if is_text { text } else { 0 }
}

const fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}
