//! The fenced blocks of the book's pages.

use std::path::{Path, PathBuf};

/// A fenced block.
pub struct Block {
    /// What stands behind the fence.
    pub kind: String,
    /// Where it begins, from 1.
    pub line: usize,
    /// What stands in it.
    pub text: String,
}

/// All pages below a directory, in the order of their paths.
pub fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The blocks of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (index, line) in page.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            if !is_inside {
                blocks.push(Block {
                    kind: kind.to_owned(),
                    line: index + 1,
                    text: String::new(),
                });
            }
            is_inside = !is_inside;
        } else if let (true, Some(block)) = (is_inside, blocks.last_mut()) {
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    assert!(!is_inside, "a block does not end");
    blocks
}
