//! The workers of `--on`: those that are connected to NATS servers, or processes of our own with a server of theirs.

use crate::cli::workers::OnArgs;
use crate::process::own_executable;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use webdyno_distributed::nats::{
    Broker, Credentials, DistributedGenerator, Placement, PrivateServer, WorkerCount,
};
use webdyno_distributed::signing::Signer;
use webdyno_host::os::process::wait_until;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};
use webdyno_session::live::LiveSession;

/// Most workers of this machine: beyond it they measure each other.
const LOCAL_MAX: u32 = 64;
/// They end as soon as they are told to.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// What makes the loads of a session instead of this process, until it is dropped.
pub struct Workers {
    generator: Arc<DistributedGenerator>,
    _local: Option<LocalWorkers>,
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
            return local(arguments, count, threads).map(Some);
        }
        let (broker, signer) =
            signed_broker(on, arguments.nats_creds.as_deref(), arguments.nats_ca.as_deref())?;
        let workers =
            arguments.workers.map_or(WorkerCount::Present, |count| WorkerCount::Exactly(count as usize));
        let (on, moves) = (broker.name.clone(), arguments.moves());
        let placement = Placement { workers, on, moves };
        let generator = Arc::new(DistributedGenerator::connect(broker, signer, placement)?);
        Ok(Some(Self { generator, _local: None }))
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

fn local(arguments: &OnArgs, count: &str, threads: Option<u32>) -> Result<Workers> {
    let given = arguments.workers.is_some() || arguments.nats_creds.is_some() || arguments.nats_ca.is_some();
    if given {
        return Err(UserError::usage("--on local starts its workers and its server itself")
            .hint("leave --workers, --nats-creds and --nats-ca out; local:N says how many"));
    }
    let count = count.parse::<u32>().ok().filter(|count| (1..=LOCAL_MAX).contains(count));
    let count = count.ok_or_else(|| {
        UserError::usage(format!("local:N takes a number of workers from 1 to {LOCAL_MAX}"))
            .hint("as in --on local:2")
    })?;
    let local = LocalWorkers::start(count, threads)?;
    let (broker, signer) = local.server.access()?;
    let (workers, on) = (WorkerCount::Exactly(count as usize), format!("local:{count}"));
    let placement = Placement { workers, on, moves: arguments.moves() };
    let generator = DistributedGenerator::connect(broker, signer, placement)?;
    Ok(Workers { generator: Arc::new(generator), _local: Some(local) })
}

/// Worker processes of this machine with their server.
struct LocalWorkers {
    // The workers end before their server.
    processes: Vec<Process>,
    server: PrivateServer,
}

/// A process that ends when this is dropped.
struct Process(Child);

impl LocalWorkers {
    fn start(count: u32, threads: Option<u32>) -> Result<Self> {
        let server = PrivateServer::start()?;
        let program = own_executable()?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let each = (threads.unwrap_or(cores) / count).max(1).to_string();
        let own = std::process::id().to_string();
        let spawn = |number: u32| {
            let mut command = Command::new(&program);
            command.args([
                "worker",
                "--on",
                server.url(),
                "--trust",
                &server.public_key,
                "--allow-target",
                "*",
            ]);
            command.args(["--name", &format!("local-{number}"), "--threads", &each, "--parent", &own]);
            command.arg("--nats-creds").arg(server.seed_file());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().map_err(|error| io_error("start", "a worker", &error));
            child.map(Process)
        };
        let processes = (1..=count).map(spawn).collect::<Result<_>>()?;
        Ok(Self { processes, server })
    }
}

impl Drop for LocalWorkers {
    fn drop(&mut self) {
        // All at once, each waits for its end by itself then.
        for Process(child) in &self.processes {
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        if !wait_until(ENDS_WITHIN, || !matches!(self.0.try_wait(), Ok(None))) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}
