//! The commands that load a model, over the small random checkpoints of
//! evidence-qwen.

#![cfg(feature = "model")]

use std::path::PathBuf;
use std::process::{Command, Output};

fn checkpoint(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../evidence-qwen/tests/fixtures")
        .join(name)
}

fn command(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bounded-evidence"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn model_check(folder: &std::path::Path) -> Output {
    command(&["model-check", folder.to_str().unwrap(), "--backend", "flex"])
}

#[test]
fn model_check_ends_with_what_passed_and_failed() {
    let output = model_check(&checkpoint("qwen3-mlx-4bit"));
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.ends_with("6 passed, 0 failed\n"), "{printed}");
}

#[test]
fn model_check_fails_where_the_reference_differs() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "expected.json"] {
        std::fs::copy(
            checkpoint("qwen3-bf16").join(file),
            folder.path().join(file),
        )
        .unwrap();
    }
    let expected = folder.path().join("expected.json");
    std::fs::copy(checkpoint("qwen2-f16").join("expected.json"), &expected).unwrap();
    let output = model_check(folder.path());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("FAIL  entry 1: logits"), "{printed}");

    std::fs::remove_file(&expected).unwrap();
    let output = model_check(folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected.json"));
}

#[test]
fn bench_prints_the_rates_of_prefill_and_decoding() {
    let folder = checkpoint("qwen3-mlx-8bit");
    let folder = folder.to_str().unwrap();
    let output = command(&[
        "bench",
        "--model",
        folder,
        "--backend",
        "flex",
        "--prompt",
        "40",
        "--tokens",
        "8",
    ]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in ["adapter: none", "prefill: ", "decode: ", "GB/s of weights"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
}

/// A model that was never trained says anything; held to the grammar, what it
/// says is an action, or was broken off by the limit of tokens.
#[test]
fn a_model_drives_the_loop_in_place_of_a_script() {
    let (workspace, artifacts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(workspace.path().join("a.txt"), "text").unwrap();
    let model = checkpoint("qwen3-chat");
    let run = |more: &[&str]| {
        let arguments = [
            "run",
            "--task",
            "Read a.txt.",
            "--max-steps",
            "2",
            "--workspace",
            workspace.path().to_str().unwrap(),
            "--artifacts",
            artifacts.path().to_str().unwrap(),
        ];
        command(&[&arguments, more].concat())
    };
    let model = model.to_str().unwrap();
    let output = run(&["--model", model, "--backend", "flex"]);
    let printed = text(&output.stdout);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        text(&output.stderr)
    );
    let steps: Vec<serde_json::Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["type"] == "step")
        .collect();
    assert!(!steps.is_empty(), "{printed}");
    for step in steps {
        let response = step["response"].as_str().unwrap();
        assert!(
            response.starts_with("{\"tool\"")
                || response.starts_with("{\"final\"")
                || response.starts_with("{ \""),
            "{response}"
        );
    }
    // One of the two, and only one.
    assert_eq!(run(&[]).status.code(), Some(2));
    assert_eq!(
        run(&["--model", model, "--script", "x"]).status.code(),
        Some(2)
    );
}

/// A model that was never trained answers nothing right.
#[test]
fn eval_counts_the_answers_of_both_ways_of_decoding() {
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("cases.jsonl");
    let model = checkpoint("qwen3-chat");
    let eval = |text: &str| {
        std::fs::write(&cases, text).unwrap();
        let arguments = ["eval", "--model", model.to_str().unwrap(), "--cases"];
        let more = [cases.to_str().unwrap(), "--backend", "flex"];
        command(&[&arguments[..], &more].concat())
    };
    let case = r#"{"name":"real/a","task":"Read a.log.","files":{"a.log":"text"},"absent":true}"#;
    let output = eval(case);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    for line in [
        "free\n  replies that parse: ",
        "constrained\n  replies that parse: ",
        "  answers correct, real tools' logs: 0 of 1 (0.0 %)\n",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(printed.ends_with("\n0 passed, 2 failed\n"), "{printed}");

    let output = eval("\n{}\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("line 2: not a case"));
}
