//! Addresses in nginx's configuration, as `listen` and the directives that pass requests on write them.
//!
//! Facts: <https://nginx.org/en/docs/http/ngx_http_core_module.html#listen>,
//! <https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_pass>.

/// An address as `listen` takes it: a port, an address with one, or a socket.
pub fn listen_address(word: &str) -> String {
    match word {
        port if port.parse::<u16>().is_ok() => format!("0.0.0.0:{port}"),
        all if all.starts_with("*:") => all.replacen('*', "0.0.0.0", 1),
        socket if socket.starts_with("unix:") => socket.to_owned(),
        six if six.ends_with(']') => format!("{six}:80"),
        address if address.contains(':') => address.to_owned(),
        host => format!("{host}:80"),
    }
}

/// The part of `http://authority/path` that names the server, without name and password.
pub fn authority(word: &str) -> &str {
    let behind = word.split_once("://").map_or(word, |(_, behind)| behind);
    let end =
        if behind.starts_with("unix:") { behind.len() } else { behind.find('/').unwrap_or(behind.len()) };
    behind[..end].rsplit('@').next().unwrap_or_default()
}

/// The address that requests are passed to: `127.0.0.1:9000`, `unix:/run/x.sock`; `None` when variables decide.
pub(super) fn passed_to(word: &str) -> Option<String> {
    if word.contains('$') {
        return None;
    }
    let authority = authority(word.split_ascii_whitespace().next()?);
    if let Some(path) = authority.strip_prefix("unix:") {
        return Some(format!("unix:{}", path.split(':').next().unwrap_or_default()));
    }
    let port = if word.starts_with("https://") || word.starts_with("grpcs://") { 443 } else { 80 };
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let is_there = !authority.is_empty();
    is_there.then(|| address.replacen("localhost:", "127.0.0.1:", 1))
}
