//! Runs what the book shows of a terminal.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::repository;
use crate::shown::matches;

/// The ports that the book names, each of which becomes a free one.
const PORTS: [&str; 2] = ["8787", "8788"];

/// A command, and what it is said to print.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// Runs the commands of a page, one after another in one shell, in a directory that has a `build.log`,
/// and compares what each prints. The number of commands.
pub fn check(page: &Path, text: &str) -> usize {
    let mut text = text.to_owned();
    for port in PORTS {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let free = free.local_addr().unwrap().port().to_string();
        text = text.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{free}"));
    }
    let shown = read(&text);
    let directory = TempDir::new().unwrap();
    let outputs = TempDir::new().unwrap();
    let log = repository().join("web/samples/cargo-build.log");
    std::fs::copy(log, directory.path().join("build.log")).unwrap();

    let mut script = String::from("trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n");
    for (index, Shown { command, .. }) in shown.iter().enumerate() {
        let output = outputs.path().join(index.to_string());
        writeln!(script, "{{ {command}\n}} > '{}' 2>&1", output.display()).unwrap();
    }
    let binaries = Path::new(env!("CARGO_BIN_EXE_bounded-evidence"))
        .parent()
        .unwrap();
    let path = std::env::var("PATH").unwrap();
    let status = Command::new("timeout")
        .args(["120", "bash", "-c", &script])
        .current_dir(directory.path())
        .env("PATH", format!("{}:{path}", binaries.display()))
        .env("REPOSITORY", repository())
        .status()
        .unwrap();
    let page = page.display();
    assert!(
        status.code() != Some(124),
        "{page}: the commands do not end"
    );

    for (index, Shown { command, output }) in shown.iter().enumerate() {
        // What goes on beside the next commands prints when it likes.
        if command.ends_with('&') {
            continue;
        }
        let actual = std::fs::read_to_string(outputs.path().join(index.to_string())).unwrap();
        let lines: Vec<&str> = actual.lines().collect();
        assert!(
            lines_match(output, &lines),
            "{page}: {command}\nprints\n{actual}"
        );
    }
    shown.len()
}

fn read(text: &str) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            shown.push(Shown {
                command: command.to_owned(),
                output: Vec::new(),
            });
            continue;
        }
        let last = shown.last_mut().expect("a block begins with a command");
        match line.strip_prefix("> ") {
            Some(more) if last.output.is_empty() => {
                last.command.push('\n');
                last.command.push_str(more);
            }
            _ => last.output.push(line.to_owned()),
        }
    }
    shown
}

/// A line of nothing but `…` stands for any lines.
fn lines_match(expected: &[String], actual: &[&str]) -> bool {
    match expected {
        [] => actual.is_empty(),
        [any, rest @ ..] if any == "…" => {
            (0..=actual.len()).any(|skipped| lines_match(rest, &actual[skipped..]))
        }
        [first, rest @ ..] => actual
            .split_first()
            .is_some_and(|(line, lines)| matches(first, line) && lines_match(rest, lines)),
    }
}
