//! What came out.

use std::fmt;

/// A vector that was not matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which one: its name, or its line in the file.
    pub name: String,
    /// What differs.
    pub message: String,
}

/// The outcome of some vectors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many were matched.
    pub passed: usize,
    /// Those that were not.
    pub failures: Vec<Failure>,
}

impl Report {
    /// Takes up the outcome of another file.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
    }
}

impl fmt::Display for Report {
    /// A line for each failure and the closing line `N passed, M failed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Failure { name, message } in &self.failures {
            writeln!(f, "FAILED {name}: {message}")?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failures.len())
    }
}

/// Compares two texts byte for byte.
pub(crate) fn same_text(what: &str, actual: &str, expected: &str) -> Result<(), String> {
    if actual == expected {
        return Ok(());
    }
    let first = actual
        .bytes()
        .zip(expected.bytes())
        .position(|(actual, expected)| actual != expected)
        .unwrap_or(actual.len().min(expected.len()));
    let around = |text: &str| {
        let from = text.floor_char_boundary(first.saturating_sub(16));
        let to = text.ceil_char_boundary((first + 32).min(text.len()));
        format!("{:?}", &text[from..to])
    };
    Err(format!(
        "{what} differs at byte {first}: {} instead of {}",
        around(actual),
        around(expected)
    ))
}

/// Compares two values by their JSON.
pub(crate) fn same<T: serde::Serialize>(
    what: &str,
    actual: &T,
    expected: &T,
) -> Result<(), String> {
    let json = |value: &T| serde_json::to_string(value).map_err(|error| error.to_string());
    same_text(what, &json(actual)?, &json(expected)?)
}
