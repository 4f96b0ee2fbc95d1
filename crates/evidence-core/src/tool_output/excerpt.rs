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

use super::READ_TOOL;
use crate::json::{escaped_byte_len, escaped_len};
use crate::raw_json::RawJson;
use crate::tool_result::ToolResult;

/// The most bytes that the marker takes in the serialization. An artifact has at most 8 digits of
/// bytes, which the tests hold against this.
pub const MARKER_MAX_BYTES: usize = 128;

fn marker(start: usize, end: u64) -> String {
    format!(
        "\n[... bytes {start} to {end} of the complete result are left out; read them with {READ_TOOL} ...]\n"
    )
}

/// The excerpt of `result`, whose complete serialization has `byte_count`, in at most `room`
/// serialized bytes.
pub(super) fn of(result: &ToolResult, byte_count: u64, room: usize) -> String {
    let source = match &result.data {
        Some(data) if result.text.is_empty() => data.as_str(),
        _ => &result.text,
    };
    if fits(source, room) {
        return source.into();
    }
    // The widest marker that the positions can ask for.
    let widest = usize::try_from(byte_count).unwrap_or(usize::MAX);
    let room = room.saturating_sub(escaped_len(&marker(widest, byte_count)));
    let head = head(source, room.div_ceil(2));
    let tail = tail(source, room / 2);
    let (start, end) = positions(result, head, source.len() - tail.len());
    format!("{head}{}{tail}", marker(start, end))
}

/// Where the excerpt's gap begins and ends in the artifact.
fn positions(result: &ToolResult, head: &str, tail_start: usize) -> (usize, u64) {
    let (start, end) = match result.data.as_ref().map(RawJson::as_str) {
        // The data's JSON stands in the artifact as it is.
        Some(_) if result.text.is_empty() => {
            let base = result.data_position();
            (base + head.len(), base + tail_start)
        }
        _ => {
            let base = result.text_position();
            let tail_start = escaped_len(&result.text[..tail_start]);
            (base + escaped_len(head), base + tail_start)
        }
    };
    (start, end as u64)
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
