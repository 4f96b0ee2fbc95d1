//! What a run shows of the model that drove it.

use std::fmt;
use std::ops::AddAssign;

use evidence_agent::workspace::MemoryTree;
use evidence_agent::{
    Action, AgentLimits, BoundedEvidenceWorkspace, Generator, Run, RunOutcome, StepEvent, ToolCall,
    ToolPolicy, ToolWorkspace,
};
use evidence_core::ArtifactId;
use evidence_core::observation::EXTERNALIZED_HEADER;
use evidence_core::range::{NAMESPACE, RANGE_HEADER};
use evidence_store::{ArtifactStore, Store};
use serde::Deserialize;

use crate::cases::{Case, Expected};

/// How a final begins, in any case, when it says that there is nothing to quote.
const NOTHING_FOUND: &str = "no diagnostic";

/// So many of so many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Those that are right.
    pub part: usize,
    /// All.
    pub whole: usize,
}

impl Share {
    /// Counts one more.
    pub fn count(&mut self, right: bool) {
        self.part += usize::from(right);
        self.whole += 1;
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        self.part += other.part;
        self.whole += other.whole;
    }
}

impl fmt::Display for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, whole } = self;
        write!(formatter, "{part} of {whole}")?;
        // None of none is no share. Tenths of a percent, rounded down: 100 % means all.
        if let Some(tenths) = (part * 1000).checked_div(*whole) {
            write!(formatter, " ({}.{} %)", tenths / 10, tenths % 10)?;
        }
        Ok(())
    }
}

/// What runs show.
///
/// - A reply parses when the loop took it for an action.
/// - An id is copied exactly when a path of the artifacts' namespace names one that an observation
///   of the run had shown by then.
/// - A range is right when the loop answered it.
/// - An answer is correct when the run completed and its final contains every expected text; where
///   nothing is to be found, when the final begins with `No diagnostic`, in upper or lower case.
///   Whether the log had been read by then as far as the steps allow is not judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Replies that are actions.
    pub replies: Share,
    /// Ids among the requests for artifacts.
    pub ids: Share,
    /// Answered ones among the requests for artifacts.
    pub ranges: Share,
    /// Runs that came to their final.
    pub completed: Share,
    /// Answers.
    pub answers: Share,
}

impl AddAssign for Judgement {
    fn add_assign(&mut self, other: Self) {
        self.replies += other.replies;
        self.ids += other.ids;
        self.ranges += other.ranges;
        self.completed += other.completed;
        self.answers += other.answers;
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "  replies that parse: {}", self.replies)?;
        writeln!(formatter, "  ids copied exactly: {}", self.ids)?;
        writeln!(formatter, "  ranges that are right: {}", self.ranges)?;
        writeln!(formatter, "  runs completed: {}", self.completed)?;
        writeln!(formatter, "  answers correct: {}", self.answers)
    }
}

/// Judges a run that has ended.
pub fn judge(expected: &Expected, outcome: &RunOutcome) -> Judgement {
    let mut judgement = Judgement::default();
    let mut shown = Vec::new();
    for event in &outcome.events {
        judgement.replies.count(event.action.is_some());
        if let Some(request) = requested(event) {
            let id = request.split('/').next().and_then(|id| id.parse().ok());
            judgement
                .ids
                .count(id.is_some_and(|id: ArtifactId| shown.contains(&id)));
            let answer = event.result.as_deref();
            judgement
                .ranges
                .count(answer.is_some_and(|answer| answer.starts_with(RANGE_HEADER)));
        } else {
            shown.extend(observed(event));
        }
    }
    judgement.completed.count(outcome.completed);
    let right = |text: &str| match expected {
        Expected::All(texts) => texts.iter().all(|expected| text.contains(expected)),
        Expected::Absent => text.to_lowercase().starts_with(NOTHING_FOUND),
    };
    let answer = outcome.r#final.as_deref().filter(|_| outcome.completed);
    judgement.answers.count(answer.is_some_and(right));
    judgement
}

/// What a step asks of the artifacts: the path after the namespace.
fn requested(event: &StepEvent) -> Option<&str> {
    match &event.action {
        Some(Action::Tool(ToolCall::ReadFile { path })) => path.strip_prefix(NAMESPACE),
        _ => None,
    }
}

/// The id that a step's observation shows.
fn observed(event: &StepEvent) -> Option<ArtifactId> {
    #[derive(Deserialize)]
    struct Observed {
        artifact_id: ArtifactId,
    }

    let json = event.result.as_deref()?.strip_prefix(EXTERNALIZED_HEADER)?;
    let observed: Observed = serde_json::from_str(json).ok()?;
    Some(observed.artifact_id)
}

/// Runs a case through the loop, everything in memory, with the loop's default limits. The artifacts
/// go to `artifacts`.
pub async fn run_case(
    case: &Case,
    artifacts: ArtifactStore<impl Store>,
    generator: &mut impl Generator,
) -> RunOutcome {
    let files = case.files.iter();
    let tree: MemoryTree = files
        .map(|(path, text)| (path.clone(), text.clone()))
        .collect();
    let tools = ToolWorkspace::new(tree, ToolPolicy::default());
    let mut workspace = BoundedEvidenceWorkspace::new(tools, artifacts, case.limits);
    let run = Run::new(&case.task, &workspace, AgentLimits::default());
    run.to_end(&mut workspace, generator, &mut |_| {}).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evidence_agent::ScriptedGenerator;
    use evidence_store::MemoryStore;
    use futures_executor::block_on;

    use super::*;
    use crate::cases;

    const READ: &str = r#"{"tool":"read_file","path":"a.log"}"#;
    const RANGE: &str =
        r#"{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/bytes/{{find:error: x}}"}"#;
    const FOUND: &str = r#"{"final":"It says error: x, at the end."}"#;

    /// Replies, ids, ranges, completed, answers, as `[part, whole]`.
    fn judged(expectation: &str, replies: &[&str]) -> [[usize; 2]; 5] {
        let log = format!("{}error: x", "fine\\n".repeat(200));
        let line = format!(r#"{{"task":"t","files":{{"a.log":"{log}"}},{expectation}}}"#);
        let case = &cases::parse(&line).unwrap()[0];
        let artifacts = ArtifactStore::new(Arc::new(MemoryStore::new()), "test".parse().unwrap());
        let mut generator = ScriptedGenerator::new(replies.iter().copied(), artifacts.clone());
        let outcome = block_on(run_case(case, artifacts, &mut generator));
        let judged = judge(&case.expected, &outcome);
        [
            judged.replies,
            judged.ids,
            judged.ranges,
            judged.completed,
            judged.answers,
        ]
        .map(|share| [share.part, share.whole])
    }

    #[test]
    fn each_share_counts_what_it_says() {
        let expect = r#""expect":["error: x","end"]"#;
        let right = [[3, 3], [1, 1], [1, 1], [1, 1], [1, 1]];
        assert_eq!(judged(expect, &[READ, RANGE, FOUND]), right);
        let wrong = r#"{"final":"It says error: x."}"#;
        let judgement = [[3, 3], [1, 1], [1, 1], [1, 1], [0, 1]];
        assert_eq!(judged(expect, &[READ, RANGE, wrong]), judgement);
        let judgement = [[1, 2], [0, 0], [0, 0], [1, 1], [1, 1]];
        assert_eq!(judged(expect, &["read a.log", FOUND]), judgement);
        let digest = format!(
            r#"{{"tool":"read_file","path":".tool-artifacts/artifact-{}/bytes/0-9"}}"#,
            "0".repeat(64)
        );
        let judgement = [[3, 3], [0, 1], [0, 1], [1, 1], [1, 1]];
        assert_eq!(judged(expect, &[READ, &digest, FOUND]), judgement);
        let refused =
            r#"{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/bytes/9-9000"}"#;
        let judgement = [[3, 3], [1, 1], [0, 1], [1, 1], [1, 1]];
        assert_eq!(judged(expect, &[READ, refused, FOUND]), judgement);
        // The script ends before its final.
        let judgement = [[1, 1], [0, 0], [0, 0], [0, 1], [0, 1]];
        assert_eq!(judged(expect, &[READ]), judgement);
    }

    #[test]
    fn where_nothing_is_to_be_found_the_answer_says_so() {
        let absent = r#""absent":true"#;
        let answers = |r#final: &str| judged(absent, &[READ, r#final])[4];
        assert_eq!(answers(r#"{"final":"NO diagnostic in a.log."}"#), [1, 1]);
        assert_eq!(answers(FOUND), [0, 1]);
        assert_eq!(answers(r#"{"final":"There is no diagnostic."}"#), [0, 1]);
    }

    #[test]
    fn a_share_of_all_alone_is_100_percent() {
        let share = |part, whole| Share { part, whole }.to_string();
        assert_eq!(share(1999, 2000), "1999 of 2000 (99.9 %)");
        assert_eq!(share(3, 3), "3 of 3 (100.0 %)");
        assert_eq!(share(0, 0), "0 of 0");
    }
}
