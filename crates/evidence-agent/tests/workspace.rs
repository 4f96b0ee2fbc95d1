//! The rules of the tools, over a tree in memory and over a real directory.

use evidence_agent::workspace::{
    Approval, DirectoryTree, FileTree, HostCommands, MemoryTree, Operator, ToolWorkspace,
    Unattended,
};
use evidence_agent::{ToolCall, ToolPolicy, Workspace};
use futures_executor::block_on;

fn writing() -> ToolPolicy {
    ToolPolicy {
        allow_writes: true,
        ..ToolPolicy::default()
    }
}

fn execute(workspace: &mut impl Workspace, call: &ToolCall) -> String {
    match block_on(workspace.execute(call)) {
        Ok(text) => text,
        Err(error) => format!("error: {error}"),
    }
}

fn read(path: &str) -> ToolCall {
    ToolCall::ReadFile { path: path.into() }
}

fn write(path: &str, content: &str) -> ToolCall {
    ToolCall::WriteFile {
        path: path.into(),
        content: content.into(),
    }
}

fn edit(path: &str, old: &str, new: &str) -> ToolCall {
    ToolCall::EditFile {
        path: path.into(),
        old: old.into(),
        new: new.into(),
    }
}

/// Runs the same calls over both trees, which must answer the same.
fn both(files: &[(&str, &[u8])], policy: &ToolPolicy, calls: &[(ToolCall, &str)]) {
    let directory = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let memory: MemoryTree = files.iter().map(|(path, bytes)| (*path, *bytes)).collect();
    let mut memory = ToolWorkspace::new(memory, policy.clone());
    let mut real = ToolWorkspace::new(
        DirectoryTree::open(directory.path()).unwrap(),
        policy.clone(),
    );
    for (call, expected) in calls {
        assert_eq!(execute(&mut memory, call), *expected, "in memory: {call:?}");
        assert_eq!(
            execute(&mut real, call),
            *expected,
            "in a directory: {call:?}"
        );
    }
}

#[test]
fn paths_that_leave_or_are_protected_are_refused() {
    let outside = "error: path must be relative and stay in the workspace";
    let closed = "error: path is not accessible";
    both(
        &[
            ("a/b.txt", b"x"),
            (".env", b"secret"),
            ("a/k.PEM", b"secret"),
            (".git/config", b"secret"),
        ],
        &ToolPolicy::default(),
        &[
            (read("a/../../etc/passwd"), outside),
            (read(".."), outside),
            (read("/etc/passwd"), outside),
            (read("C:\\x"), outside),
            (read("c:/x"), outside),
            (read("a\\b.txt"), outside),
            (read("a\0"), outside),
            (read(""), "error: path must be a non-empty string"),
            (read("\t\u{1f}"), "error: path must be a non-empty string"),
            (read(".env"), closed),
            (read(".ENV"), closed),
            (read("./a/./k.PEM"), closed),
            (read(".git/config"), closed),
            (read(".tool-artifacts"), closed),
            (read("nope"), closed),
            (read("a/b.txt/c"), closed),
            (read("a"), "error: path is not a file"),
            (read("."), "error: path is not a file"),
            (read("a//b.txt"), "x"),
            (ToolCall::ListFiles { path: None }, "dir a"),
            (
                ToolCall::ListFiles {
                    path: Some("a".into()),
                },
                "file a/b.txt",
            ),
        ],
    );
}

#[test]
fn files_that_are_not_text_are_refused_and_odd_text_is_exact() {
    both(
        &[
            ("binary", b"\x7fELF\xff\xfe"),
            ("cut", b"\xf0\x9f\x99"),
            ("empty", b""),
            ("bom", b"\xef\xbb\xbfx"),
            ("crlf", b"a\r\nb\r"),
            ("nul", b"a\0b"),
        ],
        &ToolPolicy::default(),
        &[
            (
                read("binary"),
                "error: file is not valid UTF-8 text; it has no exact text to show",
            ),
            (
                read("cut"),
                "error: file is not valid UTF-8 text; it has no exact text to show",
            ),
            (read("empty"), ""),
            (read("bom"), "\u{feff}x"),
            (read("crlf"), "a\r\nb\r"),
            (read("nul"), "a\0b"),
        ],
    );
}

#[test]
fn a_change_needs_the_file_as_it_was_read() {
    both(
        &[("f", b"aaa"), ("g", b"one")],
        &writing(),
        &[
            (
                write("f", "new"),
                "error: read the existing file before changing it",
            ),
            (read("f"), "aaa"),
            (
                edit("f", "aa", "b"),
                "error: old text must occur exactly once",
            ),
            (
                edit("f", "", "b"),
                "error: old text must occur exactly once",
            ),
            (
                edit("f", "x", "b"),
                "error: old text must occur exactly once",
            ),
            (edit("f", "aaa", "b"), "edited f"),
            (read("f"), "b"),
            (write("f", "c"), "wrote f"),
            (
                edit("g", "one", "two"),
                "error: read the existing file before changing it",
            ),
            (write("new", "n"), "wrote new"),
            (edit("new", "n", "m"), "edited new"),
            (
                write("no/such", "n"),
                "error: parent directory does not exist",
            ),
            (write(".git/hooks", "n"), "error: path is not accessible"),
        ],
    );
}

#[test]
fn a_file_that_somebody_else_changed_is_not_overwritten() {
    let mut workspace = ToolWorkspace::new(MemoryTree::from_iter([("f", "old")]), writing());
    execute(&mut workspace, &read("f"));
    workspace.tree_mut().insert("f", "changed");
    let refusal = "error: read the existing file before changing it";
    assert_eq!(execute(&mut workspace, &edit("f", "old", "new")), refusal);
    assert_eq!(execute(&mut workspace, &write("f", "new")), refusal);
}

/// Somebody who is asked and takes note of it.
struct Asked<'a>(&'a mut Vec<String>, Approval);

impl Operator for Asked<'_> {
    async fn approve(&mut self, call: &ToolCall) -> Approval {
        self.0.push(call.name().as_str().to_owned());
        self.1.clone()
    }
}

#[test]
fn the_operator_is_asked_about_changes_only_and_never_about_what_is_refused_anyway() {
    let mut asked = Vec::new();
    let tree = MemoryTree::from_iter([("f", "x")]);
    let denied = Approval::Denied(Some("no".into()));
    let commands = HostCommands::new(".");
    let mut workspace = ToolWorkspace::with(tree, writing(), commands, Asked(&mut asked, denied));
    execute(&mut workspace, &read("f"));
    execute(&mut workspace, &write("no/such", "x"));
    execute(
        &mut workspace,
        &ToolCall::RunCommand {
            argv: vec!["rm".into()],
        },
    );
    let denied = execute(&mut workspace, &write("f", "y"));
    assert_eq!(denied, "error: operator denied the tool action: no");
    assert_eq!(workspace.tree().files().next(), Some(("f", &b"x"[..])));
    assert_eq!(asked, ["write_file"]);
}

#[cfg(unix)]
#[test]
fn links_that_lead_out_or_to_something_protected_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (root, outside) = (
        directory.path().join("root"),
        directory.path().join("outside"),
    );
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(&outside, "secret").unwrap();
    std::fs::write(root.join(".env"), "secret").unwrap();
    let link = |to: std::path::PathBuf, name: &str| {
        std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    };
    link(outside.clone(), "out");
    link(root.join(".env"), "harmless");
    link(root.join("."), "loop");
    link(root.join("gone"), "dangling");
    let mut workspace = ToolWorkspace::new(DirectoryTree::open(&root).unwrap(), writing());
    for path in ["out", "harmless", "dangling"] {
        assert_eq!(
            execute(&mut workspace, &read(path)),
            "error: path is not accessible"
        );
        assert!(
            execute(&mut workspace, &write(path, "x")).starts_with("error: "),
            "{path}"
        );
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "secret");
    assert_eq!(
        execute(&mut workspace, &ToolCall::ListFiles { path: None }),
        "dir loop"
    );
    assert!(workspace.tree().snapshot().is_empty());
}

#[cfg(unix)]
#[test]
fn commands_run_for_real_and_what_they_change_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("old"), "x").unwrap();
    let argv: Vec<String> = [
        "sh",
        "-c",
        "printf out; printf err >&2; rm old; printf n > new; exit 3",
    ]
    .map(String::from)
    .into();
    let policy = ToolPolicy {
        allowed_commands: vec![argv.clone()],
        ..ToolPolicy::default()
    };
    let tree = DirectoryTree::open(directory.path()).unwrap();
    let commands = HostCommands::new(directory.path());
    let mut workspace = ToolWorkspace::with(tree, policy, commands, Unattended);
    let text = execute(&mut workspace, &ToolCall::RunCommand { argv });
    assert_eq!(text, "exit code: 3\nstdout:\nout\nstderr:\nerr");
    assert_eq!(workspace.modified_files(), ["new", "old"]);
    let refused = execute(
        &mut workspace,
        &ToolCall::RunCommand {
            argv: vec!["sh".into()],
        },
    );
    assert_eq!(refused, "error: command is not allowed");
}

#[cfg(unix)]
#[test]
fn output_that_is_not_text_is_said_and_not_replaced() {
    let argv: Vec<String> = ["printf", "\\377"].map(String::from).into();
    let policy = ToolPolicy {
        allowed_commands: vec![argv.clone()],
        ..ToolPolicy::default()
    };
    let mut workspace = ToolWorkspace::with(
        MemoryTree::new(),
        policy,
        HostCommands::new("."),
        Unattended,
    );
    let text = execute(&mut workspace, &ToolCall::RunCommand { argv });
    assert_eq!(
        text,
        "error: standard output (1 bytes) is not valid UTF-8 text; the command ended with exit code 0"
    );
}
