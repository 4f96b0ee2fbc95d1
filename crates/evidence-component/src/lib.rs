//! The rules of both contracts as a WebAssembly component, over the blobs that its host supplies.
//!
//! Conversions and errors, nothing else: what each function does is said in `wit/evidence.wit`, every
//! rule is in the crates below. The component imports `blobs` and nothing more, neither a clock nor
//! randomness nor files, so that any host of components can run it and a call with the same blobs has
//! the same answer.
#![cfg(target_arch = "wasm32")]

mod artifacts;
mod blobs;
mod retention;
mod tool_output;

use futures_util::FutureExt as _;

#[expect(unsafe_code, clippy::pedantic, reason = "generated")]
mod bindings {
    use super::Component;

    wit_bindgen::generate!({
        path: "wit",
        world: "evidence",
        // What is only handed over is not copied for that.
        ownership: Borrowing { duplicate_if_necessary: false },
    });
    export!(Component);
}

/// Implements what the component exports.
struct Component;

/// The outcome of what never has to wait, because the host's blobs answer at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    let outcome = future.now_or_never();
    outcome.unwrap_or_else(|| unreachable!("nothing beneath waits for anything but the blobs"))
}
