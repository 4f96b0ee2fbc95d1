//! Commands, and the operator who approves what changes something.

use crate::action::ToolCall;

/// What an operator says to a call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// Go on.
    Approved,
    /// Do not; the model is told the reason if there is one.
    Denied(Option<String>),
}

/// Somebody who is asked before anything changes. What policy or rules refuse is never asked.
#[expect(
    async_fn_in_trait,
    reason = "a loop runs on one thread; hosts differ in what is Send"
)]
pub trait Operator {
    /// Decides about `call`.
    async fn approve(&mut self, call: &ToolCall) -> Approval;
}

/// Nobody is there: the policy alone decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unattended;

impl Operator for Unattended {
    async fn approve(&mut self, _call: &ToolCall) -> Approval {
        Approval::Approved
    }
}

/// What a finished command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit code; none when a signal ended it.
    pub exit_code: Option<i32>,
    /// The complete standard output.
    pub stdout: Vec<u8>,
    /// The complete standard error.
    pub stderr: Vec<u8>,
}

impl CommandOutput {
    /// The result's text: the exit code on a line, then both streams in full.
    ///
    /// # Errors
    ///
    /// A sentence when a stream is not UTF-8: no exact text of it exists.
    pub(crate) fn render(self) -> Result<String, String> {
        let exit = self
            .exit_code
            .map_or_else(|| "killed by a signal".into(), |code| code.to_string());
        let not_text = |name: &str, bytes: usize| {
            format!(
                "{name} ({bytes} bytes) is not valid UTF-8 text; the command ended with exit code {exit}"
            )
        };
        let (stdout_bytes, stderr_bytes) = (self.stdout.len(), self.stderr.len());
        let stdout = String::from_utf8(self.stdout)
            .map_err(|_| not_text("standard output", stdout_bytes))?;
        let stderr =
            String::from_utf8(self.stderr).map_err(|_| not_text("standard error", stderr_bytes))?;
        Ok(format!(
            "exit code: {exit}\nstdout:\n{stdout}\nstderr:\n{stderr}"
        ))
    }
}

/// What runs the commands that the policy allows.
#[expect(
    async_fn_in_trait,
    reason = "a loop runs on one thread; hosts differ in what is Send"
)]
pub trait CommandRunner {
    /// Runs `argv`, which the policy allowed and the operator approved.
    ///
    /// # Errors
    ///
    /// A sentence for the model when there is no output.
    async fn run(&mut self, argv: &[String]) -> Result<CommandOutput, String>;
}

/// There are no commands.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCommands;

impl CommandRunner for NoCommands {
    async fn run(&mut self, _argv: &[String]) -> Result<CommandOutput, String> {
        Err("this workspace runs no commands".to_owned())
    }
}

#[cfg(not(target_arch = "wasm32"))]
pub use host::HostCommands;

#[cfg(not(target_arch = "wasm32"))]
mod host {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use super::{CommandOutput, CommandRunner};

    /// Real processes, in a directory, without standard input.
    #[derive(Debug, Clone)]
    pub struct HostCommands {
        directory: PathBuf,
    }

    impl HostCommands {
        /// Commands that run in `directory`.
        pub fn new(directory: impl Into<PathBuf>) -> Self {
            Self {
                directory: directory.into(),
            }
        }
    }

    impl CommandRunner for HostCommands {
        async fn run(&mut self, argv: &[String]) -> Result<CommandOutput, String> {
            let Some((program, arguments)) = argv.split_first() else {
                return Err("the command is empty".to_owned());
            };
            let mut command = Command::new(program);
            command
                .args(arguments)
                .current_dir(&self.directory)
                .stdin(Stdio::null());
            let output = blocking::unblock(move || command.output()).await;
            let output =
                output.map_err(|error| format!("command did not start: {}", error.kind()))?;
            Ok(CommandOutput {
                exit_code: output.status.code(),
                stdout: output.stdout,
                stderr: output.stderr,
            })
        }
    }
}
