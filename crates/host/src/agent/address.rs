//! Where a server is, as `--server` says it: `local`, `exec:COMMAND`, `ssh://[user@]host[:port]` (docs/contract.md).

use std::fmt;
use webdyno_model::{Result, UserError};

/// Where the agent is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// On this machine.
    Local,
    /// By a shell command that runs the agent and connects its stdin and stdout.
    Exec(String),
}

impl ServerAddress {
    /// Reads `local` or `exec:COMMAND`. A usage error for anything else; `ssh://` is not there yet.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "local" {
            return Ok(Self::Local);
        }
        if let Some(command) = text.strip_prefix("exec:") {
            if command.trim().is_empty() {
                return Err(UserError::usage("`exec:` without a command")
                    .hint("as in --server exec:'ip netns exec web webdyno agent'"));
            }
            return Ok(Self::Exec(command.to_owned()));
        }
        if let Some(host) = text.strip_prefix("ssh://") {
            return Err(UserError::usage(format!("`{text}`: ssh:// is not supported yet"))
                .hint(format!("install webdyno there, and use --server exec:'ssh {host} webdyno agent'")));
        }
        Err(UserError::usage(format!("`{text}` is not a server"))
            .hint("write --server local, or --server exec:'COMMAND that runs webdyno agent'"))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Exec(command) => write!(f, "exec:{command}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_render() {
        for text in ["local", "exec:docker exec web webdyno agent"] {
            assert_eq!(ServerAddress::parse(text).unwrap().to_string(), text);
        }
        for (text, message) in [
            ("ssh://root@web1:22", "`ssh://root@web1:22`: ssh:// is not supported yet"),
            ("exec: ", "`exec:` without a command"),
            ("", "`` is not a server"),
            ("web1", "`web1` is not a server"),
        ] {
            let error = ServerAddress::parse(text).unwrap_err();
            assert_eq!((error.message.as_str(), error.exit_code()), (message, 2));
        }
    }
}
