//! The workers of `--on`: those that are connected to NATS servers, or processes that we start, here or over ssh, with a server of ours.

mod local;
mod remote;

use crate::cli::workers::OnArgs;
use local::LocalWorkers;
use remote::RemoteWorkers;
use std::path::Path;
use std::sync::Arc;
use webdyno_distributed::nats::{
    Broker, Credentials, DistributedGenerator, Placement, PrivateServer, WorkerCount,
};
use webdyno_distributed::signing::Signer;
use webdyno_model::{Result, UserError};
use webdyno_session::live::LiveSession;

/// Workers that end when this is dropped.
enum Started {
    Local(#[expect(dead_code, reason = "kept for its end")] LocalWorkers),
    Remote(#[expect(dead_code, reason = "kept for its end")] RemoteWorkers),
}

/// What makes the loads of a session instead of this process, until it is dropped.
pub struct Workers {
    generator: Arc<DistributedGenerator>,
    _started: Option<Started>,
}

impl Workers {
    /// Connects, and starts those of `local:N`; `None` without `--on`. `threads` are the engine threads that were asked for.
    pub fn start(arguments: &OnArgs, threads: Option<u32>) -> Result<Option<Self>> {
        let Some(on) = &arguments.on else {
            return match arguments.nats_creds.is_some() || arguments.nats_ca.is_some() {
                true => Err(UserError::usage("--nats-creds and --nats-ca are for the NATS servers of --on")
                    .hint("as in --on nats://HOST --nats-creds FILE")),
                false => Ok(None),
            };
        };
        if let Some(count) = on.strip_prefix("local:") {
            refuse_flags_of_nats(arguments, "local:N says how many")?;
            let local = LocalWorkers::start(count, threads)?;
            let (server, count) = (&local.server, local.count());
            let generator = generator_of(server, count, on, arguments)?;
            return Ok(Some(Self { generator, _started: Some(Started::Local(local)) }));
        }
        if on.starts_with("ssh:") {
            refuse_flags_of_nats(arguments, "there is one on each host")?;
            let remote = RemoteWorkers::start(on)?;
            let (server, count) = (&remote.server, remote.count());
            let generator = generator_of(server, count, on, arguments)?;
            return Ok(Some(Self { generator, _started: Some(Started::Remote(remote)) }));
        }
        let (broker, signer) =
            signed_broker(on, arguments.nats_creds.as_deref(), arguments.nats_ca.as_deref())?;
        let workers =
            arguments.workers.map_or(WorkerCount::Present, |count| WorkerCount::Exactly(count as usize));
        let (on, moves) = (broker.name.clone(), arguments.moves());
        let placement = Placement { workers, on, moves };
        let generator = Arc::new(DistributedGenerator::connect(broker, signer, placement)?);
        Ok(Some(Self { generator, _started: None }))
    }

    /// From now on they make the loads of the session.
    pub fn attach(workers: Option<&Self>, session: &mut LiveSession) {
        if let Some(workers) = workers {
            session.generate_with(workers.generator.clone());
        }
    }
}

/// The servers of NATS, and the key that orders are signed with.
pub fn signed_broker(on: &str, creds: Option<&Path>, ca: Option<&Path>) -> Result<(Broker, Signer)> {
    let mut broker = Broker::parse(on)?;
    let path = creds.ok_or_else(|| {
        UserError::usage("orders to workers are signed, and there is no key to sign them with").hint(
            "give the creds file or the seed with --nats-creds FILE; webdyno worker --new-key FILE makes one, and prints what \
             the workers need for --trust",
        )
    })?;
    let credentials = Credentials::read(path)?;
    let signer = credentials.signer()?;
    broker.credentials = Some(credentials);
    broker.ca_file = ca.map(Path::to_owned);
    Ok((broker, signer))
}

fn refuse_flags_of_nats(arguments: &OnArgs, how_many: &str) -> Result<()> {
    let given = arguments.workers.is_some() || arguments.nats_creds.is_some() || arguments.nats_ca.is_some();
    if !given {
        return Ok(());
    }
    Err(UserError::usage("--on local and --on ssh start their workers and their server themselves")
        .hint(format!("leave --workers, --nats-creds and --nats-ca out; {how_many}")))
}

/// With all of the workers that were started for it.
fn generator_of(
    server: &PrivateServer,
    count: usize,
    on: &str,
    arguments: &OnArgs,
) -> Result<Arc<DistributedGenerator>> {
    let (broker, signer) = server.access()?;
    let workers = WorkerCount::Exactly(count);
    let placement = Placement { workers, on: on.to_owned(), moves: arguments.moves() };
    Ok(Arc::new(DistributedGenerator::connect(broker, signer, placement)?))
}
