//! Deletes tool output that has expired: when the page opens, and while it is idle. One tab at a time
//! does it.

use js_sys::{Function, Object, Promise, Reflect};
use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, future_to_promise};

use crate::browser;
use crate::runner::Phase;
use crate::state::Playground;

/// The name of the lock that the sweeping tab holds.
const LOCK: &str = "bounded-evidence-sweep";
/// How long after a sweep the next one comes.
const INTERVAL_MS: i32 = 60 * 60 * 1000;

impl Playground {
    /// Sweeps now, and from time to time while no run goes on.
    pub fn sweep_for_ever(self) {
        spawn_local(async move {
            let mut last = None;
            loop {
                let now = browser::monotonic_ms();
                let elapsed_ms = last.map(|last| now - last);
                if self.phase.get_untracked() != Phase::Running {
                    last = Some(now);
                    alone(self, elapsed_ms).await;
                }
                browser::sleep(INTERVAL_MS).await;
            }
        });
    }

    async fn sweep(self, elapsed_ms: Option<u64>) {
        let Some(storage) = self.storage.get_untracked() else {
            return;
        };
        match storage.outputs.sweep(browser::now_ms(), elapsed_ms).await {
            Ok(swept) if swept.is_empty() => {}
            Ok(_) => self.artifacts_changed().await,
            Err(error) => self.notify(format!("What has expired was not deleted: {error}.")),
        }
    }
}

/// Sweeps unless another tab does so just now. Where the browser has no locks, tabs may sweep at once,
/// which costs time and nothing else.
async fn alone(page: Playground, elapsed_ms: Option<u64>) {
    let Some((locks, request)) = lock_manager() else {
        page.sweep(elapsed_ms).await;
        return;
    };
    let options = Object::new();
    // A new plain object takes every property.
    let _ = Reflect::set(&options, &"ifAvailable".into(), &JsValue::TRUE);
    let sweep = Closure::once(move |lock: JsValue| -> Promise {
        future_to_promise(async move {
            if !lock.is_null() {
                page.sweep(elapsed_ms).await;
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
