//! `GET /metrics` over HTTP, for Prometheus: read-only, a few connections at a time, each for one request and a bounded time.
//!
//! A runtime of one thread, which is there only when somebody asked for it. The engine has nothing to do with it.

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
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use webdyno_model::{Result, UserError};

/// Connections at a time; further ones wait.
const CONNECTIONS_MAX: usize = 8;
/// A client that takes longer for its request and the answer is dropped.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// After a failed accept, as when this process may open no more files.
const PAUSE: Duration = Duration::from_millis(100);

/// The server; it ends when it is dropped.
pub struct ScrapeServer {
    address: SocketAddr,
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
        let serving = move || {
            // What it serves ends with it.
            runtime.block_on(async {
                tokio::spawn(serve(listener, Arc::new(Exposition::of(state))));
                let _ = stopped.await;
            });
        };
        let thread = thread::Builder::new().name("metrics".into()).spawn(serving).map_err(failed)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ScrapeServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
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

async fn serve(listener: TcpListener, exposition: Arc<Exposition>) {
    // It is non-blocking, and the runtime is there: this cannot fail, and nothing could be done about it.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let exposition = exposition.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_MAX, answer(stream, exposition)).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// One request, and then the connection ends.
async fn answer(stream: TcpStream, exposition: Arc<Exposition>) -> hyper::Result<()> {
    let service = service_fn(|request| {
        let response = respond(&request, &exposition);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.keep_alive(false).serve_connection(TokioIo::new(stream), service).await
}

fn respond(request: &Request<Incoming>, exposition: &Exposition) -> Response<Full<Bytes>> {
    let (status, header, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => match exposition.text() {
            Ok(text) => (StatusCode::OK, (CONTENT_TYPE, MEDIA_TYPE), text),
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
    fn an_address_that_is_taken_is_reported() {
        let server = server();
        let error = ScrapeServer::start(server.address(), SharedState::default()).err().unwrap();
        let expected = format!("cannot serve metrics on {}: another program listens there", server.address());
        assert_eq!((error.to_string(), error.exit_code()), (expected, 1));
    }
}
