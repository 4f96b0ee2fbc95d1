//! The ordinary agent loop, and what it needs to keep large tool results out of the prompt.
//!
//! A [`Generator`] writes one JSON action a step ([`action`]); a [`Workspace`] carries it out;
//! [`BoundedEvidenceWorkspace`] wraps any workspace so that results too large for the model are
//! stored and bounded, and range paths are answered; [`ToolOutputWorkspace`] does the same under
//! contract B, with structured results and reads by cursor, which [`endpoint`] also answers over
//! HTTP. A [`ProcessHost`](process::ProcessHost) adds processes to it. [`Run`] is the loop itself, one
//! step at a time.
//!
//! Everything here is the same natively and in a browser. What differs is put in from outside: the
//! [`Store`](evidence_store::Store) beneath, the file tree, the commands, the operator and the
//! model.

pub mod action;
mod bounded;
pub mod endpoint;
mod generator;
mod limits;
mod message;
pub mod policy;
pub mod process;
mod prompt;
mod run;
mod script;
mod selection;
mod tool_output;
pub mod workspace;

pub use action::{Action, ActionError, ToolCall, ToolName};
pub use bounded::{BoundedEvidenceWorkspace, BoundedResult, bound_result};
pub use generator::{Generator, GeneratorError};
pub use limits::{AgentLimits, AgentLimitsError};
pub use message::{Message, Role};
pub use policy::ToolPolicy;
pub use prompt::system_prompt;
pub use run::{Run, RunEvent, RunOutcome, StepEvent, StopReason, error_line};
pub use script::{ScriptedGenerator, script_replies};
pub use selection::{LinesAndFind, Ranges, Selection};
pub use tool_output::{EnvelopeGenerator, ToolOutputWorkspace};
pub use workspace::{ToolError, ToolWorkspace, Workspace};

// The book's examples are run as this crate's.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/using/rust.md")]
struct Book;
