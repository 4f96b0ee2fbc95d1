//! Models from a folder: loading, `bounded-evidence model-check`, and what
//! `bench` measures of them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use evidence_agent::ToolName;
use evidence_qwen::constraint::ActionSchema;
use evidence_qwen::source::Folder;
use evidence_qwen::{Backend, Gpu, Model, ModelGenerator, Options, bench, check};
use futures_executor::block_on;

/// Where a model computes.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum BackendName {
    /// A GPU, through Vulkan, Metal or Direct3D.
    Wgpu,
    /// The CPU, on one thread.
    Flex,
}

impl BackendName {
    async fn open(self) -> anyhow::Result<Backend> {
        Ok(match self {
            Self::Flex => Backend::Flex,
            Self::Wgpu => Backend::Wgpu(
                Gpu::connect()
                    .await
                    .context("choose --backend flex to compute on the CPU")?,
            ),
        })
    }
}

async fn load(folder: &Path, backend: BackendName) -> anyhow::Result<Model> {
    let backend = backend.open().await?;
    Model::load(&Folder::new(folder), &backend, &mut |_, _| {})
        .await
        .with_context(|| format!("cannot load the model in {}", folder.display()))
}

/// Loads the model that writes the loop's replies.
///
/// `constrained_to` holds each reply to one action for these tools.
pub async fn generator(
    folder: &Path,
    backend: BackendName,
    constrained_to: Option<&[ToolName]>,
) -> anyhow::Result<ModelGenerator> {
    let options = Options {
        constraint: constrained_to.map(ActionSchema::for_tools),
        ..Options::default()
    };
    Ok(ModelGenerator::new(load(folder, backend).await?, options))
}

/// What to compare.
#[derive(Args)]
pub struct CheckArguments {
    /// A folder with a checkpoint and an expected.json: a list of prompts as
    /// "tokens", with the "`logits_last`" after them and their "greedy"
    /// continuation, or "messages" with what they are "rendered" as.
    folder: PathBuf,
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = BackendName::Wgpu)]
    backend: BackendName,
}

/// Compares a model with what a reference computed. Exits with 1 when they
/// disagree.
pub fn check(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    block_on(async {
        let mut model = load(&arguments.folder, arguments.backend).await?;
        let report = check::check(&mut model, &Folder::new(&arguments.folder)).await?;
        write!(std::io::stdout(), "{report}")?;
        Ok(if report.failed() == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

/// Which model to measure, and with how many tokens.
#[derive(Args)]
pub struct BenchArguments {
    /// Measure the model in this folder.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Where it computes.
    #[arg(long, value_enum, default_value_t = BackendName::Wgpu)]
    backend: BackendName,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 128)]
    prompt: usize,
    /// Tokens to decode.
    #[arg(long, default_value_t = 32)]
    tokens: usize,
}

/// Prints how fast a model reads a prompt and decodes.
pub fn bench(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    block_on(async {
        let mut model = load(&arguments.model, arguments.backend).await?;
        let measurement = bench::measure(&mut model, arguments.prompt, arguments.tokens).await?;
        let mut out = std::io::stdout();
        match model.info().adapter {
            Some(adapter) => writeln!(out, "adapter: {} ({})", adapter.name, adapter.api)?,
            None => writeln!(out, "adapter: none, on the CPU")?,
        }
        write!(out, "{measurement}")?;
        if let Some(bytes) = peak_memory_bytes() {
            writeln!(out, "peak memory: {} MiB", bytes >> 20)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The most memory that this process has held, where the system tells.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
