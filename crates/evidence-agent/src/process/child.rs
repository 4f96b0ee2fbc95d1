//! Real child processes.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use evidence_core::process::{StartArguments, Stream};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Exit, Launcher, LiveProcess, Task};

/// How long a process may take to end after it was asked to, before it is killed.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);

/// Starts child processes in a directory, without standard input. They are driven by the tokio
/// runtime that starts them.
///
/// A process has ended when it has exited and nobody holds its streams any more: what it left behind
/// may still write, and belongs to its output. On Unix each has a process group of its own, and
/// stopping it terminates the whole group and kills it two seconds later; elsewhere the process alone
/// is killed.
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
    async fn launch(&self, arguments: &StartArguments, process: LiveProcess) -> Result<(), String> {
        let Some((program, rest)) = arguments.argv.split_first() else {
            return Err("the command is empty".to_owned());
        };
        let mut command = Command::new(program);
        command
            .args(rest)
            .current_dir(self.directory(arguments.cwd.as_deref())?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| format!("the command did not start: {}", error.kind()))?;
        let mut pipes = JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            pipes.spawn(pump(stdout, Stream::Stdout, process.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            pipes.spawn(pump(stderr, Stream::Stderr, process.clone()));
        }
        tokio::spawn(async move {
            let exit = run(child, pipes, &process).await;
            process.end(exit);
        });
        Ok(())
    }

    fn spawn(&self, task: Task) {
        tokio::spawn(task);
    }
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
async fn run(mut child: Child, mut pipes: JoinSet<()>, process: &LiveProcess) -> Exit {
    tokio::select! {
        status = finished(&mut child, &mut pipes) => return exit(&status),
        () = process.stop_requested() => {}
    }
    signal(&mut child, Signal::Terminate);
    let terminated = timeout(TERMINATION_GRACE, finished(&mut child, &mut pipes));
    if let Ok(status) = terminated.await {
        return exit(&status);
    }
    signal(&mut child, Signal::Kill);
    // What has left the group can hold the streams and cannot be ended from here: they are let go.
    let _ = timeout(TERMINATION_GRACE, drained(&mut pipes)).await;
    pipes.shutdown().await;
    exit(&child.wait().await)
}

async fn finished(child: &mut Child, pipes: &mut JoinSet<()>) -> io::Result<ExitStatus> {
    drained(pipes).await;
    child.wait().await
}

async fn drained(pipes: &mut JoinSet<()>) {
    while pipes.join_next().await.is_some() {}
}

/// How a process is ended.
#[derive(Debug, Clone, Copy)]
enum Signal {
    Terminate,
    Kill,
}

/// Signals the group of a child that has not been waited for. A group that is gone cannot be
/// signalled, which is as good.
#[cfg(unix)]
fn signal(child: &mut Child, signal: Signal) {
    use rustix::process::{Pid, Signal as Number, kill_process_group};
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    // The group has the id of the child that leads it.
    if let Some(group) = id.and_then(Pid::from_raw) {
        let number = match signal {
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
        };
        let _ = kill_process_group(group, number);
    }
}

/// Kills a child that has not been waited for.
#[cfg(not(unix))]
fn signal(child: &mut Child, _signal: Signal) {
    let _ = child.start_kill();
}

fn exit(status: &io::Result<ExitStatus>) -> Exit {
    // One that cannot be waited for was waited for by somebody else, who took the code.
    let Ok(status) = status else {
        return Exit::Unknown;
    };
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(status) {
        return Exit::Signal(signal);
    }
    status.code().map_or(Exit::Unknown, Exit::Code)
}
