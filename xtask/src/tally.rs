//! Counts of what passed and failed, read from what test runners print.

use std::fmt;
use std::ops::AddAssign;
use std::process::ExitCode;

/// How many checks passed and how many failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
}

impl Tally {
    pub const PASS: Self = Self {
        passed: 1,
        failed: 0,
    };
    pub const FAIL: Self = Self {
        passed: 0,
        failed: 1,
    };

    pub fn exit_code(self) -> ExitCode {
        if self.failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl From<bool> for Tally {
    fn from(passed: bool) -> Self {
        if passed { Self::PASS } else { Self::FAIL }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// The programs whose closing lines are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// `cargo test` and wasm-bindgen's test runner: one line a test binary.
    Cargo,
    /// `node --test` with its `spec` reporter: one line a count.
    Node,
    /// `bounded-evidence conformance`: the closing line of this program.
    Conformance,
}

impl Runner {
    /// What this line of the runner's output adds to the count.
    pub fn count(self, line: &str) -> Option<Tally> {
        let line = line.trim();
        match self {
            Self::Cargo => {
                let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
                let mut counts = counts.split("; ");
                let passed = number_before(counts.next()?, " passed")?;
                let failed = number_before(counts.next()?, " failed")?;
                Some(Tally { passed, failed })
            }
            Self::Node => {
                let (name, count) = line.strip_prefix("ℹ ")?.split_once(' ')?;
                let count = count.parse().ok()?;
                match name {
                    "pass" => Some(Tally {
                        passed: count,
                        failed: 0,
                    }),
                    "fail" | "cancelled" => Some(Tally {
                        passed: 0,
                        failed: count,
                    }),
                    _ => None,
                }
            }
            Self::Conformance => {
                let (passed, failed) = line.split_once(", ")?;
                let passed = number_before(passed, " passed")?;
                let failed = number_before(failed, " failed")?;
                Some(Tally { passed, failed })
            }
        }
    }
}

fn number_before(text: &str, suffix: &str) -> Option<u64> {
    text.strip_suffix(suffix)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn tally(passed: u64, failed: u64) -> Tally {
        Tally { passed, failed }
    }

    #[test]
    fn a_test_binary_closes_with_its_counts() {
        let count = |line| Runner::Cargo.count(line);
        let passed = "test result: ok. 31 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; \
                      finished in 0.52s";
        assert_eq!(count(passed), Some(tally(31, 0)));
        let failed = "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered \
                      out; finished in 0.00s";
        assert_eq!(count(failed), Some(tally(3, 1)));
        assert_eq!(count("test result: ok. many passed; 0 failed"), None);
        assert_eq!(count("test range::tests::cuts ... ok"), None);
    }

    #[test]
    fn node_closes_with_a_line_for_each_count() {
        let lines = "ℹ tests 6\nℹ suites 1\nℹ pass 4\nℹ fail 1\nℹ cancelled 1\nℹ skipped 0\nℹ \
                     duration_ms 12.5\n";
        let mut total = Tally::default();
        for counted in lines.lines().filter_map(|line| Runner::Node.count(line)) {
            total += counted;
        }
        assert_eq!(total, tally(4, 2));
    }

    #[test]
    fn conformance_closes_as_this_program_does() {
        let count = |line: &str| Runner::Conformance.count(line);
        let closing = tally(120, 3);
        assert_eq!(count(&closing.to_string()), Some(closing));
        assert_eq!(count("loop.jsonl: 3 passed, 0 failed"), None);
        assert_eq!(count("3 passed"), None);
    }
}
