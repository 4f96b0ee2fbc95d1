use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// The refusal or the answer for `path`, whose `{id}` is the artifact's; `bytes` are read in pieces of
/// `piece_bytes`.
fn select(
    bytes: &[u8],
    path: &str,
    max_range_bytes: usize,
    piece_bytes: usize,
) -> Result<String, SelectionRefusal> {
    let digest = crate::Sha256Digest::of(bytes);
    let descriptor = ArtifactDescriptor::new(digest, bytes.len() as u64);
    let path = path.replace("{id}", &descriptor.artifact_id.to_string());
    let path = format!("{NAMESPACE}{path}");
    let path = ScanPath::parse(&path)?.unwrap();
    assert_eq!(path.artifact_id(), descriptor.artifact_id);
    let mut scan = path.begin(descriptor.byte_count, max_range_bytes)?;
    bytes.chunks(piece_bytes).for_each(|piece| scan.push(piece));
    scan.answer(&descriptor)
}

fn lines(bytes: &[u8], lines: &str) -> Result<Value, SelectionRefusal> {
    let answer = select(bytes, &format!("{{id}}/lines/{lines}"), 512, 7)?;
    Ok(serde_json::from_str(answer.strip_prefix(LINES_HEADER).unwrap()).unwrap())
}

fn find(bytes: &[u8], find: &str) -> Result<Value, SelectionRefusal> {
    let answer = select(bytes, &format!("{{id}}/find/{find}"), 512, 7)?;
    Ok(serde_json::from_str(answer.strip_prefix(FIND_HEADER).unwrap()).unwrap())
}

fn sentence(answer: Result<Value, SelectionRefusal>) -> String {
    answer.unwrap_err().to_string()
}

#[test]
fn lines_are_answered_as_compact_json_with_sorted_keys() {
    let text = "one\ntwo\nдва\nfour";
    let sha256 = crate::Sha256Digest::of(text.as_bytes());
    assert_eq!(
        select(text.as_bytes(), "{id}/lines/2-3", 512, 1).unwrap(),
        format!(
            "Artifact lines:\n\
             {{\"artifact_id\":\"artifact-{sha256}\",\"byte_count\":11,\"data\":\"two\\nдва\\n\",\
             \"end\":15,\"first_line\":2,\"last_line\":3,\"lines_range\":[4,15],\
             \"sha256\":\"{sha256}\",\"start\":4,\"total_byte_count\":19,\"total_line_count\":4}}"
        )
    );
}

#[test]
fn hits_are_answered_as_compact_json_with_sorted_keys() {
    let text = "an error\nthe error\n";
    let sha256 = crate::Sha256Digest::of(text.as_bytes());
    assert_eq!(
        select(text.as_bytes(), "{id}/find/error", 512, 1).unwrap(),
        format!(
            "Artifact find:\n\
             {{\"artifact_id\":\"artifact-{sha256}\",\"hit_count\":2,\
             \"hits\":[{{\"line\":1,\"range\":[3,8]}},{{\"line\":2,\"range\":[13,18]}}],\
             \"next_after\":null,\"sha256\":\"{sha256}\",\"total_byte_count\":19}}"
        )
    );
}

#[test]
fn everything_else_is_left_to_range_paths() {
    let id = ArtifactId::from(crate::Sha256Digest::of(b""));
    for path in [
        format!("{NAMESPACE}{id}/bytes/0-1"),
        format!("{NAMESPACE}{id}/line/1-1"),
        format!("{NAMESPACE}{id}/find"),
        format!("{NAMESPACE}{id}"),
        format!("{NAMESPACE}lines/1-1"),
        NAMESPACE.to_string(),
        format!("{id}/lines/1-1"),
    ] {
        assert_eq!(ScanPath::parse(&path), Ok(None), "{path}");
    }
}

#[test]
fn a_path_of_lines_that_is_malformed_is_refused() {
    for path in [
        "{id}/lines/",
        "{id}/lines/1",
        "{id}/lines/1-",
        "{id}/lines/-1",
        "{id}/lines/-1-2",
        "{id}/lines/+1-2",
        "{id}/lines/1-2-3",
        "{id}/lines/1 -2",
        "{id}/lines/1-2/",
        "{id}/lines/1-2?after=0",
        "{id}/lines/a-b",
        "{id}/lines/١-٢",
        "artifact-0/lines/1-2",
        "../lines/1-2",
    ] {
        let refusal = select(b"a\nb\n", path, 512, 9).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "artifact lines path is malformed",
            "{path}"
        );
    }
}

#[test]
fn a_path_of_a_search_that_is_malformed_is_refused() {
    for path in [
        "{id}/find/a?",
        "{id}/find/a?after",
        "{id}/find/a?after=",
        "{id}/find/a?after=-1",
        "{id}/find/a?after=+1",
        "{id}/find/a?after=1?after=2",
        "{id}/find/a?after=1&after=2",
        "{id}/find/a?AFTER=1",
        "{id}/find/what?",
        "artifact-0/find/a",
    ] {
        let refusal = select(b"a\nb\n", path, 512, 9).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "artifact find path is malformed",
            "{path}"
        );
    }
}

#[test]
fn a_text_that_is_not_percent_encoded_utf_8_is_refused() {
    for text in [
        "%",
        "a%",
        "%4",
        "%zz",
        "%+1",
        "%-1",
        "% 1",
        "%é",
        "%e",
        "%%",
        "%25%",
        "%ff",
        "%c3",
        "%c3a",
        "%ed%a0%80",
        "%c0%80",
    ] {
        let refusal = sentence(find(b"abc", text));
        assert_eq!(
            refusal, "artifact find text is not percent-encoded UTF-8",
            "{text}"
        );
    }
}

#[test]
fn every_spelling_of_a_text_finds_it() {
    let text = "50% of a/b? +é漢\n\0";
    for spelling in [
        "50%25%20of%20a%2Fb%3F%20+%C3%A9%E6%BC%A2%0A%00",
        "50%25 of a/b%3f +é漢%0a%00",
        "%35%30%25 of a/b%3f +%c3%A9漢\n\0",
    ] {
        let answer = find(text.as_bytes(), spelling).unwrap();
        assert_eq!(
            answer["hits"],
            json!([{"line": 1, "range": [0, text.len()]}])
        );
    }
}

#[test]
fn an_empty_text_and_one_over_the_limit_are_refused() {
    assert_eq!(
        sentence(find(b"abc", "")),
        "artifact find text must not be empty"
    );
    assert_eq!(
        sentence(find(b"abc", "?after=9")),
        "artifact find text must not be empty"
    );
    let text = "x".repeat(512);
    assert_eq!(find(text.as_bytes(), &text).unwrap()["hit_count"], 1);
    let longer = "x".repeat(513);
    assert_eq!(
        sentence(find(text.as_bytes(), &longer)),
        "artifact find text exceeds 512 bytes"
    );
    // It is the text that is measured, and not its spelling.
    assert_eq!(
        find(text.as_bytes(), &"%78".repeat(512)).unwrap()["hit_count"],
        1
    );
}

#[test]
fn line_zero_and_a_last_line_before_the_first_are_refused() {
    let huge = "9".repeat(6000);
    for range in [
        "0-0",
        "0-1",
        "000-4",
        "2-1",
        "02-001",
        &format!("{huge}-1"),
        &format!("1{huge}-{huge}"),
    ] {
        let refusal = sentence(lines(b"a\nb\nc\n", range));
        assert_eq!(
            refusal, "artifact lines must satisfy 1 <= first <= last",
            "{range}"
        );
    }
}

#[test]
fn lines_beyond_the_last_are_refused_with_their_number() {
    let huge = "9".repeat(6000);
    for range in [
        "1-4",
        "4-4",
        "3-5",
        &format!("1-{huge}"),
        &format!("{huge}-{huge}"),
        &format!("1-{}", u64::MAX),
    ] {
        for text in ["a\nb\nc\n", "a\nb\nc", "\n\n\n"] {
            let refusal = sentence(lines(text.as_bytes(), range));
            assert_eq!(
                refusal, "artifact lines exceed the stored line count of 3",
                "{range}"
            );
        }
    }
    assert_eq!(
        sentence(lines(b"", "1-1")),
        "artifact lines exceed the stored line count of 0"
    );
    assert_eq!(
        lines(b"a\nb\n", "0001-000000000000000000000000002").unwrap()["data"],
        "a\nb\n"
    );
}

#[test]
fn a_line_has_its_carriage_return_and_the_last_may_have_no_line_feed() {
    let text = b"one\r\ntwo\r\n\r\nlone\rreturn\r\nlast";
    for (range, data) in [
        ("1-1", "one\r\n"),
        ("2-3", "two\r\n\r\n"),
        ("4-4", "lone\rreturn\r\n"),
        ("5-5", "last"),
        ("1-5", "one\r\ntwo\r\n\r\nlone\rreturn\r\nlast"),
    ] {
        assert_eq!(lines(text, range).unwrap()["data"], data, "{range}");
    }
    assert_eq!(find(text, "%0D%0A").unwrap()["hit_count"], 4);
    assert_eq!(find(text, "last").unwrap()["hits"][0]["line"], 5);
}

#[test]
fn lines_over_the_limit_are_cut_at_a_code_point_and_say_where_they_end() {
    let text = format!("head\n{}\ntail\n", "漢".repeat(10));
    for (max_range_bytes, data, end) in [
        (4, "漢", 8),
        (5, "漢", 8),
        (6, "漢漢", 11),
        (31, text[5..36].into(), 36),
    ] {
        let answer = select(text.as_bytes(), "{id}/lines/2-2", max_range_bytes, 5).unwrap();
        let answer: Value = serde_json::from_str(&answer[LINES_HEADER.len()..]).unwrap();
        assert_eq!(answer["data"], data);
        assert_eq!(
            (answer["start"].clone(), answer["end"].clone()),
            (json!(5), json!(end))
        );
        assert_eq!(answer["lines_range"], json!([5, 36]));
    }
}

#[test]
fn a_search_goes_on_after_a_byte() {
    let text = "a b a b a";
    for (after, starts) in [
        (0, [0, 4, 8].as_slice()),
        (1, &[4, 8]),
        (4, &[4, 8]),
        (5, &[8]),
        (8, &[8]),
        (9, &[]),
    ] {
        let answer = find(text.as_bytes(), &format!("a?after={after}")).unwrap();
        let found = answer["hits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hit| hit["range"][0].as_u64().unwrap());
        assert_eq!(found.collect::<Vec<_>>(), starts);
        assert_eq!(answer["hit_count"], 3);
    }
    for after in ["10", "18446744073709551616", &"9".repeat(6000)] {
        let refusal = sentence(find(text.as_bytes(), &format!("a?after={after}")));
        assert_eq!(
            refusal,
            "artifact find position exceeds the stored byte count"
        );
    }
    assert_eq!(
        find(text.as_bytes(), &format!("a?after={}8", "0".repeat(99))).unwrap()["hits"][0]["range"]
            [0],
        8
    );
}

#[test]
fn a_search_that_goes_on_inside_of_a_code_point_is_refused() {
    let text = "漢a".repeat(4);
    for after in 0..=text.len() {
        let answer = find(text.as_bytes(), &format!("a?after={after}"));
        if text.is_char_boundary(after) {
            assert_eq!(answer.unwrap()["hit_count"], 4);
        } else {
            assert_eq!(
                sentence(answer),
                "artifact find position does not align to UTF-8 text"
            );
        }
    }
}

#[test]
fn hits_do_not_overlap_wherever_the_bytes_are_cut() {
    for piece_bytes in 1..9 {
        let answer = select("aaaaaaaab".as_bytes(), "{id}/find/aaa", 512, piece_bytes).unwrap();
        assert!(answer.contains(
            "\"hit_count\":2,\"hits\":[{\"line\":1,\"range\":[0,3]},{\"line\":1,\"range\":[3,6]}]"
        ));
    }
}

#[test]
fn bytes_that_are_no_text_are_searched_and_never_shown() {
    let bytes = b"\xff\xfe\n\0needle\x80\nneedle\n\xf0\x9f";
    assert_eq!(
        find(bytes, "needle").unwrap()["hits"][1],
        json!({"line": 3, "range": [12, 18]})
    );
    assert_eq!(lines(bytes, "3-3").unwrap()["data"], "needle\n");
    for range in ["1-1", "2-2", "4-4", "1-4"] {
        let refusal = sentence(lines(bytes, range));
        assert_eq!(refusal, "artifact range does not align to UTF-8 text");
    }
    // What looks like the beginning of a code point is one only where the limit cut it.
    let refusal = select(b"\xf0\x9f", "{id}/lines/1-1", 4, 9).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "artifact range does not align to UTF-8 text"
    );
}

#[test]
fn the_instructions_name_paths_that_parse() {
    let id = ArtifactId::from(crate::Sha256Digest::of(b"")).to_string();
    let instructions = instructions(512).replace("<artifact_id>", &id);
    let paths: Vec<_> = instructions
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|action| action["path"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(paths.len(), 2);
    for path in paths {
        assert!(ScanPath::parse(&path).unwrap().is_some());
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        write!(encoded, "%{byte:02X}").unwrap();
    }
    encoded
}

proptest! {
    /// Any lines of any text, however the bytes arrive: what the standard library's lines are.
    #[test]
    fn lines_are_those_of_the_text(
        text in "[ab\\r\\n]{0,60}|[é漢🙂\\n]{0,40}",
        (first, last) in (0_usize..12, 0_usize..12),
        max_range_bytes in 4_usize..60,
        piece_bytes in 1_usize..20,
    ) {
        let answer = select(text.as_bytes(), &format!("{{id}}/lines/{first}-{last}"), max_range_bytes, piece_bytes);
        let all: Vec<&str> = text.split_inclusive('\n').collect();
        let line_count = all.len();
        if first == 0 || first > last {
            prop_assert_eq!(answer, Err(SelectionRefusal::LinesNotAscending));
        } else if last > line_count {
            let line_count = line_count as u64;
            prop_assert_eq!(answer, Err(SelectionRefusal::LinesOutOfBounds { line_count }));
        } else {
            let start = all[..first - 1].concat().len();
            let wanted = all[first - 1..last].concat();
            let data = &wanted[..wanted.floor_char_boundary(max_range_bytes)];
            let answer: Value = serde_json::from_str(&answer.unwrap()[LINES_HEADER.len()..]).unwrap();
            prop_assert_eq!(&answer["data"], data);
            prop_assert_eq!(&answer["start"], start);
            prop_assert_eq!(&answer["end"], start + data.len());
            prop_assert_eq!(&answer["byte_count"], data.len());
            prop_assert_eq!(&answer["lines_range"], &json!([start, start + wanted.len()]));
            prop_assert_eq!(&answer["total_line_count"], line_count);
        }
    }

    /// Any text in any other, however the bytes arrive: the standard library's matches, all of them by
    /// going on, each answer within the limit.
    #[test]
    fn hits_are_the_matches_of_the_text(
        text in "[ab\\n]{0,200}|[é漢🙂\\n]{0,80}|(ab){0,60}",
        find in "[ab\\n]{1,6}|[é漢🙂]{1,3}|(ab){1,12}",
        max_range_bytes in 48_usize..200,
        piece_bytes in 1_usize..40,
    ) {
        let expected: Vec<Value> = text
            .match_indices(&find)
            .map(|(start, hit)| {
                let line = 1 + text[..start].matches('\n').count();
                json!({"line": line, "range": [start, start + hit.len()]})
            })
            .collect();
        let encoded = percent_encoded(&find);
        let (mut hits, mut after) = (Vec::new(), 0);
        loop {
            let path = format!("{{id}}/find/{encoded}?after={after}");
            let answer = select(text.as_bytes(), &path, max_range_bytes, piece_bytes).unwrap();
            let answer: Value = serde_json::from_str(&answer[FIND_HEADER.len()..]).unwrap();
            prop_assert_eq!(&answer["hit_count"], expected.len());
            prop_assert!(answer["hits"].to_string().len() <= max_range_bytes);
            hits.extend(answer["hits"].as_array().unwrap().iter().cloned());
            match answer["next_after"].as_u64() {
                Some(next) => after = next,
                None => break,
            }
        }
        prop_assert_eq!(hits, expected);
    }

    /// No path of the two forms and no bytes make a panic, and the size of the pieces changes no answer.
    #[test]
    fn any_path_over_any_bytes_is_answered_or_refused(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..80),
        path in "\\{id\\}/(lines/[0-9]{0,3}-[0-9]{0,25}|find/(a|%0[aA]|%[0-9a-f]{2}|\\PC){0,4}(\\?after=[0-9]{1,25})?)",
        max_range_bytes in 1_usize..60,
        piece_bytes in 1_usize..30,
    ) {
        let whole = select(&bytes, &path, max_range_bytes, 100);
        prop_assert_eq!(select(&bytes, &path, max_range_bytes, piece_bytes), whole);
    }
}
