//! The limits as a person types them.

use evidence_agent::{AgentLimits, ToolPolicy};
use evidence_core::EvidenceLimits;
use evidence_core::limits::LimitsError;

use crate::player::Recording;
use crate::state::Contract;

/// The largest file that the page takes; the model may read all of it.
pub const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// What the scripted model may do here: look, and change nothing.
pub fn policy(recording: Option<&Recording>) -> ToolPolicy {
    ToolPolicy {
        allowed_commands: recording
            .map(|recording| recording.argv.clone())
            .into_iter()
            .collect(),
        max_file_bytes: MAX_FILE_BYTES,
        ..ToolPolicy::default()
    }
}

/// One of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    MaxInlineBytes,
    PreviewBytes,
    MaxRangeBytes,
    MaxSteps,
    MaxContextChars,
    MaxInvalidActions,
    MaxIdenticalActions,
}

impl Limit {
    /// Those of a bounded observation.
    pub const EVIDENCE: [Self; 3] = [
        Self::MaxInlineBytes,
        Self::PreviewBytes,
        Self::MaxRangeBytes,
    ];
    /// Those of the loop.
    pub const AGENT: [Self; 4] = [
        Self::MaxSteps,
        Self::MaxContextChars,
        Self::MaxInvalidActions,
        Self::MaxIdenticalActions,
    ];

    /// The contract's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxInlineBytes => "max_inline_bytes",
            Self::PreviewBytes => "preview_bytes",
            Self::MaxRangeBytes => "max_range_bytes",
            Self::MaxSteps => "max_steps",
            Self::MaxContextChars => "max_context_chars",
            Self::MaxInvalidActions => "max_invalid_actions",
            Self::MaxIdenticalActions => "max_identical_actions",
        }
    }

    /// What it limits.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::MaxInlineBytes => "A larger tool result is kept outside of the prompt.",
            Self::PreviewBytes => "The most bytes of the head and of the tail that are shown.",
            Self::MaxRangeBytes => "The most bytes that one range request returns.",
            Self::MaxSteps => "The most replies of the model.",
            Self::MaxContextChars => "The most characters of the whole conversation.",
            Self::MaxInvalidActions => "Replies in a row that are no action before the run ends.",
            Self::MaxIdenticalActions => "How often in a row the same action is carried out.",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// The text in the seven inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitInputs([String; 7]);

/// Why the inputs are not limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitProblem {
    /// The inputs to correct.
    pub limits: Vec<Limit>,
    /// The rule that they break.
    pub message: String,
}

/// The limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// What reaches the model.
    pub evidence: EvidenceLimits,
    /// How long the run may go on.
    pub agent: AgentLimits,
}

impl Default for LimitInputs {
    fn default() -> Self {
        let (evidence, agent) = (EvidenceLimits::default(), AgentLimits::default());
        Self(
            [
                evidence.max_inline_bytes(),
                evidence.preview_bytes(),
                evidence.max_range_bytes(),
                agent.max_steps(),
                agent.max_context_chars(),
                agent.max_invalid_actions(),
                agent.max_identical_actions(),
            ]
            .map(|limit| limit.to_string()),
        )
    }
}

impl LimitInputs {
    /// The text in an input.
    pub fn get(&self, limit: Limit) -> &str {
        &self.0[limit.index()]
    }

    /// Changes the text in an input.
    pub fn set(&mut self, limit: Limit, text: String) {
        self.0[limit.index()] = text;
    }

    /// Reads the inputs and lets the contracts check them. Those of observations are contract A's
    /// alone.
    ///
    /// # Errors
    ///
    /// The first problem of either group.
    pub fn check(&self, contract: Contract) -> Result<Limits, Vec<LimitProblem>> {
        let evidence = match contract {
            Contract::RangePaths => self.check_evidence(),
            Contract::ToolOutput => Ok(EvidenceLimits::default()),
        };
        let agent = self.check_agent();
        match (evidence, agent) {
            (Ok(evidence), Ok(agent)) => Ok(Limits { evidence, agent }),
            (evidence, agent) => Err(evidence.err().into_iter().chain(agent.err()).collect()),
        }
    }

    /// The limits of observations alone.
    ///
    /// # Errors
    ///
    /// The rule that they break.
    pub fn check_evidence(&self) -> Result<EvidenceLimits, LimitProblem> {
        let [inline, preview, range] = self.numbers(Limit::EVIDENCE)?;
        EvidenceLimits::new(inline, preview, range).map_err(|error| LimitProblem {
            limits: match error {
                LimitsError::NotPositive => self.not_positive(&Limit::EVIDENCE),
                LimitsError::InlineTooSmall => vec![Limit::MaxInlineBytes],
                LimitsError::RangeTooSmall => vec![Limit::MaxRangeBytes],
                LimitsError::PreviewTooLarge => vec![Limit::PreviewBytes],
            },
            message: error.to_string(),
        })
    }

    fn check_agent(&self) -> Result<AgentLimits, LimitProblem> {
        let [steps, chars, invalid, identical] = self.numbers(Limit::AGENT)?;
        AgentLimits::new(steps, chars, invalid, identical).map_err(|error| LimitProblem {
            limits: self.not_positive(&Limit::AGENT),
            message: error.to_string(),
        })
    }

    fn number(&self, limit: Limit) -> Option<i64> {
        self.get(limit).trim().parse().ok()
    }

    fn numbers<const N: usize>(&self, limits: [Limit; N]) -> Result<[i64; N], LimitProblem> {
        let unreadable: Vec<Limit> = limits
            .into_iter()
            .filter(|limit| self.number(*limit).is_none())
            .collect();
        if let Some(first) = unreadable.first() {
            let message = format!("{} must be a whole number", first.name());
            return Err(LimitProblem {
                limits: unreadable,
                message,
            });
        }
        Ok(limits.map(|limit| self.number(limit).unwrap_or_default()))
    }

    fn not_positive(&self, limits: &[Limit]) -> Vec<Limit> {
        let positive = |limit: Limit| self.number(limit).is_some_and(|number| number > 0);
        limits
            .iter()
            .copied()
            .filter(|limit| !positive(*limit))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_are_the_contracts() {
        let limits = LimitInputs::default().check(Contract::RangePaths).unwrap();
        assert_eq!(limits.evidence, EvidenceLimits::default());
        assert_eq!(limits.agent, AgentLimits::default());
    }

    #[test]
    fn each_problem_names_its_inputs() {
        let mut inputs = LimitInputs::default();
        inputs.set(Limit::PreviewBytes, "9999".to_owned());
        inputs.set(Limit::MaxSteps, "-1".to_owned());
        let problems = inputs.check(Contract::RangePaths).unwrap_err();
        assert_eq!(problems[0].limits, [Limit::PreviewBytes]);
        assert_eq!(problems[1].limits, [Limit::MaxSteps]);
        inputs.set(Limit::MaxRangeBytes, "many".to_owned());
        let others = inputs.check(Contract::ToolOutput).unwrap_err();
        assert_eq!(others, [problems[1].clone()]);
        let problems = inputs.check(Contract::RangePaths).unwrap_err();
        assert_eq!(problems[0].limits, [Limit::MaxRangeBytes]);
        assert_eq!(
            problems[0].message,
            "max_range_bytes must be a whole number"
        );
    }
}
