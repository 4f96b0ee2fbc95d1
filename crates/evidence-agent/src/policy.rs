//! What the tools of a workspace may do.

use crate::action::ToolName;

/// Read-only until the operator allows more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPolicy {
    /// Whether `write_file` and `edit_file` exist.
    pub allow_writes: bool,
    /// The exact argument arrays that `run_command` accepts; empty: the tool does not exist.
    pub allowed_commands: Vec<Vec<String>>,
    /// The largest file that `read_file` and `edit_file` take.
    pub max_file_bytes: usize,
    /// The largest file that `write_file` and `edit_file` leave.
    pub max_write_bytes: usize,
    /// The most lines of `list_files`.
    pub max_list_entries: usize,
}

impl Default for ToolPolicy {
    fn default() -> Self {
        Self {
            allow_writes: false,
            allowed_commands: Vec::new(),
            max_file_bytes: 1024 * 1024,
            max_write_bytes: 1024 * 1024,
            max_list_entries: 1000,
        }
    }
}

impl ToolPolicy {
    /// The tools that the policy enables, in the order in which the prompt names them.
    pub fn available_tools(&self) -> Vec<ToolName> {
        let mut tools = vec![ToolName::ListFiles, ToolName::ReadFile];
        if self.allow_writes {
            tools.extend([ToolName::WriteFile, ToolName::EditFile]);
        }
        if !self.allowed_commands.is_empty() {
            tools.push(ToolName::RunCommand);
        }
        tools
    }
}
