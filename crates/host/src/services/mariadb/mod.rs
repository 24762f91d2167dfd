//! MariaDB and MySQL: how they are recognised and read, and which of their variables are changed ([`variables`]).
//!
//! Facts: <https://mariadb.com/kb/en/server-system-variables/>, mysqld(8). What the server is told comes from its command
//! line and its option files; what is in force comes from the server itself, where webdyno may ask it ([`access`]).
//! Where it listens is told by its sockets.

pub mod access;
pub mod drop_in;
pub mod options;
pub mod prepare;
pub mod running;
pub mod server;
pub mod settings;
pub mod variables;

use super::Observe;
use crate::os::procfs;
use crate::visibility::process_view::Root;
use crate::visibility::program_query::query_program;
use mysql::prelude::Queryable;
use options::Options;
use settings::SETTINGS;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use webdyno_model::Result;
use webdyno_model::sample::MissingSignal;
use webdyno_model::service::{
    Endpoint, LogFile, LogKind, ServiceSnapshot, SettingInForce, SettingValue, Statement,
};
use webdyno_model::topology::Access;

/// The name in snapshots.
pub const NAME: &str = "mariadb";

const EXECUTABLES: [&str; 4] = ["mariadbd", "mysqld", "mysqld-debug", "mariadbd-debug"];

/// Statements that are told.
const STATEMENTS_MAX: usize = 10;

/// Where servers look for option files, in order (`mariadbd --help --verbose`).
const DEFAULT_FILES: [&str; 2] = ["/etc/my.cnf", "/etc/mysql/my.cnf"];

/// The service.
#[derive(Debug)]
pub struct Mariadb;

impl Observe for Mariadb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, executable: &str, _: &[String]) -> bool {
        let path = executable.trim_end_matches(" (deleted)");
        path.rsplit('/').next().is_some_and(|name| EXECUTABLES.contains(&name))
    }

    fn snapshot(&self, pid: u32, port: u16) -> Result<ServiceSnapshot> {
        Ok(ServiceSnapshot { port, ..read(pid)? })
    }

    fn backend(&self, pid: u32) -> Option<Result<ServiceSnapshot>> {
        Some(read(pid))
    }

    fn with_access(&self, snapshot: &mut ServiceSnapshot, access: &Access) {
        query(snapshot, access);
    }
}

/// What can be read without asking the server.
fn read(pid: u32) -> Result<ServiceSnapshot> {
    let process = procfs::process(pid)?;
    let arguments = arguments(&process.argv);
    let (files, main_file) = option_files(&arguments);
    let options = Options::read(&files, &groups_of(&arguments, series(pid).as_deref()), &Root::of(pid));
    let listens = listens(pid);
    let port = listens.iter().find_map(|address| address.rsplit_once(':')?.1.parse().ok()).unwrap_or(0);
    Ok(ServiceSnapshot {
        service: NAME.into(),
        pid,
        executable: process.exe,
        port,
        config_file: main_file.or_else(|| Some(options.files.first()?.to_string_lossy().into_owned())),
        settings: settings(&arguments, &options),
        warnings: options.warnings.clone(),
        role: Some("db".into()),
        endpoints: endpoint(&listens).into_iter().collect(),
        logs: logs(&arguments, &options),
        listens,
        ..ServiceSnapshot::default()
    })
}

/// The unix socket where there is one: by that accounts come in without a password.
fn endpoint(listens: &[String]) -> Option<Endpoint> {
    // One without a file (`unix:@name`) is only reached from its own network.
    let best = listens.iter().find(|address| address.starts_with("unix:/"));
    let best = best.or_else(|| listens.iter().find(|address| !address.starts_with("unix:")))?;
    // An address of all interfaces is reached by the loopback one.
    let address = best.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:");
    Some(Endpoint { name: "server".into(), address, path: None })
}

/// The options of a command line, names with `_`.
///
/// A server has no words without a name: one that follows a name is its value.
fn arguments(argv: &[String]) -> BTreeMap<String, Option<String>> {
    let following = argv.iter().skip(2).map(Some).chain([None]);
    let long = argv.iter().skip(1).zip(following);
    let split = long.filter_map(|(word, next)| {
        let word = word.strip_prefix("--")?;
        Some(match word.split_once('=') {
            Some((name, value)) => (options::normal(name), Some(value.to_owned())),
            None => (options::normal(word), next.filter(|next| !next.starts_with('-')).cloned()),
        })
    });
    split.collect()
}

/// The option files that a server reads, and the one that it was told.
fn option_files(arguments: &BTreeMap<String, Option<String>>) -> (Vec<PathBuf>, Option<String>) {
    let named = |name: &str| arguments.get(name).cloned().flatten();
    if arguments.contains_key("no_defaults") {
        return (vec![], None);
    }
    if let Some(file) = named("defaults_file") {
        return (vec![PathBuf::from(&file)], Some(file));
    }
    let extra = named("defaults_extra_file");
    (DEFAULT_FILES.into_iter().map(PathBuf::from).chain(extra.map(PathBuf::from)).collect(), None)
}

/// The groups that every server reads.
fn groups() -> Vec<String> {
    ["mysqld", "server", "mariadb", "mariadbd", "galera", "client-server"].map(str::to_owned).into()
}

/// The end of the names of groups that this server reads as well: `mariadb@b.service` gives it `.b`, `mysqld@b.service` `@b`.
fn group_suffix(arguments: &BTreeMap<String, Option<String>>) -> Option<&str> {
    arguments.get("defaults_group_suffix")?.as_deref().filter(|suffix| !suffix.is_empty())
}

/// The groups that a server of this command line and series reads. That of a series stands last in the files of packages: what people
/// append to them is in it.
fn groups_of(arguments: &BTreeMap<String, Option<String>>, series: Option<&str>) -> Vec<String> {
    let of_series = |series: &str| ["mysqld", "mariadb", "mariadbd"].map(|group| format!("{group}-{series}"));
    let plain: Vec<String> = groups().into_iter().chain(series.into_iter().flat_map(of_series)).collect();
    let suffix = group_suffix(arguments);
    let own = suffix.into_iter().flat_map(|suffix| plain.iter().map(move |group| format!("{group}{suffix}")));
    plain.iter().cloned().chain(own).collect()
}

/// The series of a server, where its program can be asked: `10.11`.
fn series(pid: u32) -> Option<String> {
    let executable = procfs::executable(pid).ok();
    let arguments = || ["--no-defaults", "--version"].map(str::to_owned).to_vec();
    series_in(&query_program(NAME, pid, executable.as_ref(), arguments).ok()?.stdout)
}

/// The series in `mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)`.
fn series_in(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
    let mut numbers = text.split_ascii_whitespace().find(is_version)?.split('.');
    Some(format!("{}.{}", numbers.next()?, numbers.next()?))
}

/// Settings as files and command line give them.
fn settings(
    arguments: &BTreeMap<String, Option<String>>,
    options: &Options,
) -> BTreeMap<String, SettingInForce> {
    let value = |text: Option<&String>| match text {
        Some(text) => {
            options::number(text).map_or_else(|| SettingValue::Text(text.clone()), SettingValue::Integer)
        }
        // Alone it switches something on.
        None => SettingValue::Text("ON".into()),
    };
    let given = |name: &str| -> Option<SettingInForce> {
        if let Some(message) = arguments.get(name) {
            return Some(SettingInForce {
                configured: Some(value(message.as_ref())),
                ..SettingInForce::default()
            });
        }
        let given = options.value(name)?;
        Some(SettingInForce {
            configured: Some(value(given.value.as_ref())),
            file: Some(given.file.to_string_lossy().into_owned()),
            line: Some(given.line),
            ..SettingInForce::default()
        })
    };
    SETTINGS.iter().filter_map(|name| Some(((*name).to_owned(), given(name)?))).collect()
}

fn logs(arguments: &BTreeMap<String, Option<String>>, options: &Options) -> Vec<LogFile> {
    let path = |name: &str| {
        let message = arguments.get(name).cloned().flatten();
        message.or_else(|| options.value(name)?.value.clone()).filter(|path| path.starts_with('/'))
    };
    let log = |name: &str, kind| path(name).map(|path| LogFile { path, kind, ..LogFile::default() });
    [log("log_error", LogKind::Error), log("slow_query_log_file", LogKind::Slow)]
        .into_iter()
        .flatten()
        .collect()
}

/// Where a process listens, unix sockets first. Who may not see its descriptors sees the user of each socket, which tells if nobody else
/// acts as that user.
fn listens(pid: u32) -> Vec<String> {
    let held = procfs::socket_inodes(pid).ok();
    let user = if held.is_none() { user_of_its_own(pid) } else { None };
    let is_its = |inode: u64, owner: &dyn Fn() -> Option<u32>| match &held {
        Some(inodes) => inodes.contains(&inode),
        None => user.is_some() && owner() == user,
    };
    let unix = procfs::read_text(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let owner = |path: &str| std::fs::symlink_metadata(path).ok().map(|file| file.uid());
    let mut found = unix_listeners(&unix, |inode, path| is_its(inode, &|| owner(path)));
    for file in ["tcp", "tcp6"] {
        let sockets = crate::os::sockets::listening(&format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        let own = sockets.into_iter().filter(|socket| is_its(socket.inode, &|| Some(socket.uid)));
        found.extend(own.map(|socket| std::net::SocketAddr::new(socket.address, socket.port).to_string()));
    }
    found
}

/// The user of a process, unless that is root or another program acts as him, too.
fn user_of_its_own(pid: u32) -> Option<u32> {
    let user = procfs::real_user(pid).filter(|user| *user != 0)?;
    let is_another = |other: u32| {
        let is_child = || procfs::stat(other).is_ok_and(|stat| stat.ppid == pid);
        other != pid && procfs::real_user(other) == Some(user) && !is_child()
    };
    (!procfs::pids().into_iter().any(is_another)).then_some(user)
}

/// The paths of those listening stream sockets in `/proc/net/unix` (flag 0x10000, type 1) whose inode and path say so.
fn unix_listeners(text: &str, is_its: impl Fn(u64, &str) -> bool) -> Vec<String> {
    let path = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, _, "00010000", "0001", _, inode, path] = fields[..] else { return None };
        is_its(inode.parse().ok()?, path).then(|| format!("unix:{path}"))
    };
    text.lines().filter_map(path).collect()
}

/// Asks the server for what is in force. What cannot be had is told.
fn query(snapshot: &mut ServiceSnapshot, access: &Access) {
    let mut conn = match access::connect(snapshot, access) {
        Ok(conn) => conn,
        Err(refusal) => return snapshot.missing.push(lacking(&refusal)),
    };
    let names: Vec<String> = SETTINGS.iter().map(|name| format!("'{name}'")).collect();
    let query = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(","));
    match conn.query::<(String, String), _>(query) {
        Ok(rows) => {
            for (name, value) in rows.into_iter().filter(|(name, _)| SETTINGS.contains(&name.as_str())) {
                snapshot.settings.entry(name).or_default().running = Some(SettingValue::parse(&value));
            }
        }
        Err(error) => return snapshot.missing.push(lacking(&access::refusal(&error))),
    }
    snapshot.version =
        snapshot.settings.remove("version").and_then(|setting| Some(setting.running?.to_string()));
    match statements(&mut conn, snapshot) {
        Ok(statements) => snapshot.statements = statements,
        Err(missing) => {
            snapshot.missing.push(missing);
            // Who may not see them sees none.
            snapshot.statements = running::running_statements(&mut conn).unwrap_or_default();
        }
    }
}

/// The forms of statements that took longest, or why they are not known.
fn statements(
    conn: &mut mysql::Conn,
    snapshot: &ServiceSnapshot,
) -> std::result::Result<Vec<Statement>, MissingSignal> {
    let running = snapshot.settings.get("performance_schema").and_then(|setting| setting.running.as_ref());
    if running.is_none_or(|value| value.to_string() != "ON") {
        return Err(without_statements("performance_schema is off"));
    }
    let query = format!(
        "SELECT DIGEST, DIGEST_TEXT, COUNT_STAR, SUM_TIMER_WAIT DIV 1000000, SUM_ROWS_EXAMINED, SUM_NO_INDEX_USED \
         FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST IS NOT NULL \
         ORDER BY SUM_TIMER_WAIT DESC LIMIT {STATEMENTS_MAX}"
    );
    let statement = |(digest, text, executions_count, time_us, rows_examined_count, without_index_count)| {
        let text: Option<String> = text;
        let text = text.unwrap_or_default().chars().take(1000).collect();
        Statement { digest, text, executions_count, time_us, rows_examined_count, without_index_count }
    };
    conn.query_map(query, statement).map_err(|error| match access::refusal(&error) {
        access::Refusal::Denied(why) | access::Refusal::Failed(why) => without_statements(&why),
        access::Refusal::TooMany => without_statements("too many connections"),
    })
}

/// Statements are not known, and what helps.
pub fn without_statements(why: &str) -> MissingSignal {
    let how = "`performance_schema = ON` under [mysqld] and a restart; SELECT on performance_schema for the account";
    MissingSignal::new("mariadb_statements", why, how)
}

/// What is missing without a connection.
pub fn lacking(refusal: &access::Refusal) -> MissingSignal {
    let (why, how) = match refusal {
        access::Refusal::TooMany => {
            ("the database refuses: too many connections".to_owned(), "raise max_connections, or wait")
        }
        access::Refusal::Denied(why) => {
            (format!("the database does not let webdyno in: {why}"), access::HOW_TO_GET_IN)
        }
        access::Refusal::Failed(why) => (
            format!("the database does not answer: {why}"),
            "see whether it is overloaded, and its error log",
        ),
    };
    MissingSignal::new(NAME, why, how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_is_recognised() {
        for (executable, expected) in [
            ("/usr/sbin/mariadbd", true),
            ("/usr/sbin/mysqld (deleted)", true),
            ("/usr/bin/mariadb", false),
            ("/usr/bin/mysqld_safe", false),
        ] {
            assert_eq!(Mariadb.recognises(executable, &[]), expected, "{executable}");
        }
    }

    #[test]
    fn the_command_line_wins_over_files() {
        let argv = [
            "mariadbd",
            "--defaults-file=/x.cnf",
            "--max-connections=5",
            "--table-open-cache",
            "90",
            "--skip-name-resolve",
            "-u",
            "x",
        ];
        let message = arguments(&argv.map(str::to_owned));
        assert_eq!(option_files(&message), (vec!["/x.cnf".into()], Some("/x.cnf".into())));
        let mut options = Options::default();
        for (name, value) in [("max_connections", "7"), ("sort_buffer_size", "2M"), ("password", "s")] {
            let given =
                options::Given { value: Some(value.into()), file: "/x.cnf".into(), line: 3, order: 3 };
            options.given.insert(name.into(), given);
        }
        let found = settings(&message, &options);
        assert_eq!(found["max_connections"].configured, Some(SettingValue::Integer(5)));
        assert_eq!(found["max_connections"].line, None);
        assert_eq!(found["table_open_cache"].configured, Some(SettingValue::Integer(90)));
        assert_eq!(found["sort_buffer_size"].configured, Some(SettingValue::Integer(2 << 20)));
        assert_eq!(found["sort_buffer_size"].line, Some(3));
        assert_eq!(found["skip_name_resolve"].configured, Some(SettingValue::Text("ON".into())));
        assert!(!found.contains_key("password"), "only settings that are known to be harmless");
        assert_eq!(option_files(&arguments(&["m".into(), "--no-defaults".into()])), (vec![], None));
        let of_instance = arguments(&["mariadbd".into(), "--defaults-group-suffix=.b".into()]);
        let groups_read = groups_of(&of_instance, Some("10.11"));
        for group in ["mysqld", "mariadbd.b", "mariadb-10.11", "mysqld-10.11.b"] {
            assert!(groups_read.iter().any(|read| read == group), "{group}: {groups_read:?}");
        }
        assert_eq!((group_suffix(&of_instance), groups_of(&message, None)), (Some(".b"), groups()));
        for (said, series) in [
            (
                "mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)",
                Some("10.11"),
            ),
            ("/usr/sbin/mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)", Some("8.0")),
            ("usage", None),
        ] {
            assert_eq!(series_in(said).as_deref(), series, "{said}");
        }
    }

    #[test]
    fn listening_unix_sockets_are_found_by_inode() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 77 /run/mysqld/mysqld.sock\n\
            0: 00000002 00000000 00000000 0001 03 78 /run/mysqld/mysqld.sock\n\
            0: 00000002 00000000 00010000 0001 01 79 /run/other.sock\n0: broken\n";
        let of = |inodes: &[u64]| unix_listeners(text, |inode, _| inodes.contains(&inode));
        assert_eq!(of(&[77, 78]), ["unix:/run/mysqld/mysqld.sock"]);
    }

    #[test]
    fn the_socket_is_asked_before_the_port() {
        let address = |listens: &[&str]| {
            endpoint(&listens.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
                .map(|found| found.address)
        };
        assert_eq!(address(&["0.0.0.0:3306"]).as_deref(), Some("127.0.0.1:3306"));
        assert_eq!(address(&["[::]:3306"]).as_deref(), Some("[::1]:3306"));
        assert_eq!(address(&["127.0.0.1:3306", "unix:/s"]).as_deref(), Some("unix:/s"));
        assert_eq!(address(&["unix:@s", "127.0.0.1:3306"]).as_deref(), Some("127.0.0.1:3306"));
        assert_eq!(address(&[]), None);
    }
}
