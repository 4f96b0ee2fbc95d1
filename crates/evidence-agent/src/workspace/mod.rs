//! What carries out the model's tool calls.

mod command;
#[cfg(not(target_arch = "wasm32"))]
mod directory;
mod memory;
mod path;
mod tree;

use evidence_core::{RawJson, Sha256Digest, ToolResult};
use evidence_store::{ArtifactError, ToolOutputError};

#[cfg(not(target_arch = "wasm32"))]
pub use self::command::HostCommands;
pub use self::command::{Approval, CommandOutput, CommandRunner, NoCommands, Operator, Unattended};
#[cfg(not(target_arch = "wasm32"))]
pub use self::directory::DirectoryTree;
pub use self::memory::MemoryTree;
pub use self::path::WorkspacePath;
pub use self::tree::{Entry, FileTree, TreeError};
use crate::action::{ToolCall, ToolName};
use crate::policy::ToolPolicy;
use crate::prompt::system_prompt;

/// Why a tool call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The model may read this and go on: it becomes a short `error:` line, never bounded.
    #[error("{0}")]
    Refused(String),
    /// The result is there and could not be stored. It is not shown in any other way: the run ends.
    #[error(transparent)]
    Storage(#[from] ArtifactError),
    /// The same under contract B.
    #[error(transparent)]
    ToolOutput(#[from] ToolOutputError),
}

impl ToolError {
    /// A refusal with this sentence.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }
}

/// The tools that a run has.
#[expect(
    async_fn_in_trait,
    reason = "a loop runs on one thread; hosts differ in what is Send"
)]
pub trait Workspace {
    /// What the tools may do.
    fn policy(&self) -> &ToolPolicy;

    /// The tools that replies may name.
    fn available_tools(&self) -> Vec<ToolName> {
        self.policy().available_tools()
    }

    /// Files that something other than the run's own `write_file` and `edit_file` changed: what
    /// commands did. The transcript shows the rest.
    fn modified_files(&self) -> Vec<String>;

    /// Carries out a call.
    ///
    /// # Errors
    ///
    /// [`ToolError`].
    async fn execute(&mut self, call: &ToolCall) -> Result<String, ToolError>;

    /// Carries out a call whose result is a structured one (contract B). A tool that answers text
    /// alone has succeeded with it.
    ///
    /// # Errors
    ///
    /// [`ToolError`].
    async fn execute_structured(&mut self, call: &ToolCall) -> Result<ToolResult, ToolError> {
        let text = self.execute(call).await?;
        Ok(ToolResult::from_text(true, text))
    }

    /// Whether `call` may start the program `argv`: what the policy allows, and then the operator.
    ///
    /// # Errors
    ///
    /// [`ToolError::Refused`]; a workspace that knows no programs always does.
    async fn authorize(&mut self, _call: &ToolCall, _argv: &[String]) -> Result<(), ToolError> {
        Err(ToolError::refused("command is not allowed"))
    }

    /// What the model is told first.
    fn instructions(&self) -> String {
        system_prompt(self.policy())
    }

    /// Where the complete result of the last call is stored, if it is; asked once after each call.
    fn take_provenance(&mut self) -> Option<String> {
        None
    }
}

/// The tools over a tree of files, under a policy, with an operator who approves changes.
///
/// The rules are the same for every tree: they stand here once.
#[derive(Debug)]
pub struct ToolWorkspace<F, C = NoCommands, O = Unattended> {
    tree: F,
    commands: C,
    operator: O,
    policy: ToolPolicy,
    /// The digest of each file as the model last saw or left it. They are as few as its steps.
    seen: Vec<(String, Sha256Digest)>,
    changed_by_commands: Vec<String>,
}

impl<F: FileTree> ToolWorkspace<F> {
    /// A workspace without commands in which the policy alone decides.
    pub fn new(tree: F, policy: ToolPolicy) -> Self {
        Self::with(tree, policy, NoCommands, Unattended)
    }
}

impl<F: FileTree, C: CommandRunner, O: Operator> ToolWorkspace<F, C, O> {
    /// A workspace with commands and an operator.
    pub fn with(tree: F, policy: ToolPolicy, commands: C, operator: O) -> Self {
        let (seen, changed_by_commands) = (Vec::new(), Vec::new());
        Self {
            tree,
            commands,
            operator,
            policy,
            seen,
            changed_by_commands,
        }
    }

    /// The files.
    pub const fn tree(&self) -> &F {
        &self.tree
    }

    /// The files, to change them from outside of a run.
    pub const fn tree_mut(&mut self) -> &mut F {
        &mut self.tree
    }

    fn list_files(&self, path: Option<&str>) -> Result<String, ToolError> {
        let path = WorkspacePath::parse(path.unwrap_or("."))?;
        let mut entries = self.tree.list(&path)?;
        entries.retain(|(name, _)| !WorkspacePath::is_protected(name));
        entries.sort();
        let lines: Vec<String> = entries
            .iter()
            .take(self.policy.max_list_entries)
            .map(|(name, entry)| {
                let kind = if matches!(entry, Entry::Directory) {
                    "dir"
                } else {
                    "file"
                };
                format!("{kind} {}", path.join(name))
            })
            .collect();
        Ok(lines.join("\n"))
    }

    fn read_text(&self, path: &WorkspacePath) -> Result<String, ToolError> {
        let max_file_bytes = self.policy.max_file_bytes;
        let too_large = || ToolError::refused(format!("file exceeds {max_file_bytes} bytes"));
        match self.tree.entry(path)? {
            Entry::Directory => return Err(TreeError::NotAFile.into()),
            Entry::File { byte_count } if byte_count > max_file_bytes as u64 => {
                return Err(too_large());
            }
            Entry::File { .. } => {}
        }
        // The size is asked first so that a huge file is never read, and checked again because a
        // file can grow in between.
        let bytes = self.tree.read(path)?;
        if bytes.len() > max_file_bytes {
            return Err(too_large());
        }
        String::from_utf8(bytes).map_err(|_| {
            ToolError::refused("file is not valid UTF-8 text; it has no exact text to show")
        })
    }

    fn read_file(&mut self, path: &str) -> Result<String, ToolError> {
        let path = WorkspacePath::parse(path)?;
        let text = self.read_text(&path)?;
        self.remember(&path, &text);
        Ok(text)
    }

    /// The model has seen or written this text of the file.
    fn remember(&mut self, path: &WorkspacePath, text: &str) {
        self.seen.retain(|(seen, _)| seen != path.as_str());
        let state = Sha256Digest::of(text.as_bytes());
        self.seen.push((path.to_string(), state));
    }

    /// The current text, when the model has seen it as it is now.
    fn seen_text(&self, path: &WorkspacePath) -> Result<String, ToolError> {
        let text = self.read_text(path)?;
        let state = Sha256Digest::of(text.as_bytes());
        let mut seen = self.seen.iter();
        if seen.any(|(seen, digest)| seen == path.as_str() && *digest == state) {
            Ok(text)
        } else {
            Err(ToolError::refused(
                "read the existing file before changing it",
            ))
        }
    }

    fn check_write(&self, path: &WorkspacePath, content: &str) -> Result<(), ToolError> {
        let max_write_bytes = self.policy.max_write_bytes;
        if content.len() > max_write_bytes {
            return Err(ToolError::refused(format!(
                "write exceeds {max_write_bytes} bytes"
            )));
        }
        if !matches!(self.tree.entry(&path.parent()), Ok(Entry::Directory)) {
            return Err(ToolError::refused("parent directory does not exist"));
        }
        match self.tree.entry(path) {
            Err(TreeError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => self.seen_text(path).map(drop),
        }
    }

    async fn approve(&mut self, call: &ToolCall) -> Result<(), ToolError> {
        match self.operator.approve(call).await {
            Approval::Approved => Ok(()),
            Approval::Denied(None) => Err(ToolError::refused("operator denied the tool action")),
            Approval::Denied(Some(reason)) => Err(ToolError::refused(format!(
                "operator denied the tool action: {reason}"
            ))),
        }
    }

    async fn write(
        &mut self,
        call: &ToolCall,
        path: &WorkspacePath,
        content: &str,
    ) -> Result<(), ToolError> {
        self.check_write(path, content)?;
        self.approve(call).await?;
        // The operator may have taken a while: the file must still be the one that was seen.
        self.check_write(path, content)?;
        self.tree.write(path, content.as_bytes())?;
        self.remember(path, content);
        Ok(())
    }

    async fn edit_file(
        &mut self,
        call: &ToolCall,
        path: &str,
        old: &str,
        new: &str,
    ) -> Result<String, ToolError> {
        let path = WorkspacePath::parse(path)?;
        let text = self.seen_text(&path)?;
        // An empty text occurs everywhere.
        let mut occurrences = if old.is_empty() {
            0
        } else {
            text.matches(old).count()
        };
        // Overlapping occurrences count too: "aa" stands twice in "aaa".
        if occurrences == 1 {
            let first = text.find(old).unwrap_or_default();
            let next = first + text[first..].chars().next().map_or(1, char::len_utf8);
            occurrences += usize::from(text[next..].contains(old));
        }
        if occurrences != 1 {
            return Err(ToolError::refused("old text must occur exactly once"));
        }
        self.write(call, &path, &text.replacen(old, new, 1)).await?;
        Ok(format!("edited {path}"))
    }

    async fn run_command(
        &mut self,
        call: &ToolCall,
        argv: &[String],
    ) -> Result<CommandOutput, ToolError> {
        self.authorize(call, argv).await?;
        let before = self.tree.snapshot();
        let output = self.commands.run(argv).await.map_err(ToolError::Refused)?;
        let after = self.tree.snapshot();
        let changed =
            |(path, state): (&String, &_)| (before.get(path) != Some(state)).then(|| path.clone());
        let removed = before
            .keys()
            .filter(|path| !after.contains_key(*path))
            .cloned();
        self.changed_by_commands
            .extend(after.iter().filter_map(changed).chain(removed));
        self.changed_by_commands.sort();
        self.changed_by_commands.dedup();
        Ok(output)
    }
}

impl<F: FileTree, C: CommandRunner, O: Operator> Workspace for ToolWorkspace<F, C, O> {
    fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    fn modified_files(&self) -> Vec<String> {
        self.changed_by_commands.clone()
    }

    async fn authorize(&mut self, call: &ToolCall, argv: &[String]) -> Result<(), ToolError> {
        let mut allowed = self.policy.allowed_commands.iter();
        if !allowed.any(|allowed| allowed == argv) {
            return Err(ToolError::refused("command is not allowed"));
        }
        self.approve(call).await
    }

    async fn execute(&mut self, call: &ToolCall) -> Result<String, ToolError> {
        match call {
            ToolCall::ListFiles { path } => self.list_files(path.as_deref()),
            ToolCall::ReadFile { path } => self.read_file(path),
            ToolCall::WriteFile { path, content } => {
                let path = WorkspacePath::parse(path)?;
                self.write(call, &path, content).await?;
                Ok(format!("wrote {path}"))
            }
            ToolCall::EditFile { path, old, new } => self.edit_file(call, path, old, new).await,
            ToolCall::RunCommand { argv } => {
                let output = self.run_command(call, argv).await?;
                output.render().map_err(ToolError::Refused)
            }
            ToolCall::ReadToolOutput(_) => {
                Err(ToolError::refused("this workspace stores no tool output"))
            }
            ToolCall::Process(_) => Err(ToolError::refused("no programs can be started here")),
        }
    }

    /// A command has succeeded when it exits with 0, and its data say how it ended.
    async fn execute_structured(&mut self, call: &ToolCall) -> Result<ToolResult, ToolError> {
        let ToolCall::RunCommand { argv } = call else {
            let text = self.execute(call).await?;
            return Ok(ToolResult::from_text(true, text));
        };
        let output = self.run_command(call, argv).await?;
        let exit_code = output.exit_code;
        let data = exit_code.map_or("null".to_owned(), |exit_code| exit_code.to_string());
        let data = RawJson::parse(&format!("{{\"exit_code\":{data}}}"));
        Ok(ToolResult {
            success: exit_code == Some(0),
            text: output.render().map_err(ToolError::Refused)?,
            // A number or null is JSON.
            data: data.ok(),
            receipt: None,
        })
    }
}
