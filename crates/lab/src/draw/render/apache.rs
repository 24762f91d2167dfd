//! Files of Apache: ports, multi-processing module, site, TLS.

use super::{PROTECTED_FOR, Rendered, inner_socket, key};
use crate::draw::server::{Extra, Front, LogTarget, Pages, Server, Status};
use std::fmt::Write;

const CONFIGURATION: &str = "/etc/apache2";

pub fn render(server: &Server, rendered: &mut Rendered) {
    let site = server.names.site;
    rendered.file(format!("{CONFIGURATION}/ports.conf"), format!("Listen {}\n", server.names.port));
    let (name, text) = processes(server);
    rendered.file(format!("{CONFIGURATION}/mods-available/mpm_{name}.conf"), text);
    let mut text = vhost(server);
    for other in &server.names.others {
        let _ = write!(
            text,
            "\n<VirtualHost *:{}>\n    ServerName {other}.example\n    Redirect permanent / http://{site}.example/\n{}</VirtualHost>\n",
            server.names.port,
            tls(server)
        );
    }
    rendered.file(format!("{CONFIGURATION}/sites-available/{site}.conf"), text);
    if server.tls {
        let cache = match server.settings.resumes {
            true => {
                "SSLSessionCache shmcb:${APACHE_RUN_DIR}/ssl_scache(512000)\nSSLSessionCacheTimeout 300\n"
            }
            false => "SSLSessionCache none\nSSLSessionTickets off\n",
        };
        rendered.file(
            format!("{CONFIGURATION}/mods-available/ssl.conf"),
            format!("SSLRandomSeed startup builtin\nSSLRandomSeed connect builtin\n{cache}SSLProtocol all -SSLv3\n"),
        );
    }
    if server.status == Status::Protected {
        rendered.file(
            format!("{CONFIGURATION}/mods-available/status.conf"),
            format!(
                "<Location /server-status>\n    SetHandler server-status\n    Require ip {PROTECTED_FOR}\n</Location>\nExtendedStatus On\n"
            ),
        );
    }
    if server.extras.contains(&Extra::Redirects) {
        let rule = |number: u32| format!("RewriteRule ^/old/{number:04}\\.html$ /{number} [R=301,L]\n");
        rendered.file(format!("{CONFIGURATION}/{site}-moved.conf"), (1..400).map(rule).collect::<String>());
    }
    if server.settings.old_log {
        rendered.file(
            "/var/log/apache2/error.log",
            "[Mon Mar 02 04:11:09.120381 2026] [mpm_prefork:error] [pid 801] AH00161: server reached MaxRequestWorkers \
             setting, consider raising the MaxRequestWorkers setting\n",
        );
    }
}

/// The multi-processing module's name and its file.
fn processes(server: &Server) -> (&'static str, String) {
    let settings = &server.settings;
    let (workers, threads) = (settings.workers.max(1), settings.threads.min(settings.workers).max(1));
    let mut text = String::new();
    if server.front == Front::Prefork {
        let limit = settings.server_limit.unwrap_or_else(|| workers.max(256));
        let start = settings.few_workers.unwrap_or(workers).min(workers).min(limit);
        let spare = if settings.few_workers.is_some() { 1 } else { 5 };
        let _ = write!(
            text,
            "ServerLimit {limit}\nStartServers {start}\nMinSpareServers {spare}\nMaxSpareServers {}\nMaxRequestWorkers {workers}\n",
            start.max(10)
        );
    } else {
        let processes = workers.div_ceil(threads);
        let limit = settings.server_limit.unwrap_or_else(|| processes.max(16));
        let _ = write!(
            text,
            "ServerLimit {limit}\nStartServers {}\nMinSpareThreads {threads}\nMaxSpareThreads {}\nThreadLimit 64\n\
             ThreadsPerChild {threads}\nMaxRequestWorkers {workers}\n",
            processes.min(limit),
            workers + 2 * threads
        );
    }
    if let Some(factor) = settings.async_factor {
        let _ = writeln!(text, "AsyncRequestWorkerFactor {factor}");
    }
    let _ = writeln!(text, "MaxConnectionsPerChild {}", settings.connections_per_child);
    if let Some(backlog) = settings.backlog {
        let _ = writeln!(text, "ListenBacklog {backlog}");
    }
    (mpm(server), text)
}

/// The name of its multi-processing module.
pub fn mpm(server: &Server) -> &'static str {
    match server.front {
        Front::Worker => "worker",
        Front::Prefork => "prefork",
        _ => "event",
    }
}

fn vhost(server: &Server) -> String {
    let settings = &server.settings;
    let root = &server.names.root;
    let mut text = format!(
        "<VirtualHost *:{}>\n    ServerName {}.example\n    ServerAlias server\n    DocumentRoot {root}\n",
        server.names.port, server.names.site
    );
    let options = match (settings.checks_links, settings.negotiates) {
        (false, false) => "FollowSymLinks",
        (false, true) => "FollowSymLinks MultiViews",
        (true, false) => "None",
        (true, true) => "MultiViews",
    };
    let index = match (server.extras.contains(&Extra::Crowd), settings.negotiates) {
        (false, _) => "",
        (true, true) => "        DirectoryIndex index\n",
        (true, false) => "        DirectoryIndex index.html.en\n",
    };
    let overrides = if settings.overrides { "All" } else { "None" };
    let _ = write!(
        text,
        "    <Directory {root}>\n        Require all granted\n        Options {options}\n        AllowOverride {overrides}\n{index}    </Directory>\n"
    );
    match settings.keepalive_s {
        0 => text.push_str("    KeepAlive Off\n"),
        seconds => {
            let _ = writeln!(text, "    KeepAliveTimeout {seconds}");
        }
    }
    if settings.lookups {
        text.push_str("    HostnameLookups On\n");
    }
    text.push_str(&logs(server));
    text.push_str(&tls(server));
    if server.extras.contains(&Extra::Redirects) {
        let _ = writeln!(
            text,
            "    RewriteEngine On\n    Include {CONFIGURATION}/{}-moved.conf",
            server.names.site
        );
    }
    if let Some(limit) = settings.limit_kib_s {
        let _ = writeln!(
            text,
            "    <Location />\n        SetOutputFilter RATE_LIMIT\n        SetEnv rate-limit {limit}\n    </Location>"
        );
    }
    match settings.compression {
        Some(level) => {
            let _ = writeln!(
                text,
                "    DeflateCompressionLevel {level}\n    AddOutputFilterByType DEFLATE text/html text/css text/plain application/javascript"
            );
        }
        None => text.push_str("    SetEnv no-gzip 1\n"),
    }
    text.push_str(&handler(server));
    text.push_str("</VirtualHost>\n");
    text
}

fn logs(server: &Server) -> String {
    let site = server.names.site;
    let format = match server.names.log_format {
        "timed" => "\"%h %t \\\"%r\\\" %>s %B %D\"",
        name => name,
    };
    let target = match server.settings.log {
        LogTarget::Usual => "${APACHE_LOG_DIR}/access.log".to_owned(),
        LogTarget::SlowDisk => format!("/var/log/{site}/access.log"),
        LogTarget::Receiver => format!("\"|/usr/bin/perl /srv/{site}-tools/lines.pl\""),
    };
    format!(
        "    ErrorLog ${{APACHE_LOG_DIR}}/error.log\n    LogLevel {}\n    CustomLog {target} {format}\n",
        server.settings.log_level
    )
}

fn tls(server: &Server) -> String {
    if !server.tls {
        return String::new();
    }
    let key = key(server);
    format!("    SSLEngine on\n    SSLCertificateFile {key}.pem\n    SSLCertificateKeyFile {key}.key\n")
}

/// What makes the pages.
fn handler(server: &Server) -> String {
    let (site, page, port) = (server.names.site, server.names.page, server.names.inner_port);
    let fcgi = |address: String| {
        format!("    <FilesMatch \"\\.php$\">\n        SetHandler \"proxy:{address}\"\n    </FilesMatch>\n")
    };
    match server.pages {
        Pages::Static | Pages::ModPhp => String::new(),
        Pages::FpmUnix => fcgi(format!("unix:{}|fcgi://localhost", inner_socket(server))),
        Pages::FpmTcp => fcgi(format!("fcgi://127.0.0.1:{port}")),
        Pages::Cgi => format!(
            "    ScriptAlias /{page} /srv/{site}-programs/{page}.pl\n    <Directory /srv/{site}-programs>\n        \
             Options ExecCGI\n        Require all granted\n    </Directory>\n"
        ),
        Pages::ModPerl => format!(
            "    Alias /{page} /srv/{site}-programs/{page}.pl\n    <Directory /srv/{site}-programs>\n        Require all granted\n    \
             </Directory>\n    <Location /{page}>\n        SetHandler perl-script\n        PerlResponseHandler ModPerl::Registry\n        \
             PerlOptions +ParseHeaders\n        Options +ExecCGI\n    </Location>\n"
        ),
        Pages::Lua => {
            format!("    LuaScope thread\n    LuaMapHandler ^/{page}$ /srv/{site}-programs/{page}.lua\n")
        }
        Pages::Proxy => {
            let places =
                server.settings.proxy_places.map_or(String::new(), |places| format!(" max={places}"));
            // Else the first failure would close it for a minute.
            let retry = if server.extras.contains(&Extra::LocalPorts) { " retry=0" } else { "" };
            let search = server.names.search(server.settings.misses_search);
            let search = match server.extras.contains(&Extra::Search) {
                true => format!("    ProxyPass /{page}/search {search}/{page}/search{places}{retry}\n"),
                false => String::new(),
            };
            format!("{search}    ProxyPass /{page} http://127.0.0.1:{port}/{page}{places}{retry}\n")
        }
    }
}

/// The modules that it needs besides the usual ones.
pub fn modules(server: &Server) -> Vec<&'static str> {
    let of_pages: &[&str] = match server.pages {
        Pages::Static => &[],
        Pages::ModPhp => &["php8.2"],
        Pages::ModPerl => &["perl"],
        Pages::FpmUnix | Pages::FpmTcp => &["proxy_fcgi"],
        Pages::Cgi => &["cgi"],
        Pages::Lua => &["lua"],
        Pages::Proxy => &["proxy_http"],
    };
    let has = |extra: &Extra| server.extras.contains(extra);
    let more = [
        (server.tls, "ssl"),
        ([Extra::Redirects, Extra::Rules, Extra::Htaccess].iter().any(has), "rewrite"),
        (true, "ratelimit"),
        (server.status == Status::Absent, "-status"),
    ];
    let more = more.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, name)| name);
    of_pages.iter().copied().chain(more).collect()
}
