use evidence_core::ToolResult;
use evidence_store::{Batch, Key, MemoryStore};
use futures_executor::block_on;
use serde_json::{Value, json};

use super::*;

struct Client<'a> {
    endpoint: &'a Endpoint<MemoryStore>,
    session: Option<SessionId>,
}

impl Client<'_> {
    fn send(&self, method: &str, target: &str, body: impl Into<Bytes>) -> Response {
        self.send_as(None, method, target, body)
    }

    fn send_as(
        &self,
        tool_call_id: Option<&str>,
        method: &str,
        target: &str,
        body: impl Into<Bytes>,
    ) -> Response {
        let request = Request {
            method,
            target,
            tool_call_id,
            body: body.into(),
        };
        block_on(self.endpoint.respond(self.session.as_ref(), request, 1_000))
    }

    fn get(&self, target: &str) -> Response {
        self.send("GET", target, "")
    }
}

fn endpoint() -> Endpoint<MemoryStore> {
    Endpoint::new(MemoryStore::new())
}

fn client<'a>(endpoint: &'a Endpoint<MemoryStore>, session: &str) -> Client<'a> {
    Client {
        endpoint,
        session: Some(session.parse().unwrap()),
    }
}

fn body(response: &Response) -> Value {
    serde_json::from_str(&response.body).unwrap()
}

/// A refusal's status and code; the content type must be the problem's.
fn refusal(response: &Response) -> (u16, String) {
    let content_type = ("content-type", "application/problem+json".to_owned());
    assert!(response.headers.contains(&content_type), "{response:?}");
    let body = body(response);
    assert_eq!(body["status"], response.status);
    (
        response.status,
        body["code"].as_str().unwrap_or_default().to_owned(),
    )
}

fn is_refused(response: &Response, status: u16, code: &str) {
    assert_eq!(
        refusal(response),
        (status, code.to_owned()),
        "{}",
        response.body
    );
}

/// A job `j` of the session `s` with one stored result; the result and the path of the reference.
fn stored(endpoint: &Endpoint<MemoryStore>) -> (ToolResult, String) {
    let s = client(endpoint, "s");
    assert_eq!(s.send("PUT", "/v1/jobs/j", "").status, 201);
    let result = ToolResult::from_text(true, "漢字 line\n".repeat(3000));
    let response = s.send("POST", "/v1/jobs/j/tool-results", result.serialize());
    assert_eq!(response.status, 200, "{}", response.body);
    let path = body(&response)["data"]["path"].as_str().unwrap().to_owned();
    (result, path)
}

#[test]
fn the_path_of_the_reference_is_the_address_of_the_bytes() {
    let endpoint = endpoint();
    let (result, path) = stored(&endpoint);
    let s = client(&endpoint, "s");
    let whole = result.serialize();
    let (mut offset, mut text) = (0, String::new());
    loop {
        let answer = s.get(&format!("{path}?offset={offset}&limit=8192"));
        assert_eq!(answer.status, 200);
        let answer = body(&answer);
        text.push_str(answer["text"].as_str().unwrap());
        assert_eq!(answer["bytes"], whole.len());
        offset = answer["next_offset"].as_u64().unwrap();
        if answer["done"] == true {
            break;
        }
    }
    assert_eq!(text, whole);
    // Without a query it is the start.
    assert_eq!(s.get(&path), s.get(&format!("{path}?offset=0&limit=8192")));
}

#[test]
fn endpoint_and_tool_need_an_authenticated_session() {
    let endpoint = endpoint();
    let (_, path) = stored(&endpoint);
    let nobody = Client {
        endpoint: &endpoint,
        session: None,
    };
    let mut bodies = std::collections::BTreeSet::new();
    for (method, target) in [
        ("GET", path.as_str()),
        ("PUT", "/v1/jobs/j"),
        ("PATCH", "/v1/jobs/j"),
        ("POST", "/v1/jobs/j/tool-results"),
        ("POST", "/v1/jobs/j/tools/akh_read_tool_output"),
        ("POST", "/v1/envelope-check"),
        ("GET", "/v1/jobs/%zz"),
        ("GET", "/anything"),
    ] {
        let response = nobody.send(method, target, "{}");
        is_refused(&response, 401, "unauthenticated");
        let header = ("www-authenticate", "Bearer".to_owned());
        assert!(response.headers.contains(&header));
        bodies.insert(response.body);
    }
    assert_eq!(bodies.len(), 1);
}

#[test]
fn unknown_expired_and_another_sessions_have_identical_responses() {
    let endpoint = endpoint();
    let (_, path) = stored(&endpoint);
    let (s, other) = (client(&endpoint, "s"), client(&endpoint, "other"));
    other.send("PUT", "/v1/jobs/o", "");
    let expired = path.replace("/j/", "/expired/");
    s.send("PUT", "/v1/jobs/expired", "");
    let id = "expired".parse().unwrap();
    block_on(endpoint.outputs().delete_job(&"s".parse().unwrap(), &id)).unwrap();
    let expected = s.get(&path.replace("/j/", "/unknown/"));
    is_refused(&expected, 404, "unavailable");
    let unknown_artifact = format!("/v1/jobs/j/tool-output/{}", Sha256Digest::of(b"x"));
    for response in [
        other.get(&path),
        s.get(&expired),
        s.get(&unknown_artifact),
        s.get(&path.replace("/j/", "/o/")),
    ] {
        assert_eq!(response, expected);
    }
    // The same of every other request about a job.
    let tool = |client: &Client<'_>, job: &str, body: &str| {
        let target = format!("/v1/jobs/{job}/tools/akh_read_tool_output");
        client.send("POST", &target, body.to_owned())
    };
    let sha256 = path.rsplit('/').next().unwrap();
    let named =
        |job: &str| json!({"job_id": job, "sha256": sha256, "offset": 0, "limit": 1}).to_string();
    for response in [
        tool(&other, "j", &named("j")),
        tool(&other, "o", &named("j")),
        tool(&s, "j", &named("o")),
        tool(&s, "j", &named("unknown")),
        tool(&s, "unknown", &named("j")),
        other.send("PATCH", "/v1/jobs/j", r#"{"status":"failed"}"#),
        other.send(
            "POST",
            "/v1/jobs/j/tool-results",
            r#"{"success":true,"text":""}"#,
        ),
        s.get("/v1/jobs/j/nothing"),
        s.get("/v2/jobs"),
    ] {
        assert_eq!(response.body, expected.body);
        assert_eq!(
            (response.status, &response.headers),
            (expected.status, &expected.headers)
        );
    }
}

#[test]
fn the_tool_reads_the_current_job_and_prior_jobs_of_the_session() {
    let endpoint = endpoint();
    let (result, path) = stored(&endpoint);
    let s = client(&endpoint, "s");
    s.send("PATCH", "/v1/jobs/j", r#"{"status":"archived"}"#);
    s.send("PUT", "/v1/jobs/later", "");
    let sha256 = path.rsplit('/').next().unwrap();
    let call = |job: &str, arguments: Value| {
        let target = format!("/v1/jobs/{job}/tools/akh_read_tool_output");
        s.send("POST", &target, arguments.to_string())
    };
    let current = call("j", json!({"sha256": sha256, "offset": 8, "limit": 100}));
    assert_eq!(body(&current)["text"], result.serialize()[8..108]);
    let prior = call(
        "later",
        json!({"job_id": "j", "sha256": sha256, "offset": 8, "limit": 100}),
    );
    assert_eq!(prior.body, current.body);
    let not_prior = call(
        "later",
        json!({"sha256": sha256, "offset": 8, "limit": 100}),
    );
    is_refused(&not_prior, 404, "unavailable");
}

#[test]
fn reads_are_refused_with_the_code_of_their_reason() {
    let endpoint = endpoint();
    let (result, path) = stored(&endpoint);
    let s = client(&endpoint, "s");
    let bytes = result.serialize().len();
    let inside = result.serialize().find('漢').unwrap() + 1;
    let get = |query: &str| s.get(&format!("{path}?{query}"));
    for (query, status, code) in [
        ("limit=0".to_owned(), 400, "invalid_request"),
        ("limit=8193".to_owned(), 400, "invalid_request"),
        ("offset=-1".to_owned(), 400, "invalid_request"),
        ("offset=1&offset=1".to_owned(), 400, "invalid_request"),
        ("offset=%zz".to_owned(), 400, "invalid_request"),
        ("page=1".to_owned(), 400, "invalid_request"),
        (format!("offset={}", bytes + 1), 416, "out_of_range"),
        (format!("offset={}", "9".repeat(40)), 416, "out_of_range"),
        (format!("offset={inside}"), 422, "mid_codepoint"),
        (
            format!("offset={}&limit=2", inside - 1),
            422,
            "mid_codepoint",
        ),
    ] {
        is_refused(&get(&query), status, code);
    }
    let beyond = body(&get(&format!("offset={}", bytes + 1)));
    assert_eq!(beyond["bytes"], bytes);
    let narrow = body(&get(&format!("offset={}&limit=2", inside - 1)));
    assert_eq!(narrow["needed_limit"], 3);
    let end = body(&get(&format!("offset={bytes}")));
    assert_eq!((&end["done"], &end["text"]), (&json!(true), &json!("")));
}

#[test]
fn path_tricks_in_job_and_sha256_are_refused() {
    let endpoint = endpoint();
    let (_, path) = stored(&endpoint);
    let s = client(&endpoint, "s");
    let sha256 = path.rsplit('/').next().unwrap();
    for job in [
        "..",
        ".",
        "%2e%2e",
        "%2E",
        "a%2fb",
        "a%5Cb",
        "%00",
        "j%00",
        "%20",
        "j%20",
        "é",
        "%c3%a9",
        "%ff",
        "%",
        "%g0",
        "",
        &"x".repeat(129),
    ] {
        for (method, target) in [
            ("GET", format!("/v1/jobs/{job}/tool-output/{sha256}")),
            ("PUT", format!("/v1/jobs/{job}")),
            ("POST", format!("/v1/jobs/{job}/tool-results")),
        ] {
            let response = s.send(method, &target, "");
            is_refused(&response, 400, "invalid_request");
        }
    }
    for sha256 in [
        "",
        "..",
        "%2e%2e%2f",
        &sha256[1..],
        &sha256.to_uppercase(),
        &format!("{sha256}0"),
        &format!("{}%2f", &sha256[..61]),
        &sha256.replace(|_| true, "g"),
    ] {
        is_refused(
            &s.get(&format!("/v1/jobs/j/tool-output/{sha256}")),
            400,
            "invalid_request",
        );
    }
    // Encoded unreserved characters are the same address.
    let encoded = path.replace("/j/", "/%6a/");
    assert_eq!(s.get(&encoded), s.get(&path));
    for more in ["/", "/x", "//"] {
        is_refused(&s.get(&format!("{path}{more}")), 404, "unavailable");
    }
    is_refused(&s.get(&format!("/{path}")), 404, "unavailable");
}

#[test]
fn a_job_is_created_once_and_belongs_to_its_session() {
    let endpoint = endpoint();
    let (s, other) = (client(&endpoint, "s"), client(&endpoint, "other"));
    let created = s.send("PUT", "/v1/jobs/job-1", "");
    assert_eq!(
        (created.status, body(&created)),
        (201, json!({"job_id": "job-1", "status": "active"}))
    );
    let again = s.send("PUT", "/v1/jobs/job-1", " {} ");
    assert_eq!((again.status, again.body), (200, created.body));
    is_refused(&other.send("PUT", "/v1/jobs/job-1", ""), 409, "conflict");
    is_refused(
        &s.send("PUT", "/v1/jobs/x", "{\"a\":1}"),
        400,
        "invalid_request",
    );
}

#[test]
fn the_status_of_a_job_is_changed_as_jobs_go() {
    let endpoint = endpoint();
    let s = client(&endpoint, "s");
    s.send("PUT", "/v1/jobs/j", "");
    let patch = |body: &str| s.send("PATCH", "/v1/jobs/j", body.to_owned());
    for status in ["completed", "completed", "archived"] {
        let answer = patch(&json!({ "status": status }).to_string());
        assert_eq!(body(&answer), json!({"job_id": "j", "status": status}));
    }
    is_refused(&patch(r#"{"status":"active"}"#), 409, "conflict");
    for bad in [
        "",
        "{}",
        "[]",
        r#"{"status":"done"}"#,
        r#"{"status":null}"#,
        r#"{"status":"failed","x":1}"#,
        r#"{"status":"failed","status":"failed"}"#,
    ] {
        is_refused(&patch(bad), 400, "invalid_request");
    }
    let late = s.send(
        "POST",
        "/v1/jobs/j/tool-results",
        r#"{"success":true,"text":""}"#,
    );
    is_refused(&late, 409, "conflict");
}

#[test]
fn a_tool_result_goes_in_and_the_bounded_one_comes_out() {
    let endpoint = endpoint();
    let s = client(&endpoint, "s");
    s.send("PUT", "/v1/jobs/j", "");
    let post =
        |call: Option<&str>, body: String| s.send_as(call, "POST", "/v1/jobs/j/tool-results", body);
    let small =
        r#"{"success":false,"text":"é","data":{"n":[9007199254740993,-0,1e400]},"receipt":null}"#;
    assert_eq!(post(None, small.to_owned()).body, small);

    let text = "x".repeat(20_000);
    let large = |handles: &str| {
        format!(r#"{{"handles":{handles},"success":true,"text":"{text}","data":{{"id":1}}}}"#)
    };
    let bounded = post(Some("call-1"), large(r#"{"process_id":"p"}"#));
    assert!(bounded.body.len() <= 16 * 1024);
    let answer = body(&bounded);
    assert_eq!(answer["data"]["handles"], json!({"process_id": "p"}));
    // The header makes it idempotent.
    let again = post(Some("call-1"), large(r#"{"process_id":"p"}"#));
    assert_eq!(again, bounded);
    is_refused(&post(Some("call-1"), small.to_owned()), 409, "conflict");
    for call in ["", "a b", "é", &"x".repeat(257)] {
        is_refused(&post(Some(call), small.to_owned()), 400, "invalid_request");
    }
    for bad in [
        String::new(),
        "null".to_owned(),
        "{}".to_owned(),
        r#"{"success":true}"#.to_owned(),
        r#"{"success":"true","text":""}"#.to_owned(),
        r#"{"success":true,"text":"","more":1}"#.to_owned(),
        r#"{"success":true,"text":"","text":""}"#.to_owned(),
        r#"{"success":true,"text":"\ud800"}"#.to_owned(),
        r#"{"success":true,"text":"","data":01}"#.to_owned(),
        large("[]"),
        large(r#"{"a":1,"a":1}"#),
        large(r#"{},"handles":{}"#),
    ] {
        is_refused(&post(None, bad), 400, "invalid_request");
    }
    let not_text = s.send(
        "POST",
        "/v1/jobs/j/tool-results",
        &b"{\"text\":\"\xff\"}"[..],
    );
    is_refused(&not_text, 400, "invalid_request");
}

#[test]
fn a_result_of_16_mib_and_one_byte_is_result_too_large() {
    let endpoint = endpoint();
    let s = client(&endpoint, "s");
    s.send("PUT", "/v1/jobs/j", "");
    let of = |bytes: usize| ToolResult::from_text(true, "x".repeat(bytes - 53)).serialize();
    let post = |bytes| s.send("POST", "/v1/jobs/j/tool-results", of(bytes));
    is_refused(&post(16 * 1024 * 1024 + 1), 413, "result_too_large");
    assert_eq!(post(16 * 1024 * 1024).status, 200);
}

#[test]
fn altered_bytes_are_an_integrity_failure_and_no_bytes_are_shown() {
    let endpoint = endpoint();
    let (_, path) = stored(&endpoint);
    let store = endpoint.outputs().store();
    let chunk = block_on(store.list("tool-output/s/j/chunk/"))
        .unwrap()
        .remove(0);
    let put = vec![(chunk, Bytes::from_static(b"forged"))];
    let batch = Batch {
        put,
        ..Batch::default()
    };
    block_on(store.commit(batch)).unwrap();
    let response = client(&endpoint, "s").get(&path);
    is_refused(&response, 500, "integrity_failure");
    assert!(!response.body.contains("forged"));
    let usage = Key::new("tool-output/s/j/usage");
    let put = vec![(usage, Bytes::from_static(b"0"))];
    let batch = Batch {
        put,
        ..Batch::default()
    };
    block_on(store.commit(batch)).unwrap();
    let result = ToolResult::from_text(true, "y".repeat(20_000)).serialize();
    let response = client(&endpoint, "s").send("POST", "/v1/jobs/j/tool-results", result);
    is_refused(&response, 500, "integrity_failure");
}

#[test]
fn an_envelope_is_measured_and_not_changed() {
    let endpoint = endpoint();
    let s = client(&endpoint, "s");
    let check = |body: &str| s.send("POST", "/v1/envelope-check", body.to_owned());
    for (request, answer) in [
        (
            r#"{"body":"12345","max_input_bytes":5}"#,
            r#"{"fits":true,"bytes":5,"limit":5}"#,
        ),
        (
            r#"{"body":"123é","max_input_bytes":4}"#,
            r#"{"fits":false,"bytes":5,"limit":4}"#,
        ),
        (
            r#"{"body":{ "a": [1.0, "\u00e9"] }}"#,
            r#"{"fits":true,"bytes":16,"limit":8388608}"#,
        ),
    ] {
        assert_eq!(check(request).body, answer);
    }
    let body = "x".repeat(8 * 1024 * 1024 + 1);
    let over = check(&json!({ "body": body }).to_string());
    assert_eq!(
        over.body,
        r#"{"fits":false,"bytes":8388609,"limit":8388608}"#
    );
    for bad in [
        "",
        "{}",
        r#"{"max_input_bytes":1}"#,
        r#"{"body":1,"max_input_bytes":0}"#,
        r#"{"body":1,"max_input_bytes":8388609}"#,
        r#"{"body":1,"max_input_bytes":"5"}"#,
        r#"{"body":1,"max_input_bytes":5.5}"#,
        r#"{"body":1,"max_input_bytes":null}"#,
        r#"{"body":1,"body":1}"#,
        r#"{"body":1,"more":1}"#,
    ] {
        is_refused(&check(bad), 400, "invalid_request");
    }
}

#[test]
fn another_method_is_refused_with_those_that_there_are() {
    let endpoint = endpoint();
    let (_, path) = stored(&endpoint);
    let s = client(&endpoint, "s");
    for (method, target, allowed) in [
        ("HEAD", path.as_str(), "GET"),
        ("DELETE", path.as_str(), "GET"),
        ("GET", "/v1/jobs/j", "PUT, PATCH"),
        ("get", path.as_str(), "GET"),
        ("GET", "/v1/envelope-check", "POST"),
    ] {
        let response = s.send(method, target, "");
        is_refused(&response, 405, "invalid_request");
        assert!(response.headers.contains(&("allow", allowed.to_owned())));
    }
    is_refused(&s.send("PUT", "/v1/jobs/j?x=1", ""), 400, "invalid_request");
}

#[test]
fn no_response_is_kept_or_guessed_at() {
    let endpoint = endpoint();
    let (_, path) = stored(&endpoint);
    for response in [
        client(&endpoint, "s").get(&path),
        client(&endpoint, "other").get(&path),
    ] {
        for header in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
        ] {
            let header = (header.0, header.1.to_owned());
            assert!(response.headers.contains(&header));
        }
    }
}
