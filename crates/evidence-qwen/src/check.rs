//! Holding a model against what a reference computed.

use std::fmt;

use evidence_agent::Message;
use serde::Deserialize;

use crate::checkpoint::MAX_JSON_BYTES;
use crate::model::{GenerateError, Model, Options, Step};
use crate::source::{CheckpointSource, SourceError, read_text};

/// Largest ‖a-b‖/‖b‖ of the logits that passes.
pub const MAX_RELATIVE_DIFFERENCE: f64 = 1e-3;

/// One entry of `expected.json`. What a field says is compared; fields that are
/// not there are not.
#[derive(Debug, Clone, Default, Deserialize)]
struct Expected {
    tokens: Option<Vec<u32>>,
    logits_last: Option<Vec<f32>>,
    greedy: Option<Vec<u32>>,
    text: Option<String>,
    messages: Option<Vec<Message>>,
    rendered: Option<String>,
    /// JSON of a list of tools, as a text: its order is part of the prompt.
    tools: Option<String>,
    #[serde(default)]
    enable_thinking: bool,
}

/// What was compared, and how it went.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Which entry of `expected.json`, from 1.
    pub entry: usize,
    /// What was compared.
    pub subject: Subject,
    /// Whether it agrees.
    pub passed: bool,
}

/// What a comparison was about.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// The logits after the prompt.
    Logits {
        /// Largest difference of two logits.
        largest_absolute: f64,
        /// ‖a-b‖/‖b‖.
        relative: f64,
    },
    /// The greedy continuation: how many tokens agree, of how many.
    Greedy {
        /// Tokens before the first that differs.
        agreeing: usize,
        /// Tokens that were expected.
        expected: usize,
    },
    /// The tokens of a text or a conversation.
    Tokens {
        /// Where they first differ.
        difference: Option<usize>,
    },
    /// The rendered template.
    Rendered {
        /// The byte where it first differs.
        difference: Option<usize>,
    },
    /// The model did not get as far.
    Failed(String),
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed { "pass" } else { "FAIL" };
        write!(formatter, "{verdict}  entry {}: ", self.entry)?;
        match &self.subject {
            Subject::Logits {
                largest_absolute,
                relative,
            } => write!(
                formatter,
                "logits: largest difference {largest_absolute:.3e}, relative {relative:.3e}"
            ),
            Subject::Greedy { agreeing, expected } => {
                write!(formatter, "greedy: {agreeing} of {expected} tokens agree")
            }
            Subject::Tokens { difference: None } => write!(formatter, "tokens agree"),
            Subject::Tokens {
                difference: Some(at),
            } => {
                write!(formatter, "tokens differ from token {at} on")
            }
            Subject::Rendered { difference: None } => write!(formatter, "rendered prompt agrees"),
            Subject::Rendered {
                difference: Some(at),
            } => {
                write!(formatter, "rendered prompt differs from byte {at} on")
            }
            Subject::Failed(message) => write!(formatter, "{message}"),
        }
    }
}

/// All comparisons of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// In the order of `expected.json`.
    pub comparisons: Vec<Comparison>,
}

impl Report {
    /// How many comparisons did not pass.
    pub fn failed(&self) -> usize {
        self.comparisons
            .iter()
            .filter(|comparison| !comparison.passed)
            .count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for comparison in &self.comparisons {
            writeln!(formatter, "{comparison}")?;
        }
        let failed = self.failed();
        writeln!(
            formatter,
            "{} passed, {failed} failed",
            self.comparisons.len() - failed
        )
    }
}

/// Compares a loaded model with the `expected.json` beside its checkpoint.
///
/// # Errors
///
/// When there is no `expected.json` or it cannot be read. What the model gets
/// wrong, or fails at, is in the report.
pub async fn check(
    model: &mut Model,
    source: &impl CheckpointSource,
) -> Result<Report, SourceError> {
    const FILE: &str = "expected.json";
    let json = read_text(source, FILE, MAX_JSON_BYTES)
        .await?
        .ok_or_else(|| SourceError::new(FILE, "there is no such file to compare with"))?;
    let entries: Vec<Expected> =
        serde_json::from_str(&json).map_err(|error| SourceError::new(FILE, error))?;
    let mut comparisons = Vec::new();
    for (index, expected) in entries.into_iter().enumerate() {
        let entry = index + 1;
        let results = compare(model, &expected)
            .await
            .unwrap_or_else(|error| vec![(Subject::Failed(error.to_string()), false)]);
        comparisons.extend(results.into_iter().map(|(subject, passed)| Comparison {
            entry,
            subject,
            passed,
        }));
    }
    Ok(Report { comparisons })
}

async fn compare(
    model: &mut Model,
    expected: &Expected,
) -> Result<Vec<(Subject, bool)>, GenerateError> {
    let mut results = Vec::new();
    if let Some(messages) = &expected.messages {
        let options = Options {
            enable_thinking: expected.enable_thinking,
            tools: expected.tools.clone(),
            ..Options::default()
        };
        if let Some(rendered) = &expected.rendered {
            let difference = first_difference(
                model.render(messages, &options)?.as_bytes(),
                rendered.as_bytes(),
            );
            results.push((Subject::Rendered { difference }, difference.is_none()));
        }
        if let Some(tokens) = &expected.tokens {
            let difference = first_difference(&model.encode_chat(messages, &options)?, tokens);
            results.push((Subject::Tokens { difference }, difference.is_none()));
        }
    } else if let Some((text, tokens)) = expected.text.as_ref().zip(expected.tokens.as_ref()) {
        let difference = first_difference(&model.encode_text(text)?, tokens);
        results.push((Subject::Tokens { difference }, difference.is_none()));
    }
    let Some(tokens) = &expected.tokens else {
        return Ok(results);
    };
    if let Some(reference) = &expected.logits_last {
        let logits = model.logits_after(tokens).await?;
        let (largest_absolute, relative) = differences(&logits, reference);
        let passed = relative <= MAX_RELATIVE_DIFFERENCE;
        results.push((
            Subject::Logits {
                largest_absolute,
                relative,
            },
            passed,
        ));
    }
    if let Some(reference) = &expected.greedy {
        let continuation = continue_greedily(model, tokens, reference.len()).await?;
        let agreeing = continuation
            .iter()
            .zip(reference)
            .take_while(|(a, b)| a == b)
            .count();
        let subject = Subject::Greedy {
            agreeing,
            expected: reference.len(),
        };
        results.push((subject, agreeing == reference.len()));
    }
    Ok(results)
}

/// The likeliest continuation, stop tokens included: a reference goes on too.
async fn continue_greedily(
    model: &mut Model,
    tokens: &[u32],
    count: usize,
) -> Result<Vec<u32>, GenerateError> {
    let options = Options {
        max_tokens: count,
        ..Options::default()
    };
    let mut generation = model
        .continue_tokens(tokens, &options)?
        .through_stop_tokens();
    let mut continuation = Vec::new();
    loop {
        match generation.step().await? {
            Step::Prefill { .. } => {}
            Step::Token { token, .. } => continuation.push(token),
            Step::Done { .. } => return Ok(continuation),
        }
    }
}

fn first_difference<T: PartialEq>(a: &[T], b: &[T]) -> Option<usize> {
    let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    (shared < a.len() || shared < b.len()).then_some(shared)
}

/// Largest absolute difference, and ‖a-b‖/‖b‖. Infinite when the lengths differ.
fn differences(values: &[f32], reference: &[f32]) -> (f64, f64) {
    if values.len() != reference.len() {
        return (f64::INFINITY, f64::INFINITY);
    }
    let (mut largest, mut difference, mut norm) = (0.0_f64, 0.0, 0.0);
    for (a, b) in values.iter().zip(reference) {
        let (a, b) = (f64::from(*a), f64::from(*b));
        largest = largest.max((a - b).abs());
        difference += (a - b).powi(2);
        norm += b.powi(2);
    }
    (largest, (difference / norm).sqrt())
}
