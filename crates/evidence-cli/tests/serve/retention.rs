//! Retention: `serve` sweeps, and so does `sweep`.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use evidence_core::JobStatus;
use evidence_store::{DirectoryStore, ToolOutputs};
use futures_executor::block_on;
use serde_json::Value;
use tempfile::TempDir;

use crate::server::{Server, write_sessions};

fn sweep(server: &Server, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bounded-evidence"))
        .args(["sweep", "--data"])
        .arg(server.root.path().join("data"))
        .args(arguments)
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A job that has ended and holds an artifact; the artifact's path.
fn ended_job(server: &Server) -> String {
    let (path, _) = server.store(&"x".repeat(20_000));
    let response = server.request("PATCH", "/v1/jobs/j", r#"{"status":"completed"}"#);
    assert_eq!(response.status, 200);
    path
}

#[test]
fn a_dry_run_deletes_nothing_and_a_sweep_deletes_what_has_expired() {
    let server = Server::start();
    let path = ended_job(&server);
    assert_eq!(lines(&sweep(&server, &[])), Vec::<Value>::new());
    let later = ["--now", "2100-01-01T00:00:00Z"];
    let expected = serde_json::json!({"type": "job", "session": "s", "job": "j"});
    for _ in 0..2 {
        let planned = lines(&sweep(&server, &[&later[..], &["--dry-run"]].concat()));
        assert_eq!(planned, std::slice::from_ref(&expected));
        assert_eq!(server.get(&path).status, 200);
    }
    assert_eq!(lines(&sweep(&server, &later)), [expected]);
    // Unavailable, never an empty text.
    let response = server.get(&path);
    assert_eq!(
        (response.status, response.code().as_str()),
        (404, "unavailable")
    );
    assert_eq!(lines(&sweep(&server, &later)), Vec::<Value>::new());
}

#[test]
fn a_job_that_is_active_keeps_its_artifacts() {
    let server = Server::start();
    let (path, _) = server.store(&"x".repeat(20_000));
    assert_eq!(
        lines(&sweep(&server, &["--now", "2100-01-01T00:00:00Z"])),
        Vec::<Value>::new()
    );
    assert_eq!(server.get(&path).status, 200);
}

#[test]
fn a_time_that_is_none_or_before_1970_and_a_directory_that_is_not_there_are_refused() {
    let server = Server::start();
    for time in ["tomorrow", "2026-12-01", "1960-01-01T00:00:00Z"] {
        assert!(!sweep(&server, &["--now", time]).status.success(), "{time}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_bounded-evidence"))
        .args(["sweep", "--data", "no such directory"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(!std::path::Path::new("no such directory").exists());
}

/// A server over jobs that ended long ago, one more than a sweep takes.
fn server_with_expired_jobs(arguments: &[&str]) -> Server {
    let root = TempDir::new().unwrap();
    write_sessions(root.path(), &[("token-s", "s")]);
    block_on(async {
        let store = DirectoryStore::open(root.path().join("data")).await;
        let outputs = ToolOutputs::new(store.unwrap());
        let session = "s".parse().unwrap();
        for number in 0..65 {
            let job = format!("job-{number}").parse().unwrap();
            outputs.create_job(&session, &job, 1).await.unwrap();
            let ended = outputs.set_status(&session, &job, JobStatus::Completed, 2);
            ended.await.unwrap();
        }
    });
    Server::start_in(root, arguments, "exec \"$@\"")
}

/// Waits until the log says it.
fn wait_for(server: &Server, said: &str, most: Duration) {
    let start = Instant::now();
    while start.elapsed() < most {
        if server.log().contains(said) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{said} was not logged: {}", server.log());
}

#[test]
fn the_server_sweeps_when_it_begins_and_while_it_is_idle() {
    let server = server_with_expired_jobs(&["--sweep-interval", "1"]);
    wait_for(&server, "\"jobs\":64", Duration::from_mins(1));
    wait_for(&server, "\"jobs\":1,", Duration::from_mins(1));
}

#[test]
fn sweeps_run_on_operations_as_well() {
    // An hour until the next sweep of an idle server.
    let server = server_with_expired_jobs(&[]);
    wait_for(&server, "\"jobs\":64", Duration::from_mins(1));
    assert_eq!(server.request("PUT", "/v1/jobs/new", "").status, 201);
    // Two sweeps are a minute apart at least.
    wait_for(&server, "\"jobs\":1,", Duration::from_mins(3));
}
