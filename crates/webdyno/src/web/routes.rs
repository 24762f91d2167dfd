//! What lies below the token: pages, their data as JSON, the events of sessions, and the control of saved workloads.

use super::control::Control;
use super::sessions::Sessions;
use super::{guard, live, pages};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use url::form_urlencoded;
use webdyno_model::{ErrorKind, Result, UserError};

/// Comments to pages to which nothing else is sent: by them it is noticed that one is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What the handlers share.
pub struct Shared {
    /// What is served.
    pub sessions: Sessions,
    /// What may be started.
    pub control: Option<Control>,
    /// One for each page that may follow a session.
    pub listeners: Arc<Semaphore>,
    /// The path below which everything lies.
    pub base: String,
}

type AppState = State<Arc<Shared>>;

/// Why there is no response: a line of text with its status.
struct Failure(StatusCode, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}

impl From<UserError> for Failure {
    fn from(error: UserError) -> Self {
        let status = match error.kind {
            ErrorKind::Usage => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::NOT_FOUND,
        };
        let hint = error.hint.map_or(String::new(), |hint| format!("\nhint: {hint}"));
        Self(status, error.message + &hint)
    }
}

/// All routes, as they are behind the token.
pub fn routes(shared: Arc<Shared>) -> Router {
    let text =
        |kind: &'static str, text: &'static str| get(move || async move { ([(CONTENT_TYPE, kind)], text) });
    Router::new()
        .route("/", get(history))
        .route("/sessions/{id}", get(session))
        .route("/compare", get(comparison))
        .route("/assets/sessions.js", text("text/javascript; charset=utf-8", pages::SESSIONS_JS))
        .route("/assets/sessions.css", text("text/css; charset=utf-8", pages::SESSIONS_CSS))
        .route("/api/sessions", get(list))
        .route("/api/sessions/{id}", get(page_data))
        .route("/api/sessions/{id}/events", get(events))
        .route("/api/compare", get(compare))
        .route("/api/workloads", get(workloads))
        .route("/api/workloads/start/{name}", post(start))
        .route("/api/workloads/stop", post(stop))
        .with_state(shared)
}

/// Work that reads files, beside the thread that serves.
async fn read<T: Send + 'static>(
    shared: Arc<Shared>,
    work: impl FnOnce(&Shared) -> Result<T> + Send + 'static,
) -> std::result::Result<T, Failure> {
    let done = tokio::task::spawn_blocking(move || work(&shared)).await;
    done.map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
        .map_err(Failure::from)
}

fn json_response(data: impl Into<Bytes>) -> Response {
    ([(CONTENT_TYPE, "application/json")], data.into()).into_response()
}

fn json_of(value: &Value) -> Response {
    json_response(value.to_string())
}

/// A name as a segment of a path.
fn segment(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20")
}

async fn history(State(shared): AppState) -> Response {
    match shared.sessions.only() {
        Some(name) => Redirect::to(&format!("{}sessions/{}", shared.base, segment(&name))).into_response(),
        None => Html(pages::sessions("history", &shared.base)).into_response(),
    }
}

async fn comparison(State(shared): AppState) -> Html<String> {
    Html(pages::sessions("compare", &shared.base))
}

async fn session(State(shared): AppState, Path(id): Path<String>) -> std::result::Result<Response, Failure> {
    let source = format!("{}api/sessions/{}", shared.base, segment(&id));
    let all = shared.sessions.only().is_none().then(|| shared.base.clone());
    read(shared, move |shared| shared.sessions.directory(&id)).await?;
    let nonce = guard::random()?;
    let policy = [(CONTENT_SECURITY_POLICY, guard::inline_policy(&nonce))];
    Ok((policy, Html(pages::session(&source, all.as_deref(), &nonce))).into_response())
}

async fn list(State(shared): AppState) -> std::result::Result<Response, Failure> {
    let list = read(shared, |shared| shared.sessions.list()).await?;
    Ok(json_of(&list))
}

async fn page_data(
    State(shared): AppState,
    Path(id): Path<String>,
) -> std::result::Result<Response, Failure> {
    let data = read(shared, move |shared| shared.sessions.page(&id)).await?;
    Ok(json_response(data))
}

async fn events(State(shared): AppState, Path(id): Path<String>) -> std::result::Result<Response, Failure> {
    let Ok(permit) = shared.listeners.clone().try_acquire_owned() else {
        let text = "too many pages follow sessions; close one".to_owned();
        return Err(Failure(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let directory = read(shared, move |shared| shared.sessions.directory(&id)).await?;
    let messages = live::messages(&directory, permit);
    Ok(Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

async fn compare(
    State(shared): AppState,
    RawQuery(query): RawQuery,
) -> std::result::Result<Response, Failure> {
    let query = query.unwrap_or_default();
    let value = |key: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| name == key).map(|(_, value)| value.into_owned())
    };
    let Some(a) = value("a") else {
        return Err(Failure(StatusCode::BAD_REQUEST, "name two sessions: ?a=...&b=...".into()));
    };
    let b = value("b");
    let report = read(shared, move |shared| shared.sessions.compare(&a, b.as_deref())).await?;
    Ok(json_of(&report))
}

async fn workloads(State(shared): AppState) -> Response {
    json_of(&shared.control.as_ref().map_or(json!({ "workloads": [] }), Control::state))
}

async fn start(State(shared): AppState, Path(name): Path<String>) -> std::result::Result<Response, Failure> {
    let done = read(shared, move |shared| {
        shared.control.as_ref().map(|control| control.start(&name).map(|()| control.state())).transpose()
    });
    Ok(json_of(&json!(done.await?)))
}

async fn stop(State(shared): AppState) -> Response {
    if let Some(control) = &shared.control {
        control.stop();
    }
    workloads(State(shared)).await
}
