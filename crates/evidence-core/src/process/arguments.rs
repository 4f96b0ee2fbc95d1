//! The arguments of the three tools.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::Sha256Digest;
use crate::job::ProcessId;
use crate::json;
use crate::raw_json;

/// What the model is told about [`START_TOOL`](super::START_TOOL): `name`, `description` and
/// `parameters` (JSON Schema), as providers take them.
pub const START_TOOL_SCHEMA: &str = r#"{"name":"exec_start","description":"Starts a program and answers its process_id at once. Look at it with exec_poll.","parameters":{"type":"object","properties":{"argv":{"type":"array","items":{"type":"string","minLength":1},"minItems":1,"description":"The program and its arguments, exactly as the operator allows them."},"cwd":{"type":"string","description":"The directory to run in, relative to the workspace; the workspace itself when left out."}},"required":["argv"],"additionalProperties":false}}"#;

/// What the model is told about [`POLL_TOOL`](super::POLL_TOOL).
pub const POLL_TOOL_SCHEMA: &str = r#"{"name":"exec_poll","description":"Looks at a process. Without offsets it shows the head and the tail of both streams. With an offset it answers exact bytes from there; continue at next_offset until done is true.","parameters":{"type":"object","properties":{"process_id":{"type":"string","description":"The process_id that exec_start answered."},"stdout_offset":{"type":"integer","minimum":0,"description":"Where to begin in standard output, in bytes."},"stderr_offset":{"type":"integer","minimum":0,"description":"Where to begin in standard error, in bytes."},"max_output_bytes":{"type":"integer","minimum":1,"maximum":8192,"description":"The most bytes of each stream; 4096 when left out. Only with an offset."}},"required":["process_id"],"additionalProperties":false}}"#;

/// What the model is told about [`STOP_TOOL`](super::STOP_TOOL).
pub const STOP_TOOL_SCHEMA: &str = r#"{"name":"exec_stop","description":"Ends a process and all that it started, and answers how it ended. What it wrote stays readable with exec_poll.","parameters":{"type":"object","properties":{"process_id":{"type":"string","description":"The process_id that exec_start answered."}},"required":["process_id"],"additionalProperties":false}}"#;

/// The most bytes of each stream that a cursor poll answers.
const MAX_OUTPUT_BYTES: u64 = 8192;
/// The same, when the poll does not say.
const DEFAULT_OUTPUT_BYTES: u64 = 4096;

/// The arguments are not the tool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidArguments(&'static str);

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StartArguments {
    /// The program and its arguments: at least the program, none empty, no NUL in them.
    pub argv: Vec<String>,
    /// The directory to run in, relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Which process to look at, and whether exact ranges are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PollArguments {
    /// The process.
    pub process_id: ProcessId,
    /// The cursors; none in a plain poll.
    #[serde(flatten)]
    pub cursors: Option<OutputCursors>,
}

/// Where to read in the streams. At least one of them is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OutputCursors {
    /// Where to begin in standard output; nothing of it is read without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_offset: Option<u64>,
    /// Where to begin in standard error; nothing of it is read without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_offset: Option<u64>,
    /// The most bytes of each stream: 1 to 8192.
    pub max_output_bytes: u64,
}

/// Which process to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StopArguments {
    /// The process.
    pub process_id: ProcessId,
}

fn parse<T: DeserializeOwned>(json: &str, expected: &'static str) -> Result<T, InvalidArguments> {
    raw_json::from_str(json).map_err(|_| InvalidArguments(expected))
}

/// What identifies a call of a process tool: the same arguments in any spelling have the same digest.
pub fn request_digest(tool: &str, arguments: &impl Serialize) -> Sha256Digest {
    let text = format!("{tool}\n{}", json::to_string(arguments));
    Sha256Digest::of(text.as_bytes())
}

impl StartArguments {
    /// Reads the tool's JSON arguments.
    ///
    /// # Errors
    ///
    /// [`InvalidArguments`] for anything but the tool's arguments.
    pub fn parse(json: &str) -> Result<Self, InvalidArguments> {
        const EXPECTED: &str = "the arguments are an object of argv (a list of at least one string, none empty and without NUL) and, where it is not the workspace, cwd (a string)";
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Arguments {
            argv: Vec<String>,
            cwd: Option<String>,
        }
        let Arguments { argv, cwd } = parse(json, EXPECTED)?;
        let is_word = |word: &String| !word.is_empty() && !word.contains('\0');
        let cwd_fits = cwd.as_ref().is_none_or(|cwd| !cwd.contains('\0'));
        if argv.is_empty() || !argv.iter().all(is_word) || !cwd_fits {
            return Err(InvalidArguments(EXPECTED));
        }
        Ok(Self { argv, cwd })
    }
}

impl PollArguments {
    /// Reads the tool's JSON arguments.
    ///
    /// # Errors
    ///
    /// [`InvalidArguments`] for anything but the tool's arguments.
    pub fn parse(json: &str) -> Result<Self, InvalidArguments> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Arguments {
            process_id: ProcessId,
            stdout_offset: Option<u64>,
            stderr_offset: Option<u64>,
            max_output_bytes: Option<u64>,
        }
        let arguments: Arguments = parse(
            json,
            "the arguments are an object of process_id and, for exact bytes, stdout_offset, stderr_offset and max_output_bytes (integers)",
        )?;
        let Arguments {
            process_id,
            stdout_offset,
            stderr_offset,
            max_output_bytes,
        } = arguments;
        let cursors = if stdout_offset.is_some() || stderr_offset.is_some() {
            let max_output_bytes = max_output_bytes.unwrap_or(DEFAULT_OUTPUT_BYTES);
            if !(1..=MAX_OUTPUT_BYTES).contains(&max_output_bytes) {
                return Err(InvalidArguments("max_output_bytes must be from 1 to 8192"));
            }
            Some(OutputCursors {
                stdout_offset,
                stderr_offset,
                max_output_bytes,
            })
        } else if max_output_bytes.is_some() {
            return Err(InvalidArguments(
                "max_output_bytes goes with stdout_offset or stderr_offset",
            ));
        } else {
            None
        };
        Ok(Self {
            process_id,
            cursors,
        })
    }
}

impl StopArguments {
    /// Reads the tool's JSON arguments.
    ///
    /// # Errors
    ///
    /// [`InvalidArguments`] for anything but the tool's arguments.
    pub fn parse(json: &str) -> Result<Self, InvalidArguments> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Arguments {
            process_id: ProcessId,
        }
        let Arguments { process_id } = parse(json, "the arguments are an object of process_id")?;
        Ok(Self { process_id })
    }
}
