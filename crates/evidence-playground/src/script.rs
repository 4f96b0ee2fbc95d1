//! The script: one JSON action a line.

use evidence_agent::{Action, ToolName, ToolPolicy, script_replies};
use evidence_core::cursor::MAX_READ_BYTES;
use evidence_core::process::{POLL_TOOL, START_TOOL};
use evidence_core::range::RangePath;
use evidence_core::tool_output::{self, READ_TOOL};
use evidence_core::{ArtifactId, Sha256Digest, ToolResult};
use serde_json::json;

use crate::state::Contract;

/// How much of each stream a written script reads at a time while a process runs.
const READ_ON_BYTES: usize = 1024;

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

/// The lines that a run would count as invalid actions.
pub fn problems(script: &str, policy: &ToolPolicy, contract: Contract) -> Vec<LineProblem> {
    let mut tools = policy.available_tools();
    if contract == Contract::ToolOutput {
        tools.push(ToolName::ReadToolOutput);
        if !policy.allowed_commands.is_empty() {
            tools.extend([
                ToolName::StartProcess,
                ToolName::PollProcess,
                ToolName::StopProcess,
            ]);
        }
    }
    script_replies(script)
        .filter_map(|(line, reply)| {
            let error = match contract {
                // Placeholders stand inside JSON strings, so that a line is JSON before they are
                // filled, too.
                Contract::RangePaths => Action::parse(reply, Some(&tools)),
                Contract::ToolOutput => Action::parse(&filled(reply), Some(&tools)),
            };
            let error = error.err()?;
            Some(LineProblem {
                line,
                message: error.to_string(),
            })
        })
        .collect()
}

/// The reply with something in the place of contract B's placeholders.
fn filled(reply: &str) -> String {
    let mut filled = reply
        .replace("{{sha256}}", &Sha256Digest::from_bytes([0; 32]).to_string())
        .replace("{{process_id}}", "process-1");
    for name in ["{{offset:", "{{next:", "{{stdout:", "{{stderr:"] {
        while let Some(start) = filled.find(name)
            && let Some(length) = filled[start..].find("}}")
        {
            filled.replace_range(start..start + length + 2, "0");
        }
    }
    filled
}

/// The script that gives these replies again. A script's line is one reply and `{{` in it stands for
/// something: what of a reply a line cannot hold as it is stands there in other letters of the same JSON.
pub fn of_replies<'a>(replies: impl IntoIterator<Item = &'a str>) -> String {
    let lines = replies.into_iter().map(|reply| {
        // Inside of a JSON string there is no line feed, and outside of one it is white space.
        let line = reply.replace(['\r', '\n'], " ");
        let mut line = in_strings(&line);
        if line.trim_start().is_empty() || line.trim_start().starts_with('#') {
            // It would be no reply; it is no action either way.
            line.insert(0, '?');
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The text with the second of two braces in a JSON string escaped.
fn in_strings(json: &str) -> String {
    let mut written = String::with_capacity(json.len());
    let (mut inside, mut escaped, mut before) = (false, false, None);
    for letter in json.chars() {
        if inside && letter == '{' && before == Some('{') {
            written.push_str("\\u007b");
            before = None;
            continue;
        }
        match letter {
            '"' if !escaped => inside = !inside,
            _ => {}
        }
        escaped = inside && letter == '\\' && !escaped;
        written.push(letter);
        before = Some(letter);
    }
    written
}

/// A script that reads the `text` at `path` and then, where there is something to find, its exact
/// bytes.
pub fn reading(contract: Contract, path: &str, text: &str, needle: Option<&str>) -> String {
    let read = |path: &str| format!(r#"{{"tool":"read_file","path":{}}}"#, json!(path));
    let mut actions = vec![r#"{"tool":"list_files","path":"."}"#.to_owned(), read(path)];
    let summary = match needle {
        Some(needle) => {
            match contract {
                Contract::RangePaths => actions.push(read(&range_path(needle))),
                Contract::ToolOutput => actions.extend(cursor_read(text, needle)),
            }
            format!("The log says: {needle}")
        }
        None => format!("{path} was read."),
    };
    actions.push(format!(r#"{{"final":{}}}"#, json!(summary)));
    actions.join("\n")
}

/// A script that starts a command, reads on while it runs, and then reads the exact bytes of `needle` in
/// its standard error.
pub fn following(argv: &[String], needle: &str) -> String {
    let cursors = |stdout: &str, stderr: &str, most: usize| {
        format!(
            r#"{{"tool":"{POLL_TOOL}","process_id":"{{{{process_id}}}}","stdout_offset":{stdout},"stderr_offset":{stderr},"max_output_bytes":{most}}}"#
        )
    };
    let next = cursors("{{next:stdout}}", "{{next:stderr}}", READ_ON_BYTES);
    let quoted = json!(needle).to_string();
    let found = format!(
        r#"{{"tool":"{POLL_TOOL}","process_id":"{{{{process_id}}}}","stderr_offset":{{{{stderr:{}}}}},"max_output_bytes":{}}}"#,
        &quoted[1..quoted.len() - 1],
        needle.len(),
    );
    let actions = [
        format!(r#"{{"tool":"{START_TOOL}","argv":{}}}"#, json!(argv)),
        cursors("0", "0", READ_ON_BYTES),
        next.clone(),
        next,
        format!(r#"{{"tool":"{POLL_TOOL}","process_id":"{{{{process_id}}}}"}}"#),
        found,
        json!({"final": format!("The build says: {needle}")}).to_string(),
    ];
    actions.join("\n")
}

/// A read of exactly `needle`, which stands in the stored result as in a JSON string; none where the
/// result is seen whole.
fn cursor_read(text: &str, needle: &str) -> Option<String> {
    let result = ToolResult::from_text(true, text.to_owned());
    if tool_output::is_inline(result.serialized_byte_count()) {
        return None;
    }
    let quoted = json!(needle).to_string();
    let needle = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let limit = (needle.len() as u64).min(MAX_READ_BYTES);
    Some(format!(
        r#"{{"tool":"{READ_TOOL}","sha256":"{{{{sha256}}}}","offset":{{{{offset:{needle}}}}},"limit":{limit}}}"#
    ))
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
        let needle = "error: \"x\" \\ ‘y’";
        let text = format!("{}{needle}\n", "line\n".repeat(5000));
        let write = |contract, text| reading(contract, "a \"log\".txt", text, Some(needle));
        let script = write(Contract::RangePaths, &text);
        assert_eq!(problems(&script, &policy, Contract::RangePaths), []);
        assert_eq!(script_replies(&script).count(), 4);
        assert!(script.contains("{{artifact_id}}/bytes/{{find:"));
        let script = write(Contract::ToolOutput, &text);
        assert_eq!(problems(&script, &policy, Contract::ToolOutput), []);
        assert_eq!(script_replies(&script).count(), 4);
        let offset = r#""offset":{{offset:error: \"x\" \\ ‘y’}},"limit":23}"#;
        assert!(script.contains(offset), "{script}");
        // What is seen whole needs no read.
        let script = write(Contract::ToolOutput, needle);
        assert_eq!(script_replies(&script).count(), 3);
    }

    #[test]
    fn a_script_that_follows_a_process_is_valid_where_the_process_may_be_started() {
        let argv = ["make".to_owned(), "-k".to_owned()];
        let script = following(&argv, "error: ‘x’ \"y\"");
        assert_eq!(script_replies(&script).count(), 7);
        let mut policy = ToolPolicy::default();
        assert_eq!(problems(&script, &policy, Contract::ToolOutput).len(), 6);
        policy.allowed_commands = vec![argv.to_vec()];
        assert_eq!(problems(&script, &policy, Contract::ToolOutput), []);
        assert_eq!(problems(&script, &policy, Contract::RangePaths).len(), 6);
        assert!(
            script.contains(r#""stderr_offset":{{stderr:error: ‘x’ \"y\"}},"#),
            "{script}"
        );
    }

    #[test]
    fn problems_name_their_lines() {
        let policy = ToolPolicy::default();
        let script = "\n{\"tool\":\"list_files\"}\nread it\n";
        let found = problems(script, &policy, Contract::RangePaths);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }

    #[test]
    fn a_script_of_replies_gives_the_same_actions() {
        let replies = [
            r#"{"tool":"list_files","path":"."}"#,
            "{\"tool\":\n \"read_file\", \"path\":\"a {{artifact_id}} \\\"{{{\"}",
            "",
            "# no action",
            r#"{"final":"done"}"#,
        ];
        let script = of_replies(replies);
        let again: Vec<&str> = script_replies(&script).map(|(_, reply)| reply).collect();
        assert_eq!(again.len(), replies.len());
        for (reply, again) in replies.iter().zip(again) {
            assert_eq!(
                Action::parse(reply, None).ok(),
                Action::parse(again, None).ok()
            );
            assert!(!again.contains("{{"), "{again}");
        }
    }

    #[test]
    fn the_surest_suspect_comes_first() {
        let log = "warning: a\nnote\nerror: b is bad\nmore";
        assert_eq!(suspect(log), Some("error: b is bad"));
        assert_eq!(suspect("all is well"), None);
    }
}
