//! The workload: which requests are sent, how they arrive, and when to stop.

pub mod body;
mod pages;
pub mod stage;
pub mod visit;

use crate::auth::percent_decoded;
use crate::error::{Result, UserError};
use crate::transport::Transport;
use crate::workload::body::{Body, REDACTED};
use crate::workload::stage::Stage;
use crate::workload::visit::{Auth, RequestList, Visits};
use serde::{Deserialize, Serialize};

/// What is sent to the server. Requests are taken in turn, or drawn by their weights when these differ, unless there are
/// visits or a list: then those say which one is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// At least one.
    pub requests: Vec<RequestSpec>,
    /// Open or closed.
    pub arrival: Arrival,
    /// When the load ends.
    pub stop: Stop,
    /// Closed: that many requests at once. Open: the most connections at once.
    pub connections: u32,
    /// Engine threads; `None` is one per core, never more than connections.
    pub threads: Option<u32>,
    /// The longest wait for an answer, counted from the intended start in closed arrival and from the moment a
    /// connection was taken in open arrival.
    pub timeout_us: u64,
    /// Whether connections are used again.
    pub keepalive: bool,
    /// Answers that count as good.
    pub ok_status: StatusSet,
    /// More conditions on a good answer.
    pub expect: Vec<Expectation>,
    /// Seed of everything that is drawn at random.
    pub seed: u64,
    /// How connections come about.
    #[serde(default, skip_serializing_if = "Transport::is_plain")]
    pub transport: Transport,
    /// Most redirects that a request follows; with 0 a redirect is the answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub redirects_max: u32,
    /// Whose clock ends the times.
    #[serde(default, skip_serializing_if = "Clock::is_auto")]
    pub clock: Clock,
    /// How the rate or the number of users changes; empty for one that does not. The highest level of all stages is the
    /// rate of the arrival, or the number of connections or users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// What visitors do; `None` for requests that have nothing to do with each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visits: Option<Box<Visits>>,
    /// A long list that requests are taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<RequestList>,
}

impl Default for Workload {
    /// Fifty users without think time and ten seconds for each answer, but nothing to send and no end.
    fn default() -> Self {
        Self {
            requests: vec![],
            arrival: Arrival::Closed,
            stop: Stop { duration_us: None, requests: None },
            connections: 50,
            threads: None,
            timeout_us: 10_000_000,
            keepalive: true,
            ok_status: StatusSet::default(),
            expect: vec![],
            seed: 1,
            transport: Transport::default(),
            redirects_max: 0,
            clock: Clock::default(),
            stages: vec![],
            visits: None,
            list: None,
        }
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Whose clock says when an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The engine's, when it has read the last byte. A sample of the connections is stamped by the kernel besides, which
    /// shows how long answers wait for the engine.
    #[default]
    Auto,
    /// The engine's; nothing is stamped.
    Engine,
    /// The kernel's, when it received the last byte: every connection is stamped.
    Kernel,
}

impl Clock {
    /// Whether nothing else was asked for.
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestSpec {
    /// Under which name its figures are reported; by default the path of its URL.
    pub name: String,
    /// `GET`, `POST`, ...
    pub method: String,
    /// Absolute `http://` URL, without credentials and fragment.
    pub url: String,
    /// Header lines besides the ones that HTTP needs.
    pub headers: Vec<(String, String)>,
    /// The body, empty for none.
    #[serde(default, skip_serializing_if = "Body::is_empty")]
    pub body: Body,
    /// Who sends it, when the server wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// How often it is drawn, against the weights of the others; above 0.
    #[serde(default = "default_weight", skip_serializing_if = "is_one")]
    pub weight: f64,
    /// URL, headers, body and authentication hold `${name}`, which are replaced each time it is sent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_variables: bool,
}

fn default_weight() -> f64 {
    1.0
}

#[allow(clippy::float_cmp)] // exactly the default
fn is_one(weight: &f64) -> bool {
    *weight == 1.0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Default for RequestSpec {
    /// A GET of nothing.
    fn default() -> Self {
        let (name, url) = (String::new(), String::new());
        let (method, body) = ("GET".into(), Body::default());
        Self { name, method, url, headers: vec![], body, auth: None, weight: 1.0, has_variables: false }
    }
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Arrival {
    /// Each of `Workload::connections` users sends its next request when it has the last answer.
    Closed,
    /// Requests start at a rate, whatever the server does.
    Open {
        /// Intended starts per second.
        rate_per_s: f64,
        /// Exponential gaps instead of even ones.
        poisson: bool,
    },
}

/// When the load ends. Both bounds may be set; the first one reached ends it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// Ends after this time; what is in flight then is reported as such.
    pub duration_us: Option<u64>,
    /// Ends when this many requests have an outcome.
    pub requests: Option<u64>,
}

/// A condition on a good answer besides its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    /// The exact status.
    Status(u16),
    /// The exact length of the decoded body in bytes.
    Length(u64),
    /// A regular expression that matches somewhere in the decoded body.
    Regex(String),
    /// The SHA-256 of the decoded body, 64 hexadecimal digits in lower case.
    Sha256(String),
}

impl Expectation {
    /// Reads `status=CODE`, `length=BYTES`, `regex=PATTERN` or `sha256=HEX`. An error that says how to write it.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| UserError::usage(format!("`{text}` is not a condition on answers")).hint(why);
        let forms = "write status=CODE, length=BYTES, regex=PATTERN or sha256=HEX";
        let (what, value) = text.split_once('=').ok_or_else(|| wrong(forms))?;
        match what {
            "status" => value.parse().ok().filter(|code| (100..=599).contains(code)).map(Self::Status),
            "length" => value.parse().ok().map(Self::Length),
            "regex" => Some(Self::Regex(value.into())),
            "sha256" if value.len() == 64 && value.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                Some(Self::Sha256(value.to_ascii_lowercase()))
            }
            "sha256" => {
                return Err(wrong("a SHA-256 has 64 hexadecimal digits, as sha256sum prints them"));
            }
            _ => None,
        }
        .ok_or_else(|| wrong(forms))
    }
}

impl std::fmt::Display for Expectation {
    /// As [`Expectation::parse`] reads it.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(code) => write!(to, "status={code}"),
            Self::Length(bytes) => write!(to, "length={bytes}"),
            Self::Regex(pattern) => write!(to, "regex={pattern}"),
            Self::Sha256(digest) => write!(to, "sha256={digest}"),
        }
    }
}

/// A set of HTTP status codes, written as `200-399,404`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StatusSet(Vec<(u16, u16)>);

impl StatusSet {
    /// Reads `200-399,404`. An error for anything that is not status codes between 100 and 599.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            UserError::usage(format!("`{text}` is not a set of status codes"))
                .hint("write ranges and single codes between 100 and 599, as in --ok 200-399,404")
        };
        let code = |part: &str| part.trim().parse::<u16>().ok().filter(|code| (100..=599).contains(code));
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (code(first)?, code(last)?);
            (first <= last).then_some((first, last))
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        ranges.map(Self).ok_or_else(wrong)
    }

    /// Whether an answer with this status is good.
    #[inline]
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

impl Default for StatusSet {
    /// Everything below 400: a request fails with status 400 to 599.
    fn default() -> Self {
        Self(vec![(100, 399)])
    }
}

impl TryFrom<String> for StatusSet {
    type Error = UserError;
    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<StatusSet> for String {
    fn from(set: StatusSet) -> Self {
        let show = |&(first, last): &(u16, u16)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        set.0.iter().map(show).collect::<Vec<_>>().join(",")
    }
}

impl Workload {
    /// Most requests in flight at once, without visitors: over HTTP/2 a connection carries several.
    pub fn concurrency(&self) -> u32 {
        self.connections.saturating_mul(self.transport.streams())
    }

    /// The workload as it may be written down: values of headers that carry secrets and the values of query parameters
    /// named like secrets are replaced. Bodies are never written.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut copy = self.clone();
        for request in &mut copy.requests {
            for (name, value) in &mut request.headers {
                if is_secret_name(name) {
                    *value = REDACTED.into();
                }
            }
            request.url = redact_query(&request.url);
            request.name = redact_query(&request.name);
            if let Some(auth) = &mut request.auth {
                *auth = auth.redacted();
            }
        }
        if let Some(auth) = copy.transport.proxy.as_mut().and_then(|proxy| proxy.auth.as_mut()) {
            *auth = auth.redacted();
        }
        if let Some(visits) = &mut copy.visits {
            for (name, value) in &mut visits.variables {
                if is_secret_name(name) {
                    *value = REDACTED.into();
                }
            }
        }
        copy
    }
}

/// Marks that give a secret away wherever they stand in a name.
const SECRET_MARKS: [&str; 14] = [
    "authorization",
    "cookie",
    "credential",
    "csrf",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "sessid",
    "session",
    "signature",
    "token",
    "xsrf",
];

/// Words that mean a secret when they stand alone, and something else inside of longer ones: `key` is one, `monkey`
/// is none.
const SECRET_WORDS: [&str; 24] = [
    "accesskey",
    "apikey",
    "auth",
    "authkey",
    "bearer",
    "hmac",
    "jwt",
    "key",
    "keys",
    "nonce",
    "oauth",
    "otp",
    "pass",
    "passkey",
    "pin",
    "privatekey",
    "pswd",
    "psw",
    "pwd",
    "saml",
    "sas",
    "sid",
    "sig",
    "userpass",
];

/// Whether a header or parameter of this name usually carries a secret. Rather one too many than one too few.
pub fn is_secret_name(name: &str) -> bool {
    let name = percent_decoded(name);
    let lower = name.to_ascii_lowercase();
    SECRET_MARKS.iter().any(|mark| lower.contains(mark))
        || words(&name).iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
}

/// The words of a name in lower case: it is split where no letter or digit stands, and in `camelCase`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = name.chars().collect();
    for (index, &letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(index + 1);
        // `apiKey` is split before the K, `AWSKey` too: the last capital of a row begins the next word.
        let begins = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                !before.is_ascii_uppercase() || after.is_some_and(char::is_ascii_lowercase)
            });
        if begins || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words
}

/// A URL or path with the values of secret query parameters replaced, and without its fragment, which no server gets.
/// Credentials before the host are refused before anything is recorded.
pub fn redact_query(url: &str) -> String {
    let url = url.split('#').next().unwrap_or(url);
    let Some((path, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let part = |part: &str| match part.split_once('=') {
        Some((name, _)) if is_secret_name(name) => format!("{name}={REDACTED}"),
        _ => part.to_owned(),
    };
    let query: Vec<_> = query.split('&').map(part).collect();
    format!("{path}?{}", query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::visit::Table;

    #[test]
    fn status_sets_parse_and_render() {
        for (text, good, bad) in [("200", 200, 201), ("200-399,404", 404, 400), ("100-599", 599, 600)] {
            let set = StatusSet::parse(text).unwrap();
            assert!(set.contains(good) && !set.contains(bad), "{text}");
            assert_eq!(String::from(set), text);
        }
        for text in ["", "abc", "399-200", "99", "600", "200-", "200,,300"] {
            assert_eq!(StatusSet::parse(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }

    fn check_names(names: &str, secret: bool) {
        for name in names.split_whitespace() {
            assert_eq!(is_secret_name(name), secret, "{name}");
        }
    }

    #[test]
    fn names_of_secrets_are_told_from_harmless_ones() {
        check_names("Authorization Proxy-Authorization Cookie X-Api-Key apikey api_key apiKey key KEY", true);
        check_names("AWSAccessKeyId X-Amz-Signature X-Amz-Credential X-Amz-Security-Token sig hmac", true);
        check_names("pwd userPwd pass user_pass passwd auth X-Auth-User jwt private.key credentials", true);
        check_names("X-CSRF-Token csrfmiddlewaretoken _xsrf PHPSESSID JSESSIONID sid session-id", true);
        check_names("client_secret access_token oauth_nonce user%5Bpwd%5D user[pass] %70wd", true);
        check_names("author Authority monkey turnkey keyword keywords keyboard signal design", false);
        check_names("passenger bypass compass passive Accept page Host side inside spin", false);
        check_names("Content-Type User-Agent q 100% %zz % é%e %é", false);
        assert!(!is_secret_name(""));
    }

    #[test]
    fn only_the_values_of_secrets_are_replaced() {
        for (url, written) in [
            ("http://h/a?key=x&page=2", "http://h/a?key=[redacted]&page=2"),
            ("/a?keyword=x&user%5Bpwd%5D=y", "/a?keyword=x&user%5Bpwd%5D=[redacted]"),
            ("http://h/a?x=1#access_token=y", "http://h/a?x=1"),
            ("http://h/a#access_token=y", "http://h/a"),
            ("http://h/a?sig", "http://h/a?sig"),
        ] {
            assert_eq!(redact_query(url), written);
        }
    }

    #[test]
    fn secrets_do_not_reach_the_log() {
        let request = RequestSpec {
            name: "/a?token=s3cret".into(),
            method: "POST".into(),
            url: "http://h/a?token=s3cret&page=2".into(),
            headers: vec![("Authorization".into(), "Basic s3cret".into()), ("Accept".into(), "*/*".into())],
            body: "password=s3cret".into(),
            auth: Some(Auth::Basic { name: "me".into(), password: "s3cret".into() }),
            ..RequestSpec::default()
        };
        let variables = [("api_key".into(), "s3cret".into()), ("page".into(), "page=2".into())];
        let rows = std::sync::Arc::new(vec![vec!["s3cret".to_owned()]]);
        let table = Table { columns: vec!["password".into()], rows, row_count: 1, ..Table::default() };
        let visits = Visits { variables: variables.into(), tables: vec![table], ..Visits::default() };
        let mut workload =
            Workload { requests: vec![request], visits: Some(Box::new(visits)), ..Workload::default() };
        workload.transport.proxy = Some(crate::transport::Proxy::parse("http://me:s3cret@h:1").unwrap());
        let written = serde_json::to_string(&workload.redacted()).unwrap();
        assert!(!written.contains("s3cret"), "{written}");
        assert!(written.contains("page=2") && written.contains("*/*"), "{written}");
        let read: Workload = serde_json::from_str(&written).unwrap();
        assert_eq!(read.requests[0].body.length_bytes(), 15);
        assert_eq!(serde_json::to_string(&read.redacted()).unwrap(), written);
    }
}
