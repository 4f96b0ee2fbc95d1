use alloc::format;
use alloc::string::ToString as _;

use proptest::prelude::*;

use super::*;

fn read(text: &str, offset: u64, limit: u64) -> Result<ReadAnswer<'_>, ReadRefusal> {
    let request = ReadRequest::new(offset, limit)?;
    let bytes = text.len() as u64;
    let range = request.range(bytes)?;
    let fetched = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
    request.answer(
        Sha256Digest::of(text.as_bytes()),
        bytes,
        &text.as_bytes()[fetched],
    )
}

#[test]
fn an_answer_has_the_fields_of_the_contract_in_their_order() {
    let answer = read("abcdef", 1, 3).unwrap();
    let sha256 = Sha256Digest::of(b"abcdef");
    assert_eq!(
        answer.to_json(),
        format!(
            r#"{{"schema_version":1,"sha256":"{sha256}","bytes":6,"offset":1,"next_offset":4,"done":false,"text":"bcd"}}"#
        )
    );
}

#[test]
fn an_offset_at_the_end_is_done_with_an_empty_text_and_one_beyond_it_is_out_of_range() {
    let answer = read("abc", 3, 1).unwrap();
    assert_eq!(
        (answer.text, answer.next_offset, answer.done),
        ("", 3, true)
    );
    assert!(read("", 0, 1).unwrap().done);
    assert_eq!(read("abc", 4, 1), Err(ReadRefusal::OutOfRange { bytes: 3 }));
    assert_eq!(
        read("abc", u64::MAX, 8192),
        Err(ReadRefusal::OutOfRange { bytes: 3 })
    );
}

#[test]
fn limit_is_1_to_8192() {
    let text = "x".repeat(9000);
    assert_eq!(read(&text, 0, 8192).unwrap().next_offset, 8192);
    for limit in [0, 8193, u64::MAX] {
        assert!(matches!(
            read(&text, 0, limit),
            Err(ReadRefusal::Invalid { .. })
        ));
    }
}

#[test]
fn an_offset_inside_a_code_point_is_refused_at_every_cut() {
    for character in ["é", "漢", "🙂"] {
        let text = format!("a{character}b");
        for inside in 1..character.len() as u64 {
            for limit in [1, 2, 3, 4, 8192] {
                assert_eq!(
                    read(&text, 1 + inside, limit),
                    Err(ReadRefusal::MidCodePoint)
                );
            }
        }
    }
}

#[test]
fn range_ends_shorten_to_a_boundary_without_replacement_characters() {
    for limit in 2..6 {
        let answer = read("a🙂b", 0, limit).unwrap();
        let expected = if limit < 5 { "a" } else { "a🙂" };
        assert_eq!(answer.text, expected, "limit {limit}");
        assert_eq!(answer.next_offset, expected.len() as u64);
    }
}

#[test]
fn a_first_code_point_wider_than_the_limit_is_refused_with_the_needed_size() {
    for (text, needed) in [("é", 2), ("漢", 3), ("🙂", 4)] {
        for limit in 1..needed {
            assert_eq!(
                read(text, 0, limit),
                Err(ReadRefusal::LimitTooSmall { needed })
            );
        }
        assert!(read(text, 0, needed).unwrap().done);
    }
}

#[test]
fn bytes_that_are_not_text_are_never_answered() {
    for bytes in [&b"a\xff"[..], b"\xf0\x9f\x99", b"a\xf0\x9f", b"\xc0\x80"] {
        let request = ReadRequest::new(0, 8192).unwrap();
        let answer = request.answer(Sha256Digest::of(bytes), bytes.len() as u64, bytes);
        assert_eq!(answer, Err(ReadRefusal::NotText), "{bytes:?}");
    }
}

#[test]
fn a_query_names_offset_and_limit_once_each() {
    let request = |query| ReadRequest::from_query(query);
    let new = |offset, limit| ReadRequest::new(offset, limit);
    assert_eq!(request(""), new(0, 8192));
    assert_eq!(request("offset=7"), new(7, 8192));
    assert_eq!(request("limit=10&offset=007"), new(7, 10));
    assert_eq!(request("%6fffset=%37&limit=8192"), new(7, 8192));
    // Beyond any number is beyond any artifact.
    assert_eq!(
        request(&format!("offset={}", "9".repeat(100))),
        new(u64::MAX, 8192)
    );
}

#[test]
fn a_query_that_is_anything_else_is_refused() {
    for (query, reason) in [
        ("offset=1&offset=1", "a query parameter stands twice"),
        (
            "limit=1&offset=0&%6cimit=1",
            "a query parameter stands twice",
        ),
        ("offset=%", "the query's percent-encoding is invalid"),
        ("offset=%3", "the query's percent-encoding is invalid"),
        ("offset=%zz", "the query's percent-encoding is invalid"),
        ("offset=%+1", "the query's percent-encoding is invalid"),
        ("offset=%ff", "the query's percent-encoding is invalid"),
        ("offset", "offset and limit are decimal numbers"),
        ("offset=", "offset and limit are decimal numbers"),
        ("offset=-1", "offset and limit are decimal numbers"),
        ("offset=+1", "offset and limit are decimal numbers"),
        ("offset=1.0", "offset and limit are decimal numbers"),
        ("offset=0x1", "offset and limit are decimal numbers"),
        ("offset=1e1", "offset and limit are decimal numbers"),
        ("offset= 1", "offset and limit are decimal numbers"),
        ("offset=١", "offset and limit are decimal numbers"),
        ("limit=0", "limit must be from 1 to 8192"),
        ("limit=8193", "limit must be from 1 to 8192"),
        (
            "limit=99999999999999999999999",
            "limit must be from 1 to 8192",
        ),
        (
            "offset=1&x=1",
            "the query has the parameters offset and limit and no other",
        ),
        (
            "offset=1&",
            "the query has the parameters offset and limit and no other",
        ),
        (
            "Offset=1",
            "the query has the parameters offset and limit and no other",
        ),
    ] {
        assert_eq!(
            ReadRequest::from_query(query).unwrap_err().to_string(),
            reason,
            "{query}"
        );
    }
}

#[test]
fn the_tools_arguments_are_exactly_those_of_its_schema() {
    let sha256 = Sha256Digest::of(b"");
    let good = format!(r#"{{"sha256":"{sha256}","offset":3,"limit":10}}"#);
    let arguments = ReadArguments::parse(&good).unwrap();
    assert_eq!(arguments.job_id, None);
    assert_eq!(arguments.request, ReadRequest::new(3, 10).unwrap());
    let named = format!(r#"{{"job_id":"j","sha256":"{sha256}","offset":3,"limit":10}}"#);
    let named = ReadArguments::parse(&named).unwrap();
    assert_eq!(named.job_id.unwrap().as_str(), "j");
    for bad in [
        String::new(),
        "[]".into(),
        good.replace(":3", ":\"3\""),
        good.replace(":3", ":3.5"),
        good.replace(":3", ":-1"),
        good.replace(":3", ":1e400"),
        good.replace(":10", ":0"),
        good.replace(":10", ":8193"),
        good.replace(",\"limit\":10", ""),
        good.replace("\"offset\":3,", ""),
        good.replace("\"limit\"", "\"x\":1,\"limit\""),
        good.replace("\"limit\"", "\"offset\":3,\"limit\""),
        good.replace("\"limit\"", "\"job_id\":\"..\",\"limit\""),
        good.to_uppercase(),
    ] {
        let refusal = ReadArguments::parse(&bad);
        assert!(matches!(refusal, Err(ReadRefusal::Invalid { .. })), "{bad}");
    }
    let schema: serde_json::Value = serde_json::from_str(READ_TOOL_SCHEMA).unwrap();
    assert_eq!(schema["name"], crate::tool_output::READ_TOOL);
    assert_eq!(
        schema["parameters"]["properties"]["limit"]["maximum"],
        MAX_READ_BYTES
    );
}

#[test]
fn escapes_are_counted_as_they_nest() {
    for byte in 0..=0x7f_u8 {
        let once = serde_json::to_string(&char::from(byte)).unwrap();
        let twice = serde_json::to_string(&once[1..once.len() - 1]).unwrap();
        assert_eq!(twice_escaped_byte_len(byte), twice.len() - 2, "{byte:#x}");
    }
}

#[test]
fn the_tool_returns_fewer_bytes_to_leave_room_for_its_json_envelope() {
    for piece in ["\\", "\"", "\u{1}", "\n", "a", "漢", "🙂\\"] {
        let text = piece.repeat(20_000);
        let answer = read(&text, 0, 8192).unwrap().for_tool();
        let as_data = ToolResult {
            data: Some(crate::RawJson::parse(&answer.to_json()).unwrap()),
            ..ToolResult::from_text(true, String::new())
        };
        let as_text = ToolResult::from_text(true, answer.to_json());
        assert!(as_data.serialized_byte_count() <= MAX_RESULT_BYTES);
        assert!(as_text.serialized_byte_count() <= MAX_RESULT_BYTES);
        assert!(
            answer.text.len() >= 2000,
            "{piece:?}: {}",
            answer.text.len()
        );
        assert_eq!(answer.next_offset, answer.text.len() as u64);
    }
    // Ordinary text does not pay for it.
    let log = "warning: unused variable `x`\n".repeat(1000);
    assert_eq!(read(&log, 0, 8192).unwrap().for_tool().text.len(), 8192);
}

proptest! {
    /// Reading on at each next offset gives every byte once, whatever the limits are.
    #[test]
    fn continuing_at_next_offset_gives_back_the_artifact(
        text in "[a\\n\"\\\\\\x01é漢🙂]{0,3000}",
        limits in prop::collection::vec(4_u64..=8192, 1..8),
        as_tool: bool,
    ) {
        let mut offset = 0;
        let mut collected = String::new();
        for limit in limits.iter().cycle() {
            let mut answer = read(&text, offset, *limit).unwrap();
            if as_tool {
                answer = answer.for_tool();
            }
            prop_assert_eq!(answer.offset, offset);
            prop_assert!(answer.text.len() as u64 <= *limit);
            collected.push_str(answer.text);
            offset = answer.next_offset;
            if answer.done {
                break;
            }
            prop_assert!(!answer.text.is_empty());
        }
        prop_assert_eq!(collected, text);
    }

    #[test]
    fn any_query_is_answered_or_refused(query in "[a-z0-9=&%+. é]{0,30}") {
        let _ = ReadRequest::from_query(&query);
    }
}
