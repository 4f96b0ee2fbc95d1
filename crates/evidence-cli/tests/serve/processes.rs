//! Processes over HTTP.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Response, Server, write_sessions};

/// What the server allows: a script that waits for a file, and one that writes much.
const WAITS: &str = "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo ended";
const COUNTS: &str = "seq 1 100000; echo counted >&2";

fn allow(script: &str) -> String {
    json!(["sh", "-c", script]).to_string()
}

/// A server in `root` whose job `j` of the session `s` exists.
fn serve_in(root: TempDir) -> Server {
    let workspace = root.path().join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    let arguments = [
        "--workspace",
        workspace.to_str().unwrap(),
        "--allow-command",
        &allow(WAITS),
        "--allow-command",
        &allow(COUNTS),
    ];
    let server = Server::start_in(root, &arguments, "exec \"$@\"");
    server.request("PUT", "/v1/jobs/j", "");
    server
}

fn serve() -> Server {
    let root = TempDir::new().unwrap();
    write_sessions(root.path(), &[("token-s", "s"), ("token-other", "other")]);
    serve_in(root)
}

impl Server {
    fn call_as(&self, token: &str, id: &str, tool: &str, arguments: &Value) -> Response {
        let headers = [
            format!("authorization: Bearer {token}"),
            format!("tool-call-id: {id}"),
        ];
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let target = format!("/v1/jobs/j/tools/{tool}");
        self.send("POST", &target, &headers, arguments.to_string().as_bytes())
    }

    fn call(&self, id: &str, tool: &str, arguments: &Value) -> Value {
        let response = self.call_as("token-s", id, tool, arguments);
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    }

    fn start_process(&self, id: &str, script: &str) -> Value {
        let answer = self.call(id, "exec_start", &json!({"argv": ["sh", "-c", script]}));
        assert_eq!(answer["success"], true, "{answer}");
        answer["data"]["process_id"].clone()
    }

    fn until(&self, process_id: &Value, is_so: impl Fn(&Value) -> bool) -> Value {
        for number in 0..6000 {
            let id = format!("until-{number}-{}", self.address);
            let answer = self.call(&id, "exec_poll", &json!({"process_id": process_id}));
            if is_so(&answer) {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it never came to it");
    }

    fn let_go(&self) {
        std::fs::write(self.root.path().join("workspace/go"), "").unwrap();
    }
}

fn has_ended(answer: &Value) -> bool {
    answer["data"]["status"] != "running"
}

#[test]
fn a_process_is_started_looked_at_and_read_by_cursor() {
    let server = serve();
    let process = server.start_process("c1", WAITS);
    server.until(&process, |answer| answer["text"] != "");
    let arguments = json!({"process_id": process, "stdout_offset": 0});
    let seen = server.call("c2", "exec_poll", &arguments);
    assert_eq!(seen["stdout"]["text"], "begun\n");
    assert_eq!(seen["stdout"]["done"], false);
    server.let_go();
    let ended = server.until(&process, has_ended);
    assert_eq!(ended["text"], "stdout (12 bytes):\nbegun\nended\n");
    // The same call again: what it observed then.
    assert_eq!(server.call("c2", "exec_poll", &arguments), seen);
    let rest = json!({"process_id": process, "stdout_offset": 6, "max_output_bytes": 8192});
    let rest = server.call("c3", "exec_poll", &rest);
    assert_eq!(rest["stdout"]["text"], "ended\n");
    assert_eq!(rest["stdout"]["done"], true);
}

#[test]
fn a_process_is_stopped_and_what_it_wrote_stays_readable() {
    let server = serve();
    let process = server.start_process("c1", WAITS);
    server.until(&process, |answer| answer["text"] != "");
    let arguments = json!({"process_id": process});
    let stopped = server.call("c2", "exec_stop", &arguments);
    assert_eq!(stopped["data"]["status"], "stopped");
    assert_eq!(stopped["text"], "stdout (6 bytes):\nbegun\n");
    assert_eq!(server.call("c2", "exec_stop", &arguments), stopped);
}

#[test]
fn clipped_output_is_bounded_and_its_bytes_are_read_by_both_cursors() {
    let server = serve();
    let process = server.start_process("c1", COUNTS);
    let ended = server.until(&process, has_ended_or_reference);
    let path = ended["data"]["path"].as_str().unwrap();
    let whole: Value = serde_json::from_str(&server.read_all(path, 8192)).unwrap();
    let all = counted();
    let text = whole["text"].as_str().unwrap();
    assert!(text.contains(&all[..12 * 1024]) && text.contains(&all[all.len() - 12 * 1024..]));
    let (mut bytes, mut number) = (String::new(), 0);
    loop {
        let arguments =
            json!({"process_id": process, "stdout_offset": bytes.len(), "max_output_bytes": 8192});
        let answer = server.call(&format!("read-{number}"), "exec_poll", &arguments);
        bytes.push_str(answer["stdout"]["text"].as_str().unwrap());
        number += 1;
        if answer["stdout"]["done"] == true {
            break;
        }
    }
    assert_eq!(bytes, all);
}

/// What `COUNTS` writes to standard output.
fn counted() -> String {
    let lines: Vec<String> = (1..=100_000).map(|number| number.to_string()).collect();
    lines.join("\n") + "\n"
}

/// A bounded poll names the process in its handles.
fn has_ended_or_reference(answer: &Value) -> bool {
    let data = &answer["data"];
    data["kind"] == "tool_output_ref" && data["handles"]["status"] == "exited"
}

#[test]
fn calls_that_are_not_allowed_or_malformed_are_refused_with_their_code() {
    let server = serve();
    let argv = json!({"argv": ["sh", "-c", "echo other"]});
    let response = server.call_as("token-s", "c1", "exec_start", &argv);
    assert_eq!(
        (response.status, response.code().as_str()),
        (403, "not_allowed")
    );
    let response = server.request(
        "POST",
        "/v1/jobs/j/tools/exec_poll",
        r#"{"process_id":"p"}"#,
    );
    assert_eq!(
        (response.status, response.code().as_str()),
        (400, "invalid_request")
    );
    assert!(response.body.contains("Tool-Call-Id"), "{}", response.body);
    for (tool, arguments, status, code) in [
        ("exec_start", json!({"argv": []}), 400, "invalid_request"),
        ("exec_start", json!({"argv": "sh"}), 400, "invalid_request"),
        ("exec_poll", json!({}), 400, "invalid_request"),
        ("exec_poll", json!({"process_id": "p"}), 404, "unavailable"),
        ("exec_stop", json!({"process_id": "p"}), 404, "unavailable"),
        ("exec_kill", json!({"process_id": "p"}), 404, "unavailable"),
    ] {
        let response = server.call_as("token-s", "c2", tool, &arguments);
        assert_eq!(
            (response.status, response.code().as_str()),
            (status, code),
            "{tool} {arguments}"
        );
    }
    let process = server.start_process("c3", WAITS);
    let beyond = json!({"process_id": process, "stdout_offset": 7000});
    let response = server.call_as("token-s", "c4", "exec_poll", &beyond);
    assert_eq!(
        (response.status, response.code().as_str()),
        (416, "out_of_range")
    );
    let plain = json!({"process_id": process});
    let reused = server.call_as("token-s", "c3", "exec_poll", &plain);
    assert_eq!((reused.status, reused.code().as_str()), (409, "conflict"));
    // Another session sees no process, as if there were none.
    for tool in ["exec_poll", "exec_stop"] {
        let others = server.call_as("token-other", "c5", tool, &plain);
        let unknown = server.call_as("token-s", "c6", tool, &json!({"process_id": "process-9"}));
        assert_eq!((others.status, &others.body), (404, &unknown.body));
    }
    server.let_go();
    assert_eq!(server.until(&process, has_ended)["success"], true);
}

#[test]
fn a_server_that_is_told_to_stop_stores_what_its_processes_wrote() {
    let mut server = serve();
    let process = server.start_process("c1", WAITS);
    server.until(&process, |answer| answer["text"] != "");
    assert!(server.terminate());
    let again = serve_in(server.kill());
    let arguments = json!({"process_id": process, "stdout_offset": 0});
    let answer = again.call("c2", "exec_poll", &arguments);
    assert_eq!(answer["status"], "stopped");
    assert_eq!(answer["stdout"]["text"], "begun\n");
}

#[test]
fn a_server_that_is_killed_leaves_its_processes_interrupted() {
    let server = serve();
    let process = server.start_process("c1", WAITS);
    let shown = server.until(&process, |answer| answer["text"] != "");
    let cursor = json!({"process_id": process, "stdout_offset": 0});
    let seen = server.call("seen", "exec_poll", &cursor);
    assert_eq!(shown["data"]["status"], "running");
    server.let_go();
    let again = serve_in(server.kill());
    let answer = again.call("c2", "exec_poll", &json!({"process_id": process}));
    assert_eq!(answer["data"]["status"], "interrupted");
    let response = again.call_as("token-s", "c3", "exec_poll", &cursor);
    assert_eq!(
        (response.status, response.code().as_str()),
        (404, "unavailable")
    );
    // What was shown is stored.
    assert_eq!(again.call("seen", "exec_poll", &cursor), seen);
}

#[test]
fn a_directory_has_one_server_that_looks_after_its_processes() {
    let server = serve();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_bounded-evidence"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(server.root.path().join("data"))
        .arg("--sessions")
        .arg(server.root.path().join("sessions.json"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("another server works in"), "{message}");
}
