//! Bounding a tool result (contract B): what the model sees of it, and what is stored.
//!
//! A result whose serialization has at most [`MAX_RESULT_BYTES`] passes unchanged. A larger one is
//! stored whole, and the model sees a result with the same success and receipt, one excerpt of
//! the text, and a [`ToolOutputRef`] in place of the data.
//!
//! Sizes are those of the serialized bytes as they are sent, escapes included: a line feed in a text
//! counts two, U+0001 counts six.

mod excerpt;
mod handles;

use alloc::format;
use alloc::string::String;

pub use self::excerpt::{ExcerptRanges, MARKER_MAX_BYTES};
pub use self::handles::{Handles, HandlesError, MAX_HANDLES_BYTES};
use crate::digest::Sha256Digest;
use crate::job::JobId;
use crate::raw_json::RawJson;
use crate::tool_result::ToolResult;

/// The most bytes of a serialized tool result in the model's text path: 16 KiB.
pub const MAX_RESULT_BYTES: usize = 16 * 1024;
/// The most bytes of one serialized result that is stored: 16 MiB.
pub const MAX_ARTIFACT_BYTES: usize = 16 * 1024 * 1024;
/// The most bytes of artifacts that a job holds, identical ones counted once: 128 MiB.
pub const MAX_JOB_BYTES: u64 = 128 * 1024 * 1024;

/// Whether a result whose serialization has this size passes unchanged.
pub const fn is_inline(byte_count: usize) -> bool {
    byte_count <= MAX_RESULT_BYTES
}

/// The tool that reads stored tool output.
pub const READ_TOOL: &str = "akh_read_tool_output";

/// Where a stored result is and how to read it: the data of the result that the model sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutputRef {
    /// Whose output it is.
    pub job_id: JobId,
    /// The digest of the complete serialized result.
    pub sha256: Sha256Digest,
    /// The size of the complete serialized result.
    pub bytes: u64,
    /// The identifiers that the model needs to go on.
    pub handles: Handles,
}

impl ToolOutputRef {
    /// The endpoint's path of an artifact.
    pub fn path_of(job_id: &JobId, sha256: Sha256Digest) -> String {
        format!("/v1/jobs/{job_id}/tool-output/{sha256}")
    }

    /// The JSON that stands in the result's data.
    pub fn to_json(&self) -> RawJson {
        let Self {
            job_id,
            sha256,
            bytes,
            handles,
        } = self;
        // Ids, digests and paths hold no character that JSON escapes.
        let path = Self::path_of(job_id, *sha256);
        let elided = if handles.elided() {
            ",\"handles_elided\":true"
        } else {
            ""
        };
        RawJson::from_own(format!(
            "{{\"kind\":\"tool_output_ref\",\"schema_version\":1,\"job_id\":\"{job_id}\",\
             \"sha256\":\"{sha256}\",\"bytes\":{bytes},\"path\":\"{path}\",\"tool\":\"{READ_TOOL}\",\
             \"handles\":{}{elided}}}",
            handles.as_str()
        ))
    }
}

/// What replaces a receipt that cannot fit.
fn elided_receipt(receipt: &RawJson) -> RawJson {
    let sha256 = Sha256Digest::of(receipt.as_str().as_bytes());
    let bytes = receipt.as_str().len();
    RawJson::from_own(format!(
        "{{\"receipt_elided\":true,\"sha256\":\"{sha256}\",\"bytes\":{bytes}}}"
    ))
}

/// The result that the model sees in place of `result`, whose complete serialization is stored (or is
/// about to be) as `reference` says. Its serialization has at most [`MAX_RESULT_BYTES`].
///
/// Room goes first to the reference and its handles, then to the receipt, and what is left to the
/// excerpt. A receipt that does not leave room for an excerpt's marker is replaced by its digest.
pub fn bounded(result: &ToolResult, reference: &ToolOutputRef) -> ToolResult {
    bound(result, reference).0
}

/// Which bytes of the stored result the excerpt in [`bounded`] shows, and which it leaves out; none
/// when it shows all of the text.
pub fn excerpt_ranges(result: &ToolResult, reference: &ToolOutputRef) -> Option<ExcerptRanges> {
    bound(result, reference).1
}

fn bound(result: &ToolResult, reference: &ToolOutputRef) -> (ToolResult, Option<ExcerptRanges>) {
    let mut bounded = ToolResult {
        success: result.success,
        text: String::new(),
        data: Some(reference.to_json()),
        receipt: result.receipt.clone(),
    };
    let room = |bounded: &ToolResult| {
        MAX_RESULT_BYTES
            .checked_sub(bounded.serialized_byte_count())
            .filter(|room| *room >= MARKER_MAX_BYTES)
    };
    let room = room(&bounded).or_else(|| {
        bounded.receipt = result.receipt.as_ref().map(elided_receipt);
        room(&bounded)
    });
    let (excerpt, ranges) = excerpt::of(result, reference.bytes, room.unwrap_or(0));
    bounded.text = excerpt;
    (bounded, ranges)
}

#[cfg(test)]
mod tests;
