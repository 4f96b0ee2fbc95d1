//! Sweeps of expired tool output, beside everything else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evidence_store::{DirectoryStore, ToolOutputs};
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use super::service::now_ms;

/// The least time between two sweeps: each looks at all that is stored.
const MIN_INTERVAL: Duration = Duration::from_mins(1);

/// Deletes what has expired: when the server begins, from time to time, and when somebody creates or
/// ends a job.
pub struct Sweeper {
    outputs: ToolOutputs<DirectoryStore>,
    asked: Notify,
}

impl Sweeper {
    /// Sweeps `outputs`.
    pub fn new(outputs: ToolOutputs<DirectoryStore>) -> Self {
        Self {
            outputs,
            asked: Notify::new(),
        }
    }

    /// Asks for a sweep, soon.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Sweeps at once, and again when it is asked to and after `interval`.
    pub async fn sweep_for_ever(self: Arc<Self>, interval: Duration) {
        // How far the time had got at the last sweep, and when that was.
        let mut last: Option<(u64, Instant)> = None;
        loop {
            let now = Instant::now();
            let limit_ms = last.map(|(now_ms, at)| {
                let elapsed_ms = u64::try_from((now - at).as_millis()).unwrap_or(u64::MAX);
                now_ms.saturating_add(elapsed_ms)
            });
            if let Some(now_ms) = self.sweep(limit_ms).await {
                last = Some((now_ms, now));
            }
            let asked = async {
                sleep(MIN_INTERVAL).await;
                self.asked.notified().await;
            };
            tokio::select! {
                () = sleep(interval) => {}
                () = asked => {}
            }
        }
    }

    /// How far the time had got; none when the sweep failed.
    async fn sweep(&self, limit_ms: Option<u64>) -> Option<u64> {
        let swept = self.outputs.sweep(now_ms(), limit_ms).await;
        // What could not be deleted now is deleted later.
        let swept = swept
            .inspect_err(|error| warn!(%error, "cannot sweep"))
            .ok()?;
        if !swept.is_empty() {
            info!(
                jobs = swept.jobs.len(),
                captures = swept.captures.len(),
                "swept"
            );
        }
        Some(swept.now_ms)
    }
}
