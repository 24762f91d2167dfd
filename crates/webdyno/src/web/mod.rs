//! Sessions in a browser: an HTTP server on loopback, behind a random token, read-only unless saved workloads may be started.
//!
//! It is there only where it was wanted, on a thread of its own (tokio, hyper, axum) that yields to the engine. It reads
//! recordings as every other view does: a session under way knows nothing of it. Connections, followers, the length of a request's
//! head and the time that it may take are bounded.

mod control;
mod guard;
mod live;
mod pages;
mod routes;
mod sessions;

pub use control::Control;
pub use sessions::Served;

use crate::cli::OutputArgs;
use crate::terminal;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use guard::Guard;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use routes::Shared;
use sessions::Sessions;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener as AsyncListener, TcpStream};
use tokio::sync::Semaphore;
use tower_service::Service;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Connections at a time, and of these pages that follow a session: a browser opens six.
const CONNECTIONS_MAX: usize = 64;
const LISTENERS_MAX: usize = 16;
/// So long the head of a request may take, and a connection may be without one.
const HEAD_MAX: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Threads that read recordings.
const READERS_MAX: usize = 2;
/// setpriority(2): what is left of the processors beside a load is enough.
const BACKGROUND_NICENESS: i32 = 10;
/// After the end of a session, pages that follow it have so long to show its report,
const LINGER_MAX: Duration = Duration::from_secs(5);
/// and are done when they want nothing more for so long.
const QUIET: Duration = Duration::from_millis(1500);

/// A server on a thread of its own, which ends with the program.
pub struct WebServer {
    url: String,
    viewers: Arc<Viewers>,
    shared: Arc<Shared>,
}

/// Who uses the server now.
struct Viewers {
    listeners: Arc<Semaphore>,
    requests: AtomicUsize,
}

impl Viewers {
    fn are_there(&self) -> bool {
        self.listeners.available_permits() < LISTENERS_MAX || self.requests.load(Ordering::Relaxed) > 0
    }
}

/// A request that is under way.
struct CountedRequest<'a>(&'a AtomicUsize);

impl<'a> CountedRequest<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a connection needs.
struct Site {
    guard: Guard,
    routes: Router,
    viewers: Arc<Viewers>,
}

impl WebServer {
    /// Listens, and serves from now on. An error when the address cannot be had.
    pub fn start(address: SocketAddr, served: Served, control: Option<Control>) -> Result<Self> {
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (local, listener) = listener.map_err(|error| io_error("listen on", address, &error))?;
        let guard = Guard::new(local.ip(), control.is_some())?;
        let listeners = Arc::new(Semaphore::new(LISTENERS_MAX));
        let viewers = Arc::new(Viewers { listeners: listeners.clone(), requests: AtomicUsize::new(0) });
        let base = guard.base();
        let url = format!("http://{local}{base}");
        // A load that is started from here is not to yield to others.
        let is_background = control.is_none();
        let shared = Shared { sessions: Sessions::new(served), control, listeners, base };
        let shared = Arc::new(shared);
        let site = Site { guard, routes: routes::routes(shared.clone()), viewers: viewers.clone() };
        let thread = std::thread::Builder::new().name("web".into());
        let started = thread.spawn(move || {
            if is_background {
                // Of this thread and those that it starts. Where it may not be had, it goes without.
                let _ = rustix::process::setpriority_process(None, BACKGROUND_NICENESS);
            }
            run(listener, Arc::new(site));
        });
        started.map_err(|error| io_error("start", "a thread for the browser", &error))?;
        Ok(Self { url, viewers, shared })
    }

    /// Where it is, token and all.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends the run that was started from a page, with its results so far.
    pub fn end_run(&self) {
        self.shared.control.iter().for_each(Control::end);
    }
}

/// Serves the session that begins in a run directory, if that is wanted, until what is returned is dropped.
pub fn follow(output: &OutputArgs, directory: &Path) -> Result<Option<FollowedSession>> {
    let Some(address) = output.web else { return Ok(None) };
    let server = WebServer::start(address, Served::One(directory.to_owned()), None)?;
    terminal::print_status(&format!("webdyno: live at {}", server.url()));
    Ok(Some(FollowedSession(server)))
}

/// A session that is under way, in a browser.
pub struct FollowedSession(WebServer);

impl Drop for FollowedSession {
    /// Pages that follow the session show its end before the program is gone.
    fn drop(&mut self) {
        let began = Instant::now();
        let mut used_at = self.0.viewers.are_there().then_some(began);
        while used_at.is_some_and(|used_at| used_at.elapsed() < QUIET) && began.elapsed() < LINGER_MAX {
            std::thread::sleep(Duration::from_millis(20));
            if self.0.viewers.are_there() {
                used_at = Some(Instant::now());
            }
        }
    }
}

/// The whole life of the server's thread.
fn run(listener: TcpListener, site: Arc<Site>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(READERS_MAX).build();
    let ended = runtime.and_then(|runtime| {
        runtime.block_on(async { accept(AsyncListener::from_std(listener)?, site).await })
    });
    if let Err(error) = ended {
        terminal::print_error(&UserError::cannot_run(format!("the server for the browser ended: {error}")));
    }
}

async fn accept(listener: AsyncListener, site: Arc<Site>) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The kernel lets the others wait.
        let place = places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
        let Ok((stream, _)) = listener.accept().await else {
            // The other end is gone already, or descriptors are used up.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let site = site.clone();
        tokio::spawn(async move {
            serve(stream, site).await;
            drop(place);
        });
    }
}

/// One connection until its end. What goes wrong on it ends it, and nothing else.
async fn serve(stream: TcpStream, site: Arc<Site>) {
    let service = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(respond(&site, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(site: &Site, request: Request<Incoming>) -> Response<Body> {
    let _counted = CountedRequest::new(&site.viewers.requests);
    let mut response = match site.guard.admit(request) {
        Ok(request) => site.routes.clone().call(request).await.unwrap_or_else(|never| match never {}),
        Err(refusal) => refusal.into_response(),
    };
    guard::add_headers(response.headers_mut());
    response
}
