//! The sizes of what is shipped, against the limits that the project set.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::dist::{Part, files};
use crate::package;
use crate::project::Project;
use crate::setup::Need;
use crate::tally::Tally;

/// What measuring needs: the tools of both builds.
pub const NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::Trunk,
    Need::NodePackages,
    Need::WasmPack,
    Need::PackageNodePackages,
];

const KILOBYTE: usize = 1_000;
const MEGABYTE: usize = 1_000 * KILOBYTE;

/// Measures what the two builds made and prints a table of it; each limit is
/// one check.
pub fn check(project: &Project) -> Result<Tally> {
    let package = package::stage(project).join("dist");
    let mut budgets = vec![
        Budget::new(
            "npm package",
            Measure::Brotli,
            150 * KILOBYTE,
            loaded(&package, ["index.js", "loader.js"], "evidence_wasm")?,
        ),
        Budget::new(
            "npm package with processes",
            Measure::Brotli,
            185 * KILOBYTE,
            loaded(
                &package,
                ["processes.js", "processes-loader.js"],
                "evidence_wasm_processes",
            )?,
        ),
        Budget::new(
            "evidence-component",
            Measure::Plain,
            250 * KILOBYTE,
            vec![project.component()],
        ),
    ];
    budgets.extend(page_budgets(&project.dist())?);
    check_all(&budgets)
}

fn check_all(budgets: &[Budget]) -> Result<Tally> {
    println!(
        "{:<30} {:>8} {:>10} {:>10} {:>10}",
        "", "measured", "bytes", "limit", ""
    );
    let mut tally = Tally::default();
    for budget in budgets {
        tally += budget.check()?;
    }
    Ok(tally)
}

/// What a page loads of the npm package: the scripts of one entry, what both have, and the build.
fn loaded(dist: &Path, entry: [&str; 2], build: &str) -> Result<Vec<PathBuf>> {
    let mut loaded: Vec<_> = entry
        .into_iter()
        .chain(["load.js", "plain.js"])
        .map(|name| dist.join(name))
        .collect();
    let wasm = dist.join("wasm");
    loaded.extend([".js", "_bg.wasm"].map(|ending| wasm.join(format!("{build}{ending}"))));
    loaded.extend(files(&wasm.join("snippets"))?);
    Ok(loaded)
}

/// The budgets of dist/, by the part that each of its files belongs to.
fn page_budgets(dist: &Path) -> Result<Vec<Budget>> {
    let (mut page, mut worker, mut model) = (Vec::new(), Vec::new(), Vec::new());
    for file in files(dist)? {
        match Part::of(file.strip_prefix(dist)?) {
            Part::Page => page.push(file),
            Part::ModelWorker if extension(&file) == Some("wasm") => worker.push(file),
            Part::Model => model.push(file),
            Part::ModelWorker | Part::Sample | Part::Docs => {}
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
            "{:<30} {unit:>8} {total:>10} {:>10} {verdict:>10}",
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

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

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
