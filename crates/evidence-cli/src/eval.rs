//! `bounded-evidence eval`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use evidence_agent::{Generator, ToolPolicy};
use evidence_qwen::constraint::ActionSchema;
use evidence_store::{ArtifactStore, MemoryStore};
use futures_executor::block_on;

use crate::cases::{self, Case};
use crate::judge::{Judgement, Share, judge, run_case};
use crate::model::{self, BackendName};

/// Which model to evaluate, and with what.
#[derive(Args)]
pub struct Arguments {
    /// The folder of the model.
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The cases, one JSON object a line: "task", "files" (texts by path), and "expect" (texts that a
    /// right answer contains) or "absent": true; "name" and "limits" may be left out.
    #[arg(long, value_name = "FILE")]
    cases: PathBuf,
    /// Where to compute.
    #[arg(long, value_enum, default_value_t = BackendName::Wgpu)]
    backend: BackendName,
}

/// Runs every case twice, without and with constrained decoding, and prints what the runs show.
/// Exits with 1 when an answer is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let path = arguments.cases.display();
    let text = std::fs::read_to_string(&arguments.cases)
        .with_context(|| format!("cannot read the cases {path}"))?;
    let cases = cases::parse(&text).with_context(|| format!("cannot use the cases {path}"))?;
    let tools = ToolPolicy::default().available_tools();
    block_on(async {
        let mut answers = Share::default();
        let mut generator = model::generator(&arguments.model, arguments.backend, None).await?;
        let schema = ActionSchema::for_tools(&tools);
        for (title, constraint) in [("free", None), ("constrained", Some(schema))] {
            generator.constrain(constraint);
            answers += evaluate(title, &cases, &mut generator).await?.answers;
        }
        let Share { part, whole } = answers;
        writeln!(
            std::io::stdout(),
            "{part} passed, {} failed",
            whole.saturating_sub(part)
        )?;
        Ok(if part == whole {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

/// Runs the cases and prints the shares of all.
async fn evaluate(
    title: &str,
    cases: &[Case],
    generator: &mut impl Generator,
) -> anyhow::Result<Judgement> {
    let mut total = Judgement::default();
    let mut real = Share::default();
    for case in cases {
        let artifacts = ArtifactStore::new(MemoryStore::new(), "eval".parse()?);
        let outcome = run_case(case, artifacts, generator).await;
        if let Some(error) = &outcome.error {
            eprintln!("line {} of the cases, {title}: {error}", case.line);
        }
        let judgement = judge(&case.expected, &outcome);
        if case.is_real {
            real += judgement.answers;
        }
        total += judgement;
    }
    let mut out = std::io::stdout();
    write!(out, "{title}\n{total}")?;
    writeln!(out, "  answers correct, real tools' logs: {real}")?;
    Ok(total)
}
