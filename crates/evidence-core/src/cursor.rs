//! Reading stored tool output by cursor (contract B): requests, refusals and answers.
//!
//! An offset is a position in the UTF-8 bytes of the artifact. An answer ends at a code point, so
//! that its `next_offset` can always be read next, and a reader that goes on at each `next_offset`
//! until `done` gets every byte once.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::digest::Sha256Digest;
use crate::job::JobId;
use crate::json::{self, escaped_byte_len};
use crate::raw_json;
use crate::tool_output::MAX_RESULT_BYTES;
use crate::tool_result::ToolResult;

/// The most bytes of one read.
pub const MAX_READ_BYTES: u64 = 8192;

/// What the model is told about the tool that reads: a JSON object of `name`, `description` and
/// `parameters` (JSON Schema), as providers take it.
pub const READ_TOOL_SCHEMA: &str = r#"{"name":"akh_read_tool_output","description":"Reads exact bytes of a stored tool result. Start at the offset that you need and continue at next_offset until done is true.","parameters":{"type":"object","properties":{"job_id":{"type":"string","description":"The job whose tool output it is; the current job when left out."},"sha256":{"type":"string","description":"The sha256 of the tool_output_ref."},"offset":{"type":"integer","minimum":0,"description":"Where to begin, in UTF-8 bytes."},"limit":{"type":"integer","minimum":1,"maximum":8192,"description":"The most bytes to read."}},"required":["sha256","offset","limit"],"additionalProperties":false}}"#;

/// Where to begin and how much to read at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    offset: u64,
    limit: u64,
}

/// The arguments of the tool [`READ_TOOL`](crate::tool_output::READ_TOOL).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadArguments {
    /// The job whose output is read; the current one where it is not named.
    pub job_id: Option<JobId>,
    /// Which artifact.
    pub sha256: Sha256Digest,
    /// Which bytes of it.
    pub request: ReadRequest,
}

/// Why a read is not answered. The messages reveal no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadRefusal {
    /// The request is not of the form that there is.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The offset is beyond the artifact.
    #[error("offset is beyond the {bytes} bytes of this tool output")]
    OutOfRange {
        /// The size of the artifact.
        bytes: u64,
    },
    /// The offset is inside a code point.
    #[error(
        "offset is inside a UTF-8 code point; continue at the next_offset of the read before it"
    )]
    MidCodePoint,
    /// The code point at the offset is wider than the limit.
    #[error("the UTF-8 code point at offset has {needed} bytes; ask for a limit of at least that")]
    LimitTooSmall {
        /// The width of the code point.
        needed: u64,
    },
    /// The stored bytes are not UTF-8, which a serialized result always is.
    #[error("the stored bytes are not the ones that were written")]
    NotText,
}

const fn invalid<T>(reason: &'static str) -> Result<T, ReadRefusal> {
    Err(ReadRefusal::Invalid { reason })
}

impl ReadRequest {
    /// A request for at most `limit` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`ReadRefusal::Invalid`] unless `limit` is 1 to 8192.
    pub const fn new(offset: u64, limit: u64) -> Result<Self, ReadRefusal> {
        if limit == 0 || limit > MAX_READ_BYTES {
            return invalid("limit must be from 1 to 8192");
        }
        Ok(Self { offset, limit })
    }

    /// Where the read begins.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The most bytes that it answers.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Reads the query of the endpoint's address: `offset` and `limit`, each at most once, in either
    /// order. Left out they are 0 and 8192, so that the address without a query answers the start.
    ///
    /// # Errors
    ///
    /// [`ReadRefusal::Invalid`] for unknown and duplicate parameters, percent-encoding that is not
    /// UTF-8 in hexadecimal pairs, and numbers that are not decimal digits or out of range.
    pub fn from_query(query: &str) -> Result<Self, ReadRefusal> {
        let (mut offset, mut limit) = (None, None);
        let parameters = query.split('&').filter(|_| !query.is_empty());
        for parameter in parameters {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let (Some(name), Some(value)) = (percent_decoded(name), percent_decoded(value)) else {
                return invalid("the query's percent-encoding is invalid");
            };
            let slot = match name.as_str() {
                "offset" => &mut offset,
                "limit" => &mut limit,
                _ => return invalid("the query has the parameters offset and limit and no other"),
            };
            if slot.replace(decimal(&value)?).is_some() {
                return invalid("a query parameter stands twice");
            }
        }
        Self::new(offset.unwrap_or(0), limit.unwrap_or(MAX_READ_BYTES))
    }

    /// Which bytes of an artifact of `bytes` bytes must be fetched.
    ///
    /// # Errors
    ///
    /// [`ReadRefusal::OutOfRange`] when the offset is beyond the end. At the end is not beyond it:
    /// that is answered with an empty text and `done`.
    pub fn range(&self, bytes: u64) -> Result<Range<u64>, ReadRefusal> {
        if self.offset > bytes {
            return Err(ReadRefusal::OutOfRange { bytes });
        }
        Ok(self.offset..self.offset.saturating_add(self.limit).min(bytes))
    }

    /// The answer, given the `fetched` bytes of [`range`](Self::range).
    ///
    /// # Errors
    ///
    /// [`ReadRefusal::MidCodePoint`], [`ReadRefusal::LimitTooSmall`] or [`ReadRefusal::NotText`].
    pub fn answer<'a>(
        &self,
        sha256: Sha256Digest,
        bytes: u64,
        fetched: &'a [u8],
    ) -> Result<ReadAnswer<'a>, ReadRefusal> {
        let text = match core::str::from_utf8(fetched) {
            Ok(text) => text,
            Err(_) if is_continuation(fetched[0]) => return Err(ReadRefusal::MidCodePoint),
            Err(error) => {
                let at_end = self.offset.saturating_add(fetched.len() as u64) == bytes;
                // Only a code point that the limit cuts may be incomplete.
                if error.error_len().is_some() || at_end {
                    return Err(ReadRefusal::NotText);
                }
                if error.valid_up_to() == 0 {
                    let needed = fetched[0].leading_ones().into();
                    return Err(ReadRefusal::LimitTooSmall { needed });
                }
                core::str::from_utf8(&fetched[..error.valid_up_to()]).unwrap_or_default()
            }
        };
        Ok(ReadAnswer::new(sha256, bytes, self.offset, text))
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// A decimal number. One that no `u64` holds is the largest: it is out of range wherever it stands.
fn decimal(digits: &str) -> Result<u64, ReadRefusal> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return invalid("offset and limit are decimal numbers");
    }
    Ok(digits.parse().unwrap_or(u64::MAX))
}

/// The text that a part of an address stands for (RFC 3986, section 2.1); none when a `%` is not
/// followed by two hexadecimal digits or the bytes are not UTF-8.
pub fn percent_decoded(part: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(part.len());
    let mut bytes = part.bytes();
    let digit = |bytes: &mut core::str::Bytes<'_>| char::from(bytes.next()?).to_digit(16);
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let (high, low) = (digit(&mut bytes)?, digit(&mut bytes)?);
                u8::try_from(high << 4 | low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

impl ReadArguments {
    /// Reads the tool's JSON arguments.
    ///
    /// # Errors
    ///
    /// [`ReadRefusal::Invalid`] for anything but the tool's arguments.
    pub fn parse(json: &str) -> Result<Self, ReadRefusal> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Arguments {
            job_id: Option<JobId>,
            sha256: Sha256Digest,
            offset: u64,
            limit: u64,
        }
        let Ok(arguments) = raw_json::from_str::<Arguments>(json) else {
            return invalid(
                "the arguments are an object of sha256 (64 lowercase hexadecimal digits), offset and limit (integers) and, where it is not the current job, job_id",
            );
        };
        Ok(Self {
            job_id: arguments.job_id,
            sha256: arguments.sha256,
            request: ReadRequest::new(arguments.offset, arguments.limit)?,
        })
    }
}

/// The answer to a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadAnswer<'a> {
    /// The version of this form: 1.
    pub schema_version: u8,
    /// The digest of the complete artifact.
    pub sha256: Sha256Digest,
    /// The size of the complete artifact.
    pub bytes: u64,
    /// Where `text` begins.
    pub offset: u64,
    /// Where to go on.
    pub next_offset: u64,
    /// Whether `next_offset` is the end.
    pub done: bool,
    /// The bytes `[offset, next_offset)`, exactly.
    pub text: &'a str,
}

impl<'a> ReadAnswer<'a> {
    const fn new(sha256: Sha256Digest, bytes: u64, offset: u64, text: &'a str) -> Self {
        let next_offset = offset.saturating_add(text.len() as u64);
        Self {
            schema_version: 1,
            sha256,
            bytes,
            offset,
            next_offset,
            done: next_offset == bytes,
            text,
        }
    }

    /// The same answer, with as much of the text as leaves room for the JSON around it.
    ///
    /// The room is that of a tool result whose *text* is the answer's JSON, where every escape is
    /// escaped once more. A runtime that passes the answer on in either way, as data or as text,
    /// stays within [`MAX_RESULT_BYTES`], so that an answer is never itself externalized.
    #[must_use]
    pub fn for_tool(&self) -> Self {
        let wrapped =
            |answer: &Self| ToolResult::from_text(true, answer.to_json()).serialized_byte_count();
        // Without its text, but with the positions and the `done` that take the most room.
        let without_text = Self {
            text: "",
            done: false,
            ..*self
        };
        let room = MAX_RESULT_BYTES.saturating_sub(wrapped(&without_text));
        let mut used = 0;
        let end = self.text.bytes().position(|byte| {
            used += twice_escaped_byte_len(byte);
            used > room
        });
        let end = self
            .text
            .floor_char_boundary(end.unwrap_or(self.text.len()));
        Self::new(self.sha256, self.bytes, self.offset, &self.text[..end])
    }

    /// The answer's JSON.
    pub fn to_json(&self) -> String {
        json::to_string(self)
    }
}

/// The bytes that one byte of text takes in a JSON string within a JSON string.
pub(crate) fn twice_escaped_byte_len(byte: u8) -> usize {
    match escaped_byte_len(byte) {
        // A backslash, which doubles, and five characters, which stay.
        6 => 7,
        // A backslash and a character that is escaped itself.
        2 if matches!(byte, b'"' | b'\\') => 4,
        2 => 3,
        len => len,
    }
}

#[cfg(test)]
mod tests;
