//! Pages of PHP, PHP-FPM's pool and PHP's settings; pages of Lua and of CGI.

use super::site::elements;
use super::{Rendered, inner_socket, partner_address};
use crate::draw::server::{Extra, Pages, Query, Server, Settings, Status};
use std::fmt::Write;

/// Rounds of a loop that take about a millisecond of a core, in each language.
const PHP_ROUNDS: f64 = 35_000.0;
const LUA_ROUNDS: f64 = 20_000.0;
pub const PERL_ROUNDS: f64 = 12_000.0;
/// What a program of CGI takes to be started, milliseconds.
const CGI_START_MS: f64 = 5.0;
/// Boxes of a page.
const BOXES: u32 = 24;
/// Length of a line of the page.
const LINE_BYTES: u32 = 22;

pub fn render(server: &Server, rendered: &mut Rendered) {
    let (site, page) = (server.names.site, server.names.page);
    match server.pages {
        Pages::ModPhp | Pages::FpmUnix | Pages::FpmTcp => render_php(server, rendered),
        Pages::Cgi | Pages::ModPerl => {
            let start_ms = if server.pages == Pages::Cgi { CGI_START_MS } else { 0.3 };
            let text = format!(
                "#!/usr/bin/perl\nuse strict;\nuse warnings;\n\nmy $x = 1;\n$x = ($x * 31 + $_) % 65521 for 1 .. {};\n\
                 select(undef, undef, undef, {});\nprint \"Content-Type: text/html\\n\\n<!doctype html><title>Page</title>{}\", \
                 '<p>A line of text.</p>' x {};\n",
                rounds(server.work_ms - start_ms, PERL_ROUNDS),
                f64::from(server.wait_ms) / 1000.0,
                elements(server),
                server.answer_bytes / LINE_BYTES
            );
            rendered.file(format!("/srv/{site}-programs/{page}.pl"), text);
        }
        Pages::Lua => {
            let text = format!(
                "function handle(r)\n    r.content_type = 'text/html'\n    local x = 1\n    for i = 1, {} do x = (x * 31 + i) % 65521 end\n    \
                 r.usleep({})\n    r:puts('<!doctype html><title>Page</title>{}' .. string.rep('<p>A line of text.</p>', {}))\n    \
                 return apache2.OK\nend\n",
                rounds(server.work_ms - 0.3, LUA_ROUNDS),
                server.wait_ms * 1000,
                elements(server),
                server.answer_bytes / LINE_BYTES
            );
            rendered.file(format!("/srv/{site}-programs/{page}.lua"), text);
        }
        Pages::Static | Pages::Proxy => {}
    }
}

/// Rounds of a loop for so many milliseconds.
pub fn rounds(work_ms: f64, rounds_per_ms: f64) -> u64 {
    (work_ms.max(0.0) * rounds_per_ms) as u64
}

fn render_php(server: &Server, rendered: &mut Rendered) {
    let (site, settings) = (server.names.site, &server.settings);
    rendered.file(format!("{}/{}.php", server.names.root, server.names.page), page(server));
    let enabled = if settings.opcache { 1 } else { 0 };
    let reader = if server.has_fpm() { "fpm" } else { "apache2" };
    rendered.file(
        format!("/etc/php/8.2/{reader}/conf.d/90-{site}.ini"),
        format!("opcache.enable = {enabled}\nopcache.memory_consumption = {}\nopcache.interned_strings_buffer = 4\n", settings.opcache_mb),
    );
    if server.has_fpm() {
        let listen = match server.pages {
            Pages::FpmTcp => format!("127.0.0.1:{}", server.names.inner_port),
            _ => format!("{}\nlisten.owner = www-data\nlisten.group = www-data", inner_socket(server)),
        };
        let manager = process_manager(settings);
        let status = if server.status == Status::There { "pm.status_path = /fpm-status\n" } else { "" };
        rendered.file(
            "/etc/php/8.2/fpm/pool.d/www.conf",
            format!(
                "[{site}]\nuser = www-data\ngroup = www-data\nlisten = {listen}\n\n{manager}\npm.max_children = {}\n{status}",
                settings.children
            ),
        );
    }
}

/// How a pool has its processes started.
fn process_manager(settings: &Settings) -> String {
    match settings.few_children.map(|few| few.min(settings.children)) {
        Some(few) => {
            let spare = (few + 1).min(settings.children);
            format!(
                "pm = dynamic\npm.start_servers = {few}\npm.min_spare_servers = {few}\npm.max_spare_servers = {spare}"
            )
        }
        None if settings.on_demand => "pm = ondemand\npm.process_idle_timeout = 5s".into(),
        None => "pm = static".into(),
    }
}

fn page(server: &Server) -> String {
    let mut text = "<?php\n".to_owned();
    if server.settings.session {
        text.push_str("session_start();\n$_SESSION['seen'] = ($_SESSION['seen'] ?? 0) + 1;\n");
    }
    if server.classes > 0 {
        let _ = writeln!(
            text,
            "for ($number = 1; $number <= {}; $number++) {{\n    require __DIR__ . \"/lib/Part$number.php\";\n}}",
            server.classes
        );
    }
    let _ = writeln!(
        text,
        "$x = 1;\nfor ($i = 0; $i < {}; $i++) {{\n    $x = ($x * 31 + $i) % 65521;\n}}",
        rounds(server.work_ms - 0.4, PHP_ROUNDS)
    );
    if server.page_mb > 0 {
        let _ = writeln!(text, "$held = str_repeat('A line of text. ', {});", server.page_mb * 65_536);
    }
    if server.settings.resolves {
        text.push_str("gethostbyname('dsl-10-20-30-40.isp.example');\n");
    }
    if server.settings.file_lock {
        let _ = writeln!(
            text,
            "$numbers = fopen('/tmp/{}-numbers', 'c');\nflock($numbers, LOCK_EX);",
            server.names.site
        );
    }
    let wait = match server.wait_ms {
        0 => String::new(),
        _ if server.extras.contains(&Extra::Partner) => format!(
            "$answer = file_get_contents('http://{}:{}/{}');\n",
            partner_address(server),
            server.names.partner_port(),
            server.names.page
        ),
        wait_ms => format!("usleep({});\n", wait_ms * 1000),
    };
    match server.query {
        None => text.push_str(&wait),
        Some(query) => text.push_str(&database_lines(server, query, &wait)),
    }
    let _ = writeln!(
        text,
        "echo '<!doctype html><title>Page</title>{}', str_repeat('<p>A line of text.</p>', {});",
        elements(server),
        server.answer_bytes / LINE_BYTES
    );
    text
}

/// What a page does with the database. Its connection is held while the page waits.
fn database_lines(server: &Server, query: Query, wait: &str) -> String {
    let site = server.names.site;
    let mut connect = format!("$db = new mysqli('localhost', '{site}', '{site}', '{site}');\n");
    if server.extras.contains(&Extra::Boxes) {
        connect = format!(
            "for ($box = 0; $box < {BOXES}; $box++) {{\n    {connect}    $db->close();\n}}\n{connect}"
        );
    }
    match query {
        Query::Item => format!(
            "{connect}$item = random_int(1, 1000);\n$row = $db->query(\"SELECT COUNT(*) AS notes, MAX(text) AS text FROM note WHERE item = \
             $item\")->fetch_assoc();\n{wait}"
        ),
        Query::Number => {
            let raise =
                "$db->begin_transaction();\n$db->query('UPDATE number SET last = last + 1 WHERE id = 1');\n";
            let (before, after) = if server.settings.number_first { ("", wait) } else { (wait, "") };
            format!("{connect}{before}{raise}{after}$db->commit();\n")
        }
    }
}
