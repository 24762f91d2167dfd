//! A worker whose only way to its NATS server is stdin and stdout, as ssh(1) connects them: the bytes of one TCP connection, each way, after
//! a line with the key that opens the server. No port is opened between the machines, and the key is in no command line.

use super::connecting::{Broker, Credentials};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// The connection cannot be made again, so a link that stalls for some seconds must not end it.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const KEY_BYTES_MAX: usize = 10_000;
const CHUNK_BYTES: usize = 64 << 10;

/// The worker's end: a server on loopback that is the other end's. Sets `ended` when the connection is over. An error when the first
/// line of stdin is no key.
pub fn through_pipes(ended: Arc<AtomicBool>) -> Result<Broker> {
    let own = |error: &io::Error| io_error("use", "stdin and stdout", error);
    let file = |from: io::Result<OwnedFd>| from.map(File::from).map_err(|error| own(&error));
    let mut input = file(io::stdin().as_fd().try_clone_to_owned())?;
    let output = file(io::stdout().as_fd().try_clone_to_owned())?;
    let credentials = Credentials::from_seed(read_line(&mut input).map_err(|error| own(&error))?);
    credentials.signer().map_err(|_| {
        UserError::usage("the first line of stdin is not the key of a NATS server")
            .hint("--on stdin is for webdyno run --on ssh://HOST, which starts this worker")
    })?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| own(&error))?;
    let address = listener.local_addr().map_err(|error| own(&error))?;
    let mut broker = Broker::parse(&format!("nats://{address}"))?;
    broker.credentials = Some(credentials);
    broker.ping_interval = PING_INTERVAL;
    thread::spawn(move || {
        if let Ok(over) = listener.accept().and_then(|(stream, _)| both_ways(stream, input, output)) {
            let _ = over.recv();
        }
        ended.store(true, Ordering::Relaxed);
    });
    Ok(broker)
}

/// The coordinator's end: connects a started worker with the server. Shutting the stream down ends it.
pub fn carry(server: &str, key: &str, mut stdin: ChildStdin, stdout: ChildStdout) -> Result<TcpStream> {
    let carried = || {
        writeln!(stdin, "{}", key.trim())?;
        let stream = TcpStream::connect(server.trim_start_matches("nats://"))?;
        let kept = stream.try_clone()?;
        both_ways(stream, stdout, stdin)?;
        Ok(kept)
    };
    carried().map_err(|error: io::Error| io_error("connect a worker with", server, &error))
}

/// Copies until either end is over: then so is the stream, and the receiver hears of it.
fn both_ways(
    stream: TcpStream,
    mut input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
) -> io::Result<Receiver<()>> {
    let (over, is_over) = channel();
    let also_over = over.clone();
    stream.set_nodelay(true)?;
    let (mut from, mut to) = (stream.try_clone()?, stream.try_clone()?);
    thread::spawn(move || {
        let _ = copy(&mut from, &mut output);
        let _ = from.shutdown(Shutdown::Both);
        let _ = over.send(());
    });
    thread::spawn(move || {
        let _ = copy(&mut input, &mut to);
        let _ = stream.shutdown(Shutdown::Both);
        let _ = also_over.send(());
    });
    Ok(is_over)
}

/// Each part at once: io::copy has the kernel do it (splice(2)), which waits for more.
fn copy(input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => output.write_all(&bytes[..count]).and_then(|()| output.flush())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Byte by byte: what follows is the server's.
fn read_line(input: &mut impl Read) -> io::Result<String> {
    let (mut line, mut byte) = (vec![], [0]);
    while line.len() < KEY_BYTES_MAX && input.read(&mut byte)? > 0 && byte != *b"\n" {
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
