//! The addresses that requests are passed to.
//!
//! <https://httpd.apache.org/docs/2.4/mod/mod_proxy.html>: `scheme://host:port/path`, `unix:/path|scheme://name/`,
//! `balancer://name`; the default ports are those of `apr_uri_port_of_scheme` and of the modules (mod_proxy_fcgi.c,
//! mod_proxy_scgi.c, mod_proxy_uwsgi.c, mod_proxy_ajp.c). A user, a password and a query are left out: they are secrets.

/// Schemes with the port that is meant when none is given.
const SCHEMES: [(&str, u16); 14] = [
    ("http", 80),
    ("https", 443),
    ("ws", 80),
    ("wss", 443),
    ("h2", 443),
    ("h2c", 80),
    ("fcgi", 8000),
    ("scgi", 4000),
    ("uwsgi", 3031),
    ("ajp", 8009),
    ("ftp", 21),
    ("connect", 443),
    ("fdpass", 0),
    ("balancer", 0),
];

/// A URL that requests are passed to, as mod_proxy takes it: `proxy:` before it and users, queries and fragments in it
/// are left out. `None` when it is none.
pub fn url(text: &str) -> Option<String> {
    let text = text.strip_prefix("proxy:").unwrap_or(text);
    if let Some((socket, rest)) = text.split_once('|')
        && let Some(path) = socket.strip_prefix("unix:").filter(|path| path.starts_with('/'))
    {
        return Some(format!("unix:{path}|{}", plain(rest)?));
    }
    plain(text)
}

fn plain(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    if !SCHEMES.iter().any(|(known, _)| known.eq_ignore_ascii_case(scheme)) {
        return None;
    }
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let (authority, path) = match rest.find(['/', '$', '%']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let host = authority.rsplit('@').next().unwrap_or(authority);
    // A user can hold a slash only where it is not one to mod_proxy; still nothing before an @ is shown.
    let path = if path.contains('@') { "" } else { path };
    Some(format!("{scheme}://{host}{path}"))
}

/// The URL among the words of a directive: the one at `at`, or `!`.
pub fn target(words: &[String], at: usize) -> Option<String> {
    let word = words.get(at)?;
    if word == "!" { Some("!".into()) } else { url(word) }
}

/// The address behind a URL: `unix:/run/php/php8.2-fpm.sock`, `127.0.0.1:9000`, `backend.example:8080`; `None` for a
/// balancer, whose members have theirs, and where it is decided by the request.
pub fn address(url: &str) -> Option<String> {
    if let Some((socket, _)) = url.split_once('|') {
        return (!socket.contains(['$', '%'])).then(|| socket.to_owned());
    }
    let (scheme, rest) = url.split_once("://")?;
    let (_, port) = SCHEMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(scheme))?;
    let authority = rest.split('/').next().unwrap_or(rest);
    if *port == 0 || authority.is_empty() || authority.contains(['$', '%']) {
        return None;
    }
    match authority.rsplit_once(':') {
        Some((host, text)) if !host.is_empty() && (!host.contains(':') || host.ends_with(']')) => {
            let port: u16 = text.parse().ok()?;
            Some(format!("{host}:{port}"))
        }
        _ => Some(format!("{authority}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_addresses_without_their_secrets() {
        for (text, shown, expected) in [
            ("http://127.0.0.1:8080/app", Some("http://127.0.0.1:8080/app"), Some("127.0.0.1:8080")),
            ("https://me:s3cret@b.example/x?key=s3cret", Some("https://b.example/x"), Some("b.example:443")),
            (
                "proxy:unix:/run/php/fpm.sock|fcgi://localhost/var/www",
                Some("unix:/run/php/fpm.sock|fcgi://localhost/var/www"),
                Some("unix:/run/php/fpm.sock"),
            ),
            ("fcgi://127.0.0.1:9000/srv/$1", Some("fcgi://127.0.0.1:9000/srv/$1"), Some("127.0.0.1:9000")),
            ("fcgi://[::1]:9000", Some("fcgi://[::1]:9000"), Some("[::1]:9000")),
            ("ajp://tomcat", Some("ajp://tomcat"), Some("tomcat:8009")),
            ("balancer://app/", Some("balancer://app/"), None),
            ("http://%{HTTP_HOST}/", Some("http://%{HTTP_HOST}/"), None),
            ("http://a:b/c@host/", Some("http://a:b"), None),
            ("server-status", None, None),
            ("!", None, None),
        ] {
            let url = url(text);
            assert_eq!(url.as_deref(), shown, "{text}");
            assert_eq!(url.and_then(|url| address(&url)).as_deref(), expected, "{text}");
        }
    }
}
