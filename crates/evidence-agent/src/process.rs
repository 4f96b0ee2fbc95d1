//! Processes as tools (contract B): started, looked at, and ended, with captures that outlive them.
//!
//! A [`ProcessHost`] keeps the processes that run, and records in the store what was started, what
//! each poll showed and how each process ended. What really runs is put in by a [`Launcher`]: child
//! processes natively ([`ChildProcesses`]), whatever a page supplies in a browser.

#[cfg(not(target_arch = "wasm32"))]
mod child;
mod live;

use std::collections::BTreeMap;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evidence_core::process::{
    Clip, CursorPoll, InvalidArguments, POLL_TOOL, PollArguments, ProcessFacts, ProcessStatus,
    START_TOOL, STOP_TOOL, StartArguments, StopArguments, Stream, plain_poll, request_digest,
    unavailable,
};
use evidence_core::{Generation, JobId, ProcessId, SessionId, ToolCallId, ToolResult};
use evidence_store::tool_output::processes::{Begun, EndedProcess, Observation};
use evidence_store::tool_output::retention::RunningProcess;
use evidence_store::{MaybeSend, MaybeSync, Outcome, Store, ToolOutputError, ToolOutputs};
use futures_util::lock::Mutex as AsyncMutex;

#[cfg(not(target_arch = "wasm32"))]
pub use self::child::ChildProcesses;
pub use self::live::{Exit, LiveProcess};
use crate::action::ToolName;

/// The most processes that one host runs at a time.
const MAX_RUNNING: usize = 256;

/// Something to be done beside everything else.
#[cfg(not(target_arch = "wasm32"))]
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Something to be done beside everything else.
#[cfg(target_arch = "wasm32")]
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What really runs processes.
pub trait Launcher: MaybeSend + MaybeSync + 'static {
    /// Starts a program. From then on what it writes is given to `process`, and so is its end, once
    /// nothing more can come; a wish to stop it is found there. Then `ended` is to be done. None of
    /// this keeps the caller waiting.
    ///
    /// # Errors
    ///
    /// A sentence for the model when it did not start; `process` and `ended` are let go then.
    fn launch(
        &self,
        arguments: &StartArguments,
        process: LiveProcess,
        ended: Task,
    ) -> impl Future<Output = Result<(), String>> + MaybeSend;

    /// Whether another host of this generation may still run its processes. Where a store has one
    /// host at a time, every other is gone.
    fn is_alive(&self, generation: &Generation) -> impl Future<Output = bool> + MaybeSend {
        let _ = generation;
        ready(false)
    }

    /// Waits until what processes have written by now had its turn to come in. Where one thread does
    /// everything, a caller that polls at once and again would otherwise keep it from coming forever.
    fn give_way(&self) -> impl Future<Output = ()> + MaybeSend {
        ready(())
    }
}

/// A call of a process tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessCall {
    /// `exec_start`
    Start(StartArguments),
    /// `exec_poll`
    Poll(PollArguments),
    /// `exec_stop`
    Stop(StopArguments),
}

impl ProcessCall {
    /// Reads the JSON arguments of the tool of this name; none when it is no process tool.
    ///
    /// # Errors
    ///
    /// [`InvalidArguments`].
    pub fn parse(tool: &str, arguments: &str) -> Option<Result<Self, InvalidArguments>> {
        Some(match tool {
            START_TOOL => StartArguments::parse(arguments).map(Self::Start),
            POLL_TOOL => PollArguments::parse(arguments).map(Self::Poll),
            STOP_TOOL => StopArguments::parse(arguments).map(Self::Stop),
            _ => return None,
        })
    }

    /// Which tool it is.
    pub const fn name(&self) -> ToolName {
        match self {
            Self::Start(_) => ToolName::StartProcess,
            Self::Poll(_) => ToolName::PollProcess,
            Self::Stop(_) => ToolName::StopProcess,
        }
    }
}

/// Why a call of a process tool is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// The arguments are not the tool's.
    #[error(transparent)]
    Arguments(#[from] InvalidArguments),
    /// There are no processes here.
    #[error("no programs can be started here")]
    NoProcesses,
    /// The operator does not allow this program with these arguments.
    #[error("the command is not allowed; the operator allows exact argument lists")]
    NotAllowed,
    /// There are too many already.
    #[error("{MAX_RUNNING} processes run already; stop one or wait until one has ended")]
    TooMany,
    /// Recording failed, or there is no such process.
    #[error(transparent)]
    ToolOutput(#[from] ToolOutputError),
}

/// What carries out calls of process tools.
pub trait ProcessTools: MaybeSend + MaybeSync {
    /// The tools that there are.
    fn tools(&self) -> &'static [ToolName];

    /// Carries out a call of a job that `session` owns. A second delivery under the same id is
    /// answered as the first was; a call without an id is delivered once.
    ///
    /// # Errors
    ///
    /// [`ProcessError`]; nothing must be shown then.
    fn call(
        &self,
        session: &SessionId,
        job: &JobId,
        id: Option<&ToolCallId>,
        call: &ProcessCall,
    ) -> impl Future<Output = Result<Outcome, ProcessError>> + MaybeSend;
}

/// There are no processes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProcesses;

impl ProcessTools for NoProcesses {
    fn tools(&self) -> &'static [ToolName] {
        &[]
    }

    async fn call(
        &self,
        _session: &SessionId,
        _job: &JobId,
        _id: Option<&ToolCallId>,
        _call: &ProcessCall,
    ) -> Result<Outcome, ProcessError> {
        Err(ProcessError::NoProcesses)
    }
}

/// Processes where there may be some.
impl<P: ProcessTools> ProcessTools for Option<P> {
    fn tools(&self) -> &'static [ToolName] {
        self.as_ref().map_or(&[], ProcessTools::tools)
    }

    async fn call(
        &self,
        session: &SessionId,
        job: &JobId,
        id: Option<&ToolCallId>,
        call: &ProcessCall,
    ) -> Result<Outcome, ProcessError> {
        match self {
            Some(processes) => processes.call(session, job, id, call).await,
            None => Err(ProcessError::NoProcesses),
        }
    }
}

/// Starts only the exact argument lists that an operator named beforehand.
#[derive(Debug, Clone)]
pub struct AllowList<P> {
    processes: P,
    allowed: Vec<Vec<String>>,
}

impl<P> AllowList<P> {
    /// Allows `allowed` of `processes`.
    pub const fn new(processes: P, allowed: Vec<Vec<String>>) -> Self {
        Self { processes, allowed }
    }
}

impl<P: ProcessTools> ProcessTools for AllowList<P> {
    fn tools(&self) -> &'static [ToolName] {
        self.processes.tools()
    }

    async fn call(
        &self,
        session: &SessionId,
        job: &JobId,
        id: Option<&ToolCallId>,
        call: &ProcessCall,
    ) -> Result<Outcome, ProcessError> {
        if let ProcessCall::Start(start) = call
            && !self.allowed.contains(&start.argv)
        {
            return Err(ProcessError::NotAllowed);
        }
        self.processes.call(session, job, id, call).await
    }
}

/// A process as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessView {
    /// Where it stands.
    pub status: ProcessStatus,
    /// What it wrote; none where that is not available (yet, or any more).
    pub output: Option<ProcessOutput>,
}

/// What is captured of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOutput {
    /// What is known of it.
    pub facts: ProcessFacts,
    /// The captured standard output.
    pub stdout: Vec<u8>,
    /// The captured standard error.
    pub stderr: Vec<u8>,
}

/// Whose process it is, and which.
type Owned = (SessionId, JobId, ProcessId);

/// The processes of one host: one program or page, from its start to its end.
///
/// It takes the running processes of every other host that is not [alive](Launcher::is_alive) for
/// interrupted ones, when it is opened and when one is asked for.
#[derive(Debug)]
pub struct ProcessHost<S, L> {
    inner: Arc<Inner<S, L>>,
}

impl<S, L> Clone for ProcessHost<S, L> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

#[derive(Debug)]
struct Inner<S, L> {
    outputs: ToolOutputs<S>,
    launcher: L,
    generation: Generation,
    now_ms: fn() -> u64,
    calls: AtomicU64,
    live: Mutex<BTreeMap<Owned, LiveProcess>>,
    /// Held while something is recorded. All of it changes its job's counters: at once, a hundred
    /// processes would get into each other's way again and again.
    recording: AsyncMutex<()>,
}

impl<S: Store + 'static, L: Launcher> ProcessHost<S, L> {
    /// A host over `outputs`. `generation` tells it from every host before it; `now_ms` is the host's
    /// clock, in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`] when the processes of hosts before it cannot be recorded as
    /// interrupted.
    pub async fn open(
        outputs: ToolOutputs<S>,
        launcher: L,
        generation: Generation,
        now_ms: fn() -> u64,
    ) -> Result<Self, ToolOutputError> {
        for process in outputs.running_processes().await? {
            let RunningProcess {
                session,
                job,
                process_id,
                generation: host,
            } = &process;
            if *host == generation || launcher.is_alive(host).await {
                continue;
            }
            match outputs
                .interrupt_process(session, job, process_id, now_ms())
                .await
            {
                // Its job was deleted meanwhile, or its records are damaged and stay so.
                Err(ToolOutputError::Unavailable | ToolOutputError::Integrity) => {}
                interrupted => drop(interrupted?),
            }
        }
        let inner = Inner {
            outputs,
            launcher,
            generation,
            now_ms,
            calls: AtomicU64::new(0),
            live: Mutex::default(),
            recording: AsyncMutex::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Ends every process and stores what they wrote.
    ///
    /// # Errors
    ///
    /// The first [`ToolOutputError`] of those that could not be stored.
    pub async fn close(&self) -> Result<(), ToolOutputError> {
        let running: Vec<(Owned, LiveProcess)> = {
            let live = self.inner.live();
            live.iter()
                .map(|(owned, process)| (owned.clone(), process.clone()))
                .collect()
        };
        for (_, process) in &running {
            process.request_stop();
        }
        let mut outcome = Ok(());
        for (owned, process) in running {
            process.ended().await;
            outcome = outcome.and(self.inner.finish(&owned).await.map(drop));
        }
        outcome
    }

    /// A process as it stands now, for people to watch: all that is captured of it, and not a part that
    /// a call observed. Nothing is recorded.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError`]; the owner is checked as in a call.
    pub async fn view(
        &self,
        session: &SessionId,
        job: &JobId,
        process_id: &ProcessId,
    ) -> Result<ProcessView, ToolOutputError> {
        let owned = (session.clone(), job.clone(), process_id.clone());
        let seen = self.inner.look(&owned).await?;
        let facts = match &seen {
            Seen::Live { facts, .. } | Seen::Stored(facts) => facts,
            Seen::Unavailable(status) => {
                return Ok(ProcessView {
                    status: *status,
                    output: None,
                });
            }
        };
        let bytes = |stream| {
            self.inner
                .bytes(&owned, &seen, stream, 0..facts.stream(stream).bytes)
        };
        Ok(ProcessView {
            status: facts.status,
            output: Some(ProcessOutput {
                facts: facts.clone(),
                stdout: bytes(Stream::Stdout).await?,
                stderr: bytes(Stream::Stderr).await?,
            }),
        })
    }

    async fn start(
        &self,
        session: &SessionId,
        job: &JobId,
        id: &ToolCallId,
        arguments: &StartArguments,
    ) -> Result<Outcome, ProcessError> {
        let inner = &self.inner;
        let request = request_digest(START_TOOL, arguments);
        if inner.live().len() >= MAX_RUNNING {
            let answered = inner.outputs.answered_call(session, job, id, request);
            return answered.await?.ok_or(ProcessError::TooMany);
        }
        let recording = inner.recording.lock().await;
        let begun = inner
            .outputs
            .begin_process(session, job, id, request, &inner.generation)
            .await?;
        drop(recording);
        let (process_id, outcome) = match begun {
            Begun::Answered(outcome) => return Ok(outcome),
            Begun::New {
                process_id,
                outcome,
            } => (process_id, outcome),
        };
        let process = LiveProcess::default();
        let owned = (session.clone(), job.clone(), process_id);
        inner.live().insert(owned.clone(), process.clone());
        let ended: Task = {
            let (inner, owned) = (Arc::clone(inner), owned.clone());
            Box::pin(async move {
                // A store that is full may have room when the process is looked at.
                let _ = inner.finish(&owned).await;
            })
        };
        let launched = inner.launcher.launch(arguments, process, ended).await;
        let Err(sentence) = launched else {
            return Ok(outcome);
        };
        inner.live().remove(&owned);
        let failed = ToolResult::from_text(false, sentence);
        let _recording = inner.recording.lock().await;
        let abandoned = inner
            .outputs
            .abandon_process(session, job, id, &owned.2, &failed);
        Ok(abandoned.await?)
    }

    async fn poll(
        &self,
        session: &SessionId,
        job: &JobId,
        id: &ToolCallId,
        arguments: &PollArguments,
    ) -> Result<Outcome, ProcessError> {
        let outputs = &self.inner.outputs;
        let request = request_digest(POLL_TOOL, arguments);
        if let Some(earlier) = outputs.answered_call(session, job, id, request).await? {
            return Ok(earlier);
        }
        self.inner.launcher.give_way().await;
        let owned = (session.clone(), job.clone(), arguments.process_id.clone());
        let observation = self.inner.observe(&owned, arguments).await?;
        let _recording = self.inner.recording.lock().await;
        let recorded = outputs.record_observation(session, job, id, request, observation);
        Ok(recorded.await?)
    }

    async fn stop(
        &self,
        session: &SessionId,
        job: &JobId,
        id: &ToolCallId,
        arguments: &StopArguments,
    ) -> Result<Outcome, ProcessError> {
        let inner = &self.inner;
        let request = request_digest(STOP_TOOL, arguments);
        if let Some(earlier) = inner
            .outputs
            .answered_call(session, job, id, request)
            .await?
        {
            return Ok(earlier);
        }
        let owned = (session.clone(), job.clone(), arguments.process_id.clone());
        let live = inner.live().get(&owned).cloned();
        if let Some(process) = live {
            process.request_stop();
            process.ended().await;
        }
        let poll = PollArguments {
            process_id: arguments.process_id.clone(),
            cursors: None,
        };
        let observation = inner.observe(&owned, &poll).await?;
        let _recording = inner.recording.lock().await;
        let recorded = inner
            .outputs
            .record_observation(session, job, id, request, observation);
        Ok(recorded.await?)
    }
}

impl<S: Store + 'static, L: Launcher> ProcessTools for ProcessHost<S, L> {
    fn tools(&self) -> &'static [ToolName] {
        &[
            ToolName::StartProcess,
            ToolName::PollProcess,
            ToolName::StopProcess,
        ]
    }

    async fn call(
        &self,
        session: &SessionId,
        job: &JobId,
        id: Option<&ToolCallId>,
        call: &ProcessCall,
    ) -> Result<Outcome, ProcessError> {
        let id = match id {
            Some(id) => id.clone(),
            None => self.inner.new_call_id(),
        };
        match call {
            ProcessCall::Start(arguments) => self.start(session, job, &id, arguments).await,
            ProcessCall::Poll(arguments) => self.poll(session, job, &id, arguments).await,
            ProcessCall::Stop(arguments) => self.stop(session, job, &id, arguments).await,
        }
    }
}

/// Where the bytes of a process are.
enum Seen {
    /// It runs: in memory.
    Live {
        facts: ProcessFacts,
        stdout: Vec<u8>,
        stderr: Vec<u8>,
    },
    /// It has ended: in the store.
    Stored(ProcessFacts),
    /// They are not there: another host runs it, or it has ended and they were not stored or are gone.
    Unavailable(ProcessStatus),
}

impl<S: Store + 'static, L: Launcher> Inner<S, L> {
    fn live(&self) -> MutexGuard<'_, BTreeMap<Owned, LiveProcess>> {
        // A panic cannot leave the map half changed.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_call_id(&self) -> ToolCallId {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.generation.call_id(number)
    }

    /// Stores the end of a process that has ended, and lets it go. Whoever comes first does it; the
    /// others find it done.
    async fn finish(&self, owned: &Owned) -> Result<(), ToolOutputError> {
        let Some(process) = self.live().get(owned).cloned() else {
            return Ok(());
        };
        if !process.has_ended() {
            // The job was deleted and created again, and this is a later process of the same name.
            return Ok(());
        }
        let (session, job, process_id) = owned;
        let (facts, stdout, stderr) = process.snapshot(process_id);
        let ended = EndedProcess {
            facts,
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let _recording = self.recording.lock().await;
        let finished = self
            .outputs
            .finish_process(session, job, &ended, (self.now_ms)())
            .await;
        match finished {
            // Where its job is gone, nobody may ask for it.
            Ok(_) | Err(ToolOutputError::Unavailable) => {
                self.live().remove(owned);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// What can be seen of a process now. Of one that has ended nothing is shown before it is stored.
    async fn look(&self, owned: &Owned) -> Result<Seen, ToolOutputError> {
        let (session, job, process_id) = owned;
        let live = self.live().get(owned).cloned();
        if let Some(process) = live {
            let (facts, stdout, stderr) = process.snapshot(process_id);
            if facts.status == ProcessStatus::Running {
                // The job may be gone meanwhile.
                self.outputs.process(session, job, process_id).await?;
                return Ok(Seen::Live {
                    facts,
                    stdout,
                    stderr,
                });
            }
            self.finish(owned).await?;
        }
        let mut record = self.outputs.process(session, job, process_id).await?;
        if record.status == ProcessStatus::Running {
            let host = &record.generation;
            if *host != self.generation && self.launcher.is_alive(host).await {
                return Ok(Seen::Unavailable(record.status));
            }
            // Nobody runs it.
            record = self
                .outputs
                .interrupt_process(session, job, process_id, (self.now_ms)())
                .await?;
        }
        Ok(record
            .facts(process_id.clone())
            .map_or(Seen::Unavailable(record.status), Seen::Stored))
    }

    async fn observe(
        &self,
        owned: &Owned,
        arguments: &PollArguments,
    ) -> Result<Observation, ToolOutputError> {
        let process_id = &arguments.process_id;
        let seen = self.look(owned).await?;
        let facts = match &seen {
            Seen::Live { facts, .. } | Seen::Stored(facts) => facts,
            // Where it stands is known, and a plain poll says so. Bytes that are not there are not
            // there.
            Seen::Unavailable(status) if arguments.cursors.is_none() => {
                return Ok(Observation::Plain(unavailable(process_id, *status)));
            }
            Seen::Unavailable(_) => return Err(ToolOutputError::Unavailable),
        };
        let bytes = |stream, range| self.bytes(owned, &seen, stream, range);
        if let Some(cursors) = &arguments.cursors {
            let stdout = bytes(
                Stream::Stdout,
                cursors.range(Stream::Stdout, &facts.stdout)?,
            )
            .await?;
            let stderr = bytes(
                Stream::Stderr,
                cursors.range(Stream::Stderr, &facts.stderr)?,
            )
            .await?;
            let answer = CursorPoll::new(facts, cursors, &stdout, &stderr)?.to_json();
            return Ok(Observation::Cursor(answer));
        }
        let (stdout, stderr) = (Clip::of(&facts.stdout), Clip::of(&facts.stderr));
        let stdout = [
            bytes(Stream::Stdout, stdout.head).await?,
            bytes(Stream::Stdout, stdout.tail).await?,
        ];
        let stderr = [
            bytes(Stream::Stderr, stderr.head).await?,
            bytes(Stream::Stderr, stderr.tail).await?,
        ];
        let result = plain_poll(facts, [&stdout[0], &stdout[1]], [&stderr[0], &stderr[1]]);
        Ok(Observation::Plain(result))
    }

    async fn bytes(
        &self,
        (session, job, _): &Owned,
        seen: &Seen,
        stream: Stream,
        range: std::ops::Range<u64>,
    ) -> Result<Vec<u8>, ToolOutputError> {
        let live = match (seen, stream) {
            (Seen::Live { stdout, .. }, Stream::Stdout) => stdout,
            (Seen::Live { stderr, .. }, Stream::Stderr) => stderr,
            (Seen::Stored(facts), stream) => {
                let read = self
                    .outputs
                    .read_capture(session, job, facts, stream, range);
                return Ok(read.await?.to_vec());
            }
            (Seen::Unavailable(_), _) => return Err(ToolOutputError::Unavailable),
        };
        let position = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let part = live.get(position(range.start)..position(range.end));
        Ok(part.ok_or(ToolOutputError::Integrity)?.to_vec())
    }
}
