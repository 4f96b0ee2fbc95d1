//! `bounded-evidence serve`: contract B over HTTP, for runtimes in any language.

mod metrics;
mod service;
mod sessions;
mod sweeper;

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use evidence_agent::process::{AllowList, ChildProcesses, ProcessHost};
use evidence_store::{DirectoryStore, ToolOutputs};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tracing::info;

use self::service::{Service, now_ms};
use self::sessions::Sessions;
use self::sweeper::Sweeper;
use crate::{allowed_commands, unique_name};

/// The most bytes of a request line and headers.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// The most connections at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// How long requests that are being answered may go on after the signal to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// What to serve.
#[derive(Args)]
pub struct Arguments {
    /// The directory that keeps jobs and their tool output.
    #[arg(long)]
    data: PathBuf,
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8787")]
    listen: SocketAddr,
    /// A JSON object of the SHA-256 of each bearer token, in hexadecimal, and its session id. It is
    /// read again when it changes.
    #[arg(long)]
    sessions: PathBuf,
    /// Listen on an address that other machines can reach. There is no TLS: tokens and tool output
    /// travel in the clear unless something in front of the server encrypts them.
    #[arg(long)]
    allow_remote: bool,
    /// How long a client may take to send a request or to read its response.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Let jobs start exactly this JSON array of arguments as a process; may be repeated.
    #[arg(long = "allow-command", value_name = "ARGV", requires = "workspace")]
    allowed_commands: Vec<String>,
    /// The directory in which processes run.
    #[arg(long)]
    workspace: Option<PathBuf>,
    /// How long after a sweep of expired tool output the next one comes, when nothing asks for it
    /// earlier.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    sweep_interval: u64,
}

/// Serves until the process is told to stop (interrupt or terminate).
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if !arguments.listen.ip().is_loopback() && !arguments.allow_remote {
        bail!(
            "{} can be reached by other machines, and there is no TLS; listen on 127.0.0.1, or pass --allow-remote when something in front of the server encrypts",
            arguments.listen
        );
    }
    tracing_subscriber::fmt()
        .json()
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(serve(arguments))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let sessions = Sessions::open(&arguments.sessions)?;
    let store = DirectoryStore::open(&arguments.data)
        .await
        .with_context(|| format!("cannot use {}", arguments.data.display()))?;
    let _host = become_host(&arguments.data)?;
    let processes = ProcessHost::open(
        ToolOutputs::new(store.clone()),
        ChildProcesses::new(arguments.workspace.as_deref().unwrap_or(&arguments.data)),
        unique_name("host").parse()?,
        now_ms,
    )
    .await
    .context("cannot look after the processes of the server before")?;
    let allowed = allowed_commands(&arguments.allowed_commands)?;
    let sweeper = Arc::new(Sweeper::new(ToolOutputs::new(store.clone())));
    let interval = Duration::from_secs(arguments.sweep_interval);
    tokio::spawn(Arc::clone(&sweeper).sweep_for_ever(interval));
    let listener = TcpListener::bind(arguments.listen)
        .await
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let address = listener.local_addr()?;
    let timeout = Duration::from_secs(arguments.timeout);
    let allowed_processes = AllowList::new(processes.clone(), allowed);
    let router = Service::new(store, allowed_processes, sessions, sweeper, timeout).into_router();
    writeln!(std::io::stdout(), "listening on http://{address}")?;

    let service = TowerToHyperService::new(router);
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let open = GracefulShutdown::new();
    let mut stop = std::pin::pin!(told_to_stop());
    loop {
        let (stream, permit) = tokio::select! {
            accepted = accept(&listener, &connections) => accepted,
            () = &mut stop => break,
        };
        let io = TokioIo::new(Box::pin(with_write_timeout(stream, timeout)));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(timeout)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(io, service.clone());
        let connection = open.watch(connection);
        tokio::spawn(async move {
            // A connection that breaks concerns nobody but its client.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    info!("told to stop");
    if tokio::time::timeout(SHUTDOWN_GRACE, open.shutdown())
        .await
        .is_err()
    {
        info!("stopped with requests unanswered");
    }
    processes
        .close()
        .await
        .context("the output of a process could not be stored")
}

/// Makes sure that no other server looks after the processes in this directory, as long as the file is
/// open: it would take this one's for those of a server that is gone.
fn become_host(data: &Path) -> anyhow::Result<File> {
    let host = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(data.join("host"))
        .with_context(|| format!("cannot use {}", data.display()))?;
    match host.try_lock() {
        Ok(()) => Ok(host),
        Err(TryLockError::WouldBlock) => bail!(
            "another server works in {}; stop it, or use another directory",
            data.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot use {}", data.display()))
        }
    }
}

/// The next connection, once there may be one more.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> (TcpStream, Option<tokio::sync::OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let permit = Arc::clone(connections).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            // A client that is gone already, or no more file descriptors: neither ends the server.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// A client that stops reading is let go. One that stops writing is, too, but not here: a connection
/// is silent while its request is being answered.
fn with_write_timeout(stream: TcpStream, timeout: Duration) -> TimeoutStream<TcpStream> {
    // Small responses are to leave at once; without it they only leave later.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(timeout));
    stream
}

async fn told_to_stop() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = tokio::signal::ctrl_c() => {}
                }
                return;
            }
            Err(error) => tracing::warn!(%error, "cannot wait for the terminate signal"),
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
