//! Workers of `--on local:N`: processes of this machine.

use crate::process::own_executable;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use webdyno_distributed::nats::PrivateServer;
use webdyno_host::os::process::wait_until;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// Most workers of this machine: beyond it they measure each other.
const LOCAL_MAX: u32 = 64;
/// They end as soon as they are told to.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Worker processes of this machine with their server.
pub struct LocalWorkers {
    // The workers end before their server.
    processes: Vec<Process>,
    pub server: PrivateServer,
}

/// A process that ends when this is dropped.
struct Process(Child);

impl LocalWorkers {
    /// `count`: as it was written behind `local:`. `threads`: the engine threads of all together, as they were asked for.
    pub fn start(count: &str, threads: Option<u32>) -> Result<Self> {
        let count = count.parse::<u32>().ok().filter(|count| (1..=LOCAL_MAX).contains(count));
        let count = count.ok_or_else(|| {
            UserError::usage(format!("local:N takes a number of workers from 1 to {LOCAL_MAX}"))
                .hint("as in --on local:2")
        })?;
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

    /// How many there are.
    pub fn count(&self) -> usize {
        self.processes.len()
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
