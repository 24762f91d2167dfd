//! Workers of `--on ssh://HOST[,HOST]`: one on each host, our own program sent over the connection as for agents, with a NATS server here
//! that they reach through that connection alone.

use crate::process::own_executable;
use std::net::{Shutdown, TcpStream};
use std::process::Child;
use std::time::Duration;
use webdyno_distributed::nats::{PrivateServer, carry};
use webdyno_host::agent::{Connection, ServerAddress, Start, start_on_server};
use webdyno_host::os::process::wait_until;
use webdyno_model::{Result, UserError};

/// Workers and ssh end as soon as their connection does.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// The workers with their server.
pub struct RemoteWorkers {
    // The workers end before their server.
    workers: Vec<RemoteWorker>,
    pub server: PrivateServer,
}

/// It ends when this is dropped.
struct RemoteWorker {
    ssh: Child,
    stream: TcpStream,
}

impl RemoteWorkers {
    /// Starts one after the other, as ssh may have something to ask. `on`: `ssh://[USER@]HOST[:PORT][,..]`.
    pub fn start(on: &str) -> Result<Self> {
        let hosts = hosts(on)?;
        let server = PrivateServer::start()?;
        let own = own_executable()?;
        let key = &server.public_key;
        let start = |address: ServerAddress| {
            let name = address.to_string();
            let name = name.trim_start_matches("ssh://");
            // Who can log in may load what he likes from there.
            let words = format!("worker --on stdin --trust {key} --allow-target * --name {name}");
            let Connection { child, stdin, stdout, .. } = start_on_server(&Start::at(address, &own), &words)?;
            let stream = carry(server.url(), server.seed(), stdin, stdout)?;
            Ok(RemoteWorker { ssh: child, stream })
        };
        let workers = hosts.into_iter().map(start).collect::<Result<_>>()?;
        Ok(Self { workers, server })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.workers.len()
    }
}

impl Drop for RemoteWorkers {
    fn drop(&mut self) {
        // All at once, each waits for its end by itself then.
        self.workers.iter().for_each(|worker| drop(worker.stream.shutdown(Shutdown::Both)));
    }
}

impl Drop for RemoteWorker {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if !wait_until(ENDS_WITHIN, || !matches!(self.ssh.try_wait(), Ok(None))) {
            let _ = self.ssh.kill();
        }
        let _ = self.ssh.wait();
    }
}

/// Each host once: two workers on one would measure each other.
fn hosts(on: &str) -> Result<Vec<ServerAddress>> {
    let mut hosts: Vec<ServerAddress> = vec![];
    for text in on.trim_start_matches("ssh://").split(',') {
        let host = ServerAddress::parse(&format!("ssh://{}", text.trim_start_matches("ssh://")));
        let host = host.map_err(|error| error.hint("as in --on ssh://web1,admin@web2:2222"))?;
        if hosts.contains(&host) {
            return Err(UserError::usage(format!("`{host}` is given twice in --on"))
                .hint("a worker uses all cores of its host; on this machine alone: local:2"));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_as_ssh_has_them() {
        let names = |on: &str| {
            let hosts = hosts(on).map_err(|error| error.message)?;
            Ok::<_, String>(hosts.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            names("ssh://a,me@b:2222,ssh://c"),
            Ok(vec!["ssh://a".into(), "ssh://me@b:2222".into(), "ssh://c".into()])
        );
        assert_eq!(names("ssh://a,b,a"), Err("`ssh://a` is given twice in --on".into()));
        for wrong in ["ssh://", "ssh://a,,b", "ssh://a b"] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
    }
}
