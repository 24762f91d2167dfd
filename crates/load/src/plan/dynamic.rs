//! Requests with variables, built each time that they are sent.
//!
//! What is sent is what the engine would send for the same request written out: the texts are filled in, then the URL
//! is read as any other (WHATWG URL standard), and the header is the same. `Authorization`: RFC 7617 (user and password
//! in base64) and RFC 6750.

use super::{USER_AGENT, authority};
use crate::io::origin::is_websocket;
use crate::plan::request_template::{RequestForm, Source, parse_url};
use crate::plan::script::text::{Text, TextContext};
use crate::plan::script::variables::{Names, VariableId, Variables};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io::Write as _;
use url::Url;
use webdyno_model::workload::RequestSpec;
use webdyno_model::workload::body::Body;
use webdyno_model::workload::visit::Auth;
use webdyno_model::{Result, UserError};

/// Longest URL that is built. No server accepts more: Apache's `LimitRequestLine` is 8190.
const URL_BYTES_MAX: usize = 16 << 10;

/// A request with variables.
#[derive(Debug)]
pub(crate) struct Dynamic {
    method: String,
    url: Text,
    fields: Vec<(String, Text)>,
    auth: Option<AuthText>,
    body: BodyText,
    /// Default header fields that the request adds.
    adds_host: bool,
    adds_user_agent: bool,
    adds_accept: bool,
    adds_content_length: bool,
    closes: bool,
    form: RequestForm,
}

#[derive(Debug)]
enum BodyText {
    Text(Text),
    Fixed(Body),
}

/// Authentication with variables.
#[derive(Debug)]
enum AuthText {
    Basic(Text, Text),
    Bearer(Text),
}

impl Dynamic {
    /// Reads a request. A usage error names it.
    pub(super) fn parse(spec: &RequestSpec, names: &Names, form: RequestForm) -> Result<Self> {
        let with_name = |error: UserError| UserError {
            message: format!("request `{}`: {}", spec.name, error.message),
            ..error
        };
        let text = |text: &str, place: TextContext| Text::parse(text, names, place).map_err(with_name);
        let is_set = |name: &str| spec.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let fields = spec.headers.iter();
        let fields = fields.map(|(name, value)| Ok((name.clone(), text(value, TextContext::Header)?)));
        // A form with a file in it need not be UTF-8.
        let body = Some(spec.body.bytes()).filter(|body| body.windows(2).any(|two| two == b"${"));
        let has_content_length =
            !spec.body.is_empty() || matches!(spec.method.as_str(), "POST" | "PUT" | "PATCH");
        Ok(Self {
            method: spec.method.clone(),
            url: text(&spec.url, TextContext::Url)?,
            fields: fields.collect::<Result<_>>()?,
            auth: match spec.auth.as_ref().filter(|_| !is_set("Authorization")) {
                None => None,
                Some(Auth::Basic { name, password }) => {
                    Some(AuthText::Basic(text(name, TextContext::Body)?, text(password, TextContext::Body)?))
                }
                Some(Auth::Bearer { token }) => Some(AuthText::Bearer(text(token, TextContext::Header)?)),
            },
            body: match body {
                Some(body) => {
                    BodyText::Text(Text::of_bytes(body, names, TextContext::Body).map_err(with_name)?)
                }
                None => BodyText::Fixed(spec.body.clone()),
            },
            adds_host: !is_set("Host"),
            adds_user_agent: !is_set("User-Agent"),
            adds_accept: !is_set("Accept"),
            adds_content_length: has_content_length,
            closes: !form.keepalive && !is_set("Connection"),
            form,
        })
    }

    /// The variables that it cannot do without.
    pub(super) fn needs(&self) -> Vec<VariableId> {
        let mut needs: Vec<_> = self.url.variables().collect();
        needs.extend(self.fields.iter().flat_map(|(_, text)| text.variables()));
        match &self.auth {
            Some(AuthText::Basic(name, password)) => {
                needs.extend(name.variables().chain(password.variables()));
            }
            Some(AuthText::Bearer(token)) => needs.extend(token.variables()),
            None => {}
        }
        if let BodyText::Text(body) = &self.body {
            needs.extend(body.variables());
        }
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// Whether all of them have a value: without one it cannot be written.
    pub(crate) fn has_values(&self, variables: &Variables) -> bool {
        self.needs().into_iter().all(|id| variables.get(id).is_some())
    }

    /// Whether its whole URL is a variable, which is read as a link on the page before.
    pub(super) fn is_link(&self) -> bool {
        self.url.single_variable().is_some()
    }

    /// Whether the user sets its `Cookie` header.
    pub(crate) fn sends_own_cookies(&self) -> bool {
        self.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("Cookie"))
    }

    /// Where it goes. `previous`: the URL of the step before. `None` when a variable has no value, or it is no URL.
    pub(crate) fn url(&self, variables: &Variables, previous: Option<&Url>) -> Option<Url> {
        let mut text = vec![];
        match self.url.single_variable() {
            // A link is read as it is written on the page.
            Some(id) => text.extend_from_slice(variables.get(id)?),
            None => self.url.render(variables, &mut text).ok()?,
        }
        let text = std::str::from_utf8(&text).ok().filter(|text| text.len() <= URL_BYTES_MAX)?;
        let mut url = match previous.filter(|_| self.is_link()) {
            Some(previous) => previous.join(text).ok()?,
            None => Url::parse(text).ok()?,
        };
        url.set_fragment(None);
        let plain = url.username().is_empty() && url.password().is_none();
        let is_spoken = matches!(url.scheme(), "http" | "https") || is_websocket(&url) && !self.is_link();
        (plain && is_spoken && url.has_host()).then_some(url)
    }

    /// Writes the request, with further header lines; returns the body that is to follow. `None` when a variable has no
    /// value.
    pub(crate) fn write(
        &self,
        url: &Url,
        variables: &Variables,
        lines: &[u8],
        into: &mut Vec<u8>,
    ) -> Option<Body> {
        // Writing to memory does not fail.
        let _ = write!(into, "{} {}{}", self.method, self.form.before_path(url), url.path());
        if let Some(query) = url.query() {
            let _ = write!(into, "?{query}");
        }
        into.extend_from_slice(b" HTTP/1.1\r\n");
        if self.adds_host {
            let _ = write!(into, "Host: {}\r\n", authority(url));
        }
        if self.adds_user_agent {
            let _ = write!(into, "User-Agent: {USER_AGENT}\r\n");
        }
        if self.adds_accept {
            into.extend_from_slice(b"Accept: */*\r\n");
        }
        into.extend_from_slice(self.form.proxy_lines(url).unwrap_or_default().as_bytes());
        if self.closes {
            into.extend_from_slice(b"Connection: close\r\n");
        }
        for (name, value) in self.fields.iter().filter(|(name, _)| !is_length(name)) {
            into.extend_from_slice(name.as_bytes());
            into.extend_from_slice(b": ");
            value.render(variables, into).ok()?;
            into.extend_from_slice(b"\r\n");
        }
        self.write_auth(variables, into)?;
        into.extend_from_slice(lines);
        let mut own = vec![];
        let fixed = match &self.body {
            BodyText::Text(text) => {
                text.render(variables, &mut own).ok()?;
                Body::default()
            }
            BodyText::Fixed(body) => body.clone(),
        };
        if self.adds_content_length {
            let _ = write!(into, "Content-Length: {}\r\n", own.len() as u64 + fixed.length_bytes());
        }
        into.extend_from_slice(b"\r\n");
        into.extend_from_slice(&own);
        Some(fixed)
    }

    /// Appends its `Authorization` line, if it has one. `None` when a variable has no value.
    pub(crate) fn write_auth(&self, variables: &Variables, into: &mut Vec<u8>) -> Option<()> {
        let Some(auth) = &self.auth else { return Some(()) };
        into.extend_from_slice(b"Authorization: ");
        match auth {
            AuthText::Basic(name, password) => {
                let mut pair = vec![];
                name.render(variables, &mut pair).ok()?;
                pair.push(b':');
                password.render(variables, &mut pair).ok()?;
                into.extend_from_slice(b"Basic ");
                into.extend_from_slice(STANDARD.encode(&pair).as_bytes());
            }
            AuthText::Bearer(token) => {
                into.extend_from_slice(b"Bearer ");
                token.render(variables, into).ok()?;
            }
        }
        into.extend_from_slice(b"\r\n");
        Some(())
    }

    /// The request with these values, from which a redirect is made.
    pub(crate) fn source(&self, url: Url, variables: &Variables) -> Option<Source> {
        let filled = |text: &Text| {
            let mut filled = vec![];
            text.render(variables, &mut filled).ok()?;
            Some(filled)
        };
        let mut headers = vec![];
        for (name, value) in self.fields.iter().filter(|(name, _)| !is_length(name)) {
            headers.push((name.clone(), String::from_utf8_lossy(&filled(value)?).into_owned()));
        }
        let mut line = vec![];
        self.write_auth(variables, &mut line)?;
        if let Some((name, value)) = std::str::from_utf8(&line).ok().and_then(|line| line.split_once(": ")) {
            headers.push((name.to_owned(), value.trim_end().to_owned()));
        }
        let body = match &self.body {
            BodyText::Text(text) => filled(text)?.into(),
            BodyText::Fixed(body) => body.clone(),
        };
        Some(Source::from_parts(self.method.clone(), url, headers, body, self.form.clone()))
    }
}

fn is_length(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-length")
}

/// The URL by which a request with variables is known before they have values: what stands before the first one. `None`
/// when all of it is a variable. A usage error when the server would depend on one.
pub(super) fn fixed_url(text: &str) -> Result<Option<Url>> {
    let fixed = text.split("${").next().unwrap_or(text);
    if fixed.is_empty() {
        return Ok(None);
    }
    let after = fixed.split_once("://").map_or("", |(_, after)| after);
    if fixed.len() < text.len() && !after.contains(['/', '?', '#']) {
        return Err(UserError::usage(format!("in `{text}` the server depends on a variable"))
            .hint("write the server out; variables may stand in the path and the query"));
    }
    parse_url(fixed).map(Some)
}
