//! How webdyno comes into a database: with what the operator gave, else with what clients of the agent's user have, else
//! as that user by the socket.
//!
//! Facts: <https://mariadb.com/kb/en/authentication-plugin-unix-socket/>, option files of clients (group `client`), and
//! the error codes of <https://mariadb.com/kb/en/mariadb-error-codes/>. Passwords stay in this file: an error never shows
//! one.

use super::options::Options;
use crate::visibility::mount_namespace;
use crate::visibility::process_view;
use crate::visibility::process_view::{Root, SocketPlace};
use mysql::{Conn, Opts, OptsBuilder};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Connections that hang at a time, in all: a database whose accept queue is full may keep each new one for ever.
const HANGING_MAX: usize = 3;

static CONNECTING: AtomicUsize = AtomicUsize::new(0);

/// Connects to a database of this machine: of one in a container to its socket there, of one in another network
/// namespace by that namespace.
pub fn connect(snapshot: &ServiceSnapshot, access: &Access) -> Result<Conn, Refusal> {
    let endpoint = snapshot.endpoints.first();
    let endpoint = endpoint
        .ok_or_else(|| Refusal::Failed(format!("{} listens nowhere that can be seen", snapshot.service)))?;
    let root = Root::of(snapshot.pid);
    let is_ours = !mount_namespace::has_other_root(snapshot.pid);
    let mut last = Refusal::Failed("no account to try".into());
    for account in accounts(access, is_ours)? {
        let way = ConnectOptions::of(endpoint, &root, &account)?;
        match within_time(way, snapshot.pid) {
            Err(denied @ Refusal::Denied(_)) => last = denied,
            other => return other,
        }
    }
    Err(last)
}

/// How to connect.
struct ConnectOptions {
    options: Opts,
    /// The unix socket, whose path in `options` is good as long as this is there.
    socket: Option<SocketPlace>,
}

impl ConnectOptions {
    fn of(endpoint: &Endpoint, root: &Root, account: &Account) -> Result<Self, Refusal> {
        let builder = OptsBuilder::new()
            .user(Some(&account.user))
            .pass(account.password.as_deref())
            .prefer_socket(false)
            .tcp_connect_timeout(Some(TIMEOUT))
            .read_timeout(Some(TIMEOUT))
            .write_timeout(Some(TIMEOUT));
        let address = &endpoint.address;
        let Some(path) = address.strip_prefix("unix:") else {
            let address: SocketAddr =
                address.parse().map_err(|_| Refusal::Failed(format!("`{address}` is no address")))?;
            let builder = builder.ip_or_hostname(Some(address.ip().to_string())).tcp_port(address.port());
            return Ok(Self { options: builder.into(), socket: None });
        };
        let socket =
            SocketPlace::of(root, path).map_err(|error| Refusal::Failed(format!("{address}: {error}")))?;
        Ok(Self { options: builder.socket(Some(socket.path())).into(), socket: Some(socket) })
    }
}

/// Connecting to a unix socket has no time limit of its own: the thread that hangs there ends by itself, once the
/// database goes on. There are never many of them.
fn within_time(way: ConnectOptions, pid: u32) -> Result<Conn, Refusal> {
    if CONNECTING.fetch_add(1, Ordering::Relaxed) >= HANGING_MAX {
        CONNECTING.fetch_sub(1, Ordering::Relaxed);
        return Err(Refusal::Failed("connections that were begun before still hang".into()));
    }
    let (sender, connected) = channel();
    let connect = move || {
        let conn = match &way.socket {
            Some(_) => Conn::new(way.options),
            None => process_view::in_network_of(pid, || Conn::new(way.options))
                .unwrap_or_else(|error| Err(error.into())),
        };
        CONNECTING.fetch_sub(1, Ordering::Relaxed);
        // Nobody waits any more after the time limit.
        let _ = sender.send(conn.map_err(|error| refusal(&error)));
    };
    let thread = std::thread::Builder::new().name("db connect".into()).spawn(connect);
    if let Err(error) = thread {
        CONNECTING.fetch_sub(1, Ordering::Relaxed);
        return Err(Refusal::Failed(format!("cannot start a thread: {error}")));
    }
    match connected.recv_timeout(TIMEOUT) {
        Ok(conn) => conn,
        Err(RecvTimeoutError::Timeout) => {
            Err(Refusal::Failed(format!("no connection within {} s", TIMEOUT.as_secs())))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Refusal::Failed("connecting failed".into())),
    }
}

/// The accounts to try, in order. What this machine has for its own databases is not shown to one in a container.
fn accounts(access: &Access, is_ours: bool) -> Result<Vec<Account>, Refusal> {
    if let Some(file) = &access.db_option_file {
        let account = account_in(Path::new(file)).map_err(Refusal::Denied)?;
        return Ok(vec![account]);
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".my.cnf"));
    let files = home.into_iter().chain([PathBuf::from(DEBIAN_FILE)]);
    let files = files.filter(|_| is_ours);
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
    let passwd = crate::os::procfs::read_text("/etc/passwd").ok()?;
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
    let options = Options::read(&[file.to_owned()], &CLIENT_GROUPS.map(str::to_owned), &Root::ours());
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
    let mysql::Error::MySqlError(text) = error else {
        return Refusal::Failed(error.to_string());
    };
    match text.code {
        1040 | 1203 => Refusal::TooMany,
        // Access denied, no privilege, this host is blocked or not allowed.
        1044 | 1045 | 1129 | 1130 | 1142 | 1227 | 1698 => {
            Refusal::Denied(format!("{} (error {})", text.message, text.code))
        }
        code => Refusal::Failed(format!("error {code} ({})", text.state)),
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
        let message = account_in(&folder.path().join("none")).err().unwrap();
        assert!(message.starts_with("cannot read the option file"), "{message}");
        let access = Access { db_option_file: Some(folder.path().join("none").display().to_string()) };
        assert!(matches!(accounts(&access, true).err(), Some(Refusal::Denied(_))));
        // Nothing of this machine's for one in a container: only who asks.
        let shown = accounts(&Access::default(), false).unwrap();
        assert!(shown.len() <= 1 && shown.iter().all(|account| account.password.is_none()));
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
