//! A process while it runs, between what runs it and those who look at it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event_listener::Event;
use evidence_core::ProcessId;
use evidence_core::process::{
    MAX_CAPTURE_BYTES, ProcessFacts, ProcessStatus, Stream, StreamFacts, captured,
};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With a code.
    Code(i32),
    /// By a signal of this number.
    Signal(i32),
    /// Nobody can say how.
    Unknown,
}

/// A process that runs. Its clones are the same process.
#[derive(Debug, Clone, Default)]
pub struct LiveProcess {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when the process has ended and when it is to be stopped.
    changed: Event,
}

#[derive(Debug, Default)]
struct State {
    stdout: Captured,
    stderr: Captured,
    exit: Option<Exit>,
    is_to_stop: bool,
}

/// The start of a stream, and how much came in all.
#[derive(Debug, Default)]
struct Captured {
    /// One byte more than is captured tells that more came.
    bytes: Vec<u8>,
    total_bytes: u64,
}

impl Captured {
    fn write(&mut self, bytes: &[u8]) {
        self.total_bytes = self.total_bytes.saturating_add(bytes.len() as u64);
        let room = (MAX_CAPTURE_BYTES + 1).saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl LiveProcess {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment or one append; a panic leaves nothing half done.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the process wrote.
    pub fn write(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.state();
        match stream {
            Stream::Stdout => state.stdout.write(bytes),
            Stream::Stderr => state.stderr.write(bytes),
        }
    }

    /// Takes a sentence about it as the last line of its standard error.
    pub fn write_last_line(&self, sentence: &str) {
        let mut state = self.state();
        if state.stderr.bytes.last().is_some_and(|last| *last != b'\n') {
            state.stderr.write(b"\n");
        }
        state.stderr.write(sentence.as_bytes());
        state.stderr.write(b"\n");
    }

    /// Takes its end. Nothing must be written after it.
    pub fn end(&self, exit: Exit) {
        self.state().exit.get_or_insert(exit);
        self.shared.changed.notify(usize::MAX);
    }

    /// Returns when it has ended.
    pub async fn ended(&self) {
        self.until(|state| state.exit.is_some()).await;
    }

    /// Asks whoever runs it to end it. One that has ended by itself was not stopped.
    pub fn request_stop(&self) {
        {
            let mut state = self.state();
            state.is_to_stop |= state.exit.is_none();
        }
        self.shared.changed.notify(usize::MAX);
    }

    /// Returns when it is to be ended.
    pub async fn stop_requested(&self) {
        self.until(|state| state.is_to_stop).await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            // Listening begins before the state is looked at, so that no change is missed.
            let changed = self.shared.changed.listen();
            if is_so(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    /// What is known of it at this moment, and what is captured of standard output and standard
    /// error.
    pub(super) fn snapshot(&self, process_id: &ProcessId) -> (ProcessFacts, Vec<u8>, Vec<u8>) {
        let (stdout, stderr, exit, is_to_stop) = {
            let state = self.state();
            let ended = state.exit.is_some();
            let take = |stream: &Captured| {
                let bytes = captured(&stream.bytes, ended).to_vec();
                (bytes, stream.total_bytes)
            };
            let (stdout, stderr) = (take(&state.stdout), take(&state.stderr));
            (stdout, stderr, state.exit, state.is_to_stop)
        };
        let status = match exit {
            None => ProcessStatus::Running,
            Some(_) if is_to_stop => ProcessStatus::Stopped,
            Some(Exit::Code(_) | Exit::Unknown) => ProcessStatus::Exited,
            Some(Exit::Signal(_)) => ProcessStatus::Signaled,
        };
        let facts = ProcessFacts {
            process_id: process_id.clone(),
            status,
            exit_code: match exit {
                Some(Exit::Code(code)) => Some(code),
                _ => None,
            },
            signal: match exit {
                Some(Exit::Signal(signal)) => Some(signal),
                _ => None,
            },
            stdout: StreamFacts::of(&stdout.0, stdout.1),
            stderr: StreamFacts::of(&stderr.0, stderr.1),
        };
        (facts, stdout.0, stderr.0)
    }
}
