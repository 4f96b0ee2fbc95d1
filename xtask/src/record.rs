//! Records a command as it runs, for the page to replay: what it wrote to which stream, and when.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;

/// A piece of what the command wrote: its stream, and the bytes.
type Piece = (&'static str, Vec<u8>);

/// Runs `argv` in `directory` and writes a line of JSON for each piece: milliseconds since the start,
/// the stream, the text. The last line has the exit code.
///
/// # Errors
///
/// When the command cannot be run, is ended by a signal or writes anything but UTF-8.
pub fn record(directory: &Path, out: &Path, argv: &[String]) -> Result<()> {
    let Some((program, arguments)) = argv.split_first() else {
        bail!("name the command to record");
    };
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let (pieces, received) = mpsc::channel();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let readers = [
        stdout.map(|pipe| follow("stdout", pipe, pieces.clone())),
        stderr.map(|pipe| follow("stderr", pipe, pieces)),
    ];
    let mut lines = String::new();
    for (stream, bytes) in received {
        let text = String::from_utf8(bytes)
            .with_context(|| format!("{stream} is not UTF-8, or was cut inside of a code point"))?;
        writeln!(lines, "{}", json!([milliseconds(start), stream, text]))?;
    }
    for reader in readers.into_iter().flatten() {
        if reader.join().is_err() {
            bail!("a stream could not be followed");
        }
    }
    let code = child.wait()?.code().context("a signal ended the command")?;
    writeln!(lines, "{}", json!([milliseconds(start), "exit", code]))?;
    fs::write(out, lines).with_context(|| format!("cannot write {}", out.display()))
}

fn follow(
    stream: &'static str,
    mut pipe: impl Read + Send + 'static,
    pieces: Sender<Piece>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if pieces.send((stream, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    })
}

fn milliseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
