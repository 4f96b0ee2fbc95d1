//! Who may ask, and from where.

use std::process::Command;

use crate::server::{Server, write_sessions};

#[test]
fn another_sessions_job_and_an_unknown_one_look_the_same() {
    let server = Server::start();
    let (path, _) = server.store(&"x".repeat(20_000));
    let other = ["authorization: Bearer token-other"];
    let foreign = server.send("GET", &path, &other, b"");
    assert_eq!(
        (foreign.status, foreign.code()),
        (404, "unavailable".to_owned())
    );
    let unknown = server.send("GET", &path.replace("/j/", "/unknown/"), &other, b"");
    let digest = path.replace(path.rsplit('/').next().unwrap(), &"0".repeat(64));
    let unstored = server.get(&digest);
    for response in [&unknown, &unstored] {
        assert_eq!(response.body, foreign.body);
        let without_date = |headers: &str| {
            let lines = headers.lines().filter(|line| !line.starts_with("date:"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            without_date(&response.headers),
            without_date(&foreign.headers)
        );
    }
    let taken = server.send("PUT", "/v1/jobs/j", &other, b"");
    assert_eq!((taken.status, taken.code()), (409, "conflict".to_owned()));
    let ended = server.send("PATCH", "/v1/jobs/j", &other, b"{\"status\":\"failed\"}");
    assert_eq!(ended.body, foreign.body);
}

#[test]
fn a_token_that_is_missing_wrong_or_removed_is_unauthenticated() {
    let server = Server::start();
    let (path, _) = server.store(&"x".repeat(20_000));
    let status = |headers: &[&str]| {
        let response = server.send("GET", &path, headers, b"");
        if response.status == 401 {
            assert_eq!(response.code(), "unauthenticated");
            assert!(response.headers.contains("www-authenticate: Bearer"));
        }
        response.status
    };
    for headers in [
        &[][..],
        &["authorization: "],
        &["authorization: Bearer"],
        &["authorization: Bearer wrong"],
        &["authorization: Basic token-s"],
        &[
            "authorization: Bearer token-s",
            "authorization: Bearer token-s",
        ],
        &["authorization: Bearer \u{e9}"],
    ] {
        assert_eq!(status(headers), 401, "{headers:?}");
    }
    let good = ["authorization: Bearer token-s"];
    assert_eq!(status(&good), 200);
    // Removed, it does not work once more; back again, it does.
    write_sessions(server.root.path(), &[("token-other", "other")]);
    assert_eq!(status(&good), 401);
    write_sessions(server.root.path(), &[("token-s", "s")]);
    assert_eq!(status(&good), 200);
    // A new token of the same session owns the same jobs.
    write_sessions(server.root.path(), &[("token-new", "s")]);
    assert_eq!(status(&good), 401);
    assert_eq!(status(&["authorization: Bearer token-new"]), 200);
}

#[test]
fn an_address_beyond_loopback_needs_an_explicit_flag() {
    let root = tempfile::tempdir().unwrap();
    write_sessions(root.path(), &[]);
    let serve = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_bounded-evidence"))
            .args(["serve", "--data"])
            .arg(root.path().join("data"))
            .arg("--sessions")
            .arg(root.path().join("sessions.json"))
            .args(more)
            .output()
            .unwrap()
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let output = serve(&["--listen", address]);
        assert!(!output.status.success());
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("--allow-remote"), "{message}");
    }
    // With the flag it goes on to listen, which this address of no interface then refuses.
    let output = serve(&["--listen", "192.0.2.1:80", "--allow-remote"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("cannot listen on 192.0.2.1:80"),
        "{message}"
    );
}

#[test]
fn sessions_that_cannot_be_used_are_refused_at_the_start() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("sessions.json"), "{\"secret\":\"s\"}").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bounded-evidence"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(root.path().join("data"))
        .arg("--sessions")
        .arg(root.path().join("sessions.json"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("each key is the SHA-256 of a token"),
        "{message}"
    );
    assert!(!message.contains("secret"), "{message}");
}
