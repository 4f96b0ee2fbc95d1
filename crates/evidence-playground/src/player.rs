//! Replays a recorded command with its timing, in the place of a program that a page cannot start.

use std::pin::pin;
use std::sync::Arc;

use evidence_agent::process::{Exit, Launcher, LiveProcess, Task};
use evidence_core::Generation;
use evidence_core::process::{StartArguments, Stream};
use futures_util::future::{Either, select};
use leptos::prelude::*;
use leptos::task::spawn_local;
use serde_json::Value;

use crate::browser;
use crate::storage::HostLock;

/// A command as it ran once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// Its arguments, exactly.
    pub argv: Vec<String>,
    pieces: Arc<[Piece]>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    /// In milliseconds since the start.
    at_ms: u64,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Wrote(Stream, String),
    Exited(i32),
}

impl Recording {
    /// Reads what `cargo xtask record` wrote.
    ///
    /// # Errors
    ///
    /// A sentence for the user, with the line.
    pub fn parse(argv: Vec<String>, lines: &str) -> Result<Self, String> {
        let piece = |(number, line): (usize, &str)| {
            let invalid = || format!("Line {number} of the recording is not of its form.");
            let (at_ms, name, value): (u64, String, Value) =
                serde_json::from_str(line).map_err(|_| invalid())?;
            let what = match (name.as_str(), value) {
                ("stdout", Value::String(text)) => What::Wrote(Stream::Stdout, text),
                ("stderr", Value::String(text)) => What::Wrote(Stream::Stderr, text),
                ("exit", Value::Number(code)) => {
                    let code = code.as_i64().and_then(|code| i32::try_from(code).ok());
                    What::Exited(code.ok_or_else(invalid)?)
                }
                _ => return Err(invalid()),
            };
            Ok(Piece { at_ms, what })
        };
        let pieces: Result<Vec<_>, String> = (1..).zip(lines.lines()).map(piece).collect();
        Ok(Self {
            argv,
            pieces: pieces?.into(),
        })
    }

    /// All that it writes to a stream.
    pub fn text(&self, stream: Stream) -> String {
        let written = |piece: &Piece| match &piece.what {
            What::Wrote(to, text) if *to == stream => Some(text.clone()),
            _ => None,
        };
        self.pieces.iter().filter_map(written).collect()
    }

    async fn play(self, process: &LiveProcess) -> Exit {
        let start_ms = browser::monotonic_ms();
        for piece in self.pieces.iter() {
            let elapsed_ms = browser::monotonic_ms().saturating_sub(start_ms);
            let wait_ms = piece.at_ms.saturating_sub(elapsed_ms);
            if wait_ms > 0 {
                let wait = pin!(browser::sleep(i32::try_from(wait_ms).unwrap_or(i32::MAX)));
                let stopped = pin!(process.stop_requested());
                if let Either::Right(_) = select(wait, stopped).await {
                    return Exit::Unknown;
                }
            }
            match &piece.what {
                What::Wrote(stream, text) => process.write(*stream, text.as_bytes()),
                What::Exited(code) => return Exit::Code(*code),
            }
        }
        Exit::Unknown
    }
}

/// Plays the recording that is chosen.
#[derive(Debug)]
pub struct Player {
    recording: RwSignal<Option<Recording>>,
    /// Tells other tabs that the processes of this one are not interrupted.
    _lock: HostLock,
}

impl Player {
    /// A player of whatever `recording` is when a process is started.
    pub const fn new(recording: RwSignal<Option<Recording>>, lock: HostLock) -> Self {
        Self {
            recording,
            _lock: lock,
        }
    }
}

impl Launcher for Player {
    async fn launch(&self, arguments: &StartArguments, process: LiveProcess) -> Result<(), String> {
        let recording = self.recording.get_untracked();
        let recording = recording.filter(|recording| recording.argv == arguments.argv);
        let recording = recording.ok_or("the page has no recording of this command".to_owned())?;
        spawn_local(async move {
            let exit = recording.play(&process).await;
            process.end(exit);
        });
        Ok(())
    }

    fn spawn(&self, task: Task) {
        spawn_local(task);
    }

    async fn is_alive(&self, generation: &Generation) -> bool {
        HostLock::is_held(generation).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_read_line_by_line_and_a_damaged_line_is_named() {
        let argv = vec!["make".to_owned()];
        let lines =
            "[1,\"stdout\",\"a\"]\n[2,\"stderr\",\"b\"]\n[3,\"stdout\",\"c\"]\n[4,\"exit\",2]\n";
        let recording = Recording::parse(argv.clone(), lines).unwrap();
        assert_eq!(recording.text(Stream::Stdout), "ac");
        assert_eq!(recording.text(Stream::Stderr), "b");
        for damaged in [
            "",
            "[1,\"stdout\"]",
            "[1,\"exit\",9e9]",
            "[-1,\"stdout\",\"\"]",
        ] {
            let error = Recording::parse(argv.clone(), &format!("{lines}{damaged}\n"));
            assert_eq!(
                error,
                Err("Line 5 of the recording is not of its form.".to_owned())
            );
        }
    }
}
