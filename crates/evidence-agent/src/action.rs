//! The action protocol: each reply of the model is one JSON object (contract A, the loop).

use evidence_core::cursor::ReadArguments;
use evidence_core::process::{POLL_TOOL, START_TOOL, STOP_TOOL};
use evidence_core::raw_json::{JsonError, ObjectReader};
use evidence_core::tool_output::READ_TOOL;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::process::ProcessCall;

/// The tools of the loop. Serialized it is the name that the model uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum ToolName {
    /// Lists a directory.
    ListFiles,
    /// Reads a file, or a range of an artifact.
    ReadFile,
    /// Writes a whole file.
    WriteFile,
    /// Replaces one exact occurrence.
    EditFile,
    /// Runs an allowed command.
    RunCommand,
    /// Reads stored tool output by cursor. It exists in runs under contract B alone, as do the next.
    ReadToolOutput,
    /// Starts a process.
    StartProcess,
    /// Looks at a process.
    PollProcess,
    /// Ends a process.
    StopProcess,
}

impl ToolName {
    /// Every tool of contract A.
    pub const ALL: [Self; 5] = [
        Self::ListFiles,
        Self::ReadFile,
        Self::WriteFile,
        Self::EditFile,
        Self::RunCommand,
    ];

    const ONLY_UNDER_B: [Self; 4] = [
        Self::ReadToolOutput,
        Self::StartProcess,
        Self::PollProcess,
        Self::StopProcess,
    ];

    /// The name that the model uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ListFiles => "list_files",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::EditFile => "edit_file",
            Self::RunCommand => "run_command",
            Self::ReadToolOutput => READ_TOOL,
            Self::StartProcess => START_TOOL,
            Self::PollProcess => POLL_TOOL,
            Self::StopProcess => STOP_TOOL,
        }
    }

    /// The fields that an action must have, and those that it may have, each sorted.
    pub const fn fields(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::ListFiles => (&[], &["path"]),
            Self::ReadFile => (&["path"], &[]),
            Self::WriteFile => (&["content", "path"], &[]),
            Self::EditFile => (&["new", "old", "path"], &[]),
            Self::RunCommand => (&["argv"], &[]),
            Self::ReadToolOutput => (&["limit", "offset", "sha256"], &["job_id"]),
            Self::StartProcess => (&["argv"], &["cwd"]),
            Self::PollProcess => (
                &["process_id"],
                &["max_output_bytes", "stderr_offset", "stdout_offset"],
            ),
            Self::StopProcess => (&["process_id"], &[]),
        }
    }
}

impl From<ToolName> for &'static str {
    fn from(tool: ToolName) -> Self {
        tool.as_str()
    }
}

impl TryFrom<String> for ToolName {
    type Error = UnknownTool;

    fn try_from(name: String) -> Result<Self, UnknownTool> {
        Self::ALL
            .into_iter()
            .chain(Self::ONLY_UNDER_B)
            .find(|tool| tool.as_str() == name)
            .ok_or(UnknownTool(name))
    }
}

/// A name that no tool has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool {0:?}")]
pub struct UnknownTool(String);

/// A tool with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCall {
    /// `list_files`; without a path the workspace's root.
    ListFiles {
        /// The directory.
        path: Option<String>,
    },
    /// `read_file`.
    ReadFile {
        /// The file, or a range path.
        path: String,
    },
    /// `write_file`.
    WriteFile {
        /// The file.
        path: String,
        /// Its whole new text.
        content: String,
    },
    /// `edit_file`.
    EditFile {
        /// The file.
        path: String,
        /// The text that must occur exactly once.
        old: String,
        /// What stands there afterwards.
        new: String,
    },
    /// `run_command`.
    RunCommand {
        /// The program and its arguments.
        argv: Vec<String>,
    },
    /// `akh_read_tool_output`.
    ReadToolOutput(ReadArguments),
    /// `exec_start`, `exec_poll` or `exec_stop`.
    Process(ProcessCall),
}

impl ToolCall {
    /// Which tool it is.
    pub const fn name(&self) -> ToolName {
        match self {
            Self::ListFiles { .. } => ToolName::ListFiles,
            Self::ReadFile { .. } => ToolName::ReadFile,
            Self::WriteFile { .. } => ToolName::WriteFile,
            Self::EditFile { .. } => ToolName::EditFile,
            Self::RunCommand { .. } => ToolName::RunCommand,
            Self::ReadToolOutput(_) => ToolName::ReadToolOutput,
            Self::Process(call) => call.name(),
        }
    }

    /// The path that the call names, if it names one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::ListFiles { path } => path.as_deref(),
            Self::ReadFile { path }
            | Self::WriteFile { path, .. }
            | Self::EditFile { path, .. } => Some(path),
            Self::RunCommand { .. } | Self::ReadToolOutput(_) | Self::Process(_) => None,
        }
    }

    /// The arguments by their names, to be serialized.
    pub const fn arguments(&self) -> impl Serialize {
        Arguments(self)
    }
}

/// The arguments of a call, as a map.
struct Arguments<'a>(&'a ToolCall);

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let ToolCall::Process(call) = self.0 {
            return match call {
                ProcessCall::Start(arguments) => arguments.serialize(serializer),
                ProcessCall::Poll(arguments) => arguments.serialize(serializer),
                ProcessCall::Stop(arguments) => arguments.serialize(serializer),
            };
        }
        let mut map = serializer.serialize_map(None)?;
        match self.0 {
            ToolCall::ListFiles { path } => {
                if let Some(path) = path {
                    map.serialize_entry("path", path)?;
                }
            }
            ToolCall::ReadFile { path } => map.serialize_entry("path", path)?,
            ToolCall::WriteFile { path, content } => {
                map.serialize_entry("content", content)?;
                map.serialize_entry("path", path)?;
            }
            ToolCall::EditFile { path, old, new } => {
                map.serialize_entry("new", new)?;
                map.serialize_entry("old", old)?;
                map.serialize_entry("path", path)?;
            }
            ToolCall::RunCommand { argv } => map.serialize_entry("argv", argv)?,
            ToolCall::ReadToolOutput(arguments) => {
                if let Some(job_id) = &arguments.job_id {
                    map.serialize_entry("job_id", job_id)?;
                }
                map.serialize_entry("limit", &arguments.request.limit())?;
                map.serialize_entry("offset", &arguments.request.offset())?;
                map.serialize_entry("sha256", &arguments.sha256)?;
            }
            // It was serialized above.
            ToolCall::Process(_) => {}
        }
        map.end()
    }
}

/// What a reply asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Call a tool.
    Tool(ToolCall),
    /// End the run with this text.
    Final(String),
}

impl Serialize for Action {
    /// `{"tool":…,"arguments":{…}}` or `{"final":…}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Tool(call) => {
                map.serialize_entry("tool", call.name().as_str())?;
                map.serialize_entry("arguments", &call.arguments())?;
            }
            Self::Final(text) => map.serialize_entry("final", text)?,
        }
        map.end()
    }
}

/// Why a reply is no action. The model reads these sentences and tries again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// Not JSON at all.
    #[error("response is not valid JSON: {0}")]
    NotJson(String),
    /// JSON, but not an object.
    #[error("response must be a JSON object")]
    NotAnObject,
    /// `final` beside something else, or not a string.
    #[error("final action must contain only a string 'final' field")]
    MalformedFinal,
    /// A `final` of white space.
    #[error("final response must not be empty")]
    EmptyFinal,
    /// No `tool`.
    #[error("tool action requires a string 'tool' field")]
    NoTool,
    /// No tool of this name exists.
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    /// The tool exists and the policy leaves it out.
    #[error("tool is not enabled: {0}")]
    NotEnabled(&'static str),
    /// Fields that the tool needs.
    #[error("missing fields for {tool}: {}", fields.join(", "))]
    MissingFields {
        /// The tool.
        tool: &'static str,
        /// The fields, sorted.
        fields: Vec<String>,
    },
    /// Fields that the tool does not have.
    #[error("unexpected fields for {tool}: {}", fields.join(", "))]
    UnexpectedFields {
        /// The tool.
        tool: &'static str,
        /// The fields, sorted.
        fields: Vec<String>,
    },
    /// A field of another type.
    #[error("{0} must be a string")]
    NotAString(&'static str),
    /// `argv` that names nothing to run.
    #[error("argv must be a non-empty array of non-empty strings")]
    MalformedArgv,
    /// Arguments of one of contract B's tools that are not of its form.
    #[error("{0}")]
    Arguments(String),
}

impl Action {
    /// Parses a reply. `available` are the tools that the policy enables; without it, all.
    ///
    /// # Errors
    ///
    /// The first rule of the protocol that the reply breaks.
    pub fn parse(response: &str, available: Option<&[ToolName]>) -> Result<Self, ActionError> {
        let value: Value = serde_json::from_str(response)
            .map_err(|error| ActionError::NotJson(error.to_string()))?;
        let Value::Object(object) = value else {
            return Err(ActionError::NotAnObject);
        };
        if let Some(value) = object.get("final") {
            return match value {
                Value::String(text) if object.len() == 1 => {
                    if is_blank(text) {
                        Err(ActionError::EmptyFinal)
                    } else {
                        Ok(Self::Final(text.clone()))
                    }
                }
                _ => Err(ActionError::MalformedFinal),
            };
        }
        let Some(Value::String(name)) = object.get("tool") else {
            return Err(ActionError::NoTool);
        };
        let tool = ToolName::ALL
            .into_iter()
            // Where contract B's tool is not offered it is a name like any unknown one.
            .chain(available.into_iter().flatten().copied())
            .find(|tool| tool.as_str() == name)
            .ok_or_else(|| ActionError::UnknownTool(name.clone()))?;
        if available.is_some_and(|available| !available.contains(&tool)) {
            return Err(ActionError::NotEnabled(tool.as_str()));
        }
        parse_call(tool, &object, response).map(Self::Tool)
    }
}

/// The JSON of an action without the name of its tool: the arguments of one of contract B's tools, as
/// they were written.
fn arguments_of(response: &str) -> Result<String, ActionError> {
    let invalid = |error: JsonError| ActionError::Arguments(error.to_string());
    let mut reader = ObjectReader::new(response);
    let mut arguments = Vec::new();
    while let Some(name) = reader.next_name().map_err(invalid)? {
        let value = reader.value().map_err(invalid)?;
        if name != "tool" {
            // The names are those of the tool's fields, which need no escapes.
            arguments.push(format!("\"{name}\":{value}"));
        }
    }
    Ok(format!("{{{}}}", arguments.join(",")))
}

fn parse_call(
    tool: ToolName,
    object: &Map<String, Value>,
    response: &str,
) -> Result<ToolCall, ActionError> {
    let (required, optional) = tool.fields();
    let missing = required
        .iter()
        .filter(|field| !object.contains_key(**field));
    let fields: Vec<String> = missing.map(|field| (*field).to_owned()).collect();
    if !fields.is_empty() {
        return Err(ActionError::MissingFields {
            tool: tool.as_str(),
            fields,
        });
    }
    let known =
        |field: &str| field == "tool" || required.contains(&field) || optional.contains(&field);
    // A map's keys are sorted.
    let unexpected = object.keys().filter(|field| !known(field));
    let fields: Vec<String> = unexpected.cloned().collect();
    if !fields.is_empty() {
        return Err(ActionError::UnexpectedFields {
            tool: tool.as_str(),
            fields,
        });
    }
    if tool == ToolName::ReadToolOutput {
        return ReadArguments::parse(&arguments_of(response)?)
            .map(ToolCall::ReadToolOutput)
            .map_err(|refusal| ActionError::Arguments(refusal.to_string()));
    }
    if matches!(
        tool,
        ToolName::StartProcess | ToolName::PollProcess | ToolName::StopProcess
    ) {
        return ProcessCall::parse(tool.as_str(), &arguments_of(response)?)
            .ok_or(ActionError::NotEnabled(tool.as_str()))?
            .map(ToolCall::Process)
            .map_err(|invalid| ActionError::Arguments(invalid.to_string()));
    }
    let text = |field: &'static str| match object.get(field) {
        Some(Value::String(text)) => Ok(Some(text.clone())),
        None => Ok(None),
        Some(_) => Err(ActionError::NotAString(field)),
    };
    // A required field is there: it was checked above.
    let required_text = |field| text(field).map(Option::unwrap_or_default);
    Ok(match tool {
        ToolName::ListFiles => ToolCall::ListFiles {
            path: text("path")?,
        },
        ToolName::ReadFile => ToolCall::ReadFile {
            path: required_text("path")?,
        },
        ToolName::WriteFile => ToolCall::WriteFile {
            path: required_text("path")?,
            content: required_text("content")?,
        },
        ToolName::EditFile => ToolCall::EditFile {
            path: required_text("path")?,
            old: required_text("old")?,
            new: required_text("new")?,
        },
        // The others were returned above.
        ToolName::RunCommand
        | ToolName::ReadToolOutput
        | ToolName::StartProcess
        | ToolName::PollProcess
        | ToolName::StopProcess => ToolCall::RunCommand {
            argv: argv(object.get("argv"))?,
        },
    })
}

fn argv(value: Option<&Value>) -> Result<Vec<String>, ActionError> {
    let Some(Value::Array(items)) = value else {
        return Err(ActionError::MalformedArgv);
    };
    let argv: Option<Vec<String>> = items
        .iter()
        .map(|item| match item {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            _ => None,
        })
        .collect();
    argv.filter(|argv| !argv.is_empty())
        .ok_or(ActionError::MalformedArgv)
}

/// Whether there is nothing but white space. The reference counts the four information separators
/// as white space, which Unicode's property does not.
pub(crate) fn is_blank(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}
