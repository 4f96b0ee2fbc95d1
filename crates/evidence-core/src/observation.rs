//! What the model sees in place of a result that is too large for it (contract A).

use alloc::string::String;

use serde::Serialize;

use crate::artifact::{ArtifactDescriptor, ArtifactId};
use crate::digest::Sha256Digest;
use crate::json::escaped_len;
use crate::limits::EvidenceLimits;
use crate::range::RangePath;

/// The line before the observation's JSON.
pub const EXTERNALIZED_HEADER: &str = "Tool result externalized:\n";

/// The tool that answers range paths.
pub const RANGE_TOOL: &str = "read_file";

/// Whether a successful result of this size passes unchanged.
pub const fn is_inline(byte_count: usize, limits: &EvidenceLimits) -> bool {
    byte_count <= limits.max_inline_bytes()
}

/// The request that the observation suggests to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RangeRequest {
    /// A range path from the first byte to the largest boundary within `max_range_bytes`.
    pub path: String,
    /// Always [`RANGE_TOOL`].
    pub tool: &'static str,
}

/// A bounded observation. Ranges are half-open byte positions in the complete text, always on
/// UTF-8 boundaries, and together they cover it.
///
/// The fields stand in the order of their serialization: keys sorted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Observation<'a> {
    /// The identity under which the complete text is stored.
    pub artifact_id: ArtifactId,
    /// The size of the complete text.
    pub byte_count: u64,
    /// The first bytes of the text, exactly.
    pub head_preview: &'a str,
    /// `[0, h)`: where `head_preview` stands.
    pub head_range: [usize; 2],
    /// `[h, t)`: what neither preview shows.
    pub omitted_range: [usize; 2],
    /// How to go on.
    pub range_request: RangeRequest,
    /// The digest of the complete text.
    pub sha256: Sha256Digest,
    /// The last bytes of the text, exactly.
    pub tail_preview: &'a str,
    /// `[t, n)`: where `tail_preview` stands.
    pub tail_range: [usize; 2],
}

/// The observation does not fit its limit even with empty previews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the observation does not fit {max_inline_bytes} bytes even without previews; raise max_inline_bytes"
)]
pub struct ObservationTooLarge {
    /// The limit that was too small.
    pub max_inline_bytes: usize,
}

impl<'a> Observation<'a> {
    /// Bounds `text`, which is stored (or is about to be) under `descriptor`.
    ///
    /// Both previews start at `preview_bytes` and shrink together, one byte at a time and to UTF-8
    /// boundaries, until the rendered observation fits `max_inline_bytes`.
    ///
    /// # Errors
    ///
    /// [`ObservationTooLarge`] when even empty previews do not fit.
    pub fn new(
        text: &'a str,
        descriptor: &ArtifactDescriptor,
        limits: &EvidenceLimits,
    ) -> Result<Self, ObservationTooLarge> {
        let range_end = text.floor_char_boundary(limits.max_range_bytes());
        let mut observation = Self {
            artifact_id: descriptor.artifact_id,
            byte_count: descriptor.byte_count,
            head_preview: "",
            head_range: [0, 0],
            omitted_range: [0, 0],
            range_request: RangeRequest {
                path: RangePath::render(descriptor.artifact_id, 0, range_end),
                tool: RANGE_TOOL,
            },
            sha256: descriptor.sha256,
            tail_preview: "",
            tail_range: [0, 0],
        };
        let fixed_bytes = observation.render().len() - observation.position_digits();
        let mut preview_bytes = limits.preview_bytes();
        let (mut head_end, mut tail_start) = (0, text.len());
        let mut escaped_bytes = None;
        loop {
            let head = text.floor_char_boundary(preview_bytes);
            // The previews of a short text do not overlap.
            let tail = text
                .ceil_char_boundary(text.len().saturating_sub(preview_bytes))
                .max(head);
            // The escaped length is carried along and reduced by what each step drops, so that wide
            // previews cost one pass and not one rendering a step.
            let escaped = match escaped_bytes {
                None => escaped_len(&text[..head]) + escaped_len(&text[tail..]),
                Some(before) => {
                    // Where the previews touch, a shorter head leaves more to the tail.
                    let gained = text.get(tail..tail_start).map_or(0, escaped_len);
                    let lost = text.get(tail_start..tail).map_or(0, escaped_len);
                    before - escaped_len(&text[head..head_end]) + gained - lost
                }
            };
            (head_end, tail_start, escaped_bytes) = (head, tail, Some(escaped));
            observation.head_range = [0, head];
            observation.omitted_range = [head, tail];
            observation.tail_range = [tail, text.len()];
            if fixed_bytes + observation.position_digits() + escaped <= limits.max_inline_bytes() {
                observation.head_preview = &text[..head];
                observation.tail_preview = &text[tail..];
                return Ok(observation);
            }
            if preview_bytes == 0 {
                break;
            }
            preview_bytes -= 1;
        }
        Err(ObservationTooLarge {
            max_inline_bytes: limits.max_inline_bytes(),
        })
    }

    /// How many digits the six positions have together.
    fn position_digits(&self) -> usize {
        [self.head_range, self.omitted_range, self.tail_range]
            .iter()
            .flatten()
            .map(|position| position.checked_ilog10().unwrap_or(0) as usize + 1)
            .sum()
    }

    /// The exact text that the model sees: the header and compact JSON, keys sorted, non-ASCII
    /// unescaped.
    pub fn render(&self) -> String {
        crate::json::with_header(EXTERNALIZED_HEADER, self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any text and any limits: the observation fits, the previews are the exact bytes at their
        /// ranges, the ranges cover the text, and no wider previews would have fitted.
        #[test]
        fn an_observation_is_the_widest_that_fits(
            text in "\\PC{0,400}|[a\\u{1}\"\\\\\n]{0,1500}|[é漢🙂\u{2028}]{0,600}",
            max_inline_bytes in 512_i64..1500,
            preview_bytes in 1_i64..1500,
            max_range_bytes in 4_i64..2000,
        ) {
            let preview_bytes = preview_bytes.min(max_inline_bytes);
            let limits = EvidenceLimits::new(max_inline_bytes, preview_bytes, max_range_bytes).unwrap();
            let descriptor = ArtifactDescriptor::of(&text);
            let observation = Observation::new(&text, &descriptor, &limits).unwrap();
            let rendered = observation.render();
            prop_assert!(rendered.len() <= limits.max_inline_bytes());

            let [start, head_end] = observation.head_range;
            let [tail_start, end] = observation.tail_range;
            prop_assert_eq!((start, end), (0, text.len()));
            prop_assert_eq!(observation.omitted_range, [head_end, tail_start]);
            prop_assert_eq!(observation.head_preview, &text[..head_end]);
            prop_assert_eq!(observation.tail_preview, &text[tail_start..]);

            // The plain definition, one rendering a step.
            let widest = (0..=limits.preview_bytes()).rev().find_map(|bytes| {
                let head = text.floor_char_boundary(bytes);
                let tail = text.ceil_char_boundary(text.len().saturating_sub(bytes)).max(head);
                let candidate = Observation {
                    head_preview: &text[..head],
                    head_range: [0, head],
                    omitted_range: [head, tail],
                    tail_preview: &text[tail..],
                    tail_range: [tail, text.len()],
                    ..observation.clone()
                }
                .render();
                (candidate.len() <= limits.max_inline_bytes()).then_some(candidate)
            });
            prop_assert_eq!(Some(rendered), widest);
        }
    }
}
