//! Processes as tools (contract B): started, looked at, and ended, with captures that outlive them.
//!
//! A [`ProcessHost`] keeps the processes that run, and records in the store what was started, what
//! each poll showed and how each process ended. What really runs is put in by a [`Launcher`]: child
//! processes natively ([`ChildProcesses`]), whatever a page supplies in a browser.

#[cfg(not(target_arch = "wasm32"))]
mod child;
mod live;

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evidence_core::process::{
    Clip, CursorPoll, InvalidArguments, POLL_TOOL, PollArguments, ProcessFacts, ProcessStatus,
    START_TOOL, STOP_TOOL, StartArguments, StopArguments, Stream, plain_poll, request_digest,
    unavailable,
};
use evidence_core::{
    Generation, JobId, ProcessId, SessionId, Sha256Digest, ToolCallId, ToolResult,
};
use evidence_store::tool_output::processes::{Begun, EndedProcess, Launch, Observation};
use evidence_store::tool_output::retention::RunningProcess;
use evidence_store::{MaybeSend, MaybeSync, Outcome, Store, ToolOutputError, ToolOutputs};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
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
    /// nothing more can come; a wish to stop it is found there. None of this keeps the caller waiting.
    ///
    /// # Errors
    ///
    /// A sentence for the model when it did not start; `process` is let go then.
    fn launch(
        &self,
        arguments: &StartArguments,
        process: LiveProcess,
    ) -> impl Future<Output = Result<(), String>> + MaybeSend;

    /// Does a task beside everything else, to its end, whoever waits for it or does not.
    fn spawn(&self, task: Task);

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

/// Whose call it is, and which.
type Call = (SessionId, JobId, ToolCallId);

/// A process that this host runs.
#[derive(Debug, Clone)]
struct Running {
    /// The number of its [`Launch`].
    number: u64,
    owned: Owned,
    process: LiveProcess,
}

/// A start that is being carried out. Every delivery of its call waits for the same answer.
struct Starting {
    call: Call,
    request: Sha256Digest,
    answer: Shared<StartAnswer>,
}

#[cfg(not(target_arch = "wasm32"))]
type StartAnswer = Pin<Box<dyn Future<Output = Result<Outcome, ProcessError>> + Send>>;
#[cfg(target_arch = "wasm32")]
type StartAnswer = Pin<Box<dyn Future<Output = Result<Outcome, ProcessError>>>>;

/// The processes of one host: one program or page, from its start to its end.
///
/// It takes the running processes of every other host that is not [alive](Launcher::is_alive) for
/// interrupted ones, when it is opened and when one is asked for.
pub struct ProcessHost<S, L> {
    inner: Arc<Inner<S, L>>,
}

impl<S, L> fmt::Debug for ProcessHost<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessHost")
            .field("generation", &self.inner.generation)
            .field("live", &self.inner.live())
            .finish_non_exhaustive()
    }
}

impl<S, L> Clone for ProcessHost<S, L> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

struct Inner<S, L> {
    outputs: ToolOutputs<S>,
    launcher: L,
    generation: Generation,
    now_ms: fn() -> u64,
    calls: AtomicU64,
    starts: AtomicU64,
    starting: Mutex<Vec<Starting>>,
    /// The processes that run and those whose end is not stored yet: few enough to look through them.
    live: Mutex<Vec<Running>>,
    /// Held while something is recorded. All of it changes its job's counters: at once, a hundred
    /// processes would get into each other's way again and again. It is held also from the record of a
    /// process to its place among the live ones, so that whoever holds it finds both or neither.
    recording: AsyncMutex<IsOpen>,
}

/// Whether processes may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsOpen {
    Yes,
    No,
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
                launch,
            } = &process;
            let host = &launch.generation;
            if *host == generation || launcher.is_alive(host).await {
                continue;
            }
            match outputs
                .interrupt_process(session, job, (process_id, launch), now_ms())
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
            starts: AtomicU64::new(0),
            starting: Mutex::default(),
            live: Mutex::default(),
            recording: AsyncMutex::new(IsOpen::Yes),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Whether both are one host.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Ends every process, stores what they wrote, and starts no more. What could not be stored is tried
    /// again by the next call.
    ///
    /// # Errors
    ///
    /// The first [`ToolOutputError`] of those that could not be stored.
    pub async fn close(&self) -> Result<(), ToolOutputError> {
        *self.inner.recording.lock().await = IsOpen::No;
        let live = self.inner.live().clone();
        for running in &live {
            running.process.request_stop();
        }
        let mut outcome = Ok(());
        for running in live {
            running.process.ended().await;
            outcome = outcome.and(self.inner.finish(running.number).await);
        }
        outcome
    }

    /// Forgets a job and everything that it holds, and ends its processes, which nobody could ask for
    /// any more. It does not wait for their end. A job that is not there is no error.
    ///
    /// # Errors
    ///
    /// [`ToolOutputError::Store`]; the job and its processes are untouched then.
    pub async fn delete_job(
        &self,
        session: &SessionId,
        job: &JobId,
    ) -> Result<(), ToolOutputError> {
        let inner = &self.inner;
        let _recording = inner.recording.lock().await;
        inner.outputs.delete_job(session, job).await?;
        // While nothing is recorded, none of these belongs to a later job of the same id.
        for Running { owned, process, .. } in inner.live().iter() {
            if (&owned.0, &owned.1) == (session, job) {
                process.request_stop();
            }
        }
        Ok(())
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
        let (_, seen) = self.inner.look(&owned).await?;
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

    /// Starts a process in a task of its own, which goes on when the caller is gone: what is recorded
    /// as begun is started, or recorded as not started. A delivery of the call while it is carried out
    /// waits for the same answer.
    fn start(
        &self,
        session: &SessionId,
        job: &JobId,
        id: &ToolCallId,
        arguments: &StartArguments,
    ) -> Result<Shared<StartAnswer>, ProcessError> {
        let request = request_digest(START_TOOL, arguments);
        let call = (session.clone(), job.clone(), id.clone());
        let mut starting = self.inner.starting();
        if let Some(earlier) = starting.iter().find(|earlier| earlier.call == call) {
            return if earlier.request == request {
                Ok(earlier.answer.clone())
            } else {
                Err(ToolOutputError::CallReused.into())
            };
        }
        let (inner, its_call, arguments) = (self.inner.clone(), call.clone(), arguments.clone());
        let start: StartAnswer = Box::pin(async move {
            let answer = inner.start(&its_call, request, &arguments).await;
            inner.starting().retain(|started| started.call != its_call);
            answer
        });
        let answer = start.shared();
        starting.push(Starting {
            call,
            request,
            answer: answer.clone(),
        });
        let task = answer.clone().map(drop);
        self.inner.launcher.spawn(Box::pin(task));
        Ok(answer)
    }

    async fn poll(
        &self,
        session: &SessionId,
        job: &JobId,
        id: Option<&ToolCallId>,
        arguments: &PollArguments,
    ) -> Result<Outcome, ProcessError> {
        let outputs = &self.inner.outputs;
        let request = request_digest(POLL_TOOL, arguments);
        if let Some(id) = id
            && let Some(earlier) = outputs.answered_call(session, job, id, request).await?
        {
            return Ok(earlier);
        }
        self.inner.launcher.give_way().await;
        let owned = (session.clone(), job.clone(), arguments.process_id.clone());
        Ok(self.inner.answer(&owned, id, request, arguments).await?)
    }

    async fn stop(
        &self,
        session: &SessionId,
        job: &JobId,
        id: Option<&ToolCallId>,
        arguments: &StopArguments,
    ) -> Result<Outcome, ProcessError> {
        let inner = &self.inner;
        let request = request_digest(STOP_TOOL, arguments);
        if let Some(id) = id
            && let Some(earlier) = inner
                .outputs
                .answered_call(session, job, id, request)
                .await?
        {
            return Ok(earlier);
        }
        let owned = (session.clone(), job.clone(), arguments.process_id.clone());
        let record = inner.outputs.process(session, job, &owned.2).await?;
        if let Some(running) = inner.running(&record.launch()) {
            running.process.request_stop();
            running.process.ended().await;
        }
        let poll = PollArguments {
            process_id: arguments.process_id.clone(),
            cursors: None,
        };
        Ok(inner.answer(&owned, id, request, &poll).await?)
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
        match call {
            ProcessCall::Start(arguments) => {
                let id = id.map_or_else(|| self.inner.new_call_id(), ToolCallId::clone);
                self.start(session, job, &id, arguments)?.await
            }
            ProcessCall::Poll(arguments) => self.poll(session, job, id, arguments).await,
            ProcessCall::Stop(arguments) => self.stop(session, job, id, arguments).await,
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

impl<S, L> Inner<S, L> {
    fn live(&self) -> MutexGuard<'_, Vec<Running>> {
        // A panic cannot leave it half changed.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn starting(&self) -> MutexGuard<'_, Vec<Starting>> {
        // As above.
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store + 'static, L: Launcher> Inner<S, L> {
    /// The process of a start, where it is one of this host's that runs.
    fn running(&self, launch: &Launch) -> Option<Running> {
        let is_own = launch.generation == self.generation;
        is_own.then(|| self.live_of(launch.number))?
    }

    fn live_of(&self, number: u64) -> Option<Running> {
        let live = self.live();
        live.iter().find(|live| live.number == number).cloned()
    }

    /// Lets a process go.
    fn let_go(&self, number: u64) {
        self.live().retain(|live| live.number != number);
    }

    fn new_call_id(&self) -> ToolCallId {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.generation.call_id(number)
    }

    async fn start(
        self: &Arc<Self>,
        (session, job, id): &Call,
        request: Sha256Digest,
        arguments: &StartArguments,
    ) -> Result<Outcome, ProcessError> {
        let recording = self.recording.lock().await;
        let refusal = match *recording {
            IsOpen::No => Some(ProcessError::NoProcesses),
            IsOpen::Yes if self.live().len() >= MAX_RUNNING => Some(ProcessError::TooMany),
            IsOpen::Yes => None,
        };
        if let Some(refusal) = refusal {
            let answered = self.outputs.answered_call(session, job, id, request);
            return answered.await?.ok_or(refusal);
        }
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        let launch = Launch {
            generation: self.generation.clone(),
            number,
        };
        let begun = self
            .outputs
            .begin_process(session, job, id, request, &launch)
            .await?;
        let (process_id, outcome) = match begun {
            Begun::Answered(outcome) => return Ok(outcome),
            Begun::New {
                process_id,
                outcome,
            } => (process_id, outcome),
        };
        let process = LiveProcess::default();
        let running = Running {
            number,
            owned: (session.clone(), job.clone(), process_id.clone()),
            process: process.clone(),
        };
        self.live().push(running);
        drop(recording);
        let Err(sentence) = self.launcher.launch(arguments, process.clone()).await else {
            let inner = Arc::clone(self);
            self.launcher.spawn(Box::pin(async move {
                process.ended().await;
                // A store that is full may have room when the process is looked at.
                let _ = inner.finish(number).await;
            }));
            return Ok(outcome);
        };
        let failed = ToolResult::from_text(false, sentence);
        let recording = self.recording.lock().await;
        let of = (&process_id, &launch);
        let abandoned = self
            .outputs
            .abandon_process(session, job, id, of, &failed)
            .await;
        self.let_go(number);
        drop(recording);
        // Whoever waits for its end finds that there is no such process.
        process.end(Exit::Unknown);
        Ok(abandoned?)
    }

    /// Stores the end of a process that has ended, and lets it go. Whoever comes first does it; the
    /// others find it done.
    async fn finish(&self, number: u64) -> Result<(), ToolOutputError> {
        let Some(Running { owned, process, .. }) = self.live_of(number) else {
            return Ok(());
        };
        let (session, job, process_id) = owned;
        let (facts, stdout, stderr) = process.snapshot(&process_id);
        let ended = EndedProcess {
            launch: Launch {
                generation: self.generation.clone(),
                number,
            },
            facts,
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let _recording = self.recording.lock().await;
        let finished = self
            .outputs
            .finish_process(&session, &job, &ended, (self.now_ms)())
            .await;
        match finished {
            // Where its job is gone, nobody may ask for it.
            Ok(_) | Err(ToolOutputError::Unavailable) => {
                self.let_go(number);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// What can be seen now of the process of this name, and which start of it that is. Of one that
    /// has ended nothing is shown before it is stored.
    async fn look(&self, owned: &Owned) -> Result<(Launch, Seen), ToolOutputError> {
        let (session, job, process_id) = owned;
        loop {
            let record = self.outputs.process(session, job, process_id).await?;
            let launch = record.launch();
            if record.status != ProcessStatus::Running {
                let facts = record.facts(process_id.clone());
                let seen = facts.map_or(Seen::Unavailable(record.status), Seen::Stored);
                return Ok((launch, seen));
            }
            if let Some(Running { process, .. }) = self.running(&launch) {
                let (facts, stdout, stderr) = process.snapshot(process_id);
                if facts.status == ProcessStatus::Running {
                    let seen = Seen::Live {
                        facts,
                        stdout,
                        stderr,
                    };
                    return Ok((launch, seen));
                }
                self.finish(launch.number).await?;
                continue;
            }
            if launch.generation != self.generation
                && self.launcher.is_alive(&launch.generation).await
            {
                return Ok((launch, Seen::Unavailable(record.status)));
            }
            let _recording = self.recording.lock().await;
            // One of this host's may have come to its place meanwhile.
            if self.running(&launch).is_none() {
                // Nobody runs it.
                self.outputs
                    .interrupt_process(session, job, (process_id, &launch), (self.now_ms)())
                    .await?;
            }
        }
    }

    /// What a call observes now, recorded before it is shown.
    async fn answer(
        &self,
        owned: &Owned,
        id: Option<&ToolCallId>,
        request: Sha256Digest,
        arguments: &PollArguments,
    ) -> Result<Outcome, ToolOutputError> {
        let (launch, observation) = self.observe(owned, arguments).await?;
        let (session, job, process_id) = owned;
        let of = (process_id, &launch);
        let _recording = self.recording.lock().await;
        self.outputs
            .record_observation(session, job, id, request, of, observation)
            .await
    }

    async fn observe(
        &self,
        owned: &Owned,
        arguments: &PollArguments,
    ) -> Result<(Launch, Observation), ToolOutputError> {
        let (launch, seen) = self.look(owned).await?;
        let observation = self.observe_seen(owned, &seen, arguments).await?;
        Ok((launch, observation))
    }

    async fn observe_seen(
        &self,
        owned: &Owned,
        seen: &Seen,
        arguments: &PollArguments,
    ) -> Result<Observation, ToolOutputError> {
        let process_id = &arguments.process_id;
        let facts = match seen {
            Seen::Live { facts, .. } | Seen::Stored(facts) => facts,
            // Where it stands is known, and a plain poll says so. Bytes that are not there are not
            // there.
            Seen::Unavailable(status) if arguments.cursors.is_none() => {
                return Ok(Observation::Plain(unavailable(process_id, *status)));
            }
            Seen::Unavailable(_) => return Err(ToolOutputError::Unavailable),
        };
        let bytes = |stream, range| self.bytes(owned, seen, stream, range);
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
