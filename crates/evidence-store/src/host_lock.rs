//! Which hosts of processes live, told by locks that the tabs and workers of an origin share.

use std::cell::RefCell;

use evidence_core::Generation;
use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

/// What the names of the locks begin with.
const PREFIX: &str = "bounded-evidence-host-";

/// Held as long as a host of processes lives. The browser lets it go when the host's tab or worker is
/// gone, however it ended; so whoever shares its database can tell.
///
/// Where there are no locks (insecure contexts, older runtimes) the hosts of other programs, tabs and
/// workers count as gone.
#[derive(Debug)]
pub struct HostLock {
    generation: Generation,
    release: Function,
}

thread_local! {
    /// The hosts that live here, for which no lock needs to be asked.
    static HERE: RefCell<Vec<Generation>> = const { RefCell::new(Vec::new()) };
}

impl HostLock {
    /// Holds the lock of a host of this generation, which no other has.
    pub async fn hold(generation: &Generation) -> Self {
        let (granted, grant) = pending();
        let (released, release) = pending();
        let on_grant = Closure::once_into_js(move |_lock: JsValue| -> Promise {
            let _ = grant.call0(&JsValue::UNDEFINED);
            // The lock is held until this settles.
            released
        });
        let arguments = Array::of2(&name_of(generation).into(), &on_grant);
        if let Some(requested) = call("request", &arguments) {
            // A refusal must not be waited for.
            let _ = JsFuture::from(Promise::race(&Array::of2(&granted, &requested))).await;
        }
        HERE.with_borrow_mut(|here| here.push(generation.clone()));
        Self {
            generation: generation.clone(),
            release,
        }
    }

    /// Whether there are locks here, so that it is known which hosts live.
    pub fn can_tell() -> bool {
        lock_manager().is_some()
    }

    /// Whether a host of this generation lives.
    pub async fn is_held(generation: &Generation) -> bool {
        if HERE.with_borrow(|here| here.contains(generation)) {
            return true;
        }
        let Some(answer) = call("query", &Array::new()) else {
            return false;
        };
        let held = JsFuture::from(Promise::resolve(&answer)).await;
        let held = held.and_then(|snapshot| Reflect::get(&snapshot, &"held".into()));
        let Ok(held) = held.and_then(JsCast::dyn_into::<Array>) else {
            return false;
        };
        let name = JsValue::from(name_of(generation));
        held.iter()
            .any(|lock| Reflect::get(&lock, &"name".into()).is_ok_and(|held| held == name))
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        HERE.with_borrow_mut(|here| here.retain(|host| *host != self.generation));
        let _ = self.release.call0(&JsValue::UNDEFINED);
    }
}

fn name_of(generation: &Generation) -> String {
    format!("{PREFIX}{generation}")
}

/// A promise, and what settles it.
fn pending() -> (Promise, Function) {
    let mut settle = JsValue::UNDEFINED;
    let promise = Promise::new(&mut |resolve, _| settle = resolve.into());
    // A promise calls its executor at once.
    (promise, settle.unchecked_into())
}

/// `navigator.locks`, where there is one.
fn lock_manager() -> Option<JsValue> {
    let navigator = Reflect::get(&js_sys::global(), &"navigator".into()).ok()?;
    let locks = Reflect::get(&navigator, &"locks".into()).ok()?;
    locks.is_object().then_some(locks)
}

/// What a function of `navigator.locks` answers; nothing where there are no locks.
fn call(name: &str, arguments: &Array) -> Option<JsValue> {
    let locks = lock_manager()?;
    let function: Function = Reflect::get(&locks, &name.into()).ok()?.dyn_into().ok()?;
    function.apply(&locks, arguments).ok()
}
