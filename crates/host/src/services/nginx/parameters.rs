//! Settings that are parameters of a directive: the buffer of an access log, the backlog of a listening socket, the connections to a
//! server of an upstream.
//!
//! Facts: <https://nginx.org/en/docs/http/ngx_http_log_module.html#access_log>: parameters come behind the name of a format, and
//! logs of one file share a buffer (ngx_http_log_set_log refuses two sizes).
//! <https://nginx.org/en/docs/http/ngx_http_core_module.html#listen>: what concerns the socket may be given once for an address,
//! and gives an address a socket of its own beside that of all addresses (`bind`).

use super::config::{Config, Occurrence, distinct, is_log_file, listen_address};
use super::edit::TextEdit;
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::change::Obstacle;
use webdyno_model::service::SettingValue;

/// The backlog where none is written.
const BACKLOG: i64 = 511;

/// Parameters of `listen` that concern the socket.
const OF_SOCKET: [&str; 11] = [
    "accept_filter=",
    "backlog=",
    "bind",
    "deferred",
    "fastopen=",
    "ipv6only=",
    "rcvbuf=",
    "reuseport",
    "setfib=",
    "sndbuf=",
    "so_keepalive=",
];

/// The format of a log that names none.
const FORMAT: &str = "combined";

/// Those that are written; a file that is included twice has its directives once.
fn in_http(config: &Config, name: &str) -> Vec<Occurrence> {
    distinct(each_in_http(config, name))
}

fn each_in_http(config: &Config, name: &str) -> Vec<Occurrence> {
    let mut found = config.occurrences(name);
    found.retain(|one| one.blocks.first().is_some_and(|block| block.name == "http"));
    found
}

/// Lets all logs whose lines are written one at a time have a buffer.
pub fn buffered_logs(config: &Config, value: &str) -> Result<Vec<TextEdit>, Obstacle> {
    let mut logs = in_http(config, "access_log");
    logs.retain(|log| log.words.first().is_some_and(|path| is_log_file(path)));
    if logs.is_empty() {
        let why = "no access_log of nginx is a file that its configuration names";
        return Err((
            why.into(),
            Some(format!("write one with a buffer: access_log FILE {FORMAT} buffer={value}")),
        ));
    }
    let path = |log: &Occurrence| log.words[0].clone();
    let has_buffer = |log: &&Occurrence| {
        log.words.iter().skip(2).any(|word| word.starts_with("buffer=") || word.starts_with("gzip"))
    };
    let buffered: BTreeSet<String> = logs.iter().filter(has_buffer).map(path).collect();
    let edit = |log: &Occurrence| {
        let format = (log.words.len() == 1).then(|| FORMAT.to_owned());
        let words = format!("buffer={value}");
        let parameters =
            format.into_iter().chain(words.split_ascii_whitespace().map(str::to_owned)).collect();
        TextEdit::with_parameters(log, parameters)
    };
    Ok(logs.iter().filter(|log| !buffered.contains(&log.words[0])).map(edit).collect())
}

/// Gives the sockets of a port a backlog that is at least this; with the one that is asked for now.
pub fn backlogs(config: &Config, port: u16, wanted: i64) -> Result<(i64, Vec<TextEdit>), Obstacle> {
    let mut by_address: BTreeMap<String, Vec<Occurrence>> = BTreeMap::new();
    for listen in in_http(config, "listen") {
        let address = listen_address(listen.words.first().map_or("", String::as_str));
        let is_meant =
            address.ends_with(&format!(":{port}")) && !listen.words.iter().any(|word| word == "quic");
        if is_meant {
            by_address.entry(address).or_default().push(listen);
        }
    }
    let all = [format!("0.0.0.0:{port}"), format!("[::]:{port}")].map(|all| by_address.contains_key(&all));
    let sets = |listen: &&Occurrence| {
        listen.words.iter().skip(1).any(|word| OF_SOCKET.iter().any(|name| word.starts_with(name)))
    };
    // One address among all has no socket of its own, unless it has such a parameter.
    let has_socket = |address: &str, listens: &[Occurrence]| {
        let is_six = address.starts_with('[');
        let is_all = address.starts_with("0.0.0.0:") || address.starts_with("[::]:");
        is_all || !all[usize::from(is_six)] || listens.iter().any(|listen| sets(&listen))
    };
    let (mut least, mut edits) = (None::<i64>, vec![]);
    for (address, listens) in &by_address {
        // Where one sets something of the socket already, no other one may.
        let one = listens.iter().find(sets).or(listens.first());
        let Some(one) = one.filter(|_| has_socket(address, listens)) else { continue };
        let asked = one.words.iter().find_map(|word| word.strip_prefix("backlog=")?.parse().ok());
        let asked = asked.unwrap_or(BACKLOG);
        least = Some(least.map_or(asked, |least| least.min(asked)));
        if asked < wanted {
            edits.push(TextEdit::with_parameters(one, vec![format!("backlog={wanted}")]));
        }
    }
    let why = || format!("no `listen` of nginx names port {port}");
    Ok((least.ok_or_else(|| (why(), Some(format!("write one: listen {port} backlog={wanted};"))))?, edits))
}

/// Lets so many connections be open to a server of an upstream, of this address or the only one that has a bound: the one line that
/// says how many. With how many that are now.
pub fn max_conns(
    config: &Config,
    server: Option<&str>,
    value: &str,
) -> Result<(Option<SettingValue>, Vec<TextEdit>), Obstacle> {
    // A line of a file that two upstreams include bounds the connections of both.
    let mut found = each_in_http(config, "server");
    found.retain(|one| {
        let is_meant = server.is_none_or(|server| one.words.first().is_some_and(|word| word == server));
        one.blocks.iter().any(|block| block.name == "upstream") && is_meant && bound(one).is_some()
    });
    let to = server.unwrap_or("a server");
    match &found[..] {
        [one] => {
            let now = bound(one).unwrap_or_default();
            let edit = (now != value).then(|| TextEdit::with_value(one, "max_conns", value));
            Ok((Some(SettingValue::parse(now)), edit.into_iter().collect()))
        }
        [] => Err((format!("no upstream of nginx has a max_conns for {to}"), None)),
        several => {
            let written = distinct(several.to_vec());
            let places: Vec<_> = written.iter().take(4).map(Occurrence::place).collect();
            let places = places.join(", ");
            let why = match written.len() {
                1 => {
                    format!("max_conns for {to} holds in {} upstreams, which include {places}", several.len())
                }
                count => format!("max_conns for {to} stands in {count} places: {places}"),
            };
            Err((why, Some(format!("write max_conns={value} there by hand, where the site needs it"))))
        }
    }
}

/// The connections that a `server` line allows.
fn bound(server: &Occurrence) -> Option<&str> {
    server.words.iter().skip(1).find_map(|word| word.strip_prefix("max_conns="))
}

#[cfg(test)]
mod tests {
    use super::super::config::{self, read};
    use super::*;
    use crate::config_management::Managers;
    use crate::services::common::edit;
    use crate::visibility::process_view::Root;

    /// The text of a configuration after these edits.
    fn edited(
        text: &str,
        edits: impl Fn(&Config) -> Result<Vec<TextEdit>, Obstacle>,
    ) -> Result<String, Obstacle> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, text).unwrap();
        let config: config::Config = read(&Root::ours(), &path.to_string_lossy());
        let edits = edits(&config)?;
        let files = edit::apply(&edits, &Managers::here()).unwrap().files;
        Ok(files.first().map_or(text.to_owned(), |file| file.after.clone()))
    }

    #[test]
    fn each_log_that_is_a_file_gets_a_buffer_once() {
        for (before, after) in [
            // As Debian has it.
            (
                "http {\n\taccess_log /var/log/nginx/access.log;\n}",
                "http {\n\taccess_log /var/log/nginx/access.log combined buffer=64k flush=1s;\n}",
            ),
            (
                "http { log_format a 'x'; access_log /l a if=$x ; server { access_log \"/m n\" a; # access_log /o;\n} }",
                "http { log_format a 'x'; access_log /l a if=$x buffer=64k flush=1s; server { access_log \"/m n\" a \
                 buffer=64k flush=1s; # access_log /o;\n} }",
            ),
            (
                "http { access_log /l combined buffer=4k; server { access_log /l; } server { access_log off; } }",
                "http { access_log /l combined buffer=4k; server { access_log /l; } server { access_log off; } }",
            ),
            (
                "stream { access_log /s basic; } http { access_log /l; server { access_log /v/$host; } }",
                "stream { access_log /s basic; } http { access_log /l combined buffer=64k flush=1s; \
                 server { access_log /v/$host; } }",
            ),
        ] {
            assert_eq!(edited(before, |config| buffered_logs(config, "64k flush=1s")).unwrap(), after);
        }
        for none in ["http { }", "http { access_log off; }", "http { access_log syslog:server=h x; }"] {
            let (why, hint) = edited(none, |config| buffered_logs(config, "64k flush=1s")).unwrap_err();
            assert!(why.contains("no access_log of nginx is a file") && hint.is_some(), "{why}");
        }
    }

    #[test]
    fn a_backlog_stands_once_for_each_socket() {
        for (before, after) in [
            // As Debian has it, and a second site on the same port.
            (
                "http { server { listen 80 default_server; listen [::]:80 default_server; } server { listen 80; } }",
                "http { server { listen 80 default_server backlog=1024; listen [::]:80 default_server backlog=1024; } \
                 server { listen 80; } }",
            ),
            (
                "http { server { listen 80; } server { listen *:80 reuseport backlog=7 rcvbuf=9k; } }",
                "http { server { listen 80; } server { listen *:80 reuseport backlog=1024 rcvbuf=9k; } }",
            ),
            // The socket of all addresses is that of this one, too.
            (
                "http { server { listen 80; } server { listen 10.0.0.1:80; } server { listen 10.0.0.2:80 bind; } }",
                "http { server { listen 80 backlog=1024; } server { listen 10.0.0.1:80; } \
                 server { listen 10.0.0.2:80 bind backlog=1024; } }",
            ),
            (
                "http { server { listen 10.0.0.1; listen 8080; listen unix:/n; } }",
                "http { server { listen 10.0.0.1 backlog=1024; listen 8080; listen unix:/n; } }",
            ),
            ("http { server { listen 80 backlog=4096; } }", "http { server { listen 80 backlog=4096; } }"),
        ] {
            assert_eq!(edited(before, |config| Ok(backlogs(config, 80, 1024)?.1)).unwrap(), after);
        }
        let refused = edited("http { server { } } stream { server { listen 80; } }", |config| {
            Ok(backlogs(config, 80, 1024)?.1)
        });
        assert!(refused.unwrap_err().0.contains("no `listen` of nginx names port 80"));
    }

    #[test]
    fn a_bound_on_connections_is_raised_where_it_stands_once() {
        let to =
            |text: &str, server: Option<&str>| edited(text, |config| Ok(max_conns(config, server, "38")?.1));
        let around = |inner: &str| format!("http {{ upstream app {{ {inner} }} server {{ listen 80; }} }}");
        for (before, after) in [
            ("server a:1 max_conns=3;", "server a:1 max_conns=38;"),
            (
                "zone z 64k; server a:1 weight=3\n # max_conns=3;\n 'max_conns=3' max_fails=0 ; # max_conns=3\n server b:1 max_conns=3;",
                "zone z 64k; server a:1 weight=3\n # max_conns=3;\n 'max_conns=38' max_fails=0 ; # max_conns=3\n server b:1 max_conns=3;",
            ),
            ("server a:1 max_conns=38;", "server a:1 max_conns=38;"),
        ] {
            assert_eq!(to(&around(before), Some("a:1")).unwrap(), around(after));
        }
        assert_eq!(to(&around("server b max_conns=1;"), None).unwrap(), around("server b max_conns=38;"));
        for (inner, part) in [
            ("server a:1; server b:1 max_conns=3;", "no upstream of nginx has a max_conns for a:1"),
            (
                "server a:1 max_conns=3; } upstream b { server a:1 max_conns=3;",
                "max_conns for a:1 stands in 2 places: ",
            ),
        ] {
            let (why, _) = to(&around(inner), Some("a:1")).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("members"), "server a:1 max_conns=3;").unwrap();
        let both = "http { upstream a { include members; } upstream b { include members; } }";
        std::fs::write(path("nginx.conf"), both).unwrap();
        let config = read(&Root::ours(), &path("nginx.conf").to_string_lossy());
        let (why, _) = max_conns(&config, Some("a:1"), "38").unwrap_err();
        assert!(why.contains("holds in 2 upstreams, which include ") && why.ends_with("members:1"), "{why}");
    }
}
