//! How large each tool result was before it was bounded.

use evidence_agent::workspace::MemoryTree;
use evidence_agent::{ToolCall, ToolError, ToolName, ToolPolicy, ToolWorkspace, Workspace};

/// The page's workspace. It stands inside the bounded one, so that it sees the complete results.
#[derive(Debug)]
pub struct MeasuredWorkspace {
    inner: ToolWorkspace<MemoryTree>,
    complete_bytes: Option<usize>,
}

impl MeasuredWorkspace {
    /// A read-only workspace over `files`.
    pub fn new(files: MemoryTree, policy: ToolPolicy) -> Self {
        Self {
            inner: ToolWorkspace::new(files, policy),
            complete_bytes: None,
        }
    }
}

impl MeasuredWorkspace {
    /// The size of the result since the last call of this; none when no tool succeeded.
    pub const fn take_complete_bytes(&mut self) -> Option<usize> {
        self.complete_bytes.take()
    }
}

impl Workspace for MeasuredWorkspace {
    fn policy(&self) -> &ToolPolicy {
        self.inner.policy()
    }

    fn modified_files(&self) -> Vec<String> {
        self.inner.modified_files()
    }

    fn available_tools(&self) -> Vec<ToolName> {
        self.inner.available_tools()
    }

    async fn authorize(&mut self, call: &ToolCall, argv: &[String]) -> Result<(), ToolError> {
        self.inner.authorize(call, argv).await
    }

    async fn execute(&mut self, call: &ToolCall) -> Result<String, ToolError> {
        let text = self.inner.execute(call).await?;
        self.complete_bytes = Some(text.len());
        Ok(text)
    }
}
