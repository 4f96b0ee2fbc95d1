//! Lines and searches: a model names bytes by what stands in them, through the `read_file` it already
//! has.
//!
//! This goes beyond contract A, and a host has to ask for it; where none does, these paths are
//! malformed range paths as ever. It is still a selection of bytes and no summary: what is answered
//! are exact bytes, or exact positions of them.
//!
//! - `.tool-artifacts/<id>/lines/<first>-<last>`: the bytes of these lines;
//! - `.tool-artifacts/<id>/find/<percent-encoded text>?after=<byte>`: where the text stands.
//!
//! A [`Scan`] reads an artifact from its first byte to its last, in pieces of any size, and keeps no
//! more of it than it answers. Like a range it is answered only when the size and the digest of all
//! that was read have been verified, which is the caller's to do.

mod find;
mod lines;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use self::find::FindScan;
use self::lines::LineScan;
use crate::artifact::{ArtifactDescriptor, ArtifactId};
use crate::range::{NAMESPACE, RangeRefusal, compare_decimal, is_decimal};

/// The line before the JSON of an answer about lines.
pub const LINES_HEADER: &str = "Artifact lines:\n";

/// The line before the JSON of a search's answer.
pub const FIND_HEADER: &str = "Artifact find:\n";

/// What a model is told where lines and searches are answered.
pub fn instructions(max_range_bytes: usize) -> String {
    format!(
        "A result that was externalized can also be read by its lines and searched:\n\
         {{\"tool\":\"read_file\",\"path\":\"{NAMESPACE}<artifact_id>/lines/120-135\"}}\n\
         {{\"tool\":\"read_file\",\"path\":\"{NAMESPACE}<artifact_id>/find/error%5BE0282%5D\"}}\n\
         Lines count from 1 and both are included. At most {max_range_bytes} bytes are answered; where \
         end is less than the end of lines_range, read on by bytes from there.\n\
         find looks for one exact, percent-encoded text. It answers the lines and byte ranges of the \
         first hits, and in hit_count the number of all; for further hits append ?after=<next_after>."
    )
}

/// A parsed `.tool-artifacts/<id>/lines/…` or `.tool-artifacts/<id>/find/…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPath<'a> {
    artifact_id: ArtifactId,
    request: Request<'a>,
}

/// Numbers are kept as decimal text: a model may write them of any length, and each is to get the
/// refusal that fits it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Request<'a> {
    Lines { first: &'a str, last: &'a str },
    Find { text: String, after: &'a str },
}

/// Why lines or a search are not answered. The messages name no host path, list no ids and reveal no
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectionRefusal {
    /// For a reason that ranges have too.
    #[error(transparent)]
    Range(#[from] RangeRefusal),
    /// Two line numbers are expected.
    #[error("artifact lines path is malformed")]
    MalformedLines,
    /// Line zero, or a last line before the first.
    #[error("artifact lines must satisfy 1 <= first <= last")]
    LinesNotAscending,
    /// There are not so many lines.
    #[error("artifact lines exceed the stored line count of {line_count}")]
    LinesOutOfBounds {
        /// How many there are.
        line_count: u64,
    },
    /// A text is expected, and after it nothing or `?after=` and a position.
    #[error("artifact find path is malformed")]
    MalformedFind,
    /// A `%` without two hexadecimal digits, or bytes that are not UTF-8.
    #[error("artifact find text is not percent-encoded UTF-8")]
    NotPercentEncoded,
    /// An empty text stands everywhere.
    #[error("artifact find text must not be empty")]
    EmptyText,
    /// A text that is larger than any range could answer.
    #[error("artifact find text exceeds {max_range_bytes} bytes")]
    TextTooLarge {
        /// The limit.
        max_range_bytes: usize,
    },
    /// The position lies beyond the artifact.
    #[error("artifact find position exceeds the stored byte count")]
    AfterOutOfBounds,
    /// The position lies inside of a code point.
    #[error("artifact find position does not align to UTF-8 text")]
    AfterMidCodePoint,
}

fn parse_lines(lines: &str) -> Result<Request<'_>, SelectionRefusal> {
    let (first, last) = lines
        .split_once('-')
        .filter(|(first, last)| is_decimal(first) && is_decimal(last))
        .ok_or(SelectionRefusal::MalformedLines)?;
    Ok(Request::Lines { first, last })
}

/// The first question mark ends the text: one that is part of it is encoded. Every other character
/// may stand for itself.
fn parse_find(find: &str) -> Result<Request<'_>, SelectionRefusal> {
    let (text, after) = match find.split_once('?') {
        None => (find, "0"),
        Some((text, query)) => (
            text,
            query
                .strip_prefix("after=")
                .filter(|after| is_decimal(after))
                .ok_or(SelectionRefusal::MalformedFind)?,
        ),
    };
    let text = percent_decoded(text).ok_or(SelectionRefusal::NotPercentEncoded)?;
    Ok(Request::Find { text, after })
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        // A sign would be taken for part of a number.
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

impl<'a> ScanPath<'a> {
    /// Parses a path of the namespace. None when it is of neither form: what it says is then a
    /// [`RangePath`](crate::range::RangePath)'s to know.
    ///
    /// # Errors
    ///
    /// [`SelectionRefusal::MalformedLines`], [`SelectionRefusal::MalformedFind`] or
    /// [`SelectionRefusal::NotPercentEncoded`].
    pub fn parse(path: &'a str) -> Result<Option<Self>, SelectionRefusal> {
        let below = path.strip_prefix(NAMESPACE);
        let Some((id, form)) = below.and_then(|below| below.split_once('/')) else {
            return Ok(None);
        };
        let (request, malformed) = if let Some(lines) = form.strip_prefix("lines/") {
            (parse_lines(lines)?, SelectionRefusal::MalformedLines)
        } else if let Some(find) = form.strip_prefix("find/") {
            (parse_find(find)?, SelectionRefusal::MalformedFind)
        } else {
            return Ok(None);
        };
        let artifact_id = id.parse().map_err(|_| malformed)?;
        Ok(Some(Self {
            artifact_id,
            request,
        }))
    }

    /// The artifact that the path names.
    pub const fn artifact_id(&self) -> ArtifactId {
        self.artifact_id
    }

    /// Checks what can be checked without any bytes and begins to read an artifact of this size.
    ///
    /// # Errors
    ///
    /// [`SelectionRefusal::LinesNotAscending`], [`SelectionRefusal::EmptyText`],
    /// [`SelectionRefusal::TextTooLarge`] or [`SelectionRefusal::AfterOutOfBounds`].
    pub fn begin(&self, byte_count: u64, max_range_bytes: usize) -> Result<Scan, SelectionRefusal> {
        match &self.request {
            Request::Lines { first, last } => {
                // No artifact has as many lines as the largest number that is told apart.
                let line = |digits: &str| digits.parse().unwrap_or(u64::MAX);
                let ascending = compare_decimal(first, last) != Ordering::Greater;
                if line(first) == 0 || !ascending {
                    return Err(SelectionRefusal::LinesNotAscending);
                }
                let scan = LineScan::new(line(first), line(last), max_range_bytes);
                Ok(Scan(LinesOrFind::Lines(scan)))
            }
            Request::Find { text, after } => {
                if text.is_empty() {
                    return Err(SelectionRefusal::EmptyText);
                }
                if text.len() > max_range_bytes {
                    return Err(SelectionRefusal::TextTooLarge { max_range_bytes });
                }
                let after = after.parse().ok().filter(|after| *after <= byte_count);
                let after = after.ok_or(SelectionRefusal::AfterOutOfBounds)?;
                let scan = FindScan::new(text, after, max_range_bytes);
                Ok(Scan(LinesOrFind::Find(Box::new(scan))))
            }
        }
    }
}

/// A selection in progress: give it all bytes of the artifact, then ask for the answer.
#[derive(Debug, Clone)]
pub struct Scan(LinesOrFind);

#[derive(Debug, Clone)]
enum LinesOrFind {
    Lines(LineScan),
    Find(Box<FindScan>),
}

impl Scan {
    /// Reads the next bytes of the artifact; how they are cut changes nothing.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            LinesOrFind::Lines(scan) => scan.push(bytes),
            LinesOrFind::Find(scan) => scan.push(bytes),
        }
    }

    /// The exact text that the model sees, when all bytes of the described artifact have been read and
    /// verified. It is never externalized again.
    ///
    /// # Errors
    ///
    /// [`SelectionRefusal::LinesOutOfBounds`], [`RangeRefusal::MidCodePoint`] for lines that are not
    /// UTF-8, or [`SelectionRefusal::AfterMidCodePoint`].
    pub fn answer(&self, descriptor: &ArtifactDescriptor) -> Result<String, SelectionRefusal> {
        match &self.0 {
            LinesOrFind::Lines(scan) => scan.answer(descriptor),
            LinesOrFind::Find(scan) => scan.answer(descriptor),
        }
    }
}
