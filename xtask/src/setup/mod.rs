//! Finds what a command needs on this machine, and obtains what is missing.
//!
//! What is already there is used as it is. What is not is announced with the
//! reason before it is obtained: Debian packages by apt-get (as root only;
//! another user is told the command), everything else into the user's cache
//! and the checkout. A second run finds it all and needs no network.

mod browser;
mod debian;
mod node;
mod python;
mod tools;
mod vulkan;
mod wasm_target;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

pub use self::browser::Browser;
use self::debian::Missing;
use self::tools::CargoTool;
pub use self::wasm_target::TARGET as WASM_TARGET;
use self::wasm_target::{Search, WasmToolchain};
use crate::process;
use crate::project::Project;

/// One thing that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A Rust toolchain that compiles for wasm32-unknown-unknown.
    WasmTarget,
    /// wasm-bindgen's command, of the version in Cargo.lock.
    WasmBindgen,
    /// The bundler of the page.
    Trunk,
    /// The builder and test runner of the library for JavaScript.
    WasmPack,
    /// The packages of package.json, with wasm-opt among them.
    NodePackages,
    /// The packages of npm/package.json: what the npm package is built, described and tested with.
    PackageNodePackages,
    /// The packages of tests/model/peers: what the model's worker is measured beside.
    PeerNodePackages,
    /// Chromium and its driver.
    Browser,
    /// The maker of the documentation.
    MdBook,
    /// The tester of HTTP interfaces.
    Schemathesis,
    /// A driver for the models' kernels, natively.
    Vulkan,
    /// What the commands in the book use beside our own.
    BookPrograms,
}

/// What set-up found: the programs that the commands start, and how.
pub struct Environment {
    project: Project,
    toolchain: Option<WasmToolchain>,
    browser: Option<Browser>,
}

impl Environment {
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// A program that builds for WebAssembly or finds its own tools on the
    /// search path, started at the project's root.
    pub fn tool(&self, name: &str) -> Result<Command> {
        let directories = self.tool_directories();
        let path = process::find_program(name, directories.iter().cloned())
            .or_else(|| process::find_on_path(name))
            .with_context(|| format!("{name} is not installed"))?;
        let mut command = process::command(path);
        command
            .current_dir(self.project.root())
            .env("PATH", search_path(&directories)?);
        if let Some(toolchain) = &self.toolchain {
            toolchain.select(&mut command);
        }
        Ok(command)
    }

    /// Whether clippy knows the target: Debian has no clippy for its compiler.
    pub fn has_wasm_lints(&self) -> bool {
        self.toolchain == Some(WasmToolchain::OnPath)
    }

    pub fn browser(&self) -> Result<&Browser> {
        self.browser
            .as_ref()
            .context("this command did not ask for a browser")
    }

    /// Node, told which browser to start.
    pub fn node_with_browser(&self) -> Result<Command> {
        let browser = self.browser()?;
        let mut node = self.tool("node")?;
        node.env("CHROMIUM", &browser.chromium);
        Ok(node)
    }

    /// The tester of HTTP interfaces, which no other tool needs to find.
    pub fn schemathesis(&self) -> Command {
        process::command(python::programs(&self.project).join("schemathesis"))
    }

    fn tool_directories(&self) -> Vec<PathBuf> {
        let toolchain = self.toolchain.as_ref().and_then(WasmToolchain::programs);
        toolchain
            .into_iter()
            .chain([
                self.project.tools().join("bin"),
                node::programs(&self.project),
            ])
            .collect()
    }
}

/// The cargo that runs this program, at the project's root.
pub fn native_cargo(project: &Project) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = process::command(cargo);
    command.current_dir(project.root());
    command
}

/// Finds or obtains everything in `needs`.
pub fn prepare(project: &Project, needs: &[Need]) -> Result<Environment> {
    let needed = |need| needs.contains(&need);

    // Everything that only apt-get can bring is found first, so that a user
    // who is not root is told one command, once.
    let mut packages = Vec::new();
    let mut toolchain = None;
    let mut build_toolchain = false;
    if needed(Need::WasmTarget) {
        match wasm_target::search(project)? {
            Search::Ready(found) => toolchain = Some(found),
            Search::Parts => build_toolchain = true,
            Search::Nothing => {
                packages.push(wasm_target::packages()?);
                build_toolchain = true;
            }
        }
    }
    let mut browser = None;
    if needed(Need::Browser) {
        browser = browser::locate();
        if browser.is_none() {
            packages.push(browser::packages());
        }
    }
    if needed(Need::Schemathesis) && !python::can_make_environments() {
        packages.push(python::packages());
    }
    if needed(Need::Vulkan) {
        packages.extend(vulkan::missing());
    }
    let book_programs = ["curl", "jq"];
    if needed(Need::BookPrograms)
        && book_programs
            .iter()
            .any(|name| process::find_on_path(name).is_none())
    {
        packages.push(Missing {
            packages: &["curl", "jq"],
            purpose: "the commands that the documentation shows",
        });
    }
    debian::install(&packages)?;

    if build_toolchain {
        toolchain = Some(wasm_target::build(project)?);
    }
    if needed(Need::Browser) && browser.is_none() {
        browser = Some(browser::locate().context("Chromium was installed but is not on the PATH")?);
    }
    for tool in tools(project, needs)? {
        tool.ensure(project)?;
    }
    if needed(Need::NodePackages) {
        node::ensure(project.root(), "wasm-opt, playwright-core and jco")?;
    }
    if needed(Need::PackageNodePackages) {
        node::ensure(
            &crate::package::sources(project),
            "building and testing the npm package",
        )?;
    }
    if needed(Need::PeerNodePackages) {
        node::ensure(
            &project.model_tests().join("peers"),
            "measuring the model's worker beside others",
        )?;
    }
    if needed(Need::Schemathesis) {
        python::ensure(project, &project.root().join("tests/http/requirements.txt"))?;
    }
    Ok(Environment {
        project: project.clone(),
        toolchain,
        browser,
    })
}

fn tools(project: &Project, needs: &[Need]) -> Result<Vec<CargoTool>> {
    let mut tools = Vec::new();
    for need in needs {
        match need {
            Need::WasmBindgen => tools.push(CargoTool::wasm_bindgen(project)?),
            Need::Trunk => tools.push(CargoTool::trunk()),
            Need::WasmPack => tools.push(CargoTool::wasm_pack()),
            Need::MdBook => tools.push(CargoTool::mdbook()),
            Need::WasmTarget
            | Need::NodePackages
            | Need::Browser
            | Need::BookPrograms
            | Need::Vulkan
            | Need::PackageNodePackages
            | Need::PeerNodePackages
            | Need::Schemathesis => {}
        }
    }
    Ok(tools)
}

/// These directories, then the PATH of this program.
fn search_path(first: &[PathBuf]) -> Result<OsString> {
    let inherited = env::var_os("PATH").unwrap_or_default();
    let directories = first.iter().cloned().chain(env::split_paths(&inherited));
    env::join_paths(directories).context("a directory of the PATH has a colon in its name")
}

/// Tells what set-up is about to do.
fn announce(text: &str) {
    eprintln!("set-up: {text}");
}
