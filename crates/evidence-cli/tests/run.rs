//! `bounded-evidence run` as its user starts it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const SCRIPT: &str = r#"
{"tool":"read_file","path":"build.log"}
{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/find/error%5B"}
{"tool":"read_file","path":".tool-artifacts/{{artifact_id}}/lines/61-61"}
{"final":"The build fails with error[E0282]."}
"#;

/// What the model was told in each step.
fn results(root: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_bounded-evidence"))
        .args(["run", "--task", "Find the error."])
        .args(["--workspace", "files", "--artifacts", "artifacts"])
        .args(["--script", "script.jsonl"])
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let steps = lines.into_iter().filter(|line| line["type"] == "step");
    steps.map(|mut step| step["result"].take()).collect()
}

#[test]
fn lines_and_find_are_answered_where_they_are_asked_for() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("files")).unwrap();
    let mut log = "warning: unused\n".repeat(60);
    log.push_str("error[E0282]: type annotations needed\n");
    std::fs::write(root.path().join("files/build.log"), log).unwrap();
    std::fs::write(root.path().join("script.jsonl"), SCRIPT).unwrap();

    let on = results(root.path(), &["--lines-and-find"]);
    let starts_with = |result: &Value, start| result.as_str().unwrap().starts_with(start);
    assert!(starts_with(&on[0], "Tool result externalized:\n"));
    assert!(starts_with(&on[1], "Artifact find:\n"));
    assert!(
        on[1]
            .as_str()
            .unwrap()
            .contains("{\"line\":61,\"range\":[960,966]}")
    );
    assert!(starts_with(&on[2], "Artifact lines:\n"));

    let off = results(root.path(), &[]);
    assert_eq!(off[0], on[0]);
    for result in &off[1..3] {
        assert_eq!(result, "error: artifact range path is malformed");
    }
}
