//! How long tool output is kept (contract B), and its deletion.

use evidence_core::retention::OwnerState;
use evidence_store::ToolOutputs;
use evidence_store::tool_output::retention::{StoredCapture, StoredJob};
use js_sys::Array;
use wasm_bindgen::prelude::*;

use crate::argument::Argument;
use crate::artifacts::object;
use crate::error::Result;
use crate::store::{EvidenceStore, LastSweep};
use crate::tool_output::{ToolOutput, now_ms, number};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** What a sweep deleted, or would delete. */
export interface Swept {
  /** Jobs with all that they held. */
  jobs: {
    /** Whose job it was. */
    session: string;
    /** Its id. */
    job: string;
  }[];
  /** Captures of processes whose jobs stay. */
  captures: {
    /** Whose job it is. */
    session: string;
    /** The id of the job. */
    job: string;
    /** The process that was captured. */
    processId: string;
  }[];
}

/** What is stored of a job, and until when. */
export interface StoredJob {
  /** Its id. */
  job: string;
  /** Whether the job keeps its artifacts: those of an inactive one expire. */
  owner: "active" | "inactive" | "unknown" | "missing";
  /** The size of its artifacts, identical ones counted once. */
  artifactBytes: number;
  /** When the artifacts expire, in milliseconds since 1970; null while the job keeps them. */
  expiresAtMs: number | null;
  /** What was captured of its processes. */
  captures: {
    /** The process that was captured. */
    processId: string;
    /** How much is stored of both its streams. */
    bytes: number;
    /** When it expires, in milliseconds since 1970. */
    expiresAtMs: number;
  }[];
}
"#;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn monotonic_now() -> f64;
}

#[wasm_bindgen]
impl EvidenceStore {
    /// Deletes the tool output that has expired, of every session: captures of processes after 24 hours,
    /// artifacts 7 days after their job has ended; at most 64 jobs. Call it when a page opens and while
    /// it is idle. It is no harm when several tabs do so at once.
    ///
    /// A clock that jumps deletes nothing early: time counts only as far as this store has seen it pass.
    #[wasm_bindgen(unchecked_return_type = "Swept")]
    pub async fn sweep(
        &self,
        #[wasm_bindgen(unchecked_optional_param_type = "{ dryRun?: boolean }")] options: JsValue,
    ) -> Result<JsValue> {
        let mut dry_run = false;
        if let Some(options) = Argument::new("options", options).optional()
            && let Some(given) = options.field("dryRun")?.optional()
        {
            dry_run = given.boolean()?;
        }
        let outputs = ToolOutputs::new(self.store().clone());
        let at = monotonic_now();
        let last = self.last_sweep();
        let limit_ms = last.map(|last| last.now_ms.saturating_add(milliseconds(at - last.at)));
        let swept = if dry_run {
            outputs.plan_sweep(now_ms(), limit_ms).await?
        } else {
            let swept = outputs.sweep(now_ms(), limit_ms).await?;
            self.set_last_sweep(LastSweep {
                now_ms: swept.now_ms,
                at,
            });
            swept
        };
        let job = |session: &str, job: &str| [("session", session.into()), ("job", job.into())];
        let jobs = swept.jobs.iter();
        let captures = swept.captures.iter();
        Ok(object([
            (
                "jobs",
                jobs.map(|(session, id)| object(job(session.as_str(), id.as_str())))
                    .collect::<Array>()
                    .into(),
            ),
            (
                "captures",
                captures
                    .map(|(session, id, process)| {
                        let process = ("processId", process.as_str().into());
                        object(
                            job(session.as_str(), id.as_str())
                                .into_iter()
                                .chain([process]),
                        )
                    })
                    .collect::<Array>()
                    .into(),
            ),
        ]))
    }
}

#[wasm_bindgen]
impl ToolOutput {
    /// What is stored of the session's jobs, and until when.
    #[wasm_bindgen(js_name = storedJobs, unchecked_return_type = "StoredJob[]")]
    pub async fn stored_jobs(&self) -> Result<Array> {
        let jobs = self.outputs().stored_jobs().await?;
        let own = jobs.iter().filter(|job| job.session == *self.session());
        Ok(own.map(stored_job).collect())
    }
}

fn stored_job(job: &StoredJob) -> JsValue {
    let owner = match job.owner {
        OwnerState::Active => "active",
        OwnerState::Inactive { .. } => "inactive",
        OwnerState::Unknown => "unknown",
        OwnerState::Missing => "missing",
    };
    let capture = |capture: &StoredCapture| {
        object([
            ("processId", capture.process_id.as_str().into()),
            ("bytes", number(capture.bytes)),
            ("expiresAtMs", number(capture.expires_at_ms)),
        ])
    };
    let captures: Array = job.captures.iter().map(capture).collect();
    object([
        ("job", job.job.as_str().into()),
        ("owner", owner.into()),
        ("artifactBytes", number(job.artifact_bytes)),
        (
            "expiresAtMs",
            job.expires_at_ms.map_or(JsValue::NULL, number),
        ),
        ("captures", captures.into()),
    ])
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a monotonic clock counts up, and fractions of a millisecond do not matter"
)]
fn milliseconds(elapsed: f64) -> u64 {
    elapsed as u64
}
