//! The load: URLs and flags of `webdyno diagnose`.

use super::site::file_paths;
use crate::draw::server::{Arrival, Extra, Pages, Server};

/// What is asked for.
pub fn urls(server: &Server) -> Vec<String> {
    let names = &server.names;
    let scheme = if server.tls { "https" } else { "http" };
    let port = match (server.tls, names.port) {
        (false, 80) | (true, 443) => String::new(),
        (_, port) => format!(":{port}"),
    };
    let ending = if server.is_php() { ".php" } else { "" };
    let page = (server.pages != Pages::Static).then(|| format!("{}{ending}", names.page));
    let search = server.extras.contains(&Extra::Search).then(|| format!("{}/search", names.page));
    let front = server.extras.contains(&Extra::Crowd).then(String::new);
    let paths = page.into_iter().chain(search).chain(front);
    let files = file_paths(server).into_iter().filter(|_| !server.extras.contains(&Extra::Crowd));
    let named_count = if server.loads_resources { server.resources() as usize } else { 0 };
    let count = server.files_bytes.len() - named_count;
    paths.chain(files.take(count)).map(|path| format!("{scheme}://server{port}/{path}")).collect()
}

/// How it comes.
pub fn flags(server: &Server) -> String {
    let arrival = match server.arrival {
        Arrival::Closed(count) => format!("-c {count}"),
        Arrival::Open(rate) => format!("--rate {rate} -c {}", (server.connections() * 3).clamp(60, 400)),
        Arrival::Users(count, think_ms) => format!("--users {count} --think {think_ms}ms"),
    };
    let more = [
        (server.loads_resources, " --page"),
        (!server.kept, " --no-keepalive"),
        (server.tls, " --insecure"),
        (server.extras.contains(&Extra::Compressing), " -H 'Accept-Encoding: gzip'"),
        (server.extras.contains(&Extra::Cookie), " -H 'Cookie: PHPSESSID=4f1c09d2aa71'"),
    ];
    let more: String = more.into_iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).collect();
    let warmup_s = if server.extras.contains(&Extra::Sudden) { 0 } else { 2 };
    format!("{arrival}{more} --timeout 5s -d 6s --warmup {warmup_s}s")
}
