//! The cookies of one visitor: RFC 6265, with the bounds that browsers keep (draft-ietf-httpbis-rfc6265bis, 5.6 and
//! 5.7).
//!
//! `cookie_store` reads them and knows where they belong. They are kept in a plain list in the order in which they were
//! made, as its own store would cost thousands of visitors three maps for each cookie, and forgets that order.

use cookie_store::{Cookie, CookieExpiration};
use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};
use url::Url;

/// Name and value of a cookie, together; browsers drop longer ones.
const COOKIE_BYTES_MAX: usize = 4096;
/// Longest value of an attribute.
const ATTRIBUTE_BYTES_MAX: usize = 1024;
/// Most cookies of a visitor; the oldest go first. Chromium keeps 180 for each site.
const COOKIES_MAX: usize = 180;
/// Headers that are kept ready: a visitor seldom talks to more hosts at a time.
const RENDERED_MAX: usize = 4;

/// The cookies of one visitor.
#[derive(Debug, Default)]
pub(crate) struct Jar {
    cookies: Vec<Cookie<'static>>,
    /// When the first of them ends, in seconds since 1970; the largest number when none does.
    next_end_s: i64,
    /// Whether one of them is not for all paths of its host.
    paths_matter: bool,
    /// Headers for where they were sent to last.
    rendered: Vec<Rendered>,
}

/// A header, and the requests that it is for.
#[derive(Debug)]
struct Rendered {
    scheme: Box<str>,
    host: Box<str>,
    /// Empty when no path matters.
    path: Box<str>,
    header: Box<[u8]>,
}

impl Jar {
    /// Stores the value of a `Set-Cookie` field of a response from `url`. What browsers would drop is dropped.
    pub(crate) fn store(&mut self, url: &Url, set_cookie: &[u8]) {
        let Some(cookie) = accepted(url, set_cookie) else { return };
        let same = |old: &&mut Cookie<'static>| {
            old.name() == cookie.name() && old.domain == cookie.domain && old.path[..] == cookie.path[..]
        };
        let expired = cookie.is_expired();
        match self.cookies.iter_mut().find(same) {
            // It keeps its place: its creation time stays (RFC 6265, 5.3, 11.3).
            Some(old) if !expired => {
                let alike = old.value() == cookie.value() && old.secure() == cookie.secure();
                *old = cookie;
                if !alike {
                    self.rendered.clear();
                }
            }
            Some(old) => {
                old.expire();
                self.cookies.retain(|cookie| !cookie.is_expired());
                self.rendered.clear();
            }
            None if expired => return,
            None => {
                if self.cookies.len() >= COOKIES_MAX {
                    self.cookies.remove(0);
                }
                self.cookies.reserve_exact(1);
                self.cookies.push(cookie);
                self.rendered.clear();
            }
        }
        self.note_ends();
        self.paths_matter = self.cookies.iter().any(|cookie| &*cookie.path != "/");
    }

    /// Appends the `Cookie` line of a request for `url`, or nothing.
    pub(crate) fn write_header(&mut self, url: &Url, into: &mut Vec<u8>) {
        if self.cookies.is_empty() {
            return;
        }
        if self.next_end_s <= now_s() {
            self.cookies.retain(|cookie| !cookie.is_expired());
            self.note_ends();
            self.rendered.clear();
        }
        let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
        let path = if self.paths_matter { url.path() } else { "" };
        let known = self
            .rendered
            .iter()
            .find(|known| *known.host == *host && *known.path == *path && *known.scheme == *scheme);
        if let Some(known) = known {
            into.extend_from_slice(&known.header);
            return;
        }
        let header = self.header(url).into_boxed_slice();
        into.extend_from_slice(&header);
        if self.rendered.len() >= RENDERED_MAX {
            self.rendered.remove(0);
        }
        self.rendered.push(Rendered { scheme: scheme.into(), host: host.into(), path: path.into(), header });
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn note_ends(&mut self) {
        let end_s = |cookie: &Cookie<'_>| match &cookie.expires {
            CookieExpiration::AtUtc(at) => at.unix_timestamp(),
            CookieExpiration::SessionEnd => i64::MAX,
        };
        self.next_end_s = self.cookies.iter().map(end_s).min().unwrap_or(i64::MAX);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.cookies.len()
    }

    fn header(&self, url: &Url) -> Vec<u8> {
        let mut sent: Vec<_> = self.cookies.iter().filter(|cookie| cookie.matches(url)).collect();
        // RFC 6265, 5.4: longer paths first, then the order in which they were made.
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let mut header = vec![];
        for cookie in sent {
            header.extend_from_slice(if header.is_empty() { b"Cookie: " } else { b"; " });
            let (name, value) = cookie.name_value();
            write_bytes(name, &mut header);
            header.push(b'=');
            write_bytes(value, &mut header);
        }
        if !header.is_empty() {
            header.extend_from_slice(b"\r\n");
        }
        header
    }
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// The cookie, when it may be kept.
fn accepted(url: &Url, set_cookie: &[u8]) -> Option<Cookie<'static>> {
    if set_cookie.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') {
        return None;
    }
    let pair_bytes = set_cookie.iter().position(|&byte| byte == b';').unwrap_or(set_cookie.len());
    if pair_bytes > COOKIE_BYTES_MAX {
        return None;
    }
    let text = as_text(set_cookie);
    let long =
        |attribute: &str| attribute.split_once('=').map_or("", |pair| pair.1).len() > ATTRIBUTE_BYTES_MAX;
    // Attributes that are too long are as if they were not there.
    let text = if text.split(';').skip(1).any(long) {
        let mut kept = text.split(';').take(1).chain(text.split(';').skip(1).filter(|&part| !long(part)));
        Cow::Owned(kept.by_ref().collect::<Vec<_>>().join(";"))
    } else {
        text
    };
    let cookie = Cookie::parse(text, url).ok()?.into_owned();
    let secure = cookie.secure() == Some(true);
    let begins = |prefix: &str| {
        cookie.name().get(..prefix.len()).is_some_and(|name| name.eq_ignore_ascii_case(prefix))
    };
    // rfc6265bis, 4.1.3: what a name promises must hold.
    let host_only = cookie.domain().is_none_or(str::is_empty) && cookie.path() == Some("/");
    if begins("__Secure-") && !secure || begins("__Host-") && !(secure && host_only) {
        return None;
    }
    Some(cookie)
}

/// The bytes of a field as text in which each is one letter, so that [`write_bytes`] gives back what the server sent,
/// be it UTF-8 or not.
fn as_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => Cow::Owned(bytes.iter().map(|&byte| char::from(byte)).collect()),
    }
}

fn write_bytes(text: &str, into: &mut Vec<u8>) {
    if text.is_ascii() {
        into.extend_from_slice(text.as_bytes());
    } else {
        // Every letter came from one byte.
        into.extend(text.chars().map(|letter| letter as u8));
    }
}

#[cfg(test)]
mod tests;
