//! The one excerpt that a bounded result keeps.
//!
//! The excerpt is of the result's text; where that is empty, of the data's JSON, so that a tool that
//! answers only data is not shown as silence. What fits whole is shown whole. Otherwise the head and
//! the tail get half of the room each, in serialized bytes, cut at code points, and between them
//! stands the marker:
//!
//! ```text
//! \n[... bytes 8123 to 260001 of the complete result are left out; read them with akh_read_tool_output ...]\n
//! ```
//!
//! Its positions are those of the stored artifact, so that they are cursors as they stand.

use alloc::format;
use alloc::string::String;
use core::ops::Range;

use super::READ_TOOL;
use crate::json::{escaped_byte_len, escaped_len};
use crate::raw_json::RawJson;
use crate::tool_result::ToolResult;

/// The most bytes that the marker takes in the serialization. An artifact has at most 8 digits of
/// bytes, which the tests hold against this.
pub const MARKER_MAX_BYTES: usize = 128;

fn marker(start: u64, end: u64) -> String {
    format!(
        "\n[... bytes {start} to {end} of the complete result are left out; read them with {READ_TOOL} ...]\n"
    )
}

/// Which bytes of the stored artifact an excerpt shows, and which it leaves out between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcerptRanges {
    /// Shown, before the marker.
    pub head: Range<u64>,
    /// Not shown.
    pub left_out: Range<u64>,
    /// Shown, after the marker.
    pub tail: Range<u64>,
}

/// The excerpt of `result`, whose complete serialization has `byte_count`, in at most `room`
/// serialized bytes; and what it leaves out, where it is not the whole.
pub(super) fn of(
    result: &ToolResult,
    byte_count: u64,
    room: usize,
) -> (String, Option<ExcerptRanges>) {
    let source = match &result.data {
        Some(data) if result.text.is_empty() => data.as_str(),
        _ => &result.text,
    };
    if fits(source, room) {
        return (source.into(), None);
    }
    // The widest marker that the positions can ask for.
    let room = room.saturating_sub(escaped_len(&marker(byte_count, byte_count)));
    let head = head(source, room.div_ceil(2));
    let tail = tail(source, room / 2);
    let ranges = ranges(result, head, source.len() - tail.len(), tail);
    let marker = marker(ranges.left_out.start, ranges.left_out.end);
    (format!("{head}{marker}{tail}"), Some(ranges))
}

/// Where head and tail stand in the artifact.
fn ranges(result: &ToolResult, head: &str, tail_start: usize, tail: &str) -> ExcerptRanges {
    let (base, head, tail_start, tail) = match result.data.as_ref().map(RawJson::as_str) {
        // The data's JSON stands in the artifact as it is.
        Some(_) if result.text.is_empty() => {
            (result.data_position(), head.len(), tail_start, tail.len())
        }
        _ => (
            result.text_position(),
            escaped_len(head),
            escaped_len(&result.text[..tail_start]),
            escaped_len(tail),
        ),
    };
    let position = |offset: usize| (base + offset) as u64;
    ExcerptRanges {
        head: position(0)..position(head),
        left_out: position(head)..position(tail_start),
        tail: position(tail_start)..position(tail_start + tail),
    }
}

fn fits(text: &str, room: usize) -> bool {
    text.len() <= room && escaped_len(text) <= room
}

/// The longest start of `text` that takes at most `room` serialized bytes.
fn head(text: &str, room: usize) -> &str {
    let mut used = 0;
    let end = text.bytes().position(|byte| {
        used += escaped_byte_len(byte);
        used > room
    });
    &text[..text.floor_char_boundary(end.unwrap_or(text.len()))]
}

/// The longest end of `text` that takes at most `room` serialized bytes.
fn tail(text: &str, room: usize) -> &str {
    let mut used = 0;
    let last_left_out = text.bytes().rposition(|byte| {
        used += escaped_byte_len(byte);
        used > room
    });
    let start = last_left_out.map_or(0, |index| index + 1);
    &text[text.ceil_char_boundary(start)..]
}
