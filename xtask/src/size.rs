//! The sizes of what is shipped, against the limits that the project set.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::page;
use crate::setup::{Environment, Need};
use crate::tally::Tally;

/// What measuring needs: the tools of both builds.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::Trunk,
    Need::NodePackages,
    Need::WasmPack,
];

const KILOBYTE: usize = 1_000;
const MEGABYTE: usize = 1_000 * KILOBYTE;

/// Measures what the two builds made and prints a table of it; each limit is
/// one check.
pub fn check(environment: &Environment) -> Result<Tally> {
    let mut budgets = Vec::new();
    if let Some(package) = page::build_library(environment)? {
        let code = files(&package)?
            .into_iter()
            .filter(|file| matches!(extension(file), Some("wasm" | "js")))
            .collect();
        budgets.push(Budget::new(
            "evidence-wasm",
            Measure::Brotli,
            150 * KILOBYTE,
            code,
        ));
    }
    budgets.extend(page_budgets(&environment.project().dist())?);

    println!(
        "{:<24} {:>8} {:>10} {:>10} {:>10}",
        "", "measured", "bytes", "limit", ""
    );
    let mut tally = Tally::default();
    for budget in &budgets {
        tally += budget.check()?;
    }
    Ok(tally)
}

/// The budgets of dist/, by the part that each of its files belongs to.
fn page_budgets(dist: &Path) -> Result<Vec<Budget>> {
    let (mut page, mut worker, mut model) = (Vec::new(), Vec::new(), Vec::new());
    for file in files(dist)? {
        match Part::of(file.strip_prefix(dist)?) {
            Part::Page => page.push(file),
            Part::ModelWorker if extension(&file) == Some("wasm") => worker.push(file),
            Part::Model => model.push(file),
            Part::ModelWorker | Part::Sample => {}
        }
    }
    let mut budgets = vec![Budget::new(
        "page before any model",
        Measure::Brotli,
        700 * KILOBYTE,
        page,
    )];
    if !worker.is_empty() {
        budgets.push(Budget::new(
            "model worker",
            Measure::Brotli,
            2_500 * KILOBYTE,
            worker,
        ));
    }
    if !model.is_empty() {
        budgets.push(Budget::new(
            "bundled model",
            Measure::Plain,
            8 * MEGABYTE,
            model,
        ));
    }
    Ok(budgets)
}

/// What a file of dist/ is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Page,
    /// Read when a person chooses it.
    Sample,
    /// Loaded when a live run asks for it.
    ModelWorker,
    Model,
}

impl Part {
    fn of(path: &Path) -> Self {
        let first = path.iter().next().unwrap_or_default().to_string_lossy();
        if first == "samples" {
            Self::Sample
        } else if first == "models" {
            Self::Model
        } else if first.starts_with("evidence-model-worker") {
            Self::ModelWorker
        } else {
            Self::Page
        }
    }
}

/// How the size of a file is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// As a static host sends it.
    Brotli,
    Plain,
}

struct Budget {
    name: &'static str,
    measure: Measure,
    limit: usize,
    files: Vec<PathBuf>,
}

impl Budget {
    fn new(name: &'static str, measure: Measure, limit: usize, files: Vec<PathBuf>) -> Self {
        Self {
            name,
            measure,
            limit,
            files,
        }
    }

    fn check(&self) -> Result<Tally> {
        let unit = match self.measure {
            Measure::Brotli => "brotli",
            Measure::Plain => "plain",
        };
        let mut total = 0;
        for file in &self.files {
            let bytes =
                fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            let measured = match self.measure {
                Measure::Brotli => brotli_byte_count(&bytes)?,
                Measure::Plain => bytes.len(),
            };
            total += measured;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            println!("  {name:<46.46} {:>10} -> {measured:>10}", bytes.len());
        }
        let passed = total <= self.limit;
        let verdict = if passed { "ok" } else { "OVER" };
        println!(
            "{:<24} {unit:>8} {total:>10} {:>10} {verdict:>10}",
            self.name, self.limit
        );
        Ok(passed.into())
    }
}

/// The size at the highest quality, with the window that servers use.
fn brotli_byte_count(bytes: &[u8]) -> Result<usize> {
    const BUFFER: usize = 4096;
    const QUALITY: u32 = 11;
    const WINDOW_BITS: u32 = 22;
    let mut writer = brotli::CompressorWriter::new(Vec::new(), BUFFER, QUALITY, WINDOW_BITS);
    writer.write_all(bytes)?;
    writer.flush()?;
    Ok(writer.into_inner().len())
}

/// All files below a directory, in the order of their paths.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_a_part_by_its_place() {
        let of = |path| Part::of(Path::new(path));
        assert_eq!(of("index.html"), Part::Page);
        assert_eq!(of("evidence-playground-0123_bg.wasm"), Part::Page);
        assert_eq!(of("samples/cargo.log"), Part::Sample);
        assert_eq!(of("models/tiny/model.safetensors"), Part::Model);
        assert_eq!(of("evidence-model-worker_bg.wasm"), Part::ModelWorker);
        assert_eq!(of("css/samples/a.css"), Part::Page);
    }

    #[test]
    fn the_whole_of_a_budget_is_compared_with_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        fs::write(&file, [0; 1000]).unwrap();
        let budget = |measure, limit, count| {
            Budget::new("test", measure, limit, vec![file.clone(); count])
                .check()
                .unwrap()
        };
        assert_eq!(budget(Measure::Plain, 2000, 2), Tally::PASS);
        assert_eq!(budget(Measure::Plain, 2000, 3), Tally::FAIL);
        assert_eq!(budget(Measure::Brotli, 100, 1), Tally::PASS);
    }
}
