//! Deletes tool output that has expired: when the page opens, and while it is idle. One tab at a time
//! does it.

use std::cell::Cell;
use std::rc::Rc;

use js_sys::{Function, Object, Promise, Reflect};
use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};

use crate::browser;
use crate::runner::Phase;
use crate::state::Playground;

/// How far the time had got at a sweep, in milliseconds since 1970, and when that was on the monotonic
/// clock.
type LastSweep = (u64, u64);

/// The name of the lock that the sweeping tab holds.
const LOCK: &str = "bounded-evidence-sweep";
/// How long after a sweep the next one comes.
const INTERVAL_MS: i32 = 60 * 60 * 1000;

impl Playground {
    /// Sweeps now, and from time to time while no run goes on.
    pub fn sweep_for_ever(self) {
        spawn_local(async move {
            self.cancel_left_runs().await;
            let last: Rc<Cell<Option<LastSweep>>> = Rc::default();
            loop {
                if self.phase.get_untracked() != Phase::Running {
                    alone(self, &last).await;
                }
                browser::sleep(INTERVAL_MS).await;
            }
        });
    }

    async fn cancel_left_runs(self) {
        let Some(storage) = self.storage.get_untracked() else {
            return;
        };
        match storage.cancel_left_runs().await {
            Ok(false) => {}
            Ok(true) => self.artifacts_changed().await,
            Err(error) => self.notify(format!(
                "Runs that were left behind were not cancelled: {error}."
            )),
        }
    }

    async fn sweep(self, last: &Cell<Option<LastSweep>>) {
        let Some(storage) = self.storage.get_untracked() else {
            return;
        };
        let at_ms = browser::monotonic_ms();
        let limit_ms = last
            .get()
            .map(|(now_ms, last_ms)| now_ms.saturating_add(at_ms.saturating_sub(last_ms)));
        match storage.outputs.sweep(browser::now_ms(), limit_ms).await {
            Ok(swept) => {
                last.set(Some((swept.now_ms, at_ms)));
                if !swept.is_empty() {
                    self.artifacts_changed().await;
                }
            }
            Err(error) => self.notify(format!("What has expired was not deleted: {error}.")),
        }
    }
}

/// Sweeps unless another tab does so just now. Where the browser has no locks, tabs may sweep at once,
/// which costs time and nothing else.
async fn alone(page: Playground, last: &Rc<Cell<Option<LastSweep>>>) {
    let Some((locks, request)) = lock_manager() else {
        page.sweep(last).await;
        return;
    };
    let options = Object::new();
    // A new plain object takes every property.
    let _ = Reflect::set(&options, &"ifAvailable".into(), &JsValue::TRUE);
    let last = Rc::clone(last);
    let sweep = Closure::once(move |lock: JsValue| -> Promise {
        future_to_promise(async move {
            if !lock.is_null() {
                page.sweep(&last).await;
            }
            Ok(JsValue::UNDEFINED)
        })
    });
    let done = request.call3(&locks, &LOCK.into(), &options, sweep.as_ref());
    if let Ok(done) = done {
        let _ = JsFuture::from(Promise::resolve(&done)).await;
    }
}

/// `navigator.locks` and its `request`.
fn lock_manager() -> Option<(JsValue, Function)> {
    let locks = Reflect::get(&window().navigator(), &"locks".into()).ok()?;
    let request = Reflect::get(&locks, &"request".into()).ok()?;
    Some((locks, request.dyn_into().ok()?))
}
