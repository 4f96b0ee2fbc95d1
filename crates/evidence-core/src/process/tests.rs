use alloc::string::ToString as _;
use alloc::vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cursor::ReadRefusal;
use crate::tool_output::MAX_RESULT_BYTES;
use crate::tool_result::ToolResult;

fn facts_of(stdout: &[u8], stderr: &[u8], status: ProcessStatus) -> ProcessFacts {
    ProcessFacts {
        process_id: "process-1".parse().unwrap(),
        status,
        exit_code: (status == ProcessStatus::Exited).then_some(0),
        signal: None,
        stdout: StreamFacts::of(stdout, stdout.len() as u64),
        stderr: StreamFacts::of(stderr, stderr.len() as u64),
    }
}

fn cursors(stdout_offset: Option<u64>, stderr_offset: Option<u64>, max: u64) -> OutputCursors {
    OutputCursors {
        stdout_offset,
        stderr_offset,
        max_output_bytes: max,
    }
}

fn part(bytes: &[u8], range: core::ops::Range<u64>) -> &[u8] {
    &bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
}

fn poll(
    facts: &ProcessFacts,
    cursors: &OutputCursors,
    stdout: &[u8],
    stderr: &[u8],
) -> Result<Value, ReadRefusal> {
    let stdout = part(stdout, cursors.range(Stream::Stdout, &facts.stdout)?);
    let stderr = part(stderr, cursors.range(Stream::Stderr, &facts.stderr)?);
    let answer = CursorPoll::new(facts, cursors, stdout, stderr)?.to_json();
    let wrapped = ToolResult::from_text(true, answer.clone()).serialized_byte_count();
    assert!(wrapped <= MAX_RESULT_BYTES, "{wrapped}");
    Ok(serde_json::from_str(&answer).unwrap())
}

#[test]
fn a_cursor_poll_answers_the_fields_of_the_contract() {
    let (out, err) = ("a\u{e9}\n".as_bytes(), b"x");
    let facts = facts_of(out, err, ProcessStatus::Exited);
    let answer = poll(&facts, &cursors(Some(1), None, 4096), out, err).unwrap();
    let expected = json!({
        "cursor_mode": true,
        "process_id": "process-1",
        "status": "exited",
        "success": true,
        "receipt": {
            "kind": "exec_poll", "schema_version": 1, "process_id": "process-1", "status": "exited",
            "observed": {"stdout": [[1, 4]], "stderr": [[0, 0]]},
            "capture_truncated": {"stdout": false, "stderr": false},
        },
        "exit_code": 0,
        "stdout": {
            "sha256": Sha256Digest::of(out).to_string(), "bytes": 4, "offset": 1, "next_offset": 4,
            "done": true, "text": "\u{e9}\n", "base64": "w6kK",
        },
        "stderr": {
            "sha256": Sha256Digest::of(err).to_string(), "bytes": 1, "offset": 0, "next_offset": 0,
            "done": false, "text": "", "base64": "",
        },
    });
    assert_eq!(answer, expected);
}

#[test]
fn text_stands_only_where_the_complete_captured_stream_is_valid_utf_8_and_base64_is_always_exact() {
    let (out, err) = (b"fine\xff", b"fine");
    let facts = facts_of(out, err, ProcessStatus::Exited);
    let answer = poll(&facts, &cursors(Some(0), Some(0), 4), out, err).unwrap();
    assert_eq!(answer["stdout"]["text"], Value::Null);
    assert_eq!(answer["stdout"]["base64"], STANDARD.encode("fine"));
    assert_eq!(answer["stdout"]["done"], false);
    assert_eq!(answer["stderr"]["text"], "fine");
    assert_eq!(answer["stderr"]["done"], true);
}

#[test]
fn nothing_is_done_while_the_process_runs() {
    let facts = facts_of(b"all", b"", ProcessStatus::Running);
    let answer = poll(&facts, &cursors(Some(0), Some(0), 4096), b"all", b"").unwrap();
    assert_eq!(answer["stdout"]["next_offset"], 3);
    assert_eq!(answer["stdout"]["done"], false);
    assert_eq!(answer["stderr"]["done"], false);
    assert_eq!(answer["success"], true);
    assert_eq!(answer["exit_code"], Value::Null);
}

#[test]
fn an_offset_beyond_the_end_inside_a_code_point_or_before_one_wider_than_the_limit_is_refused() {
    let out = "\u{1f600}".as_bytes();
    let facts = facts_of(out, b"", ProcessStatus::Exited);
    let refused = |offset, max| poll(&facts, &cursors(Some(offset), None, max), out, b"").err();
    assert_eq!(refused(5, 9), Some(ReadRefusal::OutOfRange { bytes: 4 }));
    assert_eq!(
        refused(u64::MAX, 9),
        Some(ReadRefusal::OutOfRange { bytes: 4 })
    );
    assert_eq!(refused(1, 9), Some(ReadRefusal::MidCodePoint));
    assert_eq!(
        refused(0, 3),
        Some(ReadRefusal::LimitTooSmall { needed: 4 })
    );
    assert_eq!(refused(0, 4), None);
    assert_eq!(refused(4, 1), None, "the end is not beyond the end");
}

#[test]
fn in_a_stream_that_is_not_text_every_offset_is_good() {
    let out = "\u{1f600}\u{1f600}".as_bytes();
    let out = &out[..7];
    let facts = facts_of(out, b"", ProcessStatus::Exited);
    for offset in 0..=7 {
        let answer = poll(&facts, &cursors(Some(offset), None, 3), out, b"").unwrap();
        let end = (offset + 3).min(7);
        assert_eq!(
            answer["stdout"]["base64"],
            STANDARD.encode(part(out, offset..end))
        );
    }
}

#[test]
fn a_code_point_split_between_two_writes_waits_for_its_rest() {
    let whole = "ab\u{1f600}".as_bytes();
    for cut in 3..6 {
        assert_eq!(captured(&whole[..cut], false), b"ab");
        assert_eq!(captured(&whole[..cut], true), &whole[..cut]);
    }
    assert_eq!(captured(whole, false), whole);
    assert_eq!(
        captured(b"ab\xff\xf0", false),
        b"ab\xff\xf0",
        "it is not text anyway"
    );
}

#[test]
fn a_capture_ends_at_1_mib_and_at_a_code_point() {
    let mut long = vec![b'x'; MAX_CAPTURE_BYTES - 1];
    long.extend_from_slice("\u{1f600}".as_bytes());
    for ended in [false, true] {
        assert_eq!(captured(&long, ended).len(), MAX_CAPTURE_BYTES - 1);
    }
    let capped = captured(&long, true);
    let facts = StreamFacts::of(capped, long.len() as u64);
    assert!(facts.capture_truncated() && facts.is_text);
    let bytes = vec![0xff; MAX_CAPTURE_BYTES + 1];
    assert_eq!(captured(&bytes, true).len(), MAX_CAPTURE_BYTES);
    let exact = vec![b'x'; MAX_CAPTURE_BYTES];
    assert!(!StreamFacts::of(captured(&exact, true), exact.len() as u64).capture_truncated());
}

fn clipped(facts: &ProcessFacts, stdout: &[u8], stderr: &[u8]) -> ToolResult {
    let (out, err) = (Clip::of(&facts.stdout), Clip::of(&facts.stderr));
    plain_poll(
        facts,
        [part(stdout, out.head), part(stdout, out.tail)],
        [part(stderr, err.head), part(stderr, err.tail)],
    )
}

#[test]
fn a_plain_poll_shows_both_streams() {
    let facts = facts_of(b"built\n", b"warned", ProcessStatus::Exited);
    let result = clipped(&facts, b"built\n", b"warned");
    assert_eq!(
        result.text,
        "stdout (6 bytes):\nbuilt\nstderr (6 bytes):\nwarned\n"
    );
    assert!(result.success);
    let data: Value = serde_json::from_str(result.data.unwrap().as_str()).unwrap();
    assert_eq!(data["process_id"], "process-1");
    assert_eq!(data["status"], "exited");
    assert_eq!(data["exit_code"], 0);
    assert_eq!(data["stdout"]["total_bytes"], 6);
    let receipt: Value = serde_json::from_str(result.receipt.unwrap().as_str()).unwrap();
    assert_eq!(
        receipt["observed"],
        json!({"stdout": [[0, 6]], "stderr": [[0, 6]]})
    );
    let silent = clipped(&facts_of(b"", b"", ProcessStatus::Running), b"", b"");
    assert_eq!(silent.text, "");
}

#[test]
fn a_plain_poll_clips_each_stream_to_24_kib_of_head_and_tail_at_code_points() {
    let long = "\u{1f600}".repeat(20_000);
    let bytes = [b"x", long.as_bytes()].concat();
    let facts = facts_of(&bytes, b"", ProcessStatus::Running);
    let result = clipped(&facts, &bytes, b"");
    let receipt: Value = serde_json::from_str(result.receipt.unwrap().as_str()).unwrap();
    assert_eq!(
        receipt["observed"]["stdout"],
        json!([[0, 12_285], [67_713, 80_001]])
    );
    assert!(result.text.contains(
        "\n[... bytes 12285 to 67713 of stdout are left out; read them with exec_poll and stdout_offset ...]\n"
    ));
    assert!(!result.text.contains('\u{fffd}'));
    let exact = "y".repeat(24 * 1024);
    let facts = facts_of(exact.as_bytes(), b"", ProcessStatus::Running);
    let result = clipped(&facts, exact.as_bytes(), b"");
    assert!(!result.text.contains("left out"));
}

#[test]
fn a_plain_poll_says_what_is_not_text_and_what_was_not_captured() {
    let mut facts = facts_of(b"\xff\xfe", b"capped", ProcessStatus::Exited);
    facts.stderr.total_bytes = 5_000_000;
    let result = clipped(&facts, b"\xff\xfe", b"capped");
    assert_eq!(
        result.text,
        "stdout (2 bytes):\n[... bytes 0 to 2 are not UTF-8; read them with exec_poll and stdout_offset ...]\nstderr (6 bytes, the first of 5000000):\ncapped\n"
    );
    let receipt = result.receipt.unwrap();
    assert!(
        receipt
            .as_str()
            .contains(r#""capture_truncated":{"stdout":false,"stderr":true}"#)
    );
}

#[test]
fn the_arguments_are_the_tools_and_nothing_else() {
    let start = StartArguments::parse(r#"{"argv":["cargo","build"],"cwd":"sub"}"#).unwrap();
    assert_eq!(start.argv, ["cargo", "build"]);
    assert_eq!(start.cwd.as_deref(), Some("sub"));
    for bad in [
        r"{}",
        r#"{"argv":[]}"#,
        r#"{"argv":[""]}"#,
        r#"{"argv":["a\u0000b"]}"#,
        r#"{"argv":"ls"}"#,
        r#"{"argv":["ls"],"cwd":"\u0000"}"#,
        r#"{"argv":["ls"],"env":{}}"#,
        "[]",
        "",
        "{",
    ] {
        assert!(StartArguments::parse(bad).is_err(), "{bad}");
    }
    let plain = PollArguments::parse(r#"{"process_id":"process-1"}"#).unwrap();
    assert_eq!(plain.cursors, None);
    let cursor = PollArguments::parse(r#"{"process_id":"process-1","stderr_offset":3.0}"#).unwrap();
    assert_eq!(cursor.cursors, Some(cursors(None, Some(3), 4096)));
    for (bad, sentence) in [
        (
            r#"{"process_id":"p","max_output_bytes":5}"#,
            "goes with stdout_offset",
        ),
        (
            r#"{"process_id":"p","stdout_offset":0,"max_output_bytes":0}"#,
            "from 1 to 8192",
        ),
        (
            r#"{"process_id":"p","stdout_offset":0,"max_output_bytes":8193}"#,
            "from 1 to 8192",
        ),
        (
            r#"{"process_id":"p","stdout_offset":-1}"#,
            "the arguments are",
        ),
        (
            r#"{"process_id":"p","stdout_offset":1.5}"#,
            "the arguments are",
        ),
        (r#"{"process_id":"../p"}"#, "the arguments are"),
        (r#"{"process_id":"p","offset":1}"#, "the arguments are"),
    ] {
        let error = PollArguments::parse(bad).unwrap_err().to_string();
        assert!(error.contains(sentence), "{bad}: {error}");
    }
    assert!(StopArguments::parse(r#"{"process_id":"p"}"#).is_ok());
    assert!(StopArguments::parse(r#"{"process_id":1}"#).is_err());
}

#[test]
fn the_schemas_name_the_tools_and_the_optional_cursor_fields() {
    for (schema, tool, optional) in [
        (START_TOOL_SCHEMA, START_TOOL, vec!["cwd"]),
        (
            POLL_TOOL_SCHEMA,
            POLL_TOOL,
            vec!["max_output_bytes", "stderr_offset", "stdout_offset"],
        ),
        (STOP_TOOL_SCHEMA, STOP_TOOL, vec![]),
    ] {
        let schema: Value = serde_json::from_str(schema).unwrap();
        assert_eq!(schema["name"], tool);
        let parameters = &schema["parameters"];
        let required: Vec<&str> = parameters["required"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let names = parameters["properties"].as_object().unwrap().keys();
        let mut others: Vec<&str> = names
            .map(alloc::string::String::as_str)
            .filter(|name| !required.contains(name))
            .collect();
        others.sort_unstable();
        assert_eq!(others, optional);
    }
}

proptest! {
    // Each case is many polls.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn reading_on_at_next_offset_until_done_gets_every_byte_once(
        out in prop::collection::vec(prop_oneof![Just("a"), Just("\u{1f600}"), Just("\""), Just("\u{1}"), Just("漢")], 0..6000),
        err in prop::collection::vec(any::<u8>(), 0..6000),
        max in 4_u64..=8192,
    ) {
        let out = out.concat();
        let facts = facts_of(out.as_bytes(), &err, ProcessStatus::Exited);
        let (mut read_out, mut read_err) = (vec![], vec![]);
        loop {
            let at = |bytes: &[u8]| Some(bytes.len() as u64);
            let cursors = cursors(at(&read_out), at(&read_err), max);
            let answer = poll(&facts, &cursors, out.as_bytes(), &err).unwrap();
            let bytes = |stream: &str| STANDARD.decode(answer[stream]["base64"].as_str().unwrap()).unwrap();
            let before = (read_out.len(), read_err.len());
            prop_assert_eq!(answer["stdout"]["text"].as_str().unwrap().as_bytes(), bytes("stdout"));
            read_out.extend(bytes("stdout"));
            read_err.extend(bytes("stderr"));
            if answer["stdout"]["done"] == true && answer["stderr"]["done"] == true {
                break;
            }
            prop_assert!(before != (read_out.len(), read_err.len()));
        }
        prop_assert_eq!(read_out, out.as_bytes());
        prop_assert_eq!(read_err, err);
    }
}
