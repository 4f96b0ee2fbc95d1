//! Real child processes (Unix).

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use evidence_core::process::{StartArguments, Stream};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Exit, Launcher, LiveProcess, Task};

/// How long a process may take to end after it was asked to, before it is killed.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);

/// Starts child processes in a directory, without standard input, each in a process group of its
/// own. They are driven by the tokio runtime that starts them.
///
/// A process has ended when it has exited and nobody holds its streams any more: what it left behind
/// may still write, and belongs to its output. Stopping it ends the whole group.
#[derive(Debug, Clone)]
pub struct ChildProcesses {
    root: PathBuf,
}

impl ChildProcesses {
    /// Processes that run in `root` or below.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory to run in, which must be in the workspace also when links are followed.
    fn directory(&self, cwd: Option<&str>) -> Result<PathBuf, String> {
        const OUTSIDE: &str = "cwd must name a directory in the workspace";
        let cwd = Path::new(cwd.unwrap_or("."));
        let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !cwd.components().all(is_plain) {
            return Err(OUTSIDE.to_owned());
        }
        let root = self.root.canonicalize();
        let root = root.map_err(|error| format!("the workspace: {}", error.kind()))?;
        match root.join(cwd).canonicalize() {
            Ok(directory) if directory.starts_with(&root) && directory.is_dir() => Ok(directory),
            _ => Err(OUTSIDE.to_owned()),
        }
    }
}

impl Launcher for ChildProcesses {
    async fn launch(
        &self,
        arguments: &StartArguments,
        process: LiveProcess,
        ended: Task,
    ) -> Result<(), String> {
        let Some((program, rest)) = arguments.argv.split_first() else {
            return Err("the command is empty".to_owned());
        };
        let mut child = Command::new(program)
            .args(rest)
            .current_dir(self.directory(arguments.cwd.as_deref())?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("the command did not start: {}", error.kind()))?;
        let group = group_of(&child);
        let mut pipes = JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            pipes.spawn(pump(stdout, Stream::Stdout, process.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            pipes.spawn(pump(stderr, Stream::Stderr, process.clone()));
        }
        tokio::spawn(async move {
            let exit = run(child, group, pipes, &process).await;
            process.end(exit);
            ended.await;
        });
        Ok(())
    }
}

/// The group that a child leads: it has the child's id.
fn group_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}

async fn pump(mut pipe: impl AsyncRead + Unpin, stream: Stream, process: LiveProcess) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => process.write(stream, &buffer[..count]),
        }
    }
}

/// Waits until the streams are at their ends and the process has exited, or ends it when that is
/// wished.
///
/// It is waited for last: until then its id is its own, so that no signal can reach a stranger.
async fn run(
    mut child: Child,
    group: Option<Pid>,
    mut pipes: JoinSet<()>,
    process: &LiveProcess,
) -> Exit {
    tokio::select! {
        status = finished(&mut child, &mut pipes) => return exit(status),
        () = process.stop_requested() => {}
    }
    signal(group, Signal::TERM);
    let terminated = timeout(TERMINATION_GRACE, finished(&mut child, &mut pipes));
    if let Ok(status) = terminated.await {
        return exit(status);
    }
    signal(group, Signal::KILL);
    // What has left the group can hold the streams and cannot be ended from here: they are let go.
    let _ = timeout(TERMINATION_GRACE, drained(&mut pipes)).await;
    pipes.shutdown().await;
    exit(child.wait().await)
}

async fn finished(child: &mut Child, pipes: &mut JoinSet<()>) -> io::Result<ExitStatus> {
    drained(pipes).await;
    child.wait().await
}

async fn drained(pipes: &mut JoinSet<()>) {
    while pipes.join_next().await.is_some() {}
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // A group that is gone cannot be signalled, which is as good.
        let _ = kill_process_group(group, signal);
    }
}

fn exit(status: io::Result<ExitStatus>) -> Exit {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        },
        // It cannot be waited for: somebody else has, and took the code.
        Err(_) => Exit::Code(-1),
    }
}
