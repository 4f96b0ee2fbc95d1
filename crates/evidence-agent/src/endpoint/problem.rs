//! Refusals as problem details (RFC 9457) with a stable `code`.

use std::fmt::Display;

use evidence_core::cursor::ReadRefusal;
use evidence_store::{StoreError, ToolOutputError};
use serde::Serialize;

use crate::process::ProcessError;

/// The word by which a program knows a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// 400 (405 for a method, 408 for a body that does not arrive): the request is not of the form that there is.
    InvalidRequest,
    /// 401: no session.
    Unauthenticated,
    /// 404: unknown, expired or another session's, which is not said.
    Unavailable,
    /// 403: the operator does not allow it.
    NotAllowed,
    /// 409: the state does not allow it.
    Conflict,
    /// 413: the result is larger than what is stored.
    ResultTooLarge,
    /// 416: the offset is beyond the artifact.
    OutOfRange,
    /// 422: the offset or the limit cuts a code point.
    MidCodepoint,
    /// 500: what is stored is not what was written.
    IntegrityFailure,
    /// 503: the storage cannot be reached.
    StorageUnavailable,
    /// 507: no room, or no budget.
    StorageExhausted,
}

impl ProblemCode {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Unauthenticated => "unauthenticated",
            Self::Unavailable => "unavailable",
            Self::NotAllowed => "not_allowed",
            Self::Conflict => "conflict",
            Self::ResultTooLarge => "result_too_large",
            Self::OutOfRange => "out_of_range",
            Self::MidCodepoint => "mid_codepoint",
            Self::IntegrityFailure => "integrity_failure",
            Self::StorageUnavailable => "storage_unavailable",
            Self::StorageExhausted => "storage_exhausted",
        }
    }

    const fn status_and_title(self) -> (u16, &'static str) {
        match self {
            Self::InvalidRequest => (400, "Bad Request"),
            Self::Unauthenticated => (401, "Unauthorized"),
            Self::Unavailable => (404, "Not Found"),
            Self::NotAllowed => (403, "Forbidden"),
            Self::Conflict => (409, "Conflict"),
            Self::ResultTooLarge => (413, "Content Too Large"),
            Self::OutOfRange => (416, "Range Not Satisfiable"),
            Self::MidCodepoint => (422, "Unprocessable Content"),
            Self::IntegrityFailure => (500, "Internal Server Error"),
            Self::StorageUnavailable => (503, "Service Unavailable"),
            Self::StorageExhausted => (507, "Insufficient Storage"),
        }
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: ProblemCode,
    detail: String,
    more: More,
}

/// What some refusals say besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Nothing,
    /// The request did not come in time.
    TooSlow,
    /// The methods that the address takes.
    Allow(&'static str),
    /// The size of the artifact that the offset is beyond.
    Bytes(u64),
    /// The limit that the first code point needs.
    NeededLimit(u64),
}

impl Problem {
    fn new(code: ProblemCode, detail: impl Display) -> Self {
        Self {
            code,
            detail: detail.to_string(),
            more: More::Nothing,
        }
    }

    /// The request is not of the form that there is.
    pub fn invalid(detail: impl Display) -> Self {
        Self::new(ProblemCode::InvalidRequest, detail)
    }

    /// The path exists and does not take the method.
    pub(super) fn method_not_allowed(allowed: &'static str) -> Self {
        Self {
            more: More::Allow(allowed),
            ..Self::invalid("this address does not take the method")
        }
    }

    /// There is no session.
    pub fn unauthenticated() -> Self {
        Self::new(
            ProblemCode::Unauthenticated,
            "an Authorization header with a bearer token of a session is needed",
        )
    }

    /// Unknown, expired or another session's.
    pub fn unavailable() -> Self {
        Self::new(ProblemCode::Unavailable, ToolOutputError::Unavailable)
    }

    /// The body is beyond what is read at all.
    pub fn body_too_large() -> Self {
        Self::new(
            ProblemCode::ResultTooLarge,
            "the body is too large to hold a result that is stored",
        )
    }

    /// The request did not come in time.
    pub fn too_slow() -> Self {
        Self {
            more: More::TooSlow,
            ..Self::invalid("the request's body did not arrive in time")
        }
    }

    pub(super) fn integrity_failure() -> Self {
        Self::new(ProblemCode::IntegrityFailure, ToolOutputError::Integrity)
    }

    /// The word by which a program knows it.
    pub const fn code(&self) -> ProblemCode {
        self.code
    }

    /// The sentence that says what happened and what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    fn status_and_title(&self) -> (u16, &'static str) {
        match self.more {
            More::Allow(_) => (405, "Method Not Allowed"),
            More::TooSlow => (408, "Request Timeout"),
            _ => self.code.status_and_title(),
        }
    }

    /// The status of the response.
    pub fn status(&self) -> u16 {
        self.status_and_title().0
    }

    /// The header that the status asks for.
    pub(super) fn header(&self) -> Option<(&'static str, String)> {
        match (self.more, self.code) {
            (More::Allow(allowed), _) => Some(("allow", allowed.to_owned())),
            (_, ProblemCode::Unauthenticated) => Some(("www-authenticate", "Bearer".to_owned())),
            _ => None,
        }
    }

    /// The JSON.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Details<'a> {
            r#type: &'static str,
            title: &'static str,
            status: u16,
            code: ProblemCode,
            detail: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            bytes: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            needed_limit: Option<u64>,
        }
        let (status, title) = self.status_and_title();
        let (bytes, needed_limit) = match self.more {
            More::Bytes(bytes) => (Some(bytes), None),
            More::NeededLimit(needed) => (None, Some(needed)),
            More::Nothing | More::TooSlow | More::Allow(_) => (None, None),
        };
        let details = Details {
            r#type: "about:blank",
            title,
            status,
            code: self.code,
            detail: &self.detail,
            bytes,
            needed_limit,
        };
        // Fields of text and numbers have a JSON.
        serde_json::to_string(&details).unwrap_or_default()
    }
}

impl From<ReadRefusal> for Problem {
    fn from(refusal: ReadRefusal) -> Self {
        let (code, more) = match refusal {
            ReadRefusal::Invalid { .. } => (ProblemCode::InvalidRequest, More::Nothing),
            ReadRefusal::OutOfRange { bytes } => (ProblemCode::OutOfRange, More::Bytes(bytes)),
            ReadRefusal::MidCodePoint => (ProblemCode::MidCodepoint, More::Nothing),
            ReadRefusal::LimitTooSmall { needed } => {
                (ProblemCode::MidCodepoint, More::NeededLimit(needed))
            }
            ReadRefusal::NotText => (ProblemCode::IntegrityFailure, More::Nothing),
        };
        Self {
            more,
            ..Self::new(code, refusal)
        }
    }
}

impl From<ProcessError> for Problem {
    fn from(error: ProcessError) -> Self {
        let code = match error {
            ProcessError::ToolOutput(error) => return error.into(),
            ProcessError::Arguments(_) => ProblemCode::InvalidRequest,
            ProcessError::NoProcesses => return Self::unavailable(),
            ProcessError::NotAllowed => ProblemCode::NotAllowed,
            ProcessError::TooMany => ProblemCode::Conflict,
        };
        Self::new(code, error)
    }
}

impl From<ToolOutputError> for Problem {
    fn from(error: ToolOutputError) -> Self {
        let code = match &error {
            ToolOutputError::Read(refusal) => return (*refusal).into(),
            ToolOutputError::Unavailable => ProblemCode::Unavailable,
            ToolOutputError::JobTaken
            | ToolOutputError::JobEnded
            | ToolOutputError::StatusChange { .. }
            | ToolOutputError::CallReused
            | ToolOutputError::Store(StoreError::Conflict) => ProblemCode::Conflict,
            ToolOutputError::ResultTooLarge { .. } => ProblemCode::ResultTooLarge,
            ToolOutputError::JobFull | ToolOutputError::Store(StoreError::Exhausted) => {
                ProblemCode::StorageExhausted
            }
            ToolOutputError::Integrity | ToolOutputError::Store(StoreError::Damaged { .. }) => {
                ProblemCode::IntegrityFailure
            }
            ToolOutputError::Store(StoreError::Unavailable { .. }) => {
                ProblemCode::StorageUnavailable
            }
        };
        Self::new(code, error)
    }
}
