//! How webdyno comes into a database: with what the operator gave, else with what clients of the agent's user have, else
//! as that user by the socket.
//!
//! Facts: <https://mariadb.com/kb/en/authentication-plugin-unix-socket/>, option files of clients (group `client`), and
//! the error codes of <https://mariadb.com/kb/en/mariadb-error-codes/>. Passwords stay in this file: an error never shows
//! one.

use super::options::Options;
use crate::netns;
use mysql::{Conn, Opts, OptsBuilder};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use webdyno_model::service::{Endpoint, ServiceSnapshot};
use webdyno_model::topology::Access;

/// How long connecting and each answer may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Groups of option files that clients read.
const CLIENT_GROUPS: [&str; 3] = ["client", "client-server", "client-mariadb"];

/// Debian's account for its own tools, readable by root alone.
const DEBIAN_FILE: &str = "/etc/mysql/debian.cnf";

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// All connections are taken (1040, 1203): that is what limits.
    TooMany,
    /// The account is not let in: trying again each second would fill logs and lock the host out.
    Denied(String),
    /// Nothing answers, or it answers something else.
    Failed(String),
}

/// What helps who is not let in.
pub const HOW_TO_GET_IN: &str = "run webdyno as root where root comes in by the socket, or create an account with the \
    PROCESS privilege and SELECT on performance_schema, write user and password to an option file ([client]) and name \
    it with --db-option-file";

/// An account, and where it is from.
struct Account {
    user: String,
    password: Option<String>,
}

/// Connects to a database of this machine. Of one in another network namespace by that namespace.
pub fn connect(snapshot: &ServiceSnapshot, access: &Access) -> Result<Conn, Refusal> {
    let endpoint = snapshot.endpoints.first();
    let endpoint = endpoint
        .ok_or_else(|| Refusal::Failed(format!("{} listens nowhere that can be seen", snapshot.service)))?;
    let mut last = Refusal::Failed("no account to try".into());
    for account in accounts(access)? {
        let Some(options) = options(endpoint, snapshot.pid, &account) else {
            return Err(Refusal::Failed(format!("`{}` is no address", endpoint.address)));
        };
        match within_time(options, snapshot.pid) {
            Err(denied @ Refusal::Denied(_)) => last = denied,
            other => return other,
        }
    }
    Err(last)
}

/// Connecting to a unix socket has no time limit of its own: the thread that hangs there ends by itself.
fn within_time(options: Opts, pid: u32) -> Result<Conn, Refusal> {
    let (sender, connected) = channel();
    let connect = move || {
        let by_tcp = options.get_socket().is_none() && is_elsewhere(pid);
        let conn = if by_tcp {
            netns::within(pid, || Conn::new(options)).unwrap_or_else(|error| Err(error.into()))
        } else {
            Conn::new(options)
        };
        // Nobody waits any more after the time limit.
        let _ = sender.send(conn.map_err(|error| refusal(&error)));
    };
    let thread = std::thread::Builder::new().name("db connect".into()).spawn(connect);
    thread.map_err(|error| Refusal::Failed(format!("cannot start a thread: {error}")))?;
    match connected.recv_timeout(TIMEOUT) {
        Ok(conn) => conn,
        Err(RecvTimeoutError::Timeout) => {
            Err(Refusal::Failed(format!("no connection within {} s", TIMEOUT.as_secs())))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Refusal::Failed("connecting failed".into())),
    }
}

fn is_elsewhere(pid: u32) -> bool {
    let (theirs, ours) =
        (crate::procfs::net_namespace(pid).ok(), crate::procfs::net_namespace(std::process::id()).ok());
    theirs.is_some() && theirs != ours
}

fn options(endpoint: &Endpoint, pid: u32, account: &Account) -> Option<Opts> {
    let builder = OptsBuilder::new()
        .user(Some(&account.user))
        .pass(account.password.as_deref())
        .prefer_socket(false)
        .tcp_connect_timeout(Some(TIMEOUT))
        .read_timeout(Some(TIMEOUT))
        .write_timeout(Some(TIMEOUT));
    let builder = match endpoint.address.strip_prefix("unix:") {
        Some(path) => builder.socket(Some(super::seen_from_here(pid, Path::new(path)).to_str()?)),
        None => {
            let address: SocketAddr = endpoint.address.parse().ok()?;
            builder.ip_or_hostname(Some(address.ip().to_string())).tcp_port(address.port())
        }
    };
    Some(builder.into())
}

/// The accounts to try, in order.
fn accounts(access: &Access) -> Result<Vec<Account>, Refusal> {
    if let Some(file) = &access.db_option_file {
        let account = account_in(Path::new(file)).map_err(Refusal::Denied)?;
        return Ok(vec![account]);
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".my.cnf"));
    let files = home.into_iter().chain([PathBuf::from(DEBIAN_FILE)]);
    let mut accounts: Vec<Account> = files.filter_map(|file| account_in(&file).ok()).collect();
    let uid = rustix::process::geteuid().as_raw();
    let user = if uid == 0 { "root".to_owned() } else { user_name(uid).unwrap_or_default() };
    if !accounts.iter().any(|account| account.user == user && account.password.is_none()) && !user.is_empty()
    {
        accounts.push(Account { user, password: None });
    }
    Ok(accounts)
}

fn user_name(uid: u32) -> Option<String> {
    let passwd = crate::procfs::read_text("/etc/passwd").ok()?;
    let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines
        .find(|fields| fields.get(2).is_some_and(|id| id.parse() == Ok(uid)))
        .map(|fields| fields[0].to_owned())
}

/// The account in an option file for clients; an error in words when there is none.
fn account_in(file: &Path) -> Result<Account, String> {
    if let Err(error) = std::fs::File::open(file) {
        return Err(format!("cannot read the option file {}: {error}", file.display()));
    }
    let options = Options::read(&[file.to_owned()], &CLIENT_GROUPS.map(str::to_owned), Path::new("/"));
    let value = |name: &str| options.value(name).and_then(|given| given.value.clone());
    let user = value("user").or_else(|| user_name(rustix::process::geteuid().as_raw()));
    match user {
        Some(user) if options.value("user").is_some() || options.value("password").is_some() => {
            Ok(Account { user, password: value("password") })
        }
        _ => Err(format!("the option file {} has neither user nor password under [client]", file.display())),
    }
}

/// What an error of connecting or asking means.
pub fn refusal(error: &mysql::Error) -> Refusal {
    let mysql::Error::MySqlError(told) = error else {
        return Refusal::Failed(error.to_string());
    };
    match told.code {
        1040 | 1203 => Refusal::TooMany,
        // Access denied, no privilege, this host is blocked or not allowed.
        1044 | 1045 | 1129 | 1130 | 1142 | 1227 | 1698 => {
            Refusal::Denied(format!("{} (error {})", told.message, told.code))
        }
        code => Refusal::Failed(format!("error {code} ({})", told.state)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_file_gives_an_account_and_errors_never_show_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.cnf");
        for (text, user) in [
            ("[client]\nuser=watch\npassword='p#1'\n", Some("watch")),
            ("[mysqld]\nuser=mysql\n", None),
            ("", None),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = account_in(&path);
            assert_eq!(found.as_ref().ok().map(|account| account.user.as_str()), user, "{text}");
            if let Ok(account) = found {
                assert_eq!(account.password.as_deref(), Some("p#1"));
            }
        }
        let told = account_in(&folder.path().join("none")).err().unwrap();
        assert!(told.starts_with("cannot read the option file"), "{told}");
        let access = Access { db_option_file: Some(folder.path().join("none").display().to_string()) };
        assert!(matches!(accounts(&access).err(), Some(Refusal::Denied(_))));
    }

    #[test]
    fn errors_say_what_they_mean() {
        let error = |code| {
            refusal(&mysql::Error::MySqlError(mysql::error::MySqlError {
                state: "HY000".into(),
                message: "m".into(),
                code,
            }))
        };
        assert_eq!(error(1040), Refusal::TooMany);
        assert_eq!(error(1045), Refusal::Denied("m (error 1045)".into()));
        assert_eq!(error(1064), Refusal::Failed("error 1064 (HY000)".into()));
    }
}
