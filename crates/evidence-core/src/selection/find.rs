//! Where a text stands.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use memchr::memchr_iter;
use memchr::memmem::Finder;
use serde::Serialize;

use super::{FIND_HEADER, SelectionRefusal};
use crate::artifact::{ArtifactDescriptor, ArtifactId};
use crate::digest::Sha256Digest;

/// Looks for a text, byte for byte.
///
/// Hits do not overlap and are told apart from the first byte on: `aa` stands once in `aaa`. So they
/// are the same hits whatever position an answer begins after.
#[derive(Debug, Clone)]
pub(super) struct FindScan {
    finder: Finder<'static>,
    /// How many bytes were read.
    position: u64,
    /// How many line feeds were read, as long as that matters.
    line_feeds: u64,
    /// The last bytes that were read, as far as a hit can begin there that ends in what comes.
    carried: Vec<u8>,
    hits: Hits,
    /// Whether the position to answer from lies inside of a code point.
    is_after_misaligned: bool,
}

/// Where the text stands once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Hit {
    /// The number of the line in which the hit begins.
    line: u64,
    /// `[start, end)` in the artifact.
    range: [u64; 2],
}

/// The hits to answer and the number of all.
#[derive(Debug, Clone)]
struct Hits {
    text_bytes: usize,
    after: u64,
    max_bytes: usize,
    count: u64,
    first: Vec<Hit>,
    /// What the first hits are in JSON, each with a comma or bracket behind it.
    byte_count: usize,
    /// Where to go on, as soon as there is a hit that found no room.
    next_after: Option<u64>,
}

impl Hits {
    /// Whether a hit at `start` is one to answer, if there is room.
    const fn is_wanted(&self, start: u64) -> bool {
        start >= self.after && self.next_after.is_none()
    }

    fn add(&mut self, start: u64, lines_before: u64) {
        self.count += 1;
        if !self.is_wanted(start) {
            return;
        }
        let hit = Hit {
            line: lines_before + 1,
            range: [start, start + self.text_bytes as u64],
        };
        let byte_count = self.byte_count + crate::json::to_string(&hit).len() + 1;
        match self.first.last() {
            // The opening bracket counts too.
            Some(last) if byte_count + 1 > self.max_bytes => self.next_after = Some(last.range[1]),
            _ => {
                self.first.push(hit);
                self.byte_count = byte_count;
            }
        }
    }
}

/// The fields stand in the order of their serialization: keys sorted.
#[derive(Serialize)]
struct Answer<'a> {
    artifact_id: ArtifactId,
    /// The number of all hits in the artifact, those before `after` too.
    hit_count: u64,
    /// The first that begin at `after` or later. Their JSON is no larger than a range may be, except
    /// that one hit always is there.
    hits: &'a [Hit],
    /// What `after` has to be for the next hits; null when there are none.
    next_after: Option<u64>,
    sha256: Sha256Digest,
    total_byte_count: u64,
}

impl FindScan {
    /// Hits of `text`, which is not empty, that begin at `after` or later.
    pub(super) fn new(text: &str, after: u64, max_range_bytes: usize) -> Self {
        Self {
            finder: Finder::new(text.as_bytes()).into_owned(),
            position: 0,
            line_feeds: 0,
            carried: Vec::new(),
            hits: Hits {
                text_bytes: text.len(),
                after,
                max_bytes: max_range_bytes,
                count: 0,
                first: Vec::new(),
                byte_count: 0,
                next_after: None,
            },
            is_after_misaligned: false,
        }
    }

    /// Reads the next bytes of the artifact.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let after = self.hits.after.checked_sub(self.position);
        let after = after.and_then(|after| usize::try_from(after).ok());
        if let Some(byte) = after.and_then(|after| bytes.get(after)) {
            self.is_after_misaligned = is_continuation(*byte);
        }
        let text_bytes = self.hits.text_bytes;
        // A hit can begin in so many bytes without ending in them.
        let overlap = text_bytes - 1;

        // The carried bytes and the next, wide enough for every hit that begins in the former. They are
        // shorter than two hits, so that there is at most one.
        let mut seam = mem::take(&mut self.carried);
        let carried = seam.len();
        seam.extend(bytes.iter().take(overlap));
        // Where in the seam the last hit ends.
        let mut seam_end = 0;
        if let Some(at) = self.finder.find(&seam) {
            let start = self.position - carried as u64 + at as u64;
            // Lines are counted as long as a hit is wanted.
            let lines_before = if self.hits.is_wanted(start) {
                self.line_feeds - line_feeds(&seam[at..carried])
            } else {
                self.line_feeds
            };
            self.hits.add(start, lines_before);
            seam_end = at + text_bytes;
        }

        // Hits that both begin and end in these bytes.
        let from = seam_end.saturating_sub(carried);
        let (mut end, mut counted, mut lines_before) = (from, 0, self.line_feeds);
        for at in self.finder.find_iter(&bytes[from..]) {
            let at = from + at;
            let start = self.position + at as u64;
            if self.hits.is_wanted(start) {
                lines_before += line_feeds(&bytes[counted..at]);
                counted = at;
            }
            self.hits.add(start, lines_before);
            end = at + text_bytes;
        }

        self.carried = if bytes.len() < overlap {
            seam.split_off(seam_end.max(seam.len().saturating_sub(overlap)))
        } else {
            bytes[end.max(bytes.len() - overlap)..].to_vec()
        };
        if self.hits.next_after.is_none() {
            self.line_feeds += line_feeds(bytes);
        }
        self.position += bytes.len() as u64;
    }

    pub(super) fn answer(
        &self,
        descriptor: &ArtifactDescriptor,
    ) -> Result<String, SelectionRefusal> {
        if self.is_after_misaligned {
            return Err(SelectionRefusal::AfterMidCodePoint);
        }
        Ok(crate::json::with_header(
            FIND_HEADER,
            &Answer {
                artifact_id: descriptor.artifact_id,
                hit_count: self.hits.count,
                hits: &self.hits.first,
                next_after: self.hits.next_after,
                sha256: descriptor.sha256,
                total_byte_count: descriptor.byte_count,
            },
        ))
    }
}

fn line_feeds(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// Whether a byte of UTF-8 goes on with a code point.
const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}
