//! What the documentation shows is what happens: its commands are run and its JSON is compared with what
//! the code makes.
//!
//! A block of the kind `console` is run. Every other block that shows something of the contracts has a
//! name after its language, which says here what it must equal. `…` stands for anything.

mod console;
mod markdown;
mod shown;

use std::path::{Path, PathBuf};

use crate::markdown::{Block, blocks, pages};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All blocks of the book, with their pages.
fn book() -> Vec<(PathBuf, Vec<Block>)> {
    let source = repository().join("docs/src");
    let read = |page: PathBuf| {
        let blocks = blocks(&std::fs::read_to_string(&page).unwrap());
        (page, blocks)
    };
    pages(&source).into_iter().map(read).collect()
}

#[test]
fn every_command_in_the_book_runs_and_prints_what_it_says() {
    let mut commands = 0;
    for (page, blocks) in book() {
        let texts = blocks.iter().filter(|block| block.kind == "console");
        let texts: Vec<&str> = texts.map(|block| block.text.as_str()).collect();
        if !texts.is_empty() {
            commands += console::check(&page, &texts.concat());
        }
    }
    assert!(commands > 20, "only {commands} commands were found");
}

#[test]
fn every_json_in_the_book_is_what_the_code_makes() {
    let mut compared = 0;
    let mut differences = Vec::new();
    for (page, blocks) in book() {
        for Block { kind, line, text } in blocks {
            let Some(name) = kind.strip_prefix("json") else {
                continue;
            };
            let name = name.strip_prefix(',').unwrap_or_default();
            if let Err(difference) = shown::check_json(name, &text) {
                differences.push(format!("{}:{line}: {difference}", page.display()));
            }
            compared += 1;
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared > 15, "only {compared} blocks were found");
}

#[test]
fn every_refusal_in_the_book_is_the_codes() {
    let mut compared = 0;
    for (page, blocks) in book() {
        for Block { kind, line, text } in blocks {
            let Some(name) = kind.strip_prefix("text,") else {
                continue;
            };
            for row in text.lines() {
                let (given, expected) = row.split_once(" → ").unwrap();
                let actual = shown::refusal(name, given);
                assert!(
                    shown::matches(expected, &actual),
                    "{}:{line}: {given} is refused with\n{actual}",
                    page.display()
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 20, "only {compared} refusals were found");
}

#[test]
fn every_block_is_of_a_kind_that_something_checks() {
    // Rust is run as the documentation of evidence-agent, JavaScript and HTML are run in a browser. What
    // is included, examples of the npm package and of the component, is run with their tests.
    let known = [
        "console",
        "html",
        "js",
        "js,included",
        "rust",
        "rust,ignore,included",
        "sh",
        "text",
    ];
    for (page, blocks) in book() {
        for Block { kind, line, .. } in blocks {
            let is_checked = kind.starts_with("json,") || kind.starts_with("text,");
            let page = page.display();
            assert!(
                is_checked || known.contains(&kind.as_str()),
                "{page}:{line}: {kind}"
            );
        }
    }
}
