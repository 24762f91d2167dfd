//! `GET /metrics` over HTTP, for Prometheus: read-only, a few connections at a time, each for one request and a bounded time.
//!
//! A runtime of one thread, which is there only when somebody asked for it. The engine has nothing to do with it. At the end it
//! waits a moment for who scraped regularly: what came since would be in no time series.

use super::openmetrics::{Exposition, MEDIA_TYPE};
use super::state::SharedState;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use webdyno_model::{Result, UserError};

/// Connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 8;
/// A client that takes longer for its request and the answer is dropped.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// After a failed accept, as when this process may open no more files.
const PAUSE: Duration = Duration::from_millis(100);
/// The end waits for one more scrape where it is due sooner than this.
const LAST_SCRAPE_MAX: Duration = Duration::from_secs(5);
/// A scrape is late by no more than this.
const LATE_MAX: Duration = Duration::from_secs(1);

/// The server; it ends when it is dropped.
pub struct ScrapeServer {
    address: SocketAddr,
    scrapes: Arc<Scrapes>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ScrapeServer {
    /// Listens. An error when the address cannot be had.
    pub fn start(address: SocketAddr, state: SharedState) -> Result<Self> {
        let failed = |error: std::io::Error| listen_error(address, &error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let scrapes = Arc::new(Scrapes::default());
        let served = Arc::new(Served { exposition: Exposition::of(state), scrapes: scrapes.clone() });
        let serving = move || {
            // What it serves ends with it.
            runtime.block_on(async {
                tokio::spawn(serve(listener, served));
                let _ = stopped.await;
            });
        };
        let thread = thread::Builder::new().name("metrics".into()).spawn(serving).map_err(failed)?;
        Ok(Self { address, scrapes, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ScrapeServer {
    fn drop(&mut self) {
        self.scrapes.await_last();
        drop(self.stop.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// What clients get, and when they got it.
struct Served {
    exposition: Exposition,
    scrapes: Arc<Scrapes>,
}

/// The last two scrapes, the later one last.
#[derive(Default)]
struct Scrapes {
    at: Mutex<[Option<Instant>; 2]>,
    came: Condvar,
}

impl Scrapes {
    fn note(&self) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        *at = [at[1], Some(Instant::now())];
        self.came.notify_all();
    }

    /// Waits for one more scrape, if one is due soon.
    fn await_last(&self) {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, Some(wait)) = (*at, due_within(*at, Instant::now())) else { return };
        // That none came is no failure: there is nothing left to do.
        drop(self.came.wait_timeout_while(at, wait, |now| *now == before));
    }
}

/// By when the next scrape comes, if who scrapes does it at regular times and the next one is near.
fn due_within(at: [Option<Instant>; 2], now: Instant) -> Option<Duration> {
    let (before, last) = at[0].zip(at[1])?;
    let period = last - before;
    let latest = last + period + LATE_MAX;
    latest.checked_duration_since(now).filter(|wait| *wait <= LAST_SCRAPE_MAX)
}

fn listen_error(address: SocketAddr, error: &std::io::Error) -> UserError {
    let (why, hint) = match error.kind() {
        std::io::ErrorKind::AddrInUse => (
            "another program listens there".to_owned(),
            format!("give another port, as --prometheus :{}", address.port().checked_add(1).unwrap_or(9095)),
        ),
        _ => (error.to_string(), "give an address of this machine, as --prometheus :9095".to_owned()),
    };
    UserError::cannot_run(format!("cannot serve metrics on {address}: {why}")).hint(hint)
}

async fn serve(listener: TcpListener, served: Arc<Served>) {
    // It is non-blocking, and the runtime is there: this cannot fail, and nothing could be done about it.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let served = served.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_MAX, answer(stream, served)).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// One request, and then the connection ends.
async fn answer(stream: TcpStream, served: Arc<Served>) -> hyper::Result<()> {
    let service = service_fn(|request| {
        let response = respond(&request, &served);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.keep_alive(false).serve_connection(TokioIo::new(stream), service).await
}

fn respond(request: &Request<Incoming>, served: &Served) -> Response<Full<Bytes>> {
    let (status, header, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => match served.exposition.text() {
            Ok(text) => {
                served.scrapes.note();
                (StatusCode::OK, (CONTENT_TYPE, MEDIA_TYPE), text)
            }
            Err(error) => {
                (StatusCode::INTERNAL_SERVER_ERROR, (CONTENT_TYPE, "text/plain"), error.to_string())
            }
        },
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, (ALLOW, "GET"), String::new()),
        _ => (StatusCode::NOT_FOUND, (CONTENT_TYPE, "text/plain"), "metrics are at /metrics\n".into()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header.0, hyper::header::HeaderValue::from_static(header.1));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn request(address: SocketAddr, line: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "{line} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn server() -> ScrapeServer {
        ScrapeServer::start(([127, 0, 0, 1], 0).into(), SharedState::default()).unwrap()
    }

    #[test]
    fn only_metrics_are_served() {
        let server = server();
        for (line, begin, part) in [
            ("GET /metrics", "HTTP/1.1 200", "openmetrics-text; version=1.0.0"),
            ("GET /metrics?x=y", "HTTP/1.1 200", "# EOF"),
            ("GET /", "HTTP/1.1 404", "metrics are at /metrics"),
            ("POST /metrics", "HTTP/1.1 405", "allow: GET"),
        ] {
            let answer = request(server.address(), line);
            assert!(answer.starts_with(begin) && answer.contains(part), "{line}: {answer}");
        }
    }

    #[test]
    fn clients_that_say_nothing_leave_places_to_others() {
        let server = server();
        let idle = || std::net::TcpStream::connect(server.address()).unwrap();
        let held: Vec<_> = (1..CONNECTIONS_MAX).map(|_| idle()).collect();
        assert!(request(server.address(), "GET /metrics").ends_with("# EOF\n"));
        // Nor do they keep the server from ending.
        let began = std::time::Instant::now();
        drop(server);
        assert!(began.elapsed() < CONNECTION_MAX / 2, "{:?} with {} clients", began.elapsed(), held.len());
    }

    #[test]
    fn the_end_waits_for_who_scrapes_regularly() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        for (before, last, now, expected) in [
            (0, 1_000, 1_200, Some(1_800)),
            (0, 2_000, 2_500, Some(2_500)),
            (0, 15_000, 27_000, Some(4_000)),
            // The next one is far; it stays away.
            (0, 15_000, 16_000, None),
            (0, 1_000, 9_000, None),
        ] {
            let wait = due_within([Some(at(before)), Some(at(last))], at(now));
            assert_eq!(wait, expected.map(Duration::from_millis), "{before} {last} {now}");
        }
        assert_eq!(due_within([None, Some(start)], start), None, "one look by hand");
        // One that comes ends the wait.
        let scrapes = Scrapes { at: Mutex::new([Some(start), Some(at(1_000))]), ..Scrapes::default() };
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                scrapes.note();
            });
            let began = Instant::now();
            scrapes.await_last();
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        });
    }

    #[test]
    fn an_address_that_is_taken_is_reported() {
        let server = server();
        let error = ScrapeServer::start(server.address(), SharedState::default()).err().unwrap();
        let expected = format!("cannot serve metrics on {}: another program listens there", server.address());
        assert_eq!((error.to_string(), error.exit_code()), (expected, 1));
    }
}
