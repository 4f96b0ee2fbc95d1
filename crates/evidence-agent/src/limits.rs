//! How long a run may go on (contract A, the loop).

/// The loop's four limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the contract's names")]
pub struct AgentLimits {
    max_steps: usize,
    max_context_chars: usize,
    max_invalid_actions: usize,
    max_identical_actions: usize,
}

/// A limit is zero, negative, or beyond what this machine can address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("agent limits must be positive")]
pub struct AgentLimitsError;

impl AgentLimits {
    /// Checks the limits, which come from outside.
    ///
    /// # Errors
    ///
    /// [`AgentLimitsError`] unless all are positive.
    pub fn new(
        max_steps: i64,
        max_context_chars: i64,
        max_invalid_actions: i64,
        max_identical_actions: i64,
    ) -> Result<Self, AgentLimitsError> {
        let positive = |limit: i64| {
            usize::try_from(limit)
                .ok()
                .filter(|limit| *limit > 0)
                .ok_or(AgentLimitsError)
        };
        Ok(Self {
            max_steps: positive(max_steps)?,
            max_context_chars: positive(max_context_chars)?,
            max_invalid_actions: positive(max_invalid_actions)?,
            max_identical_actions: positive(max_identical_actions)?,
        })
    }

    /// The most replies of the model.
    pub const fn max_steps(&self) -> usize {
        self.max_steps
    }

    /// The most code points of all messages together.
    pub const fn max_context_chars(&self) -> usize {
        self.max_context_chars
    }

    /// How many replies in a row that are no action end the run.
    pub const fn max_invalid_actions(&self) -> usize {
        self.max_invalid_actions
    }

    /// How often in a row the same action is carried out; one more ends the run.
    pub const fn max_identical_actions(&self) -> usize {
        self.max_identical_actions
    }
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            max_steps: 8,
            max_context_chars: 48_000,
            max_invalid_actions: 3,
            max_identical_actions: 2,
        }
    }
}
