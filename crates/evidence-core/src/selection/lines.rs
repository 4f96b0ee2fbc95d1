//! Lines by their numbers.

use alloc::string::String;
use alloc::vec::Vec;

use memchr::memchr_iter;
use serde::Serialize;

use super::{LINES_HEADER, SelectionRefusal};
use crate::artifact::{ArtifactDescriptor, ArtifactId};
use crate::digest::Sha256Digest;
use crate::range::RangeRefusal;

/// Collects the bytes of some lines.
///
/// A line ends with its line feed, which belongs to it as a carriage return before it does; the last
/// line may have none. Line 1 is the first, and an empty artifact has no line.
#[derive(Debug, Clone)]
pub(super) struct LineScan {
    first: u64,
    last: u64,
    max_range_bytes: usize,
    /// How many bytes were read.
    position: u64,
    /// How many line feeds were read.
    line_feeds: u64,
    /// Whether the last byte that was read is none.
    in_line: bool,
    /// Where the first line begins, as soon as that is known.
    start: Option<u64>,
    /// Where the last line ends, as soon as its line feed was read.
    end: Option<u64>,
    /// The lines from their first byte, no more than the limit.
    data: Vec<u8>,
}

/// The fields stand in the order of their serialization: keys sorted.
#[derive(Serialize)]
struct Answer<'a> {
    artifact_id: ArtifactId,
    byte_count: usize,
    data: &'a str,
    /// Where `data` ends.
    end: u64,
    first_line: u64,
    last_line: u64,
    /// `[start, end)` of the lines as they were asked for, whether `data` has all of them or not.
    lines_range: [u64; 2],
    sha256: Sha256Digest,
    /// Where `data` starts.
    start: u64,
    total_byte_count: u64,
    total_line_count: u64,
}

impl LineScan {
    /// Lines `first` to `last`, both included.
    pub(super) const fn new(first: u64, last: u64, max_range_bytes: usize) -> Self {
        Self {
            first,
            last,
            max_range_bytes,
            position: 0,
            line_feeds: 0,
            in_line: false,
            start: if first == 1 { Some(0) } else { None },
            end: None,
            data: Vec::new(),
        }
    }

    /// Reads the next bytes of the artifact.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let line_feeds = memchr_iter(b'\n', bytes).count() as u64;
        // The byte after the line feed that ends line `number`, if that is one of these.
        let after_line = |number: u64| {
            let before = number.checked_sub(self.line_feeds + 1)?;
            let before = usize::try_from(before).ok()?;
            let line_feed = memchr_iter(b'\n', bytes).nth(before)?;
            Some(self.position + line_feed as u64 + 1)
        };
        self.start = self.start.or_else(|| after_line(self.first - 1));
        self.end = self.end.or_else(|| after_line(self.last));
        if let Some(start) = self.start {
            let offset = |position: u64| {
                let offset = position.saturating_sub(self.position);
                usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()))
            };
            let wanted = offset(start)..self.end.map_or(bytes.len(), offset);
            let wanted = bytes.get(wanted).unwrap_or_default();
            let room = self.max_range_bytes - self.data.len();
            self.data.extend(wanted.iter().take(room));
        }
        self.line_feeds += line_feeds;
        self.position += bytes.len() as u64;
        self.in_line = bytes.last().map_or(self.in_line, |byte| *byte != b'\n');
    }

    pub(super) fn answer(
        &self,
        descriptor: &ArtifactDescriptor,
    ) -> Result<String, SelectionRefusal> {
        let line_count = self.line_feeds + u64::from(self.in_line);
        let out_of_bounds = SelectionRefusal::LinesOutOfBounds { line_count };
        if self.last > line_count {
            return Err(out_of_bounds);
        }
        let start = self.start.ok_or(out_of_bounds)?;
        let lines_end = self.end.unwrap_or(self.position);
        let is_cut = start + (self.data.len() as u64) < lines_end;
        let data = match str::from_utf8(&self.data) {
            Ok(data) => data,
            // The limit lies inside of a code point, which the next range begins with.
            Err(error) if is_cut && error.error_len().is_none() => {
                str::from_utf8(&self.data[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => return Err(RangeRefusal::MidCodePoint.into()),
        };
        Ok(crate::json::with_header(
            LINES_HEADER,
            &Answer {
                artifact_id: descriptor.artifact_id,
                byte_count: data.len(),
                data,
                end: start + data.len() as u64,
                first_line: self.first,
                last_line: self.last,
                lines_range: [start, lines_end],
                sha256: descriptor.sha256,
                start,
                total_byte_count: descriptor.byte_count,
                total_line_count: line_count,
            },
        ))
    }
}
