//! `bounded-evidence run`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use evidence_agent::workspace::{DirectoryTree, HostCommands, ToolWorkspace, Unattended};
use evidence_agent::{
    AgentLimits, BoundedEvidenceWorkspace, Generator, Run, RunEvent, RunOutcome, ScriptedGenerator,
    ToolPolicy, Workspace, script_replies,
};
use evidence_core::EvidenceLimits;
use evidence_store::{ArtifactStore, DirectoryStore, Scope};
use futures_executor::block_on;
use serde::Serialize;
use serde_json::Value;

#[cfg(feature = "model")]
use crate::model::{self, BackendName};
use crate::{allowed_commands, cannot_open_workspace, unique_name};

/// What may stand in the place of a script.
const MODEL: &[&str] = if cfg!(feature = "model") {
    &["model"]
} else {
    &[]
};

/// What to run.
#[derive(Args)]
pub struct Arguments {
    /// What the agent is asked.
    #[arg(long)]
    task: String,
    /// The directory that the agent's tools see.
    #[arg(long)]
    workspace: PathBuf,
    /// The directory that keeps the complete results.
    #[arg(long)]
    artifacts: PathBuf,
    /// The replies, one JSON action a line, the last {"final":"…"}; `{{artifact_id}}` and `{{find:TEXT}}` stand for the newest
    /// artifact's id and for the byte range of TEXT in it. Empty lines and lines that begin with #
    /// are left out.
    #[arg(long, required_unless_present_any = MODEL)]
    script: Option<PathBuf>,
    /// The folder of a model that writes the replies, each held to one JSON action.
    #[cfg(feature = "model")]
    #[arg(long, value_name = "DIR", conflicts_with = "script")]
    model: Option<PathBuf>,
    /// Where the model computes.
    #[cfg(feature = "model")]
    #[arg(long, value_enum, default_value_t = BackendName::Wgpu, requires = "model")]
    backend: BackendName,
    /// Let the model reply whatever it likes.
    #[cfg(feature = "model")]
    #[arg(long, requires = "model")]
    unconstrained: bool,
    /// Enable `write_file` and `edit_file`.
    #[arg(long)]
    allow_writes: bool,
    /// Enable `run_command` for exactly this JSON array of arguments; may be repeated.
    #[arg(long = "allow-command", value_name = "ARGV")]
    allowed_commands: Vec<String>,
    /// The largest file that may be read.
    #[arg(long, default_value_t = 16 * 1024 * 1024)]
    max_file_bytes: usize,
    /// The most bytes of a result that the model sees.
    #[arg(long, default_value_t = 512)]
    max_inline_bytes: i64,
    /// The most bytes of each preview.
    #[arg(long, default_value_t = 64)]
    preview_bytes: i64,
    /// The most bytes of one range.
    #[arg(long, default_value_t = 512)]
    max_range_bytes: i64,
    /// Let the model also read artifacts by lines and search them, which goes beyond the contract.
    #[arg(long)]
    lines_and_find: bool,
    /// The most replies.
    #[arg(long, default_value_t = 8)]
    max_steps: i64,
}

/// A line of the output.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a, T: Serialize> {
    Step(&'a T),
    Outcome(&'a T),
}

fn print(line: &impl Serialize) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    writeln!(out)
}

fn policy(arguments: &Arguments) -> anyhow::Result<ToolPolicy> {
    Ok(ToolPolicy {
        allow_writes: arguments.allow_writes,
        allowed_commands: allowed_commands(&arguments.allowed_commands)?,
        max_file_bytes: arguments.max_file_bytes,
        ..ToolPolicy::default()
    })
}

/// Ids that one run registers mean nothing to another.
fn run_scope() -> anyhow::Result<Scope> {
    Ok(unique_name("run").parse()?)
}

/// Where `path` really is, also when it, or what it lies in, is not there yet.
fn real_path(path: &Path) -> anyhow::Result<PathBuf> {
    let absolute =
        std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))?;
    let found = absolute.ancestors().find_map(|there| {
        let missing = absolute.strip_prefix(there).ok()?;
        Some(there.canonicalize().ok()?.join(missing))
    });
    Ok(found.unwrap_or(absolute))
}

/// Runs the loop and prints its events. Exits with 1 when the run does not complete.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let limits = EvidenceLimits::new(
        arguments.max_inline_bytes,
        arguments.preview_bytes,
        arguments.max_range_bytes,
    )?;
    let default = AgentLimits::default();
    let agent_limits = AgentLimits::new(
        arguments.max_steps,
        i64::try_from(default.max_context_chars())?,
        i64::try_from(default.max_invalid_actions())?,
        i64::try_from(default.max_identical_actions())?,
    )?;
    let script = match &arguments.script {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the script {}", path.display()))?,
        // A model replies.
        None => String::new(),
    };
    let tree = DirectoryTree::open(&arguments.workspace)
        .with_context(|| cannot_open_workspace(&arguments.workspace))?;
    if real_path(&arguments.artifacts)?.starts_with(tree.root()) {
        bail!(
            "{} is inside of the workspace, where the agent's tools would list and read it; keep the artifacts outside of {}",
            arguments.artifacts.display(),
            arguments.workspace.display()
        );
    }
    let commands = HostCommands::new(tree.root());
    let tools = ToolWorkspace::with(tree, policy(arguments)?, commands, Unattended);

    block_on(async {
        let store = DirectoryStore::open(&arguments.artifacts)
            .await
            .with_context(|| format!("cannot use {}", arguments.artifacts.display()))?;
        let artifacts = ArtifactStore::new(store, run_scope()?);
        let workspace = BoundedEvidenceWorkspace::new(tools, artifacts.clone(), limits);
        let outcome = if arguments.lines_and_find {
            let workspace = workspace.with_lines_and_find();
            run_with(arguments, workspace, artifacts, &script, agent_limits).await?
        } else {
            run_with(arguments, workspace, artifacts, &script, agent_limits).await?
        };
        let mut summary = serde_json::to_value(&outcome)?;
        if let Value::Object(summary) = &mut summary {
            // Every event has been printed.
            summary.remove("events");
        }
        print(&Line::Outcome(&summary)).context("cannot print the outcome")?;
        Ok(if outcome.completed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

/// Runs the loop with the model that was chosen, else with the script.
async fn run_with(
    arguments: &Arguments,
    workspace: impl Workspace,
    artifacts: ArtifactStore<DirectoryStore>,
    script: &str,
    limits: AgentLimits,
) -> anyhow::Result<RunOutcome> {
    #[cfg(feature = "model")]
    if let Some(folder) = &arguments.model {
        let tools = workspace.available_tools();
        let constrained_to = (!arguments.unconstrained).then_some(tools.as_slice());
        let generator = model::generator(folder, arguments.backend, constrained_to).await?;
        return run_printing(&arguments.task, workspace, generator, limits).await;
    }
    let replies = script_replies(script).map(|(_, reply)| reply);
    let generator = ScriptedGenerator::new(replies, artifacts);
    run_printing(&arguments.task, workspace, generator, limits).await
}

/// Runs to the end and prints each step.
async fn run_printing(
    task: &str,
    mut workspace: impl Workspace,
    mut generator: impl Generator,
    limits: AgentLimits,
) -> anyhow::Result<RunOutcome> {
    let run = Run::new(task, &workspace, limits);
    let mut printed = Ok(());
    let mut observe = |event: RunEvent<'_>| {
        if let RunEvent::Step(event) = event
            && printed.is_ok()
        {
            printed = print(&Line::Step(event));
        }
    };
    let outcome = run
        .to_end(&mut workspace, &mut generator, &mut observe)
        .await;
    printed.context("cannot print an event")?;
    Ok(outcome)
}
