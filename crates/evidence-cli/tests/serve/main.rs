//! Contract B over HTTP, against a server that listens.

#![cfg(unix)]

mod faults;
mod processes;
mod retention;
mod server;
mod sessions;

use evidence_core::{Sha256Digest, ToolResult};
use serde_json::{Value, json};

use self::server::Server;

const MIB: usize = 1024 * 1024;

/// A serialized result of exactly `byte_count`.
fn result_of(byte_count: usize) -> String {
    let empty = ToolResult::from_text(true, String::new()).serialized_byte_count();
    ToolResult::from_text(true, "x".repeat(byte_count - empty)).serialize()
}

#[test]
fn a_result_of_16_384_bytes_passes_unchanged_and_one_of_16_385_is_stored() {
    let server = Server::start();
    let small = result_of(16_384);
    assert_eq!(server.record(&small).body, small);
    let large = result_of(16_385);
    let bounded = server.record(&large);
    assert!(bounded.body.len() <= 16_384);
    let data = &bounded.json()["data"];
    assert_eq!(data["kind"], "tool_output_ref");
    assert_eq!(data["bytes"], 16_385);
    let sha256 = Sha256Digest::of(large.as_bytes()).to_string();
    assert_eq!(data["sha256"], sha256);
    assert_eq!(server.read_all(data["path"].as_str().unwrap(), 8192), large);
}

#[test]
fn a_larger_result_keeps_exactly_one_head_tail_excerpt_of_its_text() {
    let server = Server::start();
    let lines: Vec<String> = (0..5000).map(|number| format!("line {number}")).collect();
    let text = lines.join("\n");
    let result = ToolResult::from_text(true, text.clone()).serialize();
    let shown = server.record(&result).json();
    let excerpt = shown["text"].as_str().unwrap();
    let (head, rest) = excerpt.split_once("\n[... bytes ").unwrap();
    let (positions, tail) = rest
        .split_once(
            " of the complete result are left out; read them with akh_read_tool_output ...]\n",
        )
        .unwrap();
    assert!(text.starts_with(head) && text.ends_with(tail));
    assert!(!tail.contains("[... bytes "), "one excerpt");
    let (start, end) = positions.split_once(" to ").unwrap();
    let path = shown["data"]["path"].as_str().unwrap();
    let read = server.get(&format!("{path}?offset={start}&limit=9")).json();
    let start: usize = start.parse().unwrap();
    assert_eq!(read["text"], result[start..start + 9]);
    let end: usize = end.parse().unwrap();
    let escaped_tail = serde_json::to_string(tail).unwrap();
    assert!(result[end..].starts_with(&escaped_tail[1..escaped_tail.len() - 1]));
}

#[test]
fn base64_in_a_text_result_is_text_and_is_bounded() {
    let server = Server::start();
    let picture = "iVBORw0KGgoAAAANSUhEUgAA".repeat(2000);
    let result = ToolResult::from_text(true, picture).serialize();
    let shown = server.record(&result);
    assert!(shown.body.len() <= 16 * 1024);
    let path = shown.json()["data"]["path"].as_str().unwrap().to_owned();
    assert_eq!(server.read_all(&path, 8192), result);
}

#[test]
fn an_answer_has_the_members_of_the_contract_and_no_other() {
    let server = Server::start();
    let (path, result) = server.store(&"x".repeat(20_000));
    let answer = server.get(&format!("{path}?offset=2&limit=7")).json();
    let expected = json!({
        "schema_version": 1,
        "sha256": Sha256Digest::of(result.as_bytes()).to_string(),
        "bytes": result.len(),
        "offset": 2,
        "next_offset": 9,
        "done": false,
        "text": "success",
    });
    assert_eq!(answer, expected);
    // Without a query: from the start, as much as there may be.
    let whole = server.get(&path).json();
    assert_eq!(
        (whole["offset"].as_u64(), whole["next_offset"].as_u64()),
        (Some(0), Some(8192))
    );
}

#[test]
fn escapes_that_grow_sixfold_are_counted_as_they_are_sent() {
    let server = Server::start();
    let text = "\u{1}".repeat(3000);
    let (path, result) = server.store(&text);
    assert_eq!(result.len(), 53 + 6 * 3000);
    assert_eq!(server.read_all(&path, 8192), result);
    let inline = ToolResult::from_text(true, "\u{1}".repeat(2721)).serialize();
    assert_eq!(server.record(&inline).body, inline);
}

#[test]
fn four_byte_characters_at_every_cut() {
    let server = Server::start();
    let (path, result) = server.store(&"🙂".repeat(5000));
    let first = result.find('🙂').unwrap();
    for limit in [4091, 4092, 4093, 4094] {
        assert_eq!(server.read_all(&path, limit), result);
    }
    for inside in 1..4 {
        let response = server.get(&format!("{path}?offset={}", first + inside));
        assert_eq!(
            (response.status, response.code()),
            (422, "mid_codepoint".to_owned())
        );
    }
    for limit in 1..4 {
        let response = server.get(&format!("{path}?offset={first}&limit={limit}"));
        assert_eq!(response.code(), "mid_codepoint");
        assert_eq!(response.json()["needed_limit"], 4);
    }
}

#[test]
fn a_receipt_of_20_kib_is_elided_and_stays_whole_in_the_artifact() {
    let server = Server::start();
    let receipt = format!("\"{}\"", "r".repeat(20 * 1024 - 2));
    let body = format!(r#"{{"success":false,"text":"t","data":null,"receipt":{receipt}}}"#);
    let bounded = server.record(&body).json();
    assert_eq!(bounded["success"], false);
    let sha256 = Sha256Digest::of(receipt.as_bytes()).to_string();
    assert_eq!(
        bounded["receipt"],
        json!({"receipt_elided": true, "sha256": sha256, "bytes": 20 * 1024})
    );
    let path = bounded["data"]["path"].as_str().unwrap();
    assert_eq!(server.read_all(path, 8192), body);
}

#[test]
fn handles_with_10_000_keys_and_with_a_key_of_3_kib() {
    let server = Server::start();
    let text = "x".repeat(20_000);
    let record = |handles: &str| {
        let body = format!(r#"{{"success":true,"text":"{text}","handles":{handles}}}"#);
        server.record(&body).json()["data"].clone()
    };
    let many: Vec<String> = (0..10_000).map(|key| format!("\"k{key}\":{key}")).collect();
    let data = record(&format!("{{{}}}", many.join(",")));
    assert_eq!(data["handles_elided"], true);
    assert_eq!(data["handles"]["k99"], 99);
    assert!(data["handles"].to_string().len() <= 2048);
    let data = record(&format!(r#"{{"{}":1,"status":"ok"}}"#, "k".repeat(3072)));
    assert_eq!(data["handles"], json!({"status": "ok"}));
    assert_eq!(data["handles_elided"], true);
}

#[test]
fn data_nested_200_deep_numbers_and_duplicate_keys_are_kept_exactly() {
    let server = Server::start();
    let deep = format!("{}{}", r#"{"k":["#.repeat(100), "]}".repeat(100));
    for data in [
        deep.as_str(),
        "[9007199254740993,18446744073709551617,-0,-0.0,1e400,1E+2,0.10]",
        r#"{"a":1,"a":2,"":{"a":1,"a":1}}"#,
    ] {
        let small = format!(r#"{{"success":true,"text":"","data":{data},"receipt":{data}}}"#);
        assert_eq!(server.record(&small).body, small);
        let text = "x".repeat(20_000);
        let large = format!(r#"{{"success":true,"text":"{text}","data":{data},"receipt":{data}}}"#);
        let bounded = server.record(&large);
        assert!(bounded.body.ends_with(&format!("\"receipt\":{data}}}")));
        let (_, rest) = bounded.body.split_once("\"path\":\"").unwrap();
        let (path, _) = rest.split_once('"').unwrap();
        assert_eq!(server.read_all(path, 8192), large);
    }
    for twice in [
        r#"{"success":true,"text":"a","text":"b"}"#,
        r#"{"success":true,"text":"a","handles":{"a":1,"a":2}}"#,
    ] {
        let response = server.record(twice);
        assert_eq!(
            (response.status, response.code()),
            (400, "invalid_request".to_owned())
        );
    }
}

#[test]
fn a_result_of_16_mib_is_stored_and_one_of_a_byte_more_is_too_large() {
    let server = Server::start();
    let response = server.record(&result_of(16 * MIB + 1));
    assert_eq!(
        (response.status, response.code()),
        (413, "result_too_large".to_owned())
    );
    let bounded = server.record(&result_of(16 * MIB));
    assert_eq!(bounded.json()["data"]["bytes"], 16 * MIB);
    // What is beyond any spelling of a result is not even read.
    let mut declared = server.connect();
    let head = "POST /v1/jobs/j/tool-results HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                authorization: Bearer token-s\r\ncontent-length: 99999999999\r\n\r\n";
    std::io::Write::write_all(&mut declared, head.as_bytes()).unwrap();
    let response = server::read_response(&mut declared);
    assert_eq!(
        (response.status, response.code()),
        (413, "result_too_large".to_owned())
    );
}

#[test]
fn a_jobs_budget_is_never_exceeded_by_results_that_arrive_together() {
    let server = Server::start();
    server.request("PUT", "/v1/jobs/j", "");
    let result = |seed: usize| {
        let text = format!("{seed:03}") + &"y".repeat(16 * MIB - 56);
        ToolResult::from_text(true, text).serialize()
    };
    let outcomes: Vec<(u16, String)> = std::thread::scope(|threads| {
        let posts: Vec<_> = (0..10)
            .map(|seed| {
                let (server, result) = (&server, result(seed));
                threads.spawn(move || {
                    let response = server.request("POST", "/v1/jobs/j/tool-results", &result);
                    (response.status, response.body)
                })
            })
            .collect();
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    let stored = outcomes.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(stored, 8, "8 times 16 MiB are 128 MiB");
    for (status, body) in &outcomes {
        let body: Value = serde_json::from_str(body).unwrap();
        match status {
            200 => {
                let path = body["data"]["path"].as_str().unwrap();
                let end = 16 * MIB - 100;
                assert_eq!(server.get(&format!("{path}?offset={end}")).status, 200);
            }
            _ => assert_eq!((*status, &body["code"]), (507, &json!("storage_exhausted"))),
        }
    }
    // Identical ones are counted once, and a result that is not stored still passes.
    let (seed, _) = outcomes
        .iter()
        .enumerate()
        .find(|(_, o)| o.0 == 200)
        .unwrap();
    let again = server.request("POST", "/v1/jobs/j/tool-results", &result(seed));
    assert_eq!(again.status, 200);
    assert_eq!(server.record(&result_of(16_384)).status, 200);
    let over = server.record(&result_of(16_385));
    assert_eq!(
        (over.status, over.code()),
        (507, "storage_exhausted".to_owned())
    );
}

#[test]
fn a_tool_call_id_makes_a_delivery_idempotent_also_for_two_at_once() {
    let server = Server::start();
    server.request("PUT", "/v1/jobs/j", "");
    let headers = ["authorization: Bearer token-s", "tool-call-id: call_1"];
    let send = |result: &str| {
        server.send(
            "POST",
            "/v1/jobs/j/tool-results",
            &headers,
            result.as_bytes(),
        )
    };
    let result = result_of(100_000);
    let bodies: Vec<String> = std::thread::scope(|threads| {
        let posts: Vec<_> = (0..8)
            .map(|_| threads.spawn(|| send(&result).body))
            .collect();
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert!(bodies[0].contains("tool_output_ref"));
    let other = send(&result_of(100));
    assert_eq!((other.status, other.code()), (409, "conflict".to_owned()));
    let twice = [&headers[..], &["tool-call-id: call_2"]].concat();
    let response = server.send("POST", "/v1/jobs/j/tool-results", &twice, b"{}");
    assert_eq!(response.code(), "invalid_request");
}

#[test]
fn two_writers_of_the_same_artifact_store_it_once() {
    let server = Server::start();
    server.request("PUT", "/v1/jobs/j", "");
    let result = result_of(3 * MIB);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let response = server.request("POST", "/v1/jobs/j/tool-results", &result);
                assert_eq!(response.status, 200, "{}", response.body);
            });
        }
    });
    let sha256 = Sha256Digest::of(result.as_bytes());
    let path = format!("/v1/jobs/j/tool-output/{sha256}");
    assert_eq!(server.read_all(&path, 8192), result);
}

#[test]
fn the_tool_reads_by_cursor_and_leaves_room_for_its_envelope() {
    let server = Server::start();
    let (path, result) = server.store(&"\\\"".repeat(20_000));
    let sha256 = path.rsplit('/').next().unwrap();
    server.request("PUT", "/v1/jobs/later", "");
    let (mut text, mut offset) = (String::new(), 0);
    loop {
        let arguments =
            json!({"job_id": "j", "sha256": sha256, "offset": offset, "limit": 8192}).to_string();
        let target = "/v1/jobs/later/tools/akh_read_tool_output";
        let response = server.request("POST", target, &arguments);
        assert_eq!(response.status, 200, "{}", response.body);
        let wrapped = ToolResult::from_text(true, response.body.clone());
        assert!(wrapped.serialized_byte_count() <= 16 * 1024);
        // An answer that goes through bounding like any other result comes back as it is.
        assert_eq!(
            server.record(&wrapped.serialize()).body,
            wrapped.serialize()
        );
        let answer = response.json();
        text.push_str(answer["text"].as_str().unwrap());
        offset = answer["next_offset"].as_u64().unwrap();
        if answer["done"] == true {
            break;
        }
    }
    assert_eq!(text, result);
    let unknown = server.request("POST", "/v1/jobs/j/tools/exec_shell", "{}");
    assert_eq!(
        (unknown.status, unknown.code()),
        (404, "unavailable".to_owned())
    );
}

#[test]
fn an_envelope_is_checked_against_its_limit() {
    let server = Server::start();
    let check = |body: &Value| server.request("POST", "/v1/envelope-check", &body.to_string());
    let body = json!({"messages": [{"role": "user", "content": "\u{1}"}]});
    let bytes = body.to_string().len();
    for (limit, fits) in [(bytes, true), (bytes - 1, false)] {
        assert_eq!(
            check(&json!({"max_input_bytes": limit, "body": body})).json(),
            json!({"fits": fits, "bytes": bytes, "limit": limit})
        );
    }
    let limit = check(&json!({ "body": body })).json()["limit"].clone();
    assert_eq!(limit, 8 * MIB);
    for limit in [0, 8 * MIB + 1] {
        let response = check(&json!({"max_input_bytes": limit, "body": body}));
        assert_eq!(response.code(), "invalid_request");
    }
}

#[test]
fn metrics_and_logs_hold_no_content_and_no_credentials() {
    let server = Server::start();
    let (path, _) = server.store(&"secret-content ".repeat(2000));
    server.get(&format!("{path}?offset=0"));
    server.get("/v1/jobs/secret-job/tool-output/secret-digest?secret=query");
    server.send("GET", &path, &["authorization: Bearer secret-token"], b"");
    server.record("{\"secret-member\":1}");
    let metrics = server.send("GET", "/metrics", &[], b"").body;
    assert!(metrics.contains(
        "bounded_evidence_responses_total{route=\"read_tool_output\",status=\"200\",code=\"\"} 1"
    ));
    assert!(metrics.contains("code=\"unauthenticated\"} 1"));
    let log = server.log();
    let sha256 = path.rsplit('/').next().unwrap();
    for text in [&metrics, &log] {
        for secret in ["secret", "token", sha256, "jobs", "Bearer"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["fields"]["message"].is_string());
    }
}

#[test]
fn the_description_names_every_route_and_code() {
    let server = Server::start();
    let description = server.send("GET", "/openapi.json", &[], b"").json();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().unwrap();
    let mut operations = 0;
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            operations += 1;
            let target = path
                .replace("{job}", "described")
                .replace("{sha256}", &"0".repeat(64));
            // Each is a route of its own: it is answered, or refused by what it is.
            let response = server.request(&method.to_uppercase(), &target, "");
            assert!(response.status != 405, "{method} {path}");
            let status = response.status.to_string();
            assert!(
                operation["responses"].get(status).is_some(),
                "{method} {path}"
            );
        }
    }
    assert_eq!(operations, 9);
    let codes = &description["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    for code in [
        "invalid_request",
        "unauthenticated",
        "unavailable",
        "not_allowed",
        "conflict",
        "result_too_large",
        "out_of_range",
        "mid_codepoint",
        "storage_exhausted",
        "integrity_failure",
    ] {
        assert!(codes.as_array().unwrap().contains(&json!(code)));
    }
}
