//! What carries the messages: NATS, <https://docs.nats.io/nats-concepts/what-is-nats>, with JetStream for results.
//!
//! | subject | from, to | what |
//! |---|---|---|
//! | `webdyno.announce` | workers to all | their state, every half second |
//! | `webdyno.worker.INSTANCE.ping` | coordinator to one, with a reply subject | its clock |
//! | `webdyno.worker.INSTANCE.order` | coordinator to one | signed orders |
//! | `webdyno.results.SESSION.INSTANCE` | workers to the stream `webdyno-results` | seconds and ends of loads |
//!
//! The stream keeps a result until it is acknowledged, a day at most; the id of a message is the name of its result, so that one
//! that is given twice is kept once.

mod connecting;
mod coordinating;
mod pipes;
mod private_server;
mod worker_engine;
mod working;

pub use connecting::{Broker, Credentials};
pub use coordinating::{DistributedGenerator, Placement, WorkerCount};
pub use pipes::{carry, through_pipes};
pub use private_server::{PrivateServer, write_private};
pub use working::{WorkerOptions, work};

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::time::Duration;
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// How long the end of a process waits for NATS.
const LAST_WORDS_MAX: Duration = Duration::from_secs(3);
const ANNOUNCE: &str = "webdyno.announce";
const STREAM: &str = "webdyno-results";

fn ping_subject(instance: &str) -> String {
    format!("webdyno.worker.{instance}.ping")
}

fn order_subject(instance: &str) -> String {
    format!("webdyno.worker.{instance}.order")
}

fn result_subject(session: &str, instance: &str) -> String {
    format!("webdyno.results.{session}.{instance}")
}

/// What a ping is answered with.
#[derive(Debug, Serialize, Deserialize)]
struct Pong {
    instance: String,
    nonce: u64,
    clock_ns: u64,
}

/// What is done before the end, as far as it can be: without a server a client waits for one for ever.
async fn last_words(done: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(LAST_WORDS_MAX, done).await;
}

/// A name that nobody else has: 16 hexadecimal digits.
fn random_name() -> Result<String> {
    let mut bytes = [0u8; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| io_error("read", "/dev/urandom", &error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
