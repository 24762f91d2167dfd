//! Who may see the pages: whoever has the token, and no other site through their browser. Names are checked against DNS
//! rebinding (the Host header), and where a request comes from by what browsers say of it (Fetch Metadata, W3C; RFC 6454).

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{Method, Request, StatusCode, Uri};
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use subtle::ConstantTimeEq;
use webdyno_model::Result;
use webdyno_model::error::io_error;

/// What a page may load: our own script, style and data, nothing inline and nothing of others.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Sites whose requests browsers mark so: the page itself, and a person who typed or opened the address.
const OWN_SITES: [&str; 2] = ["same-origin", "none"];

/// A request that is not admitted: its status, and why.
pub type Refusal = (StatusCode, String);

/// Checks every request before anything else sees it.
#[derive(Debug)]
pub struct Guard {
    token: String,
    address: IpAddr,
    /// Whether requests may change something.
    permits_changes: bool,
}

impl Guard {
    /// With a new token of 128 random bits.
    pub fn new(address: IpAddr, permits_changes: bool) -> Result<Self> {
        Ok(Self { token: random()?, address, permits_changes })
    }

    /// The path below which everything lies.
    pub fn base(&self) -> String {
        format!("/{}/", self.token)
    }

    /// The request with its path below the token.
    pub fn admit<B>(&self, request: Request<B>) -> std::result::Result<Request<B>, Refusal> {
        let (mut head, body) = request.into_parts();
        let refused = |status: StatusCode, why: &str| Err((status, format!("{why}\n")));
        if !self.is_own_host(&head.headers) || head.uri.authority().is_some() {
            return refused(
                StatusCode::FORBIDDEN,
                "open it by the address that webdyno printed, or as localhost",
            );
        }
        if !is_own_origin(&head.headers, &head.method) {
            return refused(StatusCode::FORBIDDEN, "requests of other sites are refused");
        }
        let Some(path) = self.path_below(&head.uri) else {
            return refused(
                StatusCode::NOT_FOUND,
                "there is nothing here; the URL that webdyno printed has a token",
            );
        };
        let may_change = self.permits_changes && head.method == Method::POST;
        if !may_change && !matches!(head.method, Method::GET | Method::HEAD) {
            return refused(
                StatusCode::METHOD_NOT_ALLOWED,
                "this is read-only; `webdyno serve --control` permits more",
            );
        }
        head.uri = path.into();
        Ok(Request::from_parts(head, body))
    }

    fn is_own_host(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let authority = host.to_str().ok().filter(|host| !host.contains('@'));
        let Some(authority) = authority.and_then(|host| host.parse::<Authority>().ok()) else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        // The port may be that of a tunnel. Of an address, unlike a name, nobody else decides where it leads.
        let is_own = |ip: IpAddr| ip.is_loopback() || ip == self.address || self.address.is_unspecified();
        name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_own)
    }

    /// The path and query behind the token; `None` where that is another one. The time it takes does not depend on the token.
    fn path_below(&self, uri: &Uri) -> Option<PathAndQuery> {
        let (given, rest) = match uri.path()[1.min(uri.path().len())..].split_once('/') {
            Some((given, rest)) => (given, rest),
            None => (uri.path().trim_start_matches('/'), ""),
        };
        if !bool::from(given.as_bytes().ct_eq(self.token.as_bytes())) {
            return None;
        }
        let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
        format!("/{rest}{query}").parse().ok()
    }
}

/// 128 random bits in hexadecimal.
pub fn random() -> Result<String> {
    let mut random = [0_u8; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
    read.map_err(|error| io_error("read", "/dev/urandom", &error))?;
    Ok(format!("{:032x}", u128::from_be_bytes(random)))
}

/// The policy of a page whose script and style are in it, marked by this nonce.
pub fn inline_policy(nonce: &str) -> String {
    PAGE_POLICY
        .replace("script-src 'self'", &format!("script-src 'nonce-{nonce}'"))
        .replace("style-src 'self'", &format!("style-src 'nonce-{nonce}'"))
}

/// Whether a request comes from our own page or from nobody's. What changes something must say that it does.
fn is_own_origin(headers: &HeaderMap, method: &Method) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let own = text(&HOST).map(|host| format!("http://{host}"));
    let is_own = match text(&ORIGIN) {
        Some(origin) => own.is_some_and(|own| own.eq_ignore_ascii_case(origin)),
        None => matches!(*method, Method::GET | Method::HEAD),
    };
    is_own && text(&HeaderName::from_static("sec-fetch-site")).is_none_or(|site| OWN_SITES.contains(&site))
}

/// What every response says to browsers. A page that brings a policy of its own keeps it.
pub fn add_headers(headers: &mut HeaderMap) {
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(PAGE_POLICY));
    let same_origin = HeaderName::from_static("cross-origin-resource-policy");
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (same_origin, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(address: &str, permits_changes: bool) -> Guard {
        Guard { token: "secret".into(), address: address.parse().unwrap(), permits_changes }
    }

    /// The status of a refusal, or the path that is left.
    fn admitted(guard: &Guard, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match guard.admit(request.body(()).unwrap()) {
            Ok(request) => request.uri().to_string(),
            Err((status, _)) => status.as_str().to_owned(),
        }
    }

    #[test]
    fn only_the_token_leads_somewhere() {
        let guard = guard("127.0.0.1", false);
        for (path, expected) in [
            ("/secret/", "/"),
            ("/secret", "/"),
            ("/secret/api/sessions?x=1", "/api/sessions?x=1"),
            ("/secret/sessions/a%2Fb", "/sessions/a%2Fb"),
            ("/secret//x", "//x"),
            ("/", "404"),
            ("/secre/", "404"),
            ("/secrets/", "404"),
            ("//secret/", "404"),
            ("/x/secret/", "404"),
            ("http://127.0.0.1/secret/", "403"),
        ] {
            assert_eq!(admitted(&guard, "GET", path, &[("host", "127.0.0.1:8080")]), expected, "{path}");
        }
    }

    #[test]
    fn names_of_others_are_refused() {
        let at = |address: &str, host: &str| {
            admitted(&guard(address, false), "GET", "/secret/", &[("host", host)])
        };
        for host in ["127.0.0.1", "127.0.0.1:9", "localhost:9000", "LOCALHOST", "[::1]:80", "127.9.9.9"] {
            assert_eq!(at("127.0.0.1", host), "/", "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "a@127.0.0.1", "192.0.2.1", "", "localhost.", "[::2]"]
        {
            assert_eq!(at("127.0.0.1", host), "403", "{host}");
        }
        assert_eq!(
            (at("192.0.2.1", "192.0.2.1:80"), at("192.0.2.1", "192.0.2.2")),
            ("/".into(), "403".into())
        );
        assert_eq!(
            (at("0.0.0.0", "192.0.2.1:80"), at("0.0.0.0", "evil.example")),
            ("/".into(), "403".into())
        );
        assert_eq!(admitted(&guard("127.0.0.1", false), "GET", "/secret/", &[]), "403");
        let two = [("host", "127.0.0.1"), ("host", "127.0.0.1")];
        assert_eq!(admitted(&guard("127.0.0.1", false), "GET", "/secret/", &two), "403");
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        let host = ("host", "127.0.0.1:80");
        let own = ("origin", "http://127.0.0.1:80");
        for (method, headers, expected) in [
            ("GET", &[host][..], "/"),
            ("GET", &[host, ("sec-fetch-site", "none")], "/"),
            ("GET", &[host, ("sec-fetch-site", "same-origin")], "/"),
            ("GET", &[host, ("sec-fetch-site", "same-site")], "403"),
            ("GET", &[host, ("sec-fetch-site", "cross-site")], "403"),
            ("GET", &[host, own], "/"),
            ("GET", &[host, ("origin", "http://127.0.0.1:81")], "403"),
            ("GET", &[host, ("origin", "https://127.0.0.1:80")], "403"),
            ("GET", &[host, ("origin", "null")], "403"),
            ("POST", &[host], "403"),
            ("POST", &[host, own], "/"),
            ("POST", &[host, own, ("sec-fetch-site", "same-site")], "403"),
            ("DELETE", &[host, own], "405"),
        ] {
            assert_eq!(
                admitted(&guard("127.0.0.1", true), method, "/secret/", headers),
                expected,
                "{headers:?}"
            );
        }
        assert_eq!(admitted(&guard("127.0.0.1", false), "POST", "/secret/", &[host, own]), "405");
    }

    #[test]
    fn tokens_are_long_and_not_the_same() {
        let base = || Guard::new(IpAddr::from([127, 0, 0, 1]), false).unwrap().base();
        assert!(base().len() == 34 && base() != base());
    }
}
