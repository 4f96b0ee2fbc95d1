//! The recorded behaviour of the reference, over every store that exists natively.

use std::path::Path;

use evidence_conformance::{DirectoryHost, Host, MemoryHost, Report, VectorKind, check_file};
use futures_executor::block_on;

fn check_all(host: &impl Host) -> Report {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let mut report = Report::default();
    for name in [
        "config.jsonl",
        "protocol.jsonl",
        "evidence.jsonl",
        "loop.jsonl",
    ] {
        let lines = std::fs::read_to_string(directory.join(name)).unwrap();
        report.add(block_on(check_file(
            VectorKind::of_file(name).unwrap(),
            &lines,
            host,
        )));
    }
    report
}

#[test]
fn every_vector_is_matched_in_memory() {
    let report = check_all(&MemoryHost);
    assert_eq!(report.to_string(), "307 passed, 0 failed");
}

#[test]
fn every_vector_is_matched_in_a_directory() {
    let report = check_all(&DirectoryHost::new().unwrap());
    assert_eq!(report.to_string(), "307 passed, 0 failed");
}
