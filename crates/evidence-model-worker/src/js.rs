//! What the browser gives a worker, as Rust wants it.

use std::ops::Range;

use js_sys::{Promise, Reflect, Uint8Array, WebAssembly};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{Blob, DedicatedWorkerGlobalScope, MessageChannel};

pub(crate) fn scope() -> Result<DedicatedWorkerGlobalScope, JsValue> {
    js_sys::global()
        .dyn_into()
        .map_err(|_| "this is no dedicated worker".into())
}

/// What a thrown value says.
pub(crate) fn describe(error: &JsValue) -> String {
    match error.dyn_ref::<js_sys::Error>() {
        Some(error) => String::from(error.message()),
        None => error.as_string().unwrap_or_else(|| format!("{error:?}")),
    }
}

/// The name of a thrown `DOMException` or error.
pub(crate) fn error_name(error: &JsValue) -> Option<String> {
    Reflect::get(error, &"name".into()).ok()?.as_string()
}

pub(crate) async fn resolve<T: JsCast>(promise: Promise) -> Result<T, JsValue> {
    JsFuture::from(promise).await?.dyn_into()
}

/// The bytes of a part of a file.
pub(crate) async fn slice(blob: &Blob, range: Range<u64>) -> Result<Vec<u8>, JsValue> {
    let part = blob.slice_with_f64_and_f64(float(range.start), float(range.end))?;
    let buffer = JsFuture::from(part.array_buffer()).await?;
    Ok(Uint8Array::new(&buffer).to_vec())
}

pub(crate) fn byte_count(blob: &Blob) -> u64 {
    whole(blob.size())
}

#[expect(clippy::cast_precision_loss, reason = "no file has 2^53 bytes")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size is a whole number"
)]
pub(crate) fn whole(count: f64) -> u64 {
    count as u64
}

/// Bytes of WebAssembly memory.
pub(crate) fn memory_byte_count() -> u64 {
    let memory: WebAssembly::Memory = wasm_bindgen::memory().unchecked_into();
    let buffer: js_sys::ArrayBuffer = memory.buffer().unchecked_into();
    u64::from(buffer.byte_length())
}

/// Lets the messages that are waiting come in. A timer would do it too, but
/// browsers make timers wait for milliseconds.
pub(crate) async fn breathe() {
    let turn = Promise::new(&mut |resolve, _| {
        if let Ok(channel) = MessageChannel::new() {
            channel.port1().set_onmessage(Some(&resolve));
            let _ = channel.port2().post_message(&JsValue::NULL);
        } else {
            let _ = resolve.call0(&JsValue::UNDEFINED);
        }
    });
    let _ = JsFuture::from(turn).await;
}
