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
        let mut last: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let elapsed = last.replace(now).map(|last| now - last);
            self.sweep(elapsed).await;
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

    /// `elapsed` is the time since the last sweep of this server.
    async fn sweep(&self, elapsed: Option<Duration>) {
        let elapsed_ms =
            elapsed.map(|elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        match self.outputs.sweep(now_ms(), elapsed_ms).await {
            Ok(swept) if swept.is_empty() => {}
            Ok(swept) => info!(
                jobs = swept.jobs.len(),
                captures = swept.captures.len(),
                "swept"
            ),
            // What could not be deleted now is deleted later.
            Err(error) => warn!(%error, "cannot sweep"),
        }
    }
}
