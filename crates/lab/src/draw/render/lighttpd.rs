//! The file of lighttpd, as one would write it for one site.
//!
//! Facts: <https://redmine.lighttpd.net/projects/lighttpd/wiki/Docs_ConfigurationOptions>, the pages of mod_accesslog, mod_fastcgi,
//! mod_proxy and mod_redirect there. TLS and compression are packages of their own, and left out.

use super::{PROTECTED_FOR, Rendered, inner_socket};
use crate::draw::server::{Pages, Server, Status};
use std::fmt::Write;

const FILE: &str = "/etc/lighttpd/lighttpd.conf";
const STATUS: &str = "status.status-url = \"/server-status\"";
/// Makes the folder of its logs, which it writes as its own user, and starts it.
pub const COMMAND: &str =
    "install -d -o www-data -g www-data /var/log/lighttpd; exec lighttpd -D -f /etc/lighttpd/lighttpd.conf";
/// Ends it, whoever started it, and starts it anew.
pub const RESTART: &str =
    "kill -TERM $(cat /run/lighttpd.pid); sleep 1; lighttpd -f /etc/lighttpd/lighttpd.conf";

pub fn render(server: &Server, rendered: &mut Rendered) {
    let (names, settings) = (&server.names, &server.settings);
    let format = match names.log_format {
        "timed" => "%h %t \\\"%r\\\" %s %b %D",
        "common" => "%h %l %u %t \\\"%r\\\" %s %b",
        _ => "%h %V %u %t \\\"%r\\\" %s %b \\\"%{Referer}i\\\" \\\"%{User-Agent}i\\\"",
    };
    let (module, passes) = behind(server);
    let (status_module, status) = match server.status {
        Status::There => (", \"mod_status\"", format!("{STATUS}\n")),
        Status::Protected => {
            let only = format!("$HTTP[\"remoteip\"] == \"{PROTECTED_FOR}\" {{\n    {STATUS}\n}}\n");
            (", \"mod_status\"", only)
        }
        Status::Absent => ("", String::new()),
    };
    let mut text = format!(
        "server.modules = ( \"mod_redirect\", \"mod_accesslog\"{status_module}{module} )\nserver.document-root = \"{}\"\nserver.port = {}\n\
         server.username = \"www-data\"\nserver.groupname = \"www-data\"\nserver.pid-file = \"/run/lighttpd.pid\"\n\
         server.errorlog = \"/var/log/lighttpd/error.log\"\naccesslog.filename = \"/var/log/lighttpd/access.log\"\n\
         accesslog.format = \"{format}\"\nindex-file.names = ( \"index.html\" )\nmimetype.assign = ( \".html\" => \"text/html\", \
         \".css\" => \"text/css\", \".js\" => \"application/javascript\", \".txt\" => \"text/plain\" )\n\
         server.max-fds = 16384\nserver.max-connections = {}\n",
        names.root, names.port, settings.front_connections
    );
    match settings.keepalive_s {
        0 => text.push_str("server.max-keep-alive-requests = 0\n"),
        seconds => {
            let _ = writeln!(text, "server.max-keep-alive-idle = {seconds}");
        }
    }
    if let Some(backlog) = settings.backlog {
        let _ = writeln!(text, "server.listen-backlog = {backlog}");
    }
    if let Some(limit) = settings.limit_kib_s {
        let _ = writeln!(text, "connection.kbytes-per-second = {limit}");
    }
    text.push_str(&status);
    text.push_str(&passes);
    for other in &names.others {
        let _ = writeln!(
            text,
            "$HTTP[\"host\"] == \"{other}.example\" {{\n    url.redirect = ( \"\" => \"http://{}.example/\" )\n}}",
            names.site
        );
    }
    rendered.file(FILE, text);
}

/// The module that passes pages on, and to whom it does.
fn behind(server: &Server) -> (&'static str, String) {
    let (page, port) = (server.names.page, server.names.inner_port);
    let fastcgi = |address: String| format!("fastcgi.server = ( \".php\" => (( {address} )) )\n");
    let by_tcp = format!("\"host\" => \"127.0.0.1\", \"port\" => {port}");
    match server.pages {
        Pages::FpmUnix => {
            (", \"mod_fastcgi\"", fastcgi(format!("\"socket\" => \"{}\"", inner_socket(server))))
        }
        Pages::FpmTcp => (", \"mod_fastcgi\"", fastcgi(by_tcp)),
        Pages::Proxy => (", \"mod_proxy\"", format!("proxy.server = ( \"/{page}\" => (( {by_tcp} )) )\n")),
        _ => ("", String::new()),
    }
}
