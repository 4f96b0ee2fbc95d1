use alloc::vec::Vec;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn job() -> JobId {
    "job-1".parse().unwrap()
}

/// What the model sees of `result`, and the complete serialization.
fn bound(result: &ToolResult, handles: Handles) -> (ToolResult, String) {
    let complete = result.serialize();
    let reference = ToolOutputRef {
        job_id: job(),
        sha256: Sha256Digest::of(complete.as_bytes()),
        bytes: complete.len() as u64,
        handles,
    };
    (bounded(result, &reference), complete)
}

fn raw(json: &str) -> RawJson {
    RawJson::parse(json).unwrap()
}

fn parsed(json: Option<&RawJson>) -> Value {
    serde_json::from_str(json.unwrap().as_str()).unwrap()
}

/// The positions that the marker in `text` names.
fn gap(text: &str) -> Option<(usize, usize)> {
    let (_, rest) = text.split_once("\n[... bytes ")?;
    let (positions, _) = rest.split_once(" of the complete result")?;
    let (start, end) = positions.split_once(" to ")?;
    Some((start.parse().ok()?, end.parse().ok()?))
}

#[test]
fn a_larger_result_keeps_the_success_the_receipt_one_excerpt_and_a_reference() {
    let result = ToolResult {
        success: false,
        text: "line\n".repeat(10_000),
        data: Some(raw(r#"{"rows":[1,2,3]}"#)),
        receipt: Some(raw(r#"{"signed":-0}"#)),
    };
    let (bounded, complete) = bound(&result, Handles::default());
    assert!(!bounded.success);
    assert_eq!(bounded.receipt, result.receipt);
    assert_eq!(bounded.text.matches("[... bytes ").count(), 1);
    let sha256 = Sha256Digest::of(complete.as_bytes());
    let data = alloc::format!(
        r#"{{"kind":"tool_output_ref","schema_version":1,"job_id":"job-1","sha256":"{sha256}","bytes":{},"path":"/v1/jobs/job-1/tool-output/{sha256}","tool":"akh_read_tool_output","handles":{{}}}}"#,
        complete.len()
    );
    assert_eq!(bounded.data.unwrap().as_str(), data);
}

#[test]
fn a_result_of_16_384_bytes_passes_unchanged_and_one_of_16_385_does_not() {
    let of = |bytes: usize| ToolResult::from_text(true, "x".repeat(bytes - 53));
    assert_eq!(of(16_384).serialize().len(), 16_384);
    assert!(is_inline(of(16_384).serialized_byte_count()));
    assert!(!is_inline(of(16_385).serialized_byte_count()));
}

#[test]
fn hash_and_size_cover_the_complete_original_serialized_result() {
    let result = ToolResult::from_text(true, "\u{1}".repeat(5000));
    let (bounded, complete) = bound(&result, Handles::default());
    assert_eq!(complete.len(), 5000 * 6 + 53);
    let data = parsed(bounded.data.as_ref());
    assert_eq!(data["bytes"], complete.len());
    assert_eq!(
        data["sha256"],
        alloc::format!("{}", Sha256Digest::of(complete.as_bytes()))
    );
}

#[test]
fn a_receipt_of_20_kib_is_replaced_by_its_digest_and_size() {
    let receipt = alloc::format!("{{\"log\":\"{}\"}}", "r".repeat(20 * 1024));
    let result = ToolResult {
        receipt: Some(raw(&receipt)),
        ..ToolResult::from_text(true, "short".into())
    };
    let (bounded, complete) = bound(&result, Handles::default());
    let shown = parsed(bounded.receipt.as_ref());
    assert_eq!(shown["receipt_elided"], true);
    assert_eq!(shown["bytes"], receipt.len());
    let digest = alloc::format!("{}", Sha256Digest::of(receipt.as_bytes()));
    assert_eq!(shown["sha256"], digest);
    assert_eq!(bounded.text, "short");
    assert!(
        complete.contains(&receipt),
        "it stays whole in the artifact"
    );
}

#[test]
fn a_receipt_that_fits_is_kept_however_large() {
    let with_receipt = |bytes: usize| {
        let receipt = raw(&alloc::format!("\"{}\"", "r".repeat(bytes - 2)));
        let result = ToolResult {
            receipt: Some(receipt.clone()),
            ..ToolResult::from_text(true, "t".repeat(20_000))
        };
        let (bounded, _) = bound(&result, Handles::default());
        assert!(bounded.serialized_byte_count() <= MAX_RESULT_BYTES);
        bounded.receipt == Some(receipt)
    };
    let sizes: Vec<usize> = (10_000..MAX_RESULT_BYTES).collect();
    let largest = 10_000 + sizes.partition_point(|bytes| with_receipt(*bytes)) - 1;
    // What the reference, the members' names and the marker need is all that it leaves.
    assert!(largest > 15_700, "{largest}");
    assert!(!with_receipt(16_384));
}

#[test]
fn handles_of_10_000_keys_keep_the_first_that_fit() {
    let members: Vec<String> = (0..10_000)
        .map(|index| alloc::format!("\"key_{index}\":{index}"))
        .collect();
    let handles = Handles::parse(&alloc::format!("{{{}}}", members.join(","))).unwrap();
    assert!(handles.elided());
    assert!(handles.as_str().len() <= MAX_HANDLES_BYTES);
    let kept: Value = serde_json::from_str(handles.as_str()).unwrap();
    let count = kept.as_object().unwrap().len();
    assert!(count > 100);
    for index in 0..count {
        assert_eq!(kept[alloc::format!("key_{index}")], index);
    }
    let (bounded, _) = bound(&ToolResult::from_text(true, "x".repeat(20_000)), handles);
    assert_eq!(parsed(bounded.data.as_ref())["handles_elided"], true);
}

#[test]
fn a_key_of_3_kib_is_left_out_and_later_handles_are_kept() {
    let key = "k".repeat(3 * 1024);
    let json = alloc::format!(r#"{{"{key}":1,"process_id":"p7"}}"#);
    let handles = Handles::parse(&json).unwrap();
    assert_eq!(handles.as_str(), r#"{"process_id":"p7"}"#);
    assert!(handles.elided());
}

#[test]
fn escaped_keys_and_values_are_counted_at_2_kib() {
    // {"<340 x \u0001>":""} has 2 * 3 + 1 + 340 * 6 bytes.
    let handles_of = |controls: usize, more: &str| {
        let json = alloc::format!("{{\"{}{more}\":\"\"}}", "\\u0001".repeat(controls));
        Handles::parse(&json).unwrap()
    };
    let exact = handles_of(340, "x");
    assert_eq!((exact.as_str().len(), exact.elided()), (2048, false));
    let over = handles_of(340, "xx");
    assert_eq!((over.as_str(), over.elided()), ("{}", true));
}

#[test]
fn handles_that_are_no_object_or_name_a_key_twice_are_refused() {
    for bad in ["", "[]", "null", "\"x\"", "{\"a\":1", "{\"a\":1}x"] {
        assert!(matches!(
            Handles::parse(bad),
            Err(HandlesError::NotAnObject(_))
        ));
    }
    assert_eq!(
        Handles::parse(r#"{"a":1,"\u0061":2}"#),
        Err(HandlesError::DuplicateName)
    );
}

#[test]
fn handles_that_nobody_names_are_the_identifiers_in_the_data() {
    let of = |data| Handles::of_data(Some(&raw(data)));
    let handles = of(
        r#"{"process_id":"p1","status":"running","rows":[1],"exit_code":0,"n":1,"task_id":{"deep":1},"id":9007199254740993}"#,
    );
    assert_eq!(
        handles.as_str(),
        r#"{"process_id":"p1","status":"running","exit_code":0,"id":9007199254740993}"#
    );
    assert!(!handles.elided());
    let twice = of(r#"{"id":1,"id":2}"#);
    assert_eq!((twice.as_str(), twice.elided()), ("{}", true));
    for data in ["[1]", "\"id\"", "7"] {
        assert_eq!(of(data), Handles::default());
    }
    assert_eq!(Handles::of_data(None), Handles::default());
}

#[test]
fn base64_in_a_text_result_is_text_and_is_bounded() {
    let result = ToolResult::from_text(
        true,
        alloc::format!("data:image/png;base64,{}", "iVBORw0KGgo".repeat(3000)),
    );
    let (bounded, _) = bound(&result, Handles::default());
    assert!(bounded.serialized_byte_count() <= MAX_RESULT_BYTES);
    assert!(gap(&bounded.text).is_some());
}

#[test]
fn the_excerpt_of_a_result_without_text_is_of_its_data() {
    let numbers: Vec<String> = (0..9000).map(|number| alloc::format!("{number}")).collect();
    let result = ToolResult {
        data: Some(raw(&alloc::format!("[{}]", numbers.join(",")))),
        ..ToolResult::from_text(true, String::new())
    };
    let (bounded, complete) = bound(&result, Handles::default());
    assert!(bounded.text.starts_with("[0,1,2,3"));
    assert!(bounded.text.ends_with("8998,8999]"));
    let (start, end) = gap(&bounded.text).unwrap();
    let (head, rest) = bounded.text.split_once("\n[... bytes ").unwrap();
    let (_, tail) = rest.split_once(" ...]\n").unwrap();
    assert!(complete[..start].ends_with(head));
    assert!(complete[end..].starts_with(tail));
}

#[test]
fn a_text_that_fits_is_kept_whole_when_the_data_do_not() {
    let result = ToolResult {
        data: Some(raw(&alloc::format!("\"{}\"", "d".repeat(100_000)))),
        ..ToolResult::from_text(true, "3 rows".into())
    };
    assert_eq!(bound(&result, Handles::default()).0.text, "3 rows");
}

#[test]
fn the_marker_of_the_largest_artifact_takes_what_is_set_aside_for_it() {
    let result = ToolResult {
        receipt: Some(raw(&alloc::format!("\"{}\"", "r".repeat(30_000)))),
        ..ToolResult::from_text(true, "x".repeat(20_000))
    };
    let reference = ToolOutputRef {
        job_id: job(),
        sha256: Sha256Digest::of(b""),
        bytes: MAX_ARTIFACT_BYTES as u64,
        handles: Handles::default(),
    };
    let (marker, _) = excerpt::of(&result, reference.bytes, MARKER_MAX_BYTES);
    assert!(gap(&marker).is_some());
    assert!(crate::json::escaped_len(&marker) <= MARKER_MAX_BYTES);
}

fn any_text() -> impl Strategy<Value = String> {
    (
        "[a-z \\n]{0,30}|[\\x00-\\x1f\"\\\\]{1,20}|[é漢🙂\u{2028}]{1,20}",
        0..3000_usize,
    )
        .prop_map(|(piece, times)| piece.repeat(times))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any result: at most 16 KiB, the room is used, the excerpt's head and tail are exact and the
    /// marker's positions are those of the artifact.
    #[test]
    fn a_bounded_result_fits_and_its_excerpt_is_exact(
        success: bool,
        text in any_text(),
        data in any_text(),
        receipt_bytes in 0..20_000_usize,
    ) {
        let result = ToolResult {
            success,
            text,
            data: Some(raw(&serde_json::to_string(&data).unwrap())),
            receipt: Some(raw(&alloc::format!("\"{}\"", "r".repeat(receipt_bytes)))),
        };
        let (bounded, complete) = bound(&result, Handles::default());
        prop_assume!(complete.len() > MAX_RESULT_BYTES);
        let bytes = bounded.serialized_byte_count();
        prop_assert!(bytes <= MAX_RESULT_BYTES);

        let (from_data, source) = if result.text.is_empty() {
            (true, result.data.as_ref().unwrap().as_str())
        } else {
            (false, result.text.as_str())
        };
        if let Some((start, end)) = gap(&bounded.text) {
            // Two cut code points, and the marker's digits that were not needed.
            prop_assert!(bytes + 2 * 6 + 16 > MAX_RESULT_BYTES, "{bytes}");
            let (head, rest) = bounded.text.rsplit_once("\n[... bytes ").unwrap();
            let (_, tail) = rest.split_once(" ...]\n").unwrap();
            prop_assert!(source.starts_with(head));
            prop_assert!(source.ends_with(tail));
            let in_artifact = |part: &str| if from_data {
                String::from(part)
            } else {
                let mut escaped = String::new();
                crate::json::push_escaped(&mut escaped, part);
                escaped
            };
            prop_assert!(complete[..start].ends_with(&in_artifact(head)));
            prop_assert!(complete[end..].starts_with(&in_artifact(tail)));
            prop_assert!(start < end);
        } else {
            prop_assert_eq!(&bounded.text, source);
        }
    }

    /// The final escaped message around any bounded result fits 64 KiB.
    #[test]
    fn a_bounded_result_escaped_once_more_fits_a_message(text in any_text()) {
        let result = ToolResult::from_text(true, text);
        let (bounded, _) = bound(&result, Handles::default());
        let message = serde_json::to_string(&bounded.serialize()).unwrap();
        prop_assert!(crate::envelope::check_message(&message).fits);
        prop_assert!(message.len() <= 2 * MAX_RESULT_BYTES + 2);
    }
}

#[test]
fn the_ranges_of_an_excerpt_are_those_of_the_stored_bytes() {
    for result in [
        ToolResult::from_text(true, "é\n\u{1}x".repeat(9000)),
        ToolResult {
            data: Some(RawJson::parse(&format!("[\"{}\"]", "é".repeat(20_000))).unwrap()),
            ..ToolResult::from_text(false, String::new())
        },
    ] {
        let serialized = result.serialize();
        let reference = ToolOutputRef {
            job_id: "j".parse().unwrap(),
            sha256: Sha256Digest::of(serialized.as_bytes()),
            bytes: serialized.len() as u64,
            handles: Handles::default(),
        };
        let ranges = excerpt_ranges(&result, &reference).unwrap();
        assert_eq!(ranges.head.end, ranges.left_out.start);
        assert_eq!(ranges.left_out.end, ranges.tail.start);
        let shown = bounded(&result, &reference).text;
        let slice = |range: core::ops::Range<u64>| {
            &serialized[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
        };
        let escaped = serde_json::to_string(&shown).unwrap();
        // The data's JSON is shown as a text, whose quotation marks are escaped once more.
        let (head, tail) = if result.text.is_empty() {
            let escape = |text: &str| serde_json::to_string(text).unwrap();
            (escape(slice(ranges.head)), escape(slice(ranges.tail)))
        } else {
            let quoted = |text: &str| format!("\"{text}\"");
            (quoted(slice(ranges.head)), quoted(slice(ranges.tail)))
        };
        assert!(escaped.starts_with(head.strip_suffix('"').unwrap()));
        assert!(escaped.ends_with(tail.strip_prefix('"').unwrap()));
    }
    let small = ToolResult::from_text(true, String::from("small"));
    let reference = ToolOutputRef {
        job_id: "j".parse().unwrap(),
        sha256: Sha256Digest::of(b""),
        bytes: 60,
        handles: Handles::default(),
    };
    assert_eq!(excerpt_ranges(&small, &reference), None);
}
