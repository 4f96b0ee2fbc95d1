//! Processes (contract B) that the host of the library supplies, and what is kept of them.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use evidence_agent::process::{
    Exit, Launcher, LiveProcess, ProcessCall, ProcessHost, ProcessTools, Task,
};
use evidence_core::process::{
    POLL_TOOL_SCHEMA, START_TOOL_SCHEMA, STOP_TOOL_SCHEMA, StartArguments, Stream,
};
use evidence_core::{Generation, ProcessId, Sha256Digest, ToolCallId};
use evidence_store::HostLock;
use futures_util::future::{Either, select};
use js_sys::{Array, Function, Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise, spawn_local};
use web_sys::AbortController;

use crate::argument::{Argument, call};
use crate::artifacts::object;
use crate::error::{Failure, Result};
use crate::store::AnyStore;
use crate::tool_output::{ToolOutput, job_id, now_ms, recorded};

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** A program that is to be started. */
export interface ProcessRequest {
  /** The program and its arguments. */
  argv: string[];
  /** The directory to run in, where the model named one. */
  cwd?: string;
  /**
   * Aborted when the process is to end. What it still writes within two seconds is captured; then it is
   * let go.
   */
  signal: AbortSignal;
}

/** A piece of what a process does: what it wrote, or its end. */
export interface ProcessEvent {
  /** What it wrote to its standard output. */
  stdout?: string | Uint8Array;
  /** What it wrote to its standard error. */
  stderr?: string | Uint8Array;
  /** Ends the process, after what it wrote with it. Null: nobody can say how it ended. */
  exitCode?: number | null;
}

/**
 * Starts a program, and answers with what it does, in order. Where that ends without an exit code, the
 * code is 0. What it throws ends the process without a code; the message becomes the last line of its
 * standard error, where that has room. What the function itself throws is told to the model: nothing was
 * started. A promise that has not settled after two seconds counts as a program that runs, and what it
 * throws then as what the program throws.
 */
export type StartProcess = (
  request: ProcessRequest,
) => ValueOf<AsyncIterable<ProcessEvent> | Iterable<ProcessEvent>>;
"#;

/// How long a process may take to end after it was asked to.
const GRACE_MILLISECONDS: i32 = 2000;
/// How long a call to start a process waits to be told that it did not start.
const START_MILLISECONDS: i32 = 2000;
/// How long a process that always has something to say may keep everything else waiting.
const TURN_MILLISECONDS: f64 = 10.0;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(callback: &Function, milliseconds: i32) -> JsValue;
    #[wasm_bindgen(js_name = clearTimeout)]
    fn clear_timeout(timer: &JsValue);
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn monotonic_now() -> f64;
    #[wasm_bindgen(catch, js_namespace = crypto, js_name = getRandomValues)]
    fn get_random_values(bytes: &Uint8Array) -> Result<JsValue, JsValue>;
}

/// The processes of one page or program.
pub type Processes = ProcessHost<AnyStore, JsLauncher>;

/// Processes as a function of the host starts them.
#[derive(Debug)]
pub struct JsLauncher {
    start: Function,
    /// Held as long as the processes are, to be told from those of a tab that is gone.
    _lock: HostLock,
}

impl Launcher for JsLauncher {
    async fn launch(&self, arguments: &StartArguments, process: LiveProcess) -> Result<(), String> {
        let start = self.start.clone();
        let argv: Array = arguments.argv.iter().map(JsValue::from).collect();
        let cwd = arguments.cwd.as_deref().map(JsValue::from);
        let counts_as_started = Rc::new(Cell::new(false));
        let is_late = Rc::clone(&counts_as_started);
        // It goes on when it is not waited for any more.
        let started = future_to_promise(async move {
            match Running::start(&start, argv.into(), cwd, &process).await {
                Ok(running) => spawn_local(async move {
                    let exit = running.drive(&process).await;
                    process.end(exit);
                }),
                Err(sentence) if is_late.get() => {
                    process.write_last_line(&sentence);
                    process.end(Exit::Unknown);
                }
                Err(sentence) => return Err(sentence.into()),
            }
            Ok(JsValue::UNDEFINED)
        });
        let patience = pin!(wait(START_MILLISECONDS));
        match select(JsFuture::from(started), patience).await {
            Either::Left((started, _)) => started
                .map(drop)
                .map_err(|exception| Argument::new("exception", exception).message()),
            Either::Right(_) => {
                counts_as_started.set(true);
                Ok(())
            }
        }
    }

    fn spawn(&self, task: Task) {
        spawn_local(task);
    }

    async fn is_alive(&self, generation: &Generation) -> bool {
        HostLock::is_held(generation).await
    }

    async fn give_way(&self) {
        wait(0).await;
    }
}

/// Lets everything else happen for at least so long.
async fn wait(milliseconds: i32) {
    /// A program must not be kept from ending by a timer that nobody waits for.
    struct Timer(JsValue);
    impl Drop for Timer {
        fn drop(&mut self) {
            clear_timeout(&self.0);
        }
    }
    let mut timer = None;
    let elapsed = Promise::new(&mut |resolve, _| {
        timer = Some(Timer(set_timeout(&resolve, milliseconds)));
    });
    let _ = JsFuture::from(elapsed).await;
    drop(timer);
}

/// A process that was started: the iterator of what it does, and how to end it.
struct Running {
    iterator: Argument,
    next: Function,
    controller: AbortController,
}

impl Running {
    async fn start(
        start: &Function,
        argv: JsValue,
        cwd: Option<JsValue>,
        process: &LiveProcess,
    ) -> Result<Self, String> {
        let failed = |what: &str| format!("the process did not start: {what}");
        let controller =
            AbortController::new().map_err(|_| failed("there is no AbortController here"))?;
        let mut request = vec![("argv", argv), ("signal", controller.signal().into())];
        request.extend(cwd.map(|cwd| ("cwd", cwd)));
        let (this, request) = (JsValue::UNDEFINED, [object(request)]);
        let source = {
            let source = pin!(call(start, &this, &request));
            let stopped = pin!(stopped(process, &controller));
            match select(source, stopped).await {
                Either::Left((source, _)) => source,
                Either::Right(_) => return Err(failed("it was stopped before")),
            }
        };
        let source =
            source.map_err(|exception| failed(&Argument::new("exception", exception).message()))?;
        let opened = || {
            let iterator = Argument::new("what start answers", source).iterator()?;
            let next = iterator.field("next")?.function()?;
            Ok((iterator, next))
        };
        let (iterator, next) =
            opened().map_err(|failure: Failure| failed(&failure.into_message()))?;
        Ok(Self {
            iterator,
            next,
            controller,
        })
    }

    /// Passes on what the process does until it has ended.
    async fn drive(self, process: &LiveProcess) -> Exit {
        let stopped = pin!(stopped(process, &self.controller));
        let ended = pin!(self.pass_on(process));
        let exit = match select(ended, stopped).await {
            Either::Left((Ok(exit), _)) => exit,
            Either::Left((Err(sentence), _)) => {
                process.write_last_line(&sentence);
                Exit::Unknown
            }
            Either::Right(_) => Exit::Unknown,
        };
        // Whoever made the iterator may clean up. What that throws has nobody to be told.
        if let Ok(end) = self.iterator.field("return").and_then(|end| end.function()) {
            let iterator = self.iterator.clone();
            spawn_local(async move {
                let _ = call(&end, iterator.value(), &[]).await;
            });
        }
        exit
    }

    async fn pass_on(&self, process: &LiveProcess) -> Result<Exit, String> {
        let mut turn = monotonic_now();
        loop {
            // What never waits for anything would otherwise keep everybody from even stopping it.
            if monotonic_now() - turn > TURN_MILLISECONDS {
                wait(0).await;
                turn = monotonic_now();
            }
            let answer = call(&self.next, self.iterator.value(), &[])
                .await
                .map_err(|exception| Argument::new("exception", exception).message())?;
            let answer = Argument::new("the answer of next", answer);
            if let Some(exit) = take(&answer, process).map_err(Failure::into_message)? {
                return Ok(exit);
            }
        }
    }
}

/// Returns when a process has been asked to end and was given the time for it.
async fn stopped(process: &LiveProcess, controller: &AbortController) {
    process.stop_requested().await;
    controller.abort();
    wait(GRACE_MILLISECONDS).await;
}

/// Takes what an iterator answered; its end, if it is the end.
fn take(answer: &Argument, process: &LiveProcess) -> Result<Option<Exit>> {
    if answer.field("done")?.value().is_truthy() {
        return Ok(Some(Exit::Code(0)));
    }
    let event = answer.field("value")?;
    for (name, stream) in [("stdout", Stream::Stdout), ("stderr", Stream::Stderr)] {
        if let Some(written) = event.field(name)?.optional() {
            process.write(stream, &written.bytes()?);
        }
    }
    let code = event.field("exitCode")?.optional();
    code.map(|code| Ok(code.exit_code()?.map_or(Exit::Unknown, Exit::Code)))
        .transpose()
}

/// A name that no other host has.
fn generation() -> Result<Generation> {
    let random = Uint8Array::new_with_length(16);
    get_random_values(&random).map_err(|_| {
        Failure::invalid("processes need crypto.getRandomValues, which is not here")
    })?;
    let name = Sha256Digest::of(&random.to_vec()).to_string();
    name.parse()
        .map_err(|error| Failure::invalid(format!("{error}")))
}

#[wasm_bindgen]
impl ToolOutput {
    /// Lets processes be started for the session's jobs: by the model in `runAgent` (its `policy` and
    /// `approve` hold for them as for commands) and by `callProcessTool`. What they write is captured
    /// up to 1 MiB a stream, and stored together with how they ended.
    ///
    /// Processes that a page left behind running are recorded as interrupted, so that their reads are
    /// answered; those of other tabs that still live are left alone. A custom store must have one
    /// program at a time that has processes.
    #[wasm_bindgen(js_name = openProcesses)]
    pub async fn open_processes(
        &self,
        #[wasm_bindgen(unchecked_param_type = "StartProcess")] start: JsValue,
    ) -> Result<()> {
        let start = Argument::new("start", start).function()?;
        // Those of a host that still lives are not interrupted; its own end as they should.
        self.close_processes().await?;
        let generation = generation()?;
        let launcher = JsLauncher {
            start,
            _lock: HostLock::hold(&generation).await,
        };
        let host = ProcessHost::open(self.outputs().clone(), launcher, generation, now_ms).await?;
        // Somebody may have opened some meanwhile.
        if let Some(before) = self.set_processes(Some(host)) {
            before.close().await?;
        }
        Ok(())
    }

    /// Ends the processes that run, stores what they wrote, and lets no more be started.
    #[wasm_bindgen(js_name = closeProcesses)]
    pub async fn close_processes(&self) -> Result<()> {
        if let Some(processes) = self.set_processes(None) {
            processes.close().await?;
        }
        Ok(())
    }

    /// Answers a call of `exec_start`, `exec_poll` or `exec_stop`: what the model is to see of it. A
    /// second delivery under the same `toolCallId` gets the answer of the first, also after a restart.
    ///
    /// `argumentsJson` is what the model wrote. Whether a program may be started is the caller's to
    /// decide before. Rejects with `invalid_request` for other tools and arguments, with `unavailable`
    /// where there are no such process, job or bytes, and with `conflict` when too many run; the
    /// message is fit for the model.
    #[wasm_bindgen(js_name = callProcessTool, unchecked_return_type = "RecordedResult")]
    pub async fn call_process_tool(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
        #[wasm_bindgen(unchecked_param_type = "\"exec_start\" | \"exec_poll\" | \"exec_stop\"")]
        tool: JsValue,
        #[wasm_bindgen(js_name = argumentsJson, unchecked_param_type = "string")]
        arguments: JsValue,
        #[wasm_bindgen(unchecked_optional_param_type = "{ toolCallId?: string }")] options: JsValue,
    ) -> Result<JsValue> {
        let job = job_id(job)?;
        let tool = Argument::new("tool", tool);
        let arguments = Argument::new("argumentsJson", arguments).text()?;
        let mut id = None;
        if let Some(options) = Argument::new("options", options).optional()
            && let Some(given) = options.field("toolCallId")?.optional()
        {
            id = Some(given.parsed::<ToolCallId>()?);
        }
        let call = ProcessCall::parse(&tool.text()?, &arguments)
            .ok_or_else(|| tool.is_not("\"exec_start\", \"exec_poll\" or \"exec_stop\""))?
            .map_err(evidence_agent::process::ProcessError::from)?;
        let outcome = self
            .processes()
            .call(self.session(), &job, id.as_ref(), &call)
            .await?;
        Ok(recorded(outcome))
    }

    /// Deletes what was captured of a process, before it expires. Reads of it answer `unavailable` from
    /// then on; what polls have shown stays. One that is not there (any more) is no error.
    #[wasm_bindgen(js_name = deleteCapture)]
    pub async fn delete_capture(
        &self,
        #[wasm_bindgen(unchecked_param_type = "string")] job: JsValue,
        #[wasm_bindgen(js_name = processId, unchecked_param_type = "string")] process: JsValue,
    ) -> Result<()> {
        let job = job_id(job)?;
        let process: ProcessId = Argument::new("processId", process).parsed()?;
        let deleted = self
            .outputs()
            .delete_capture(self.session(), &job, &process);
        Ok(deleted.await?)
    }
}

/// What the model is told about the tools of processes: the JSON of an array of objects of `name`,
/// `description` and `parameters` (JSON Schema).
#[wasm_bindgen(js_name = processToolSchemas)]
pub fn process_tool_schemas() -> String {
    format!("[{START_TOOL_SCHEMA},{POLL_TOOL_SCHEMA},{STOP_TOOL_SCHEMA}]")
}
