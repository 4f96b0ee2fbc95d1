//! Clients that behave badly and storage that fails.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::server::{Server, read_response};
use evidence_core::chunk::ChunkManifest;

#[test]
fn path_tricks_in_job_and_sha256_are_refused() {
    let server = Server::start();
    let (path, _) = server.store(&"x".repeat(20_000));
    let sha256 = path.rsplit('/').next().unwrap();
    for (target, status) in [
        (format!("/v1/jobs/../jobs/j/tool-output/{sha256}"), 404),
        (format!("/v1/jobs/%2e%2e/tool-output/{sha256}"), 400),
        (format!("/v1/jobs/./tool-output/{sha256}"), 400),
        (format!("/v1/jobs/j%2f../tool-output/{sha256}"), 400),
        (format!("/v1/jobs/j%00/tool-output/{sha256}"), 400),
        (format!("/v1/jobs/%zz/tool-output/{sha256}"), 400),
        (format!("/v1/jobs//tool-output/{sha256}"), 400),
        (
            format!("/v1/jobs/{}/tool-output/{sha256}", "j".repeat(129)),
            400,
        ),
        (
            format!("/v1/jobs/j/tool-output/{}", sha256.to_uppercase()),
            400,
        ),
        ("/v1/jobs/j/tool-output/..%2f..%2fusage".to_owned(), 400),
        ("/v1/jobs/j/tool-output/../usage".to_owned(), 404),
        (format!("{path}/"), 404),
        (format!("/{path}"), 404),
        ("/../../etc/passwd".to_owned(), 404),
    ] {
        let response = server.get(&target);
        assert_eq!(response.status, status, "{target}");
        let expected = if status == 404 {
            "unavailable"
        } else {
            "invalid_request"
        };
        assert_eq!(response.code(), expected);
    }
    // A proxy's form of a target, and targets that are none.
    let absolute = server.get(&format!("http://x{path}"));
    assert_eq!(absolute.status, 200);
    for target in ["*", "j", ""] {
        assert!(matches!(server.get(target).status, 400 | 404), "{target}");
    }
}

#[test]
fn oversized_headers_are_refused() {
    let server = Server::start();
    let padding = format!("x-padding: {}", "p".repeat(200_000));
    let response = server.send("GET", "/v1/jobs/j", &[&padding], b"");
    assert_eq!(response.status, 431);
    let target = format!("/v1/jobs/{}", "j".repeat(100_000));
    assert!(matches!(server.get(&target).status, 400 | 414 | 431));
    let many: Vec<String> = (0..1000).map(|index| format!("x-{index}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(server.send("GET", "/v1/jobs/j", &many, b"").status, 431);
    assert_eq!(server.request("PUT", "/v1/jobs/j", "").status, 201);
}

#[test]
fn a_slow_body_is_let_go_and_keeps_nobody_waiting() {
    let server = Server::start_with(&["--timeout", "1"], "exec \"$@\"");
    server.request("PUT", "/v1/jobs/j", "");
    let mut slow: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = server.connect();
            let head = "POST /v1/jobs/j/tool-results HTTP/1.1\r\nhost: x\r\n\
                        authorization: Bearer token-s\r\ncontent-length: 5000000\r\n\r\n{\"text\":";
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    // A client that never finishes its headers, and one that sends nothing.
    let mut headers = server.connect();
    headers
        .write_all(b"GET /v1/jobs/j HTTP/1.1\r\nhost:")
        .unwrap();
    let mut silent = server.connect();
    let started = Instant::now();
    assert_eq!(server.record(r#"{"success":true,"text":""}"#).status, 200);
    assert!(started.elapsed() < Duration::from_secs(1));
    // Trickling does not help: the whole body has the time, not each byte.
    let trickle = &mut slow[0];
    for _ in 0..15 {
        std::thread::sleep(Duration::from_millis(100));
        if trickle.write_all(b" ").is_err() {
            break;
        }
    }
    for stream in &mut slow {
        let response = read_response(stream);
        assert_eq!(
            (response.status, response.code()),
            (408, "invalid_request".to_owned())
        );
    }
    for stream in [&mut headers, &mut silent] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
    }
}

#[test]
fn a_client_that_stops_reading_is_let_go() {
    let server = Server::start_with(&["--timeout", "1"], "exec \"$@\"");
    let (path, result) = server.store(&"x".repeat(40_000));
    let mut greedy = server.connect();
    greedy
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer token-s\r\n\r\n");
    // Pipelined until nothing more is taken, and never read.
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        if greedy.write_all(request.as_bytes()).is_err() {
            break;
        }
    }
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "it is never let go"
    );
    assert_eq!(server.read_all(&path, 8192), result);
}

#[test]
fn two_hundred_concurrent_readers_get_their_exact_bytes() {
    let server = Server::start();
    let lines: Vec<String> = (0..100_000).map(|line| line.to_string()).collect();
    let text = lines.join("\n");
    let (path, result) = server.store(&text);
    std::thread::scope(|threads| {
        for reader in 0..200 {
            let (server, path, result) = (&server, &path, &result);
            threads.spawn(move || {
                for round in 0..5 {
                    let offset = (reader * 3001 + round * 77_773) % result.len();
                    let answer = server
                        .get(&format!("{path}?offset={offset}&limit=8192"))
                        .json();
                    let end = usize::try_from(answer["next_offset"].as_u64().unwrap()).unwrap();
                    assert_eq!(answer["text"], result[offset..end]);
                }
            });
        }
    });
}

/// Changes stored bytes on the disk: every occurrence of `old` in the commit files.
fn overwrite(root: &std::path::Path, old: &[u8], new: &[u8]) -> usize {
    assert_eq!(old.len(), new.len());
    let mut changed = 0;
    for entry in std::fs::read_dir(root.join("data/commits")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let mut at = 0;
        while let Some(found) = bytes[at..]
            .windows(old.len())
            .position(|window| window == old)
        {
            bytes[at + found..at + found + old.len()].copy_from_slice(new);
            at += found + old.len();
            changed += 1;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    changed
}

#[test]
fn a_chunk_flipped_missing_or_swapped_with_another_jobs_is_an_integrity_failure() {
    let server = Server::start();
    let text = format!("needle-1{}", "x".repeat(20_000));
    let (path, _) = server.store(&text);
    // The same size in another job, so that one's bytes can stand for the other's.
    server.request("PUT", "/v1/jobs/k", "");
    let other = evidence_core::ToolResult::from_text(true, text.replace("needle-1", "needle-2"));
    server.request("POST", "/v1/jobs/k/tool-results", &other.serialize());
    let is_refused = |what: &str| {
        let response = server.get(&path);
        assert_eq!(
            (response.status, response.code()),
            (500, "integrity_failure".to_owned()),
            "{what}"
        );
        assert!(
            !response.body.contains("needle"),
            "no bytes: {}",
            response.body
        );
    };
    let root = server.root.path();
    assert_eq!(server.get(&path).status, 200);
    let stored = |text: &str| format!("\"text\":\"{text}");
    let (one, two) = (stored("needle-1xxxx"), stored("needle-2xxxx"));
    assert!(overwrite(root, one.as_bytes(), stored("Needle-1xxxx").as_bytes()) > 0);
    is_refused("flipped");
    overwrite(root, stored("Needle-1xxxx").as_bytes(), one.as_bytes());
    assert_eq!(server.get(&path).status, 200);
    overwrite(root, one.as_bytes(), two.as_bytes());
    is_refused("swapped");
    // Missing: the file that holds the chunk is gone.
    for entry in std::fs::read_dir(root.join("data/commits")).unwrap() {
        let file = entry.unwrap().path();
        if std::fs::metadata(&file).unwrap().len() > 20_000 {
            std::fs::remove_file(file).unwrap();
        }
    }
    let response = server.get(&path);
    assert_ne!(response.status, 200);
    assert!(!response.body.contains("needle"));
}

#[test]
fn a_read_fetches_only_the_chunks_it_needs_and_damage_elsewhere_does_not_touch_it() {
    let server = Server::start();
    let (path, result) = server.store(&format!("{}needle", "x".repeat(200_000)));
    assert!(overwrite(server.root.path(), b"xxneedle", b"xxNeedle") > 0);
    let start = server.get(&path);
    assert_eq!(start.json()["text"], result[..8192]);
    let end = server.get(&format!("{path}?offset=199999"));
    assert_eq!(
        (end.status, end.code()),
        (500, "integrity_failure".to_owned())
    );
}

#[test]
fn a_manifest_that_lies_is_an_integrity_failure() {
    let server = Server::start();
    let (path, result) = server.store(&"x".repeat(20_000));
    let mut manifest = ChunkManifest::of(result.as_bytes());
    let old = manifest.to_bytes();
    manifest.byte_count -= 1;
    assert!(overwrite(server.root.path(), &old, &manifest.to_bytes()) > 0);
    let response = server.get(&path);
    assert_eq!(
        (response.status, response.code()),
        (500, "integrity_failure".to_owned())
    );
}

#[test]
fn a_full_disk_refuses_the_result_and_keeps_what_was_stored() {
    // Files over 512 blocks of 512 bytes cannot be written, as on a disk that is full.
    let limited = "trap '' XFSZ; ulimit -f 512; exec \"$@\"";
    let server = Server::start_with(&[], limited);
    let (path, result) = server.store(&"x".repeat(20_000));
    let lines: Vec<String> = (0..200_000).map(|line| line.to_string()).collect();
    let large = evidence_core::ToolResult::from_text(true, lines.join("\n")).serialize();
    let response = server.record(&large);
    assert_eq!(
        (response.status, response.code()),
        (507, "storage_exhausted".to_owned())
    );
    assert_eq!(server.read_all(&path, 8192), result);
    let sha256 = evidence_core::Sha256Digest::of(large.as_bytes());
    let unstored = server.get(&format!("/v1/jobs/j/tool-output/{sha256}"));
    assert_eq!(unstored.code(), "unavailable");
    server.store(&"y".repeat(20_000));
}

#[test]
fn a_killed_server_has_everything_that_it_acknowledged() {
    let server = Server::start();
    let (path, result) = server.store(&"x".repeat(300_000));
    let root = server.kill();
    let server = Server::start_in(root, &[], "exec \"$@\"");
    assert_eq!(server.read_all(&path, 8192), result);
}

#[test]
fn a_server_that_is_told_to_stop_finishes_what_it_has_begun() {
    let mut server = Server::start();
    server.request("PUT", "/v1/jobs/j", "");
    let mut begun = server.connect();
    let body = r#"{"success":true,"text":"begun"}"#;
    let head = format!(
        "POST /v1/jobs/j/tool-results HTTP/1.1\r\nhost: x\r\nauthorization: Bearer token-s\r\n\
         content-length: {}\r\n\r\n{}",
        body.len(),
        &body[..10]
    );
    begun.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let rest = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        begun.write_all(&body.as_bytes()[10..]).unwrap();
        read_response(&mut begun)
    });
    assert!(server.terminate());
    let response = rest.join().unwrap();
    assert_eq!(response.status, 200);
    assert!(response.body.contains("begun"));
}
