//! What callers are told when something goes wrong.

use evidence_agent::ToolError;
use evidence_agent::endpoint::Problem;
use evidence_agent::process::ProcessError;
use evidence_store::{ArtifactError, StoreError, ToolOutputError};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** What went wrong; the message of the error says it in a sentence, with what to do. */
export type EvidenceErrorCode =
  /** An argument is not what the types say; nothing was done. */
  | "invalid_argument"
  /** A string holds half of a surrogate pair: it has no exact UTF-8 bytes. Nothing was done. */
  | "lone_surrogate"
  /** No room; nothing was stored. */
  | "storage_exhausted"
  /** Another tab changed the same thing at the same moment; nothing was stored. */
  | "storage_conflict"
  /** The store cannot be reached (any more). */
  | "storage_unavailable"
  /** The store's own structure is damaged. */
  | "storage_damaged"
  /** Other bytes stand under the artifact's id; they were left as they are. */
  | "artifact_conflict"
  /** This scope of the store holds no such artifact. */
  | "artifact_unknown"
  /** A part of the stored bytes is gone. */
  | "artifact_unreadable"
  /** The stored bytes are not those that were put. */
  | "digest_mismatch"
  /** The observation does not fit its limits. */
  | "observation_too_large"
  // Contract B; the endpoint answers the same codes.
  /** A read is not of the form that there is. */
  | "invalid_request"
  /** No such job or artifact, or it has expired, or it is another session's: which is not said. */
  | "unavailable"
  /** The job, or the id of the job or of the tool call, does not allow it (any more), or too many processes run. */
  | "conflict"
  /** The serialized result has more than 16 MiB; nothing was stored. */
  | "result_too_large"
  /** The offset is beyond the artifact. */
  | "out_of_range"
  /** The offset or the limit cuts a code point. */
  | "mid_codepoint"
  /** What is stored is missing or not what was written. No bytes are returned. */
  | "integrity_failure";

/** What this library throws and rejects with. */
export class EvidenceError extends Error {
  /** An error with this code and this sentence. */
  constructor(code: EvidenceErrorCode, message: string);
  /** What went wrong, for programs. */
  readonly code: EvidenceErrorCode;
}
"#;

#[wasm_bindgen(module = "/src/error.js")]
extern "C" {
    type EvidenceError;
    #[wasm_bindgen(constructor)]
    fn new(code: &str, message: &str) -> EvidenceError;
    // A type cannot be exported again without a TypeScript declaration of its own; a function can,
    // and the declaration stands above.
    #[wasm_bindgen(js_name = EvidenceError, reexport = "EvidenceError", skip_typescript)]
    fn export_again();
}

/// An `EvidenceError` to be.
#[derive(Debug)]
pub struct Failure {
    code: &'static str,
    message: String,
}

/// What every function here answers.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// An argument is not what the types say.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: "invalid_argument",
            message: message.into(),
        }
    }

    /// A string holds half of a surrogate pair.
    pub fn lone_surrogate(name: &str) -> Self {
        Self {
            code: "lone_surrogate",
            message: format!(
                "{name} contains a lone surrogate and has no exact UTF-8 bytes; remove it, or pass \
                 what toWellFormed() makes of the string"
            ),
        }
    }

    /// The sentence.
    pub fn into_message(self) -> String {
        self.message
    }
}

impl From<Failure> for JsValue {
    fn from(failure: Failure) -> Self {
        EvidenceError::new(failure.code, &failure.message).into()
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Exhausted => "storage_exhausted",
            StoreError::Conflict => "storage_conflict",
            StoreError::Unavailable { .. } => "storage_unavailable",
            StoreError::Damaged { .. } => "storage_damaged",
        };
        Self {
            code,
            message: error.to_string(),
        }
    }
}

impl From<ArtifactError> for Failure {
    fn from(error: ArtifactError) -> Self {
        let code = match error {
            ArtifactError::Store(error) => return error.into(),
            ArtifactError::Conflict => "artifact_conflict",
            ArtifactError::Unknown => "artifact_unknown",
            ArtifactError::Unreadable => "artifact_unreadable",
            ArtifactError::DigestMismatch => "digest_mismatch",
        };
        Self {
            code,
            message: error.to_string(),
        }
    }
}

impl From<Problem> for Failure {
    /// The codes are the endpoint's.
    fn from(problem: Problem) -> Self {
        Self {
            code: problem.code().as_str(),
            message: problem.detail().to_owned(),
        }
    }
}

impl From<ToolOutputError> for Failure {
    fn from(error: ToolOutputError) -> Self {
        Problem::from(error).into()
    }
}

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Self {
        Problem::from(error).into()
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Storage(error) => error.into(),
            ToolError::ToolOutput(error) => error.into(),
            // The one refusal of bounding.
            ToolError::Refused(message) => Self {
                code: "observation_too_large",
                message,
            },
        }
    }
}
