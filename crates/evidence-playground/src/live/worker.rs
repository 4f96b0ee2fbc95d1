//! The model's Web Worker, as something that can be asked.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use evidence_model_protocol::{Command, Envelope, Event, Request};
use js_sys::{Array, JSON, Reflect};
use wasm_bindgen::prelude::*;
use web_sys::{Blob, BlobPropertyBag, File, MessageEvent, Url, Worker, WorkerOptions, WorkerType};

use crate::browser;

/// Its script, beside the page.
const SCRIPT: &str = "evidence-model-worker/worker.js";

/// A started worker. It ends with its last clone.
#[derive(Debug, Clone)]
pub struct ModelWorker(Rc<Inner>);

type Listener = Closure<dyn Fn(MessageEvent)>;

struct Inner {
    worker: Worker,
    next_id: Cell<u32>,
    asked: RefCell<BTreeMap<u32, Rc<Queue>>>,
    /// A request that was cancelled and has not ended yet: the worker does one thing at a time.
    cancelled: RefCell<Option<Rc<Queue>>>,
    /// Why nothing more will come.
    broken: RefCell<Option<String>>,
    /// Called by the browser as long as the worker lives.
    listeners: RefCell<Vec<Listener>>,
}

/// The events of one request that nobody has taken yet.
#[derive(Debug, Default)]
struct Queue {
    events: RefCell<VecDeque<Event>>,
    waker: RefCell<Option<Waker>>,
}

/// The events of one request. Dropping it before the last one cancels the request.
#[derive(Debug)]
pub struct Answers {
    worker: Rc<Inner>,
    id: u32,
    queue: Rc<Queue>,
    ended: bool,
}

impl ModelWorker {
    /// Starts the worker: what it says first is that it listens, and a request may be sent before.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub fn start() -> Result<Self, String> {
        let worker = spawn().map_err(|error| {
            format!(
                "The browser did not start the model's worker: {}.",
                browser::reason(&error)
            )
        })?;
        let inner = Rc::new(Inner {
            worker,
            next_id: Cell::new(1),
            asked: RefCell::default(),
            cancelled: RefCell::default(),
            broken: RefCell::default(),
            listeners: RefCell::default(),
        });
        inner.listen();
        Ok(Self(inner))
    }

    /// Asks something, once what was cancelled before has ended. Files go beside the request, because they
    /// are no plain data.
    pub async fn ask(&self, command: Command, files: &[File]) -> Answers {
        let inner = &self.0;
        let cancelled = inner.cancelled.borrow().clone();
        if let Some(queue) = cancelled {
            while !is_last(&queue.next().await) {}
            inner.cancelled.take();
        }
        let id = inner.next_id.replace(inner.next_id.get() + 1);
        let queue = Rc::new(Queue::default());
        let answers = Answers {
            worker: Rc::clone(inner),
            id,
            queue: Rc::clone(&queue),
            ended: false,
        };
        if let Some(message) = inner.broken.borrow().clone() {
            queue.push(Event::Failed { message });
            return answers;
        }
        inner.asked.borrow_mut().insert(id, queue);
        if let Err(error) = inner.post(&Request { id, command }, files) {
            let message = browser::reason(&error);
            inner.deliver(id, Event::Error { message });
        }
        answers
    }

    /// Ends the worker at once. Whoever waits for an answer is told.
    pub fn end(&self) {
        self.0.worker.terminate();
        self.0.fail("The model's worker was ended.");
    }

    /// Asks something that has one answer.
    ///
    /// # Errors
    ///
    /// The worker's sentence.
    pub async fn ask_once(&self, command: Command) -> Result<Event, String> {
        match self.ask(command, &[]).await.next().await {
            Event::Error { message } | Event::Failed { message } => Err(message),
            event => Ok(event),
        }
    }
}

/// A worker that a script of its own starts is not bound by the page's policy; one of a `blob:` is, so
/// that it can ask no other hosts than the page may.
fn spawn() -> Result<Worker, JsValue> {
    let import = format!("import {};", serde_json::json!(browser::address_of(SCRIPT)));
    let kind = BlobPropertyBag::new();
    kind.set_type("text/javascript");
    let script = Blob::new_with_str_sequence_and_options(&Array::of1(&import.into()), &kind)?;
    let address = Url::create_object_url_with_blob(&script)?;
    let options = WorkerOptions::new();
    options.set_type(WorkerType::Module);
    // The address is not revoked: browsers fetch it later, and it is a line of text.
    Worker::new_with_options(&address, &options)
}

impl Inner {
    fn listen(self: &Rc<Self>) {
        let weak = Rc::downgrade(self);
        let on_message = listener(&weak, |inner, event| inner.receive(&event.data()));
        self.worker
            .set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        let on_error = listener(&weak, |inner, _| {
            inner.fail(
                "The model's worker could not be loaded. Check the connection and load the model again.",
            );
        });
        self.worker
            .set_onerror(Some(on_error.as_ref().unchecked_ref()));
        *self.listeners.borrow_mut() = vec![on_message, on_error];
    }

    fn receive(&self, data: &JsValue) {
        let json = JSON::stringify(data).map(String::from).unwrap_or_default();
        match serde_json::from_str(&json) {
            Ok(Envelope {
                id: _,
                event: Event::Failed { message },
            }) => self.fail(&message),
            Ok(Envelope {
                id: Some(id),
                event,
            }) => self.deliver(id, event),
            Ok(Envelope { id: None, .. }) => {}
            Err(error) => self.fail(&format!(
                "The model's worker is of another build ({error}). Reload the page."
            )),
        }
    }

    fn deliver(&self, id: u32, event: Event) {
        let queue = if is_last(&event) {
            self.asked.borrow_mut().remove(&id)
        } else {
            self.asked.borrow().get(&id).cloned()
        };
        // Nobody waits for what was cancelled.
        if let Some(queue) = queue {
            queue.push(event);
        }
    }

    fn fail(&self, message: &str) {
        *self.broken.borrow_mut() = Some(message.to_owned());
        for queue in std::mem::take(&mut *self.asked.borrow_mut()).into_values() {
            let message = message.to_owned();
            queue.push(Event::Failed { message });
        }
    }

    fn post(&self, request: &Request, files: &[File]) -> Result<(), JsValue> {
        let json = serde_json::to_string(request).map_err(|error| error.to_string())?;
        let message = JSON::parse(&json)?;
        if !files.is_empty() {
            let files: Array = files.iter().collect();
            Reflect::set(&message, &"files".into(), &files)?;
        }
        self.worker.post_message(&message)
    }
}

fn listener(inner: &Weak<Inner>, react: fn(&Inner, &MessageEvent)) -> Listener {
    let inner = Weak::clone(inner);
    Closure::new(move |event: MessageEvent| {
        if let Some(inner) = inner.upgrade() {
            react(&inner, &event);
        }
    })
}

fn is_last(event: &Event) -> bool {
    !matches!(
        event,
        Event::Ready
            | Event::Download { .. }
            | Event::Progress { .. }
            | Event::Prefill { .. }
            | Event::Token { .. }
    )
}

impl Queue {
    fn push(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
        let waker = self.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn next(&self) -> Event {
        poll_fn(|context| {
            if let Some(event) = self.events.borrow_mut().pop_front() {
                return Poll::Ready(event);
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Answers {
    /// The next event. After the last one nothing comes.
    pub async fn next(&mut self) -> Event {
        let event = self.queue.next().await;
        self.ended = is_last(&event);
        event
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if !self.ended {
            *self.worker.cancelled.borrow_mut() = Some(Rc::clone(&self.queue));
            let cancel = Request {
                id: self.id,
                command: Command::Cancel,
            };
            // A worker that cannot be told any more does nothing any more.
            let _ = self.worker.post(&cancel, &[]);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.worker.set_onmessage(None);
        self.worker.set_onerror(None);
        self.worker.terminate();
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ModelWorker")
            .finish_non_exhaustive()
    }
}
