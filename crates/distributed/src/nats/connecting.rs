//! Connecting to the NATS servers that the operator names, with the credentials that he gives.

use crate::signing::Signer;
use async_nats::{Client, ConnectOptions, ServerAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PORT_DEFAULT: u16 = 4222;

/// The servers of `--on`, and how they are spoken to.
#[derive(Debug, Clone)]
pub struct Broker {
    servers: Vec<ServerAddr>,
    /// As written, for people; without passwords.
    pub name: String,
    /// Certificates (PEM) that are trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Who we are there.
    pub credentials: Option<Credentials>,
    /// How often it is asked whether it is there; a connection without an answer to two of these is given up.
    pub(super) ping_interval: Duration,
}

/// A creds file of NATS, or a seed of a user (nkey) alone.
#[derive(Clone)]
pub struct Credentials {
    text: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Credentials")
    }
}

impl Credentials {
    /// Reads the file. An error when nothing in it signs.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| io_error("read", path.display(), &error))?;
        Signer::from_text(&text).map_err(|error| UserError::usage(format!("{}: {error}", path.display())))?;
        Ok(Self { text })
    }

    /// The seed of a user alone.
    pub(super) fn from_seed(text: String) -> Self {
        Self { text }
    }

    /// As it was read.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Signs orders with its seed.
    pub fn signer(&self) -> Result<Signer> {
        Signer::from_text(&self.text)
    }
}

impl Broker {
    /// Reads `nats://HOST[:PORT][,HOST..]`, or `tls://` for connections with TLS.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |what: &str| {
            UserError::usage(format!("`{text}` does not name servers of NATS: {what}"))
                .hint("as in nats://127.0.0.1:4222, nats://n1,n2,n3 or tls://nats.example; without a server: ssh://HOST or local:2")
        };
        let (scheme, hosts) = text.split_once("://").ok_or_else(|| wrong("it has no nats:// in front"))?;
        if !["nats", "tls"].contains(&scheme) {
            return Err(wrong("it begins with neither nats:// nor tls://"));
        }
        let server = |host: &str| {
            let url = format!("{scheme}://{}", host.trim_start_matches(&format!("{scheme}://")));
            url.parse::<ServerAddr>().ok().filter(|_| !host.is_empty())
        };
        let servers: Option<Vec<ServerAddr>> = hosts.split(',').map(server).collect();
        let servers = servers.ok_or_else(|| wrong("a host is missing or not one"))?;
        let names = servers.iter().map(|server| format!("{}:{}", host(server), port(server)));
        let name = format!("{scheme}://{}", names.collect::<Vec<_>>().join(","));
        Ok(Self { servers, name, ca_file: None, credentials: None, ping_interval: PING_INTERVAL })
    }

    /// Copies of a result that the stream keeps: on three servers, where so many are named.
    pub(super) fn replicas(&self) -> usize {
        if self.servers.len() >= 3 { 3 } else { 1 }
    }

    /// A client. It connects again by itself whenever the connection is lost.
    pub(super) async fn connect(&self, name: &str) -> Result<Client> {
        let mut options = ConnectOptions::new()
            .name(name)
            .connection_timeout(CONNECT_TIMEOUT)
            .ping_interval(self.ping_interval)
            .reconnect_delay_callback(|_| Duration::from_millis(250));
        if let Some(Credentials { text }) = &self.credentials {
            options = if text.contains("NATS USER JWT") {
                options.credentials(text).map_err(|error| io_error("use", "the creds file", &error))?
            } else {
                let seed = text.split_whitespace().find(|word| word.starts_with("SU"));
                options.nkey(seed.unwrap_or_default().to_owned())
            };
        }
        if let Some(path) = &self.ca_file {
            options = options.add_root_certificates(path.clone());
        }
        options.connect(&self.servers).await.map_err(|error| {
            UserError::cannot_run(format!("cannot connect to {}: {error}", self.name)).hint(
                "is a nats-server with JetStream there (nats-server -js), does it know these credentials (--nats-creds), and \
                 is its certificate trusted (--nats-ca)?",
            )
        })
    }
}

/// As in a URL.
fn host(server: &ServerAddr) -> String {
    let host = server.host();
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

fn port(server: &ServerAddr) -> u16 {
    if server.port() == 0 { PORT_DEFAULT } else { server.port() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_as_nats_names_them() {
        for (text, name) in [
            ("nats://h", "nats://h:4222"),
            ("nats://h:1,i,[::1]:3", "nats://h:1,i:4222,[::1]:3"),
            ("tls://me:secret@h", "tls://h:4222"),
        ] {
            assert_eq!(Broker::parse(text).unwrap().name, name);
        }
        for text in ["h", "http://h", "nats://", "nats://h,,i"] {
            assert_eq!(Broker::parse(text).err().map(|error| error.exit_code()), Some(2), "{text}");
        }
    }
}
