//! The first message.

use crate::policy::ToolPolicy;

/// The instructions for a model that works under `policy` (contract A's vectors hold the wording).
pub fn system_prompt(policy: &ToolPolicy) -> String {
    let mut lines = vec![
        "You are a coding agent. Inspect the workspace before editing it.".to_owned(),
        "Reply with exactly one JSON object and no markdown.".to_owned(),
        r#"Finish with: {"final":"brief summary"}"#.to_owned(),
        "Available actions:".to_owned(),
        r#"{"tool":"list_files","path":"."}"#.to_owned(),
        r#"{"tool":"read_file","path":"README.md"}"#.to_owned(),
    ];
    if policy.allow_writes {
        lines.extend([
            r#"{"tool":"write_file","path":"hello.py","content":"..."}"#.to_owned(),
            r#"{"tool":"edit_file","path":"hello.py","old":"...","new":"..."}"#.to_owned(),
            "Read an existing file before changing it.".to_owned(),
        ]);
    }
    if !policy.allowed_commands.is_empty() {
        lines.push(r#"Use: {"tool":"run_command","argv":["exact","arguments"]}"#.to_owned());
        lines.push("The operator allowed only these exact command arrays:".to_owned());
        lines.extend(
            policy
                .allowed_commands
                .iter()
                .map(|argv| spaced_array(argv)),
        );
    }
    lines.push("Paths must be relative to the workspace.".to_owned());
    lines.push("Keep changes small and never invent file contents.".to_owned());
    lines.join("\n")
}

/// A JSON array of strings with a space after each comma.
fn spaced_array(items: &[String]) -> String {
    let items: Vec<String> = items
        .iter()
        // A text has a JSON.
        .map(|item| serde_json::to_string(item).unwrap_or_default())
        .collect();
    format!("[{}]", items.join(", "))
}
