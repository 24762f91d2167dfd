//! Where servers are, as `--server` says it: `[ROLE=]local`, `[ROLE=]ssh://[user@]host[:port]`, `[ROLE=]exec:COMMAND`
//! (docs/contract.md).

use std::fmt;
use webdyno_model::{Result, UserError};

/// What is never part of a host's or a user's name, and would mean something to a shell or to ssh(1).
const NOT_IN_NAMES: &[char] = &[
    '\'', '"', '`', '$', '\\', ';', '&', '<', '>', '|', '(', ')', '{', '}', '*', '?', '!', '#', ',', '/', '@',
];

/// Where an agent is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// On this machine.
    Local,
    /// On another one, by the system's ssh.
    Ssh(SshHost),
    /// By a shell command that runs the agent, or a shell, and connects its stdin and stdout.
    Exec(String),
}

/// Where ssh goes to. What is not given is as the user's ssh configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// The user there.
    pub user: Option<String>,
    /// A name, an alias of the ssh configuration, or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: Option<u16>,
}

/// What a host is to the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The web server: the one under load.
    Web,
    /// Where PHP runs.
    Php,
    /// The database.
    Db,
    /// The machine that the web server's container or namespace runs on: not observed, only asked to set what belongs to
    /// a whole machine.
    Host,
}

impl Role {
    const ALL: [Self; 4] = [Self::Web, Self::Php, Self::Db, Self::Host];

    /// As `--server` and the event log name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Php => "php",
            Self::Db => "db",
            Self::Host => "host",
        }
    }
}

/// The servers of a session: each role once, the web server first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerList {
    servers: Vec<(Role, ServerAddress)>,
}

impl ServerList {
    /// Reads what was given with `--server`, each time it was given. Usage errors: an address that is none, a role that
    /// is not known, a role twice, a machine twice, the machine of a web server without that.
    pub fn parse(texts: &[String]) -> Result<Self> {
        let mut servers: Vec<(Role, ServerAddress)> = vec![];
        for text in texts {
            let (role, address) = with_role(text)?;
            if servers.iter().any(|(other, _)| *other == role) {
                return Err(UserError::usage(format!("there are two servers with the role {}", role.name()))
                    .hint("each role once, as in --server web=ssh://w1 --server db=ssh://d1; without a role it is web"));
            }
            if let Some((other, _)) = servers.iter().find(|(_, known)| *known == address) {
                let text = format!("`{address}` is given as {} and as {}", other.name(), role.name());
                return Err(
                    UserError::usage(text).hint("one agent observes all services of a machine: give it once")
                );
            }
            servers.push((role, address));
        }
        servers.sort_by_key(|(role, _)| *role);
        let has = |wanted: Role| servers.iter().any(|(role, _)| *role == wanted);
        if has(Role::Host) && !has(Role::Web) {
            return Err(UserError::usage(
                "the role host is the machine that a web server's container runs on, and no web server was given",
            )
            .hint("as in --server 'web=exec:docker exec -i C webdyno agent' --server host=local"));
        }
        Ok(Self { servers })
    }

    /// One web server.
    pub fn of(address: ServerAddress) -> Self {
        Self { servers: vec![(Role::Web, address)] }
    }

    /// The servers, the web server first.
    pub fn iter(&self) -> impl Iterator<Item = (Role, &ServerAddress)> {
        self.servers.iter().map(|(role, address)| (*role, address))
    }

    /// The web server: the one that is loaded and changed. A usage error when none was given.
    pub fn web(&self) -> Result<&ServerAddress> {
        let web = self.servers.iter().find(|(role, _)| *role == Role::Web);
        web.map(|(_, address)| address).ok_or_else(|| {
            UserError::usage("no web server was given, which is what is loaded")
                .hint("as in --server web=local --server db=ssh://d1")
        })
    }
}

fn with_role(text: &str) -> Result<(Role, ServerAddress)> {
    let given = text.split_once('=').filter(|(before, _)| !before.contains(':'));
    let Some((name, address)) = given else { return Ok((Role::Web, ServerAddress::parse(text)?)) };
    let role = Role::ALL.into_iter().find(|role| role.name() == name).ok_or_else(|| {
        UserError::usage(format!("`{name}` is not the role of a server"))
            .hint("the roles are web, php, db and host, as in --server db=ssh://d1")
    })?;
    Ok((role, ServerAddress::parse(address)?))
}

impl ServerAddress {
    /// Reads `local`, `ssh://[user@]host[:port]` or `exec:COMMAND`. A usage error for anything else.
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
        if let Some(rest) = text.strip_prefix("ssh://") {
            return SshHost::parse(rest).map(Self::Ssh).map_err(|why| {
                UserError::usage(format!("`{text}` is not a server: {why}"))
                    .hint("as in --server ssh://web1, ssh://admin@web1:2222 or ssh://[2001:db8::1]")
            });
        }
        Err(UserError::usage(format!("`{text}` is not a server")).hint(
            "write --server local, --server ssh://HOST, or --server exec:'COMMAND that runs webdyno agent'",
        ))
    }
}

impl ServerAddress {
    /// As it may stand in a recording: of a command only its first word, as others may be secrets (`sshpass -p`).
    pub fn plainly(&self) -> String {
        match self {
            Self::Exec(command) => {
                let mut words = command.split_whitespace();
                // Variables before a program may hold tokens.
                let program = words.find(|word| !word.contains('=')).unwrap_or_default();
                format!("exec:{program}..")
            }
            Self::Local | Self::Ssh(_) => self.to_string(),
        }
    }
}

impl SshHost {
    /// Reads `[user@]host[:port]`; the error says what is wrong.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(named("user", user)?), rest),
            None => (None, text),
        };
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or("the `[` is not closed")?;
                let zone = host.split_once('%').map_or(host, |(address, _)| address);
                zone.parse::<std::net::Ipv6Addr>().map_err(|_| format!("`{host}` is no IPv6 address"))?;
                let port = match rest.strip_prefix(':') {
                    None if rest.is_empty() => None,
                    Some(port) => Some(port),
                    None => return Err(format!("`{rest}` follows the address")),
                };
                (host, port)
            }
            None if rest.matches(':').count() > 1 => {
                return Err("an IPv6 address stands in brackets".to_owned());
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = port.map(|port| {
            let number = port.parse::<u16>().ok().filter(|number| *number > 0 && !port.starts_with('+'));
            number.ok_or_else(|| format!("`{port}` is no port"))
        });
        Ok(Self { user, host: named("host", host)?, port: port.transpose()? })
    }
}

/// A name that ssh cannot take for anything else (an option, a command).
fn named(what: &str, name: &str) -> std::result::Result<String, String> {
    if name.is_empty() {
        return Err(format!("it names no {what}"));
    }
    if name.starts_with('-') {
        return Err(format!("a {what} does not begin with `-`"));
    }
    match name.chars().find(|c| c.is_whitespace() || c.is_control() || NOT_IN_NAMES.contains(c)) {
        Some(strange) => Err(format!("`{}` stands in no name of a {what}", strange.escape_default())),
        None => Ok(name.to_owned()),
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Ssh(host) => write!(f, "ssh://{host}"),
            Self::Exec(command) => write!(f, "exec:{command}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_parse_and_render() {
        for text in [
            "local",
            "exec:docker exec web webdyno agent",
            "ssh://web1",
            "ssh://root@web1.example:2222",
            "ssh://[2001:db8::1]:22",
            "ssh://admin@[fe80::1%eth0]",
            "ssh://192.0.2.1",
            "ssh://alias_of-config",
        ] {
            assert_eq!(ServerAddress::parse(text).unwrap().to_string(), text);
        }
        let host = SshHost { user: Some("u".into()), host: "::1".into(), port: Some(22) };
        assert_eq!(ServerAddress::parse("ssh://u@[::1]:22/"), Ok(ServerAddress::Ssh(host)));
    }

    #[test]
    fn wrong_addresses_say_what_is_wrong() {
        for (text, message) in [
            ("exec: ", "`exec:` without a command"),
            ("", "`` is not a server"),
            ("web1", "`web1` is not a server"),
            ("ssh://", "`ssh://` is not a server: it names no host"),
            ("ssh://@web1", "`ssh://@web1` is not a server: it names no user"),
            (
                "ssh://-oProxyCommand=x",
                "`ssh://-oProxyCommand=x` is not a server: a host does not begin with `-`",
            ),
            ("ssh://-x@web1", "`ssh://-x@web1` is not a server: a user does not begin with `-`"),
            ("ssh://web1:0", "`ssh://web1:0` is not a server: `0` is no port"),
            ("ssh://web1:+22", "`ssh://web1:+22` is not a server: `+22` is no port"),
            ("ssh://web1:70000", "`ssh://web1:70000` is not a server: `70000` is no port"),
            ("ssh://2001:db8::1", "`ssh://2001:db8::1` is not a server: an IPv6 address stands in brackets"),
            ("ssh://[::1", "`ssh://[::1` is not a server: the `[` is not closed"),
            ("ssh://[web1]", "`ssh://[web1]` is not a server: `web1` is no IPv6 address"),
            ("ssh://[::1]22", "`ssh://[::1]22` is not a server: `22` follows the address"),
            ("ssh://web1/srv", "`ssh://web1/srv` is not a server: `/` stands in no name of a host"),
            ("ssh://a b", "`ssh://a b` is not a server: ` ` stands in no name of a host"),
            ("ssh://a;reboot", "`ssh://a;reboot` is not a server: `;` stands in no name of a host"),
            ("ssh://a\n", "`ssh://a\n` is not a server: `\\n` stands in no name of a host"),
        ] {
            let error = ServerAddress::parse(text).unwrap_err();
            assert_eq!((error.message.as_str(), error.exit_code()), (message, 2));
            assert!(error.hint.is_some(), "{text}");
        }
    }

    #[test]
    fn what_a_recording_names_has_no_secrets() {
        for (text, shown) in [
            ("exec:sshpass -p s3cret ssh web webdyno agent", "exec:sshpass.."),
            ("exec:TOKEN=s3cret docker exec -i C webdyno agent", "exec:docker.."),
            ("ssh://admin@web1:22", "ssh://admin@web1:22"),
            ("local", "local"),
        ] {
            assert_eq!(ServerAddress::parse(text).unwrap().plainly(), shown);
        }
    }

    fn list(texts: &[&str]) -> Result<ServerList> {
        ServerList::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn each_role_is_given_once() {
        let servers = list(&["db=ssh://d1", "ssh://w1"]).unwrap();
        let shown: Vec<_> = servers.iter().map(|(role, at)| format!("{}={at}", role.name())).collect();
        assert_eq!(shown, ["web=ssh://w1", "db=ssh://d1"]);
        assert_eq!(servers.web().unwrap().to_string(), "ssh://w1");
        // What stands behind a colon is the address's own.
        assert_eq!(
            list(&["exec:A=1 webdyno agent"]).unwrap().web().unwrap().to_string(),
            "exec:A=1 webdyno agent"
        );
        assert_eq!(list(&["db=local"]).unwrap().web().unwrap_err().exit_code(), 2);
        for (texts, message) in [
            (&["local", "web=ssh://w1"][..], "there are two servers with the role web"),
            (&["cache=ssh://w1"], "`cache` is not the role of a server"),
            (&["Web=ssh://w1"], "`Web` is not the role of a server"),
            (&["=local"], "`` is not the role of a server"),
            (&["db="], "`` is not a server"),
            (&["web=local", "db=local"], "`local` is given as web and as db"),
            (&["local", "host=local"], "`local` is given as web and as host"),
            (&["local", "host=ssh://a", "host=ssh://b"], "there are two servers with the role host"),
            (
                &["host=local"],
                "the role host is the machine that a web server's container runs on, and no web server was given",
            ),
        ] {
            let error = list(texts).unwrap_err();
            assert_eq!((error.message.as_str(), error.exit_code()), (message, 2));
        }
    }

    proptest! {
        /// Any text is an address or a usage error; what is read is rendered to the same address.
        #[test]
        fn any_text_is_read_or_refused(text in "(web=|db=|host=)?(ssh://|exec:)?[-a-z0-9@:\\[\\]/%. ']{0,24}") {
            if let Ok(servers) = list(&[&text]) {
                let (_, address) = servers.iter().next().unwrap();
                prop_assert_eq!(&ServerAddress::parse(&address.to_string()).unwrap(), address);
                if let ServerAddress::Ssh(host) = address {
                    prop_assert!(!host.host.starts_with('-') && !host.host.contains([' ', '\'', '/']));
                }
            }
        }
    }
}
