//! Range paths: how a model asks for exact bytes through the `read_file` it already has
//! (contract A).

use alloc::format;
use alloc::string::String;
use core::cmp::Ordering;
use core::ops::Range;

use serde::Serialize;

use crate::artifact::{ArtifactDescriptor, ArtifactId};
use crate::digest::Sha256Digest;

/// Every path that begins so belongs to the artifacts and never reaches a workspace.
pub const NAMESPACE: &str = ".tool-artifacts/";

/// The line before a range answer's JSON.
pub const RANGE_HEADER: &str = "Artifact range:\n";

/// Whether `path` belongs to the artifacts' namespace.
pub fn is_artifact_path(path: &str) -> bool {
    path.starts_with(NAMESPACE)
}

/// A parsed `.tool-artifacts/<id>/bytes/<start>-<end>`.
///
/// The positions are kept as decimal text: a model may write numbers of any length, and each is to
/// get the refusal that fits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangePath<'a> {
    artifact_id: ArtifactId,
    start: &'a str,
    end: &'a str,
}

/// Why a range is not answered. The messages name no host path, list no ids and reveal no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeRefusal {
    /// The path is not of the one form that there is.
    #[error("artifact range path is malformed")]
    Malformed,
    /// The store did not register this id.
    #[error("artifact is not available in this store")]
    UnknownArtifact,
    /// An empty or backward range.
    #[error("artifact range must satisfy 0 <= start < end")]
    NotAscending,
    /// More bytes than one range may have.
    #[error("artifact range exceeds {max_range_bytes} bytes")]
    TooLarge {
        /// The limit.
        max_range_bytes: usize,
    },
    /// The range ends beyond the artifact.
    #[error("artifact range exceeds the stored byte count")]
    OutOfBounds,
    /// The stored bytes could not be read at all.
    #[error("could not read tool-result artifact")]
    Unreadable,
    /// The stored bytes are not those that were put: their size or digest differs.
    #[error("artifact digest does not match its recorded identity")]
    DigestMismatch,
    /// The range cuts a code point.
    #[error("artifact range does not align to UTF-8 text")]
    MidCodePoint,
}

/// Positions `[start, end)` that passed every check that needs no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedRange {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

/// The answer to a range path. The fields stand in the order of their serialization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RangeAnswer<'a> {
    /// Whose bytes these are.
    pub artifact_id: ArtifactId,
    /// The size of `data`.
    pub byte_count: usize,
    /// The bytes `[start, end)` of the artifact, exactly.
    pub data: &'a str,
    /// The byte after the last.
    pub end: usize,
    /// The digest of the complete artifact.
    pub sha256: Sha256Digest,
    /// The first byte.
    pub start: usize,
    /// The size of the complete artifact.
    pub total_byte_count: u64,
}

impl<'a> RangePath<'a> {
    /// Parses a path of the namespace.
    ///
    /// # Errors
    ///
    /// [`RangeRefusal::Malformed`] for anything but the exact form.
    pub fn parse(path: &'a str) -> Result<Self, RangeRefusal> {
        let parse = || {
            let (id, range) = path.strip_prefix(NAMESPACE)?.split_once("/bytes/")?;
            let (start, end) = range.split_once('-')?;
            Some(Self {
                artifact_id: id.parse().ok()?,
                start: Some(start).filter(|digits| is_decimal(digits))?,
                end: Some(end).filter(|digits| is_decimal(digits))?,
            })
        };
        parse().ok_or(RangeRefusal::Malformed)
    }

    /// The path that asks for `[start, end)`.
    pub fn render(artifact_id: ArtifactId, start: usize, end: usize) -> String {
        format!("{NAMESPACE}{artifact_id}/bytes/{start}-{end}")
    }

    /// The artifact that the path names.
    pub const fn artifact_id(&self) -> ArtifactId {
        self.artifact_id
    }

    /// Checks the positions against the artifact's size and the limit.
    ///
    /// # Errors
    ///
    /// [`RangeRefusal::NotAscending`], [`RangeRefusal::TooLarge`] or
    /// [`RangeRefusal::OutOfBounds`], in this order.
    pub fn check(
        &self,
        byte_count: u64,
        max_range_bytes: usize,
    ) -> Result<CheckedRange, RangeRefusal> {
        if compare_decimal(self.start, self.end) != Ordering::Less {
            return Err(RangeRefusal::NotAscending);
        }
        if decimal_difference_exceeds(self.end, self.start, max_range_bytes) {
            return Err(RangeRefusal::TooLarge { max_range_bytes });
        }
        let position = |digits: &str| {
            digits
                .parse::<usize>()
                .ok()
                .filter(|position| *position as u64 <= byte_count)
                .ok_or(RangeRefusal::OutOfBounds)
        };
        Ok(CheckedRange {
            start: position(self.start)?,
            end: position(self.end)?,
        })
    }
}

impl CheckedRange {
    /// Cuts the range out of `bytes`, the complete artifact, after verifying its size and digest.
    ///
    /// # Errors
    ///
    /// [`RangeRefusal::DigestMismatch`] when the bytes are not the ones described,
    /// [`RangeRefusal::MidCodePoint`] when the range cuts a code point.
    pub fn answer<'a>(
        &self,
        descriptor: &ArtifactDescriptor,
        bytes: &'a [u8],
    ) -> Result<RangeAnswer<'a>, RangeRefusal> {
        let unchanged = bytes.len() as u64 == descriptor.byte_count
            && Sha256Digest::of(bytes) == descriptor.sha256;
        if !unchanged {
            return Err(RangeRefusal::DigestMismatch);
        }
        let data = bytes
            .get(self.start..self.end)
            .ok_or(RangeRefusal::OutOfBounds)?;
        let data = core::str::from_utf8(data).map_err(|_| RangeRefusal::MidCodePoint)?;
        Ok(RangeAnswer {
            artifact_id: descriptor.artifact_id,
            byte_count: data.len(),
            data,
            end: self.end,
            sha256: descriptor.sha256,
            start: self.start,
            total_byte_count: descriptor.byte_count,
        })
    }
}

impl RangeAnswer<'_> {
    /// The exact text that the model sees. It is never externalized again.
    pub fn render(&self) -> String {
        crate::json::with_header(RANGE_HEADER, self)
    }
}

/// The smallest range on UTF-8 boundaries that holds `range`, as far as that lies in `text`.
pub fn enclosing_range(text: &str, range: Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(range.start);
    start..text.ceil_char_boundary(range.end).max(start)
}

/// Whether these are digits, any number of them but none.
pub(crate) fn is_decimal(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

fn without_leading_zeros(digits: &str) -> &str {
    digits.trim_start_matches('0')
}

/// Compares two decimal numbers of any length.
pub(crate) fn compare_decimal(a: &str, b: &str) -> Ordering {
    let (a, b) = (without_leading_zeros(a), without_leading_zeros(b));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Whether `larger - smaller > limit`, for decimal numbers of any length.
fn decimal_difference_exceeds(larger: &str, smaller: &str, limit: usize) -> bool {
    let larger = without_leading_zeros(larger).as_bytes();
    let smaller = without_leading_zeros(smaller).as_bytes();
    // The difference of the numbers that the digits read so far make, most significant first. Once
    // it is over the limit by more than one the digits to come cannot bring it back under it.
    let mut difference: i128 = 0;
    for (index, digit) in larger.iter().enumerate() {
        let aligned = (index + smaller.len()).checked_sub(larger.len());
        let subtrahend = aligned.map_or(b'0', |index| smaller[index]);
        difference = difference * 10 + i128::from(*digit) - i128::from(subtrahend);
        if difference > limit as i128 + 1 {
            return true;
        }
    }
    difference > limit as i128
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_any_length_get_the_refusal_that_fits_them() {
        let id = ArtifactId::from(Sha256Digest::of(b""));
        let check = |range: &str| {
            let path = format!("{NAMESPACE}{id}/bytes/{range}");
            RangePath::parse(&path).unwrap().check(100, 10)
        };
        let huge = "9".repeat(6000);
        assert_eq!(
            check("00-0000000000000000000000000000000000000000002"),
            Ok(CheckedRange { start: 0, end: 2 })
        );
        assert_eq!(
            check(&format!("{huge}-{huge}")),
            Err(RangeRefusal::NotAscending)
        );
        assert_eq!(
            check(&format!("{huge}8-{huge}9")),
            Err(RangeRefusal::OutOfBounds)
        );
        assert_eq!(
            check(&format!("1-{huge}")),
            Err(RangeRefusal::TooLarge {
                max_range_bytes: 10
            })
        );
        assert_eq!(
            check("90-101"),
            Err(RangeRefusal::TooLarge {
                max_range_bytes: 10
            })
        );
        assert_eq!(check("91-101"), Err(RangeRefusal::OutOfBounds));
    }

    #[test]
    fn an_enclosing_range_cuts_no_code_point() {
        let text = "a漢🙂";
        assert_eq!(enclosing_range(text, 2..5), 1..8);
        assert_eq!(enclosing_range(text, 1..4), 1..4);
        assert_eq!(enclosing_range(text, 6..900), 4..8);
        assert_eq!(enclosing_range(text, 700..900), 8..8);
    }

    proptest! {
        #[test]
        fn decimal_arithmetic_agrees_with_integers(a in 0..=u64::MAX, b in 0..=u64::MAX, limit in 0..=usize::MAX, near in 0..20_u64) {
            for (a, b) in [(a, b), (a, a.saturating_add(near))] {
                let (small, large) = (a.min(b), a.max(b));
                prop_assert_eq!(compare_decimal(&format!("{a}"), &format!("0{b}")), a.cmp(&b));
                for limit in [limit, 10] {
                    prop_assert_eq!(
                        decimal_difference_exceeds(&format!("0{large}"), &format!("{small}"), limit),
                        large - small > limit as u64
                    );
                }
            }
        }
    }
}
