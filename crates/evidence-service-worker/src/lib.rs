//! The endpoint of contract B inside the page's service worker: `web/service-worker.js` hands over the
//! requests that it intercepts, and the page's database answers them.
//!
//! It is a WebAssembly of its own, so that a worker that starts for one request loads no more than it
//! needs.
#![cfg(target_arch = "wasm32")]

use evidence_agent::endpoint::{Endpoint, MAX_BODY_BYTES, Problem, Request, Response, Route};
use evidence_core::SessionId;
use evidence_store::{IndexedDbStore, ToolOutputError, ToolOutputs};
use js_sys::{Array, Date, Uint8Array};
use wasm_bindgen::prelude::*;

/// An answer: what the constructor of a `Response` takes.
#[derive(Debug)]
#[wasm_bindgen(getter_with_clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Pairs of a name and a value.
    pub headers: Array,
    /// The body, which is always text.
    pub body: String,
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        let pair = |(name, value): (&str, String)| Array::of2(&name.into(), &value.into());
        Self {
            status: response.status,
            headers: response.headers.into_iter().map(pair).collect(),
            body: response.body,
        }
    }
}

/// Answers a request of the page's session, which is the one of its database; `fresh_session` becomes
/// it where there is none yet. `target` is the path and the query from `/v1/` on.
#[wasm_bindgen]
pub async fn respond(
    method: &str,
    target: &str,
    #[wasm_bindgen(js_name = toolCallId)] tool_call_id: Option<String>,
    body: &Uint8Array,
    #[wasm_bindgen(js_name = freshSession)] fresh_session: &str,
) -> Answer {
    let answer = if body.length() as usize > MAX_BODY_BYTES {
        Err(Problem::body_too_large())
    } else {
        let request = Request {
            method,
            target,
            tool_call_id: tool_call_id.as_deref(),
            body: body.to_vec().into(),
        };
        answer(request, fresh_session).await
    };
    answer
        .unwrap_or_else(|problem| Response::problem(&problem, Route::Unknown))
        .into()
}

/// The answer to a request that nobody of this page made: that a session is needed.
#[wasm_bindgen]
pub fn refuse() -> Answer {
    Response::problem(&Problem::unauthenticated(), Route::Unknown).into()
}

async fn answer(request: Request<'_>, fresh_session: &str) -> Result<Response, Problem> {
    // The connection closes itself when the page upgrades or deletes the database, so that none is
    // kept from request to request.
    let store = IndexedDbStore::open(IndexedDbStore::DEFAULT_NAME)
        .await
        .map_err(ToolOutputError::from)?;
    let endpoint = Endpoint::new(store);
    let session = session(endpoint.outputs(), fresh_session).await?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time is whole milliseconds, and one before 1970 is as good as 1970"
    )]
    let now_ms = Date::now() as u64;
    Ok(endpoint.respond(Some(&session), request, now_ms).await)
}

async fn session(
    outputs: &ToolOutputs<IndexedDbStore>,
    fresh_session: &str,
) -> Result<SessionId, Problem> {
    let fresh = fresh_session.parse().map_err(Problem::invalid)?;
    Ok(outputs.own_session(fresh).await?)
}
