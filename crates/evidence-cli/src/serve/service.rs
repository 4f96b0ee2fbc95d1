//! From HTTP requests to the endpoint and back.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use evidence_agent::endpoint::{
    Endpoint, MAX_BODY_BYTES, Problem, Request, Response, Route, TOOL_CALL_ID,
};
use evidence_agent::process::{AllowList, ChildProcesses, ProcessHost};
use evidence_core::SessionId;
use evidence_store::DirectoryStore;
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::info;

use super::metrics::Metrics;
use super::sessions::Sessions;
use super::sweeper::Sweeper;

/// The description of the endpoint (OpenAPI 3.1).
const OPENAPI: &str = include_str!("openapi.json");

/// The most memory that the bodies of all requests take at a time; requests wait for their share.
const BODY_MEMORY_BYTES: usize = 256 * 1024 * 1024;
/// The unit in which that memory is given out.
const BODY_SHARE_BYTES: usize = 64 * 1024;

/// The processes that an operator allows.
type Processes = AllowList<ProcessHost<DirectoryStore, ChildProcesses>>;

/// The time, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// What all connections share.
pub struct Service {
    endpoint: Endpoint<DirectoryStore, Processes>,
    sessions: Sessions,
    sweeper: Arc<Sweeper>,
    metrics: Metrics,
    body_shares: Semaphore,
    timeout: Duration,
}

impl Service {
    /// Serves `store` and `processes` to `sessions`, whose clients send their bodies within `timeout`.
    pub fn new(
        store: DirectoryStore,
        processes: Processes,
        sessions: Sessions,
        sweeper: Arc<Sweeper>,
        timeout: Duration,
    ) -> Self {
        Self {
            endpoint: Endpoint::new(store).with_processes(processes),
            sessions,
            sweeper,
            metrics: Metrics::default(),
            body_shares: Semaphore::new(BODY_MEMORY_BYTES / BODY_SHARE_BYTES),
            timeout,
        }
    }

    /// The endpoint, and beside it what needs no session: its description and the metrics.
    pub fn into_router(self) -> Router {
        Router::new()
            .route("/openapi.json", get(openapi))
            .route("/metrics", get(metrics))
            .fallback(respond)
            .with_state(Arc::new(self))
    }

    async fn answer(&self, request: axum::extract::Request) -> (Response, usize) {
        let (parts, body) = request.into_parts();
        let target = parts
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let session = self.sessions.authenticate(&parts.headers);
        // Nobody's body is not read.
        let (_share, body) = match self.read(session.as_ref(), &parts.headers, body).await {
            Ok(read) => read,
            Err(problem) => return (Response::problem(&problem, Route::Unknown), 0),
        };
        let received_bytes = body.len();
        let tool_call_id = match tool_call_id(&parts.headers) {
            Ok(tool_call_id) => tool_call_id,
            Err(problem) => return (Response::problem(&problem, Route::Unknown), received_bytes),
        };
        let request = Request {
            method: parts.method.as_str(),
            target,
            tool_call_id,
            body,
        };
        let response = self
            .endpoint
            .respond(session.as_ref(), request, now_ms())
            .await;
        if matches!(response.route, Route::CreateJob | Route::ChangeJob) {
            self.sweeper.ask();
        }
        (response, received_bytes)
    }

    /// The whole body, and the share of memory that it takes.
    async fn read(
        &self,
        session: Option<&SessionId>,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(Option<SemaphorePermit<'_>>, Bytes), Problem> {
        if session.is_none() {
            return Ok((None, Bytes::new()));
        }
        let declared = headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if declared.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(Problem::body_too_large());
        }
        // A chunked body does not say its size beforehand.
        let has_body = declared.is_some() || headers.contains_key("transfer-encoding");
        let expected = declared.unwrap_or(if has_body { MAX_BODY_BYTES } else { 0 });
        let shares = u32::try_from(expected.div_ceil(BODY_SHARE_BYTES)).unwrap_or(u32::MAX);
        let read = async {
            // The semaphore is never closed.
            let share = self.body_shares.acquire_many(shares).await.ok();
            let body = axum::body::to_bytes(body, MAX_BODY_BYTES).await;
            (share, body)
        };
        match tokio::time::timeout(self.timeout, read).await {
            Err(_) => Err(Problem::too_slow()),
            Ok((share, Ok(body))) => Ok((share, body)),
            // Too large, or the client is gone and reads no answer.
            Ok((_, Err(_))) => Err(Problem::body_too_large()),
        }
    }
}

fn tool_call_id(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(TOOL_CALL_ID).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        // One that is no text is no id.
        (Some(value), None) => Ok(Some(value.to_str().unwrap_or_default())),
        (Some(_), Some(_)) => Err(Problem::invalid("the header Tool-Call-Id stands twice")),
    }
}

async fn respond(
    State(service): State<Arc<Service>>,
    request: axum::extract::Request,
) -> impl IntoResponse {
    let started = Instant::now();
    let (response, received_bytes) = service.answer(request).await;
    let elapsed = started.elapsed();
    service.metrics.count(&response, received_bytes, elapsed);
    info!(
        route = response.route.as_str(),
        status = response.status,
        code = response.code.map_or("", |code| code.as_str()),
        received_bytes,
        sent_bytes = response.body.len(),
        elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        "answered"
    );
    // The endpoint's statuses and headers are valid.
    let status = StatusCode::from_u16(response.status).unwrap_or_default();
    let headers: HeaderMap = response
        .headers
        .into_iter()
        .filter_map(|(name, value)| {
            Some((
                HeaderName::from_static(name),
                HeaderValue::from_str(&value).ok()?,
            ))
        })
        .collect();
    (status, headers, response.body)
}

async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], OPENAPI)
}

async fn metrics(State(service): State<Arc<Service>>) -> impl IntoResponse {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, content_type)], service.metrics.render())
}
