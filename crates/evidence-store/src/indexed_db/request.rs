//! IndexedDB's events as futures, and its exceptions as errors.

use std::future::Future;

use js_sys::{Function, Promise};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{DomException, Event, IdbOpenDbRequest, IdbRequest, IdbTransaction};

use crate::store::StoreError;

/// How opening a database ended, as far as it did.
pub(super) enum Opened {
    Success,
    Error,
    /// It waits for a connection that does not close.
    Blocked,
}

/// The type of the first event that a listener hears which `listen` is given to attach.
///
/// It is attached at once, not at the first poll, so that no event is missed. It is the promise's
/// own resolving function: nothing of ours has to outlive a future that is dropped. It never
/// rejects, so that no rejection goes unhandled.
fn first_event(listen: &mut dyn FnMut(&Function)) -> impl Future<Output = String> + use<> {
    let event = Promise::new(&mut |resolve, _| listen(&resolve));
    async {
        JsFuture::from(event)
            .await
            .ok()
            .and_then(|event| event.dyn_into::<Event>().ok())
            .map(|event| event.type_())
            .unwrap_or_default()
    }
}

/// Waits until a database is open, or will not be.
pub(super) async fn opened(request: &IdbOpenDbRequest) -> Opened {
    let event = first_event(&mut |listener| {
        request.set_onsuccess(Some(listener));
        request.set_onerror(Some(listener));
        request.set_onblocked(Some(listener));
    });
    match event.await.as_str() {
        "success" => Opened::Success,
        "blocked" => Opened::Blocked,
        _ => Opened::Error,
    }
}

/// Waits until a request has succeeded.
pub(super) async fn succeeded(request: &IdbRequest) -> Result<(), StoreError> {
    let event = first_event(&mut |listener| {
        request.set_onsuccess(Some(listener));
        request.set_onerror(Some(listener));
    });
    match event.await.as_str() {
        "success" => Ok(()),
        _ => Err(request_error(request)),
    }
}

/// Waits until everything of a transaction has happened, or nothing of it will.
pub(super) fn finished(
    transaction: IdbTransaction,
) -> impl Future<Output = Result<(), StoreError>> {
    let event = first_event(&mut |listener| {
        transaction.set_oncomplete(Some(listener));
        transaction.set_onabort(Some(listener));
    });
    async move {
        match event.await.as_str() {
            "complete" => Ok(()),
            _ => Err(named_error(transaction.error().as_ref())),
        }
    }
}

/// Why a request failed.
pub(super) fn request_error(request: &IdbRequest) -> StoreError {
    match request.error() {
        Ok(error) => named_error(error.as_ref()),
        Err(error) => store_error(&error),
    }
}

/// What an exception of IndexedDB means to a caller.
pub(super) fn store_error(error: &JsValue) -> StoreError {
    named_error(error.dyn_ref())
}

fn named_error(error: Option<&DomException>) -> StoreError {
    let name = error.map_or_else(|| "no reason given".to_owned(), DomException::name);
    match name.as_str() {
        "QuotaExceededError" => StoreError::Exhausted,
        "SecurityError" | "InvalidStateError" | "NotAllowedError" => unavailable(
            "this browser does not let the site store data; allow it in the browser's settings, or \
             leave the private window",
        ),
        "VersionError" => unavailable(
            "the database has a newer form than this page knows; reload the page to get its newer \
             version",
        ),
        "NotFoundError" => StoreError::Damaged {
            reason: "the database is not one that this project made; clear the site's data"
                .to_owned(),
        },
        _ => unavailable(&format!(
            "IndexedDB failed ({name}); try again, then free space on the disk or restart the \
             browser"
        )),
    }
}

pub(super) fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable {
        reason: reason.to_owned(),
    }
}
