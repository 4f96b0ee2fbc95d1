//! The script: one JSON action a line.

use evidence_agent::{Action, ToolPolicy, script_replies};
use evidence_core::range::RangePath;
use evidence_core::{ArtifactId, Sha256Digest};
use serde_json::json;

/// The longest text that a written script looks for.
const MAX_NEEDLE_BYTES: usize = 160;

/// What usually begins the line that a reader of a log is after, the surest first.
const SUSPECTS: [&str; 8] = [
    "error[", "error:", "Error:", "ERROR", "FAILED", "fatal:", "failed", "warning:",
];

/// A line of the script that is no action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineProblem {
    /// From 1, as editors count.
    pub line: usize,
    /// What the protocol says to it.
    pub message: String,
}

/// The lines that a run would count as invalid actions. Placeholders stand inside JSON strings, so
/// that a line is JSON before they are filled too.
pub fn problems(script: &str, policy: &ToolPolicy) -> Vec<LineProblem> {
    let tools = policy.available_tools();
    script_replies(script)
        .filter_map(|(line, reply)| {
            let error = Action::parse(reply, Some(&tools)).err()?;
            Some(LineProblem {
                line,
                message: error.to_string(),
            })
        })
        .collect()
}

/// A script that reads `path` and then, where there is something to find, its exact bytes.
pub fn reading(path: &str, needle: Option<&str>) -> String {
    let read = |path: &str| format!(r#"{{"tool":"read_file","path":{}}}"#, json!(path));
    let mut actions = vec![r#"{"tool":"list_files","path":"."}"#.to_owned(), read(path)];
    let summary = match needle {
        Some(needle) => {
            actions.push(read(&range_path(needle)));
            format!("The log says: {needle}")
        }
        None => format!("{path} was read."),
    };
    actions.push(format!(r#"{{"final":{}}}"#, json!(summary)));
    actions.join("\n")
}

/// The range path of `needle` with placeholders where its id and its numbers will stand.
fn range_path(needle: &str) -> String {
    let id = ArtifactId::from(Sha256Digest::from_bytes([0; 32]));
    RangePath::render(id, 0, 0)
        .replace(&id.to_string(), "{{artifact_id}}")
        .replace("0-0", &format!("{{{{find:{needle}}}}}"))
}

/// A text worth finding in a log that nobody has described: the end of the first line that looks
/// like a complaint.
pub fn suspect(log: &str) -> Option<&str> {
    let start = SUSPECTS.iter().find_map(|suspect| log.find(suspect))?;
    let line = log[start..].lines().next()?;
    let line = &line[..line.floor_char_boundary(MAX_NEEDLE_BYTES)];
    // Two closing braces would end the placeholder.
    let line = line.split("}}").next()?.trim_end();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_valid_and_quotes_survive() {
        let policy = ToolPolicy::default();
        let script = reading("a \"log\".txt", Some("error: \"x\" \\ ‘y’"));
        assert_eq!(problems(&script, &policy), []);
        assert_eq!(script_replies(&script).count(), 4);
        assert!(script.contains("{{artifact_id}}/bytes/{{find:"));
    }

    #[test]
    fn problems_name_their_lines() {
        let policy = ToolPolicy::default();
        let found = problems("\n{\"tool\":\"list_files\"}\nread it\n", &policy);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }

    #[test]
    fn the_surest_suspect_comes_first() {
        let log = "warning: a\nnote\nerror: b is bad\nmore";
        assert_eq!(suspect(log), Some("error: b is bad"));
        assert_eq!(suspect("all is well"), None);
    }
}
