//! The cases of `bounded-evidence eval`, one JSON object a line.

use std::collections::BTreeMap;

use evidence_core::EvidenceLimits;
use evidence_core::limits::LimitsError;
use serde::Deserialize;

/// A task over files, and what a right answer to it is.
#[derive(Debug)]
pub struct Case {
    /// The line in the file, from 1.
    pub line: usize,
    /// Whether the log is a real tool's: the case's name begins with `real/`.
    pub is_real: bool,
    /// What the agent is asked.
    pub task: String,
    /// The text of each file, by its path.
    pub files: BTreeMap<String, String>,
    /// What the final answer has to say.
    pub expected: Expected,
    /// The limits of the evidence that the model sees.
    pub limits: EvidenceLimits,
}

/// What the final answer has to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Expected {
    /// Each of these texts.
    All(Vec<String>),
    /// That there is nothing to quote.
    Absent,
}

/// Why a file of cases cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CasesError {
    /// A line that is no case.
    #[error("line {line}: not a case: {error}")]
    NotACase {
        /// From 1.
        line: usize,
        /// What its JSON lacks.
        error: serde_json::Error,
    },
    /// A line that says twice what is right, or not at all.
    #[error(
        "line {line}: give either \"expect\", a list of texts that are not empty, or \"absent\": true"
    )]
    Expectation {
        /// From 1.
        line: usize,
    },
    /// A line without files.
    #[error("line {line}: \"files\" has no file; give at least one path with its text")]
    NoFiles {
        /// From 1.
        line: usize,
    },
    /// A line with limits that the contract does not allow.
    #[error("line {line}: {error}")]
    Limits {
        /// From 1.
        line: usize,
        /// The rule that they break.
        error: LimitsError,
    },
    /// Nothing but empty lines.
    #[error("there are no cases; give one JSON object a line")]
    NoCases,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: Option<String>,
    task: String,
    files: BTreeMap<String, String>,
    expect: Option<Vec<String>>,
    #[serde(default)]
    absent: bool,
    #[serde(default)]
    limits: Limits,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the contract's names")]
struct Limits {
    max_inline_bytes: Option<i64>,
    preview_bytes: Option<i64>,
    max_range_bytes: Option<i64>,
}

/// Reads a file of cases. Empty lines are left out.
pub fn parse(text: &str) -> Result<Vec<Case>, CasesError> {
    let lines = (1..).zip(text.lines());
    let cases = lines
        .filter(|(_, json)| !json.trim().is_empty())
        .map(|(line, json)| parse_line(line, json))
        .collect::<Result<Vec<Case>, CasesError>>()?;
    if cases.is_empty() {
        return Err(CasesError::NoCases);
    }
    Ok(cases)
}

fn parse_line(line: usize, json: &str) -> Result<Case, CasesError> {
    let case: Line =
        serde_json::from_str(json).map_err(|error| CasesError::NotACase { line, error })?;
    let expected = match (case.expect, case.absent) {
        // An empty text stands in every answer.
        (Some(texts), false) if !texts.is_empty() && texts.iter().all(|text| !text.is_empty()) => {
            Expected::All(texts)
        }
        (None, true) => Expected::Absent,
        _ => return Err(CasesError::Expectation { line }),
    };
    if case.files.is_empty() {
        return Err(CasesError::NoFiles { line });
    }
    let default = EvidenceLimits::default();
    let limit = |given: Option<i64>, default: usize| {
        given.unwrap_or_else(|| i64::try_from(default).unwrap_or(i64::MAX))
    };
    let limits = EvidenceLimits::new(
        limit(case.limits.max_inline_bytes, default.max_inline_bytes()),
        limit(case.limits.preview_bytes, default.preview_bytes()),
        limit(case.limits.max_range_bytes, default.max_range_bytes()),
    )
    .map_err(|error| CasesError::Limits { line, error })?;
    Ok(Case {
        line,
        is_real: case.name.is_some_and(|name| name.starts_with("real/")),
        task: case.task,
        files: case.files,
        expected,
        limits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_case_is_refused_with_its_line() {
        let good = r#"{"task":"t","files":{"a":"b"},"absent":true}"#;
        for (bad, said) in [
            ("{", "line 3: not a case"),
            (
                r#"{"task":"t","files":{"a":"b"}}"#,
                "line 3: give either \"expect\"",
            ),
            (
                r#"{"task":"t","files":{"a":"b"},"expect":["b"],"absent":true}"#,
                "line 3: give either \"expect\"",
            ),
            (
                r#"{"task":"t","files":{"a":"b"},"expect":[""]}"#,
                "line 3: give either \"expect\"",
            ),
            (
                r#"{"task":"t","files":{},"absent":true}"#,
                "line 3: \"files\" has no file",
            ),
            (
                r#"{"task":"t","files":{"a":"b"},"absent":true,"limits":{"max_range_bytes":1}}"#,
                "line 3: max_range_bytes must be at least 4",
            ),
        ] {
            let error = parse(&format!("{good}\n\n{bad}\n")).unwrap_err();
            assert!(error.to_string().starts_with(said), "{bad}: {error}");
        }
        let error = parse("\n \n").unwrap_err();
        assert!(matches!(error, CasesError::NoCases));
        let real = good.replace(r#"{"task""#, r#"{"name":"real/a","task""#);
        let cases = parse(&format!("{good}\n\n{real}\n")).unwrap();
        assert_eq!(
            cases.iter().map(|case| case.is_real).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(cases[1].line, 3);
        assert_eq!(cases[1].expected, Expected::Absent);
        assert_eq!(cases[1].limits, EvidenceLimits::default());
    }
}
