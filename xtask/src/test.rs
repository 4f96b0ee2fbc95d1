//! Runs every test of the project and counts what passed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;

use crate::conformance::{self, BrowserChecks};
use crate::project::{Project, files_ending};
use crate::serve::Server;
use crate::setup::{self, Environment, Need};
use crate::tally::{Runner, Tally};
use crate::{component, description, docs, package, page, process, size};

/// Tests that are run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Formatting, lints and documentation.
    Lint,
    /// The tests and the recorded vectors on this machine.
    Native,
    /// The models, natively and in Chromium, each on the CPU and on a GPU or
    /// its software, and the command and the worker that load them.
    Model,
    /// The same in Chromium, and the page from end to end.
    Browser,
    /// The npm package, installed from its tarball.
    Package,
    /// The component in wasmtime, and in Node by way of jco.
    Component,
    /// The sizes of what is shipped.
    Size,
}

const BROWSER_NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::Trunk,
    Need::NodePackages,
    Need::WasmPack,
    Need::Browser,
    Need::MdBook,
    Need::PackageNodePackages,
];

const NATIVE_NEEDS: &[Need] = &[Need::Schemathesis, Need::BookPrograms];
const PACKAGE_NEEDS: &[Need] = &[
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::WasmPack,
    Need::NodePackages,
    Need::PackageNodePackages,
    Need::Browser,
];

// Among the packages is Qwen3's tokenizer.
const MODEL_NEEDS: &[Need] = &[
    Need::Vulkan,
    Need::WasmTarget,
    Need::WasmBindgen,
    Need::NodePackages,
    Need::Browser,
];

/// Turns the command's models on.
const MODEL_FEATURE: [&str; 2] = ["--features", "evidence-cli/model"];

/// The path that the page is tested at: a project's path on a shared host.
const PAGE_BASE: &str = "/some/project/path/";

/// Runs the groups, all of them when none is named; one that fails does not
/// keep the next from running. The last line printed is the count.
pub fn run(project: &Project, groups: &[Group]) -> ExitCode {
    let wanted = |group| groups.is_empty() || groups.contains(&group);
    let mut run = Run::default();
    // Set-up comes first, so that what it needs of the user is told early.
    let needs = [
        (Group::Native, NATIVE_NEEDS),
        (Group::Model, MODEL_NEEDS),
        (Group::Browser, BROWSER_NEEDS),
        (Group::Package, PACKAGE_NEEDS),
        (Group::Component, component::NEEDS),
        (Group::Size, size::NEEDS),
    ];
    let needs: Vec<Need> = needs
        .into_iter()
        .filter(|(group, _)| wanted(*group))
        .flat_map(|(_, needs)| needs.iter().copied())
        .collect();
    let environment = if needs.is_empty() {
        None
    } else {
        run.attempt("set-up", || setup::prepare(project, &needs))
    };
    if wanted(Group::Lint) {
        lint(&mut run, project);
    }
    if wanted(Group::Native) {
        native(&mut run, project);
        if let Some(environment) = &environment {
            run.step("description of the server", || {
                description::check(environment)
            });
        }
    }
    if wanted(Group::Model) {
        model(&mut run, project);
        if let Some(environment) = &environment {
            model_worker(&mut run, environment);
        }
    }
    if let Some(environment) = environment {
        shipped(&mut run, &environment, wanted);
    }
    run.close()
}

/// What is tested and measured as it is shipped.
fn shipped(run: &mut Run, environment: &Environment, wanted: impl Fn(Group) -> bool) {
    let (mut library, mut package) = (None, None);
    if wanted(Group::Browser) || wanted(Group::Package) || wanted(Group::Size) {
        library = run.attempt("library build", || page::build_library(environment));
        package = library.and_then(|()| {
            run.attempt("package", || {
                let tarball = package::build(environment)?;
                package::install(environment, &tarball)?;
                Ok(tarball)
            })
        });
    }
    if wanted(Group::Package)
        && let Some(tarball) = &package
    {
        package_tests(run, environment, tarball);
    }
    let mut page = None;
    if wanted(Group::Browser) || wanted(Group::Size) {
        page = run.attempt("page build", || page::build(environment));
    }
    let mut component = None;
    if wanted(Group::Component) || wanted(Group::Size) {
        component = run.attempt("component build", || component::build(environment));
    }
    if wanted(Group::Browser) {
        let docs = run.attempt("documentation build", || docs::build(environment));
        browser(run, environment, page.and(library).and(docs).is_some());
    }
    if wanted(Group::Component) && component.is_some() {
        run.tests("component in wasmtime", Runner::Cargo, || {
            Ok(component::wasmtime_tests(environment.project()))
        });
        run.tests("component in Node", Runner::Node, || {
            component::node_tests(environment)
        });
    }
    if wanted(Group::Size) && page.is_some() && package.is_some() && component.is_some() {
        run.step("size", || size::check(environment.project()));
    }
}

fn lint(run: &mut Run, project: &Project) {
    let cargo = |arguments: &[&str]| {
        let mut cargo = setup::native_cargo(project);
        cargo.args(arguments);
        cargo
    };
    run.check("format", cargo(&["fmt", "--all", "--check"]));
    let lints = ["clippy", "--workspace", "--all-targets", "--locked"];
    let mut lints = cargo(&lints);
    lints.args(MODEL_FEATURE).args(["--", "-D", "warnings"]);
    run.check("lints", lints);
    let mut documentation = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    documentation.args(MODEL_FEATURE);
    // With the examples come the dependencies of tests, and what the lints have checked is not checked
    // once more for want of their features.
    documentation.args(["--lib", "--bins", "--examples"]);
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    run.check("documentation", documentation);
}

fn native(run: &mut Run, project: &Project) {
    let mut tests = setup::native_cargo(project);
    tests.args(["test", "--workspace", "--no-fail-fast", "--locked"]);
    // The models are a group of their own, and the component's tests need the component, which is
    // built with the tools of another.
    tests.args([
        "--exclude",
        "evidence-qwen",
        "--exclude",
        "evidence-component",
    ]);
    run.tests("tests", Runner::Cargo, || Ok(tests));
    run.tests("vectors", Runner::Conformance, || {
        Ok(conformance::native(project, &vectors(project)?))
    });
}

/// Both crates in one build: what one of them alone asks of its dependencies is
/// less, and Burn would be compiled once more.
fn model(run: &mut Run, project: &Project) {
    run.tests("models", Runner::Cargo, || {
        let mut tests = setup::native_cargo(project);
        tests
            .args(["test", "--package", "evidence-qwen"])
            .args(["--package", "evidence-cli"])
            .args(MODEL_FEATURE)
            // The command's other tests are among the native ones.
            .args(["--lib", "--test", "model"]);
        for test in files_ending(&project.root().join("crates/evidence-qwen/tests"), ".rs")? {
            tests.arg("--test").args(test.file_stem());
        }
        tests.args(["--no-fail-fast", "--locked", "--", "--include-ignored"]);
        Ok(tests)
    });
}

fn model_worker(run: &mut Run, environment: &Environment) {
    let built = run.attempt("model worker build", || {
        page::build_model_worker(environment)
    });
    if built.is_some() {
        run.step("models in the browser", || model_tests(environment));
    }
}

fn browser(run: &mut Run, environment: &Environment, built: bool) {
    let project = environment.project();
    let tested = crates_with_browser_tests(project);
    if environment.has_wasm_lints() {
        run.step("lints of the browser's code", || {
            wasm_lints(environment, &tested)
        });
    }
    for directory in tested {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        run.tests(&format!("{name} in the browser"), Runner::Cargo, || {
            wasm_pack_test(environment, &directory)
        });
    }
    run.step("vectors in the browser", || {
        let checks = BrowserChecks::start(environment)?;
        let mut command = checks.command(environment, &vectors(project)?)?;
        counted(Runner::Conformance, &mut command)
    });
    if built {
        run.step("page, library and book", || {
            let tests = files_ending(&project.browser_tests(), ".test.mjs")?;
            page_tests(environment, &tests, None)
        });
        run.step("page inside of the book", || {
            let tests = [project.browser_tests().join("page.test.mjs")];
            page_tests(environment, &tests, Some("docs/playground.html"))
        });
    }
}

/// The crates that say, by a webdriver.json, that they have tests to be run
/// in a browser.
fn crates_with_browser_tests(project: &Project) -> Vec<PathBuf> {
    let crates = fs::read_dir(project.root().join("crates"));
    let mut found: Vec<PathBuf> = crates
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("webdriver.json").is_file())
        .collect();
    found.sort();
    found
}

/// Lints what only compiles for the browser, which the native run leaves out:
/// the page, the vectors' page, and the crates with tests in the browser.
fn wasm_lints(environment: &Environment, tested: &[PathBuf]) -> Result<Tally> {
    let lint = |targets: &[&str], packages: &[&OsStr]| {
        let mut clippy = environment.tool("cargo")?;
        clippy
            .args(["clippy", "--locked", "--target", setup::WASM_TARGET])
            .args(targets)
            .args(
                packages
                    .iter()
                    .flat_map(|name| [OsStr::new("--package"), name]),
            )
            .args(["--", "-D", "warnings"]);
        process::run(&mut clippy)
    };
    let mut packages: Vec<&OsStr> = tested.iter().filter_map(|path| path.file_name()).collect();
    lint(&["--tests"], &packages)?;
    lint(&["--lib"], &[OsStr::new("evidence-component")])?;
    packages.extend(
        [
            "evidence-playground",
            "evidence-service-worker",
            "evidence-conformance",
        ]
        .map(OsStr::new),
    );
    lint(&["--lib", "--bins"], &packages)?;
    lint(&["--features", "processes"], &[OsStr::new("evidence-wasm")])?;
    Ok(Tally::PASS)
}

fn wasm_pack_test(environment: &Environment, directory: &Path) -> Result<Command> {
    let mut command = environment.tool("wasm-pack")?;
    command
        .args(["test", "--headless", "--chrome", "--chromedriver"])
        .arg(&environment.browser()?.chromedriver)
        .args(["--mode", "no-install"])
        .arg(directory)
        // Seconds; a slow machine needs more than the default of 20.
        .env("WASM_BINDGEN_TEST_TIMEOUT", "180");
    Ok(command)
}

/// The recorded vectors of contract A.
fn vectors(project: &Project) -> Result<Vec<PathBuf>> {
    files_ending(&project.root().join("tests/vectors"), ".jsonl")
}

/// The tests in tests/model/, over the worker and the small checkpoints.
fn model_tests(environment: &Environment) -> Result<Tally> {
    let project = environment.project();
    let mut node = node_tests(environment)?;
    node.args(files_ending(&project.model_tests(), ".test.mjs")?)
        .env("MODEL_WORKER", project.model_worker())
        .env("CHECKPOINTS", project.checkpoints());
    counted(Runner::Node, &mut node)
}

/// Node, about to run tests in a browser.
fn node_tests(environment: &Environment) -> Result<Command> {
    let mut node = environment.node_with_browser()?;
    node.args([
        "--test",
        "--test-reporter=spec",
        "--test-timeout=900000",
        // Two browsers at once take each other's time on a small machine.
        "--test-concurrency=1",
    ]);
    Ok(node)
}

/// Tests of tests/browser/, against the page as a static host serves it and the library as npm packs
/// it; or against the page as it is embedded in this page of the book.
fn page_tests(
    environment: &Environment,
    tests: &[PathBuf],
    embedded_in: Option<&str>,
) -> Result<Tally> {
    let project = environment.project();
    let server = Server::start(&project.dist(), PAGE_BASE, 0)?;
    let mut node = node_tests(environment)?;
    node.args(tests)
        .env("PAGE_URL", server.url())
        .env("DIST", project.dist())
        .env("CHECKPOINTS", project.checkpoints())
        .env("LIBRARY", project.library())
        .env("LIBRARY_WITH_PROCESSES", project.library_with_processes())
        .env("PACKAGE", package::stage(project));
    if let Some(page) = embedded_in {
        node.env("EMBEDDED_URL", format!("{}{page}", server.url()));
    }
    counted(Runner::Node, &mut node)
}

/// The tests in npm/tests/, against the package that its tarball installs.
fn package_tests(run: &mut Run, environment: &Environment, tarball: &Path) {
    let project = environment.project();
    let mut types = process::command(package::program(project, "tsc"));
    types
        .args(["--project", "tests"])
        .current_dir(package::sources(project));
    run.check("types of the package", types);
    run.tests("package tests", Runner::Node, || {
        let mut cli = setup::native_cargo(project);
        cli.args(["build", "--locked", "--package", "evidence-cli"]);
        process::run(&mut cli)?;
        let mut node = environment.node_with_browser()?;
        node.args([
            "--test",
            "--test-reporter=spec",
            "--test-timeout=600000",
            "--test-concurrency=1",
        ]);
        node.args(files_ending(
            &package::sources(project).join("tests"),
            ".test.mjs",
        )?)
        .env("TARBALL", tarball)
        .env("NATIVE", project.target().join("debug/bounded-evidence"))
        .env("VECTORS", project.root().join("tests/vectors"));
        Ok(node)
    });
}

/// Runs tests and adds up what they report. A runner that fails without a
/// failed test, because something did not compile, is one failure.
fn counted(runner: Runner, command: &mut Command) -> Result<Tally> {
    let mut tally = Tally::default();
    let status = process::run_by_line(command, |line| {
        let counts = runner.count(line);
        tally += counts.unwrap_or_default();
        // The only line of its form is to be this program's last.
        runner != Runner::Conformance || counts.is_none()
    })?;
    if !status.success() && tally.failed == 0 {
        tally += Tally::FAIL;
    }
    Ok(tally)
}

/// The steps so far.
#[derive(Default)]
struct Run {
    total: Tally,
    failed_steps: Vec<String>,
}

impl Run {
    /// A command that passes or fails as a whole.
    fn check(&mut self, name: &str, mut command: Command) {
        self.step(name, || process::run(&mut command).map(|()| Tally::PASS));
    }

    /// A command that runs many tests.
    fn tests(&mut self, name: &str, runner: Runner, command: impl FnOnce() -> Result<Command>) {
        self.step(name, || counted(runner, &mut command()?));
    }

    /// Something that later steps stand on.
    fn attempt<T>(&mut self, name: &str, action: impl FnOnce() -> Result<T>) -> Option<T> {
        let mut made = None;
        self.step(name, || {
            made = Some(action()?);
            Ok(Tally::PASS)
        });
        made
    }

    fn step(&mut self, name: &str, action: impl FnOnce() -> Result<Tally>) {
        println!("\n== {name}");
        let start = Instant::now();
        let tally = action().unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally::FAIL
        });
        self.total += tally;
        let seconds = start.elapsed().as_secs_f64();
        if tally.failed == 0 {
            println!("== {name}: all {} passed in {seconds:.1} s", tally.passed);
        } else {
            println!("== {name}: {} FAILED in {seconds:.1} s", tally.failed);
            self.failed_steps.push(name.to_owned());
        }
    }

    fn close(self) -> ExitCode {
        println!();
        if !self.failed_steps.is_empty() {
            println!("Failed: {}", self.failed_steps.join(", "));
        }
        println!("{}", self.total);
        self.total.exit_code()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = process::command("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_step_does_not_stop_the_next() {
        let mut run = Run::default();
        run.check("first", shell("exit 1"));
        run.check("second", shell("exit 0"));
        run.tests("third", Runner::Conformance, || {
            Ok(shell("echo '5 passed, 2 failed'; exit 1"))
        });
        assert_eq!(run.attempt("fourth", || Ok(1)), Some(1));
        assert_eq!(
            run.total,
            Tally {
                passed: 7,
                failed: 3
            }
        );
        assert_eq!(run.failed_steps, ["first", "third"]);
    }

    #[test]
    fn a_runner_that_could_not_run_is_one_failure() {
        let tally = counted(Runner::Cargo, &mut shell("echo does not compile; exit 101"));
        assert_eq!(tally.unwrap(), Tally::FAIL);
        let tally = counted(
            Runner::Cargo,
            &mut shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'"),
        );
        assert_eq!(
            tally.unwrap(),
            Tally {
                passed: 2,
                failed: 0
            }
        );
    }
}
