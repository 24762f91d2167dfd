//! The parts of a HAR file that matter here.

use serde::Deserialize;
use std::borrow::Cow;
use url::Url;

/// The file.
#[derive(Debug, Deserialize)]
pub(super) struct Document {
    pub log: Log,
}

#[derive(Debug, Deserialize)]
pub(super) struct Log {
    #[serde(default)]
    pub pages: Vec<Page>,
    pub entries: Vec<RawEntry>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawEntry {
    pageref: Option<String>,
    started_date_time: Option<String>,
    /// Milliseconds.
    time: Option<f64>,
    request: Request,
    response: Option<Response>,
    /// Chrome's: `document`, `script`, `xhr`, `fetch`.
    #[serde(rename = "_resourceType")]
    resource_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Pair>,
    post_data: Option<PostData>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: Option<f64>,
    #[serde(rename = "redirectURL")]
    redirect_url: Option<String>,
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    mime_type: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostData {
    mime_type: Option<String>,
    text: Option<String>,
    #[serde(default)]
    params: Vec<Pair>,
}

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An HTML document.
    Document,
    /// What a document embeds.
    Part,
    /// What a script sent.
    Script,
}

/// A request that was answered.
#[derive(Debug)]
pub(super) struct Entry {
    pub page: Option<String>,
    /// Microseconds since 1970; 0 where the file does not tell.
    pub begins_us: i64,
    pub ends_us: i64,
    pub method: String,
    pub url: Url,
    pub headers: Vec<(String, String)>,
    pub body: String,
    pub kind: Kind,
    pub redirect: Option<Url>,
}

/// Headers that say what is sent and wanted. Cookies and passwords are the visitor's, the others the browser's.
const KEPT_HEADERS: [&str; 3] = ["accept", "content-type", "x-requested-with"];

impl Entry {
    /// `None` for what was not sent by HTTP, or not answered.
    pub fn of(raw: RawEntry) -> Option<Self> {
        let mut url = Url::parse(&raw.request.url).ok()?;
        if !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        url.set_fragment(None);
        // Credentials of a URL belong to whoever recorded it.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let response = raw.response?;
        let status = response.status.filter(|status| *status >= 100.0)?;
        let begins = raw.started_date_time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let begins_us = begins.map_or(0, |time| time.as_microsecond());
        let redirect = response.redirect_url.as_deref().filter(|to| !to.is_empty());
        let redirect = redirect.filter(|_| (300.0..400.0).contains(&status)).and_then(|to| url.join(to).ok());
        let mime = response.content.and_then(|content| content.mime_type).unwrap_or_default();
        let kind = kind(raw.resource_type.as_deref(), &raw.request, &mime);
        let post = raw.request.post_data;
        let body = post.as_ref().map(body).unwrap_or_default().into_owned();
        let mut headers: Vec<(String, String)> =
            raw.request.headers.into_iter().map(|pair| (pair.name, pair.value)).collect();
        headers.retain(|(name, _)| KEPT_HEADERS.contains(&name.to_ascii_lowercase().as_str()));
        let is_typed = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if let Some(mime) = post.and_then(|post| post.mime_type).filter(|_| !is_typed && !body.is_empty()) {
            headers.push(("Content-Type".into(), mime));
        }
        Some(Self {
            page: raw.pageref,
            begins_us,
            ends_us: begins_us + (raw.time.unwrap_or(0.0).max(0.0) * 1e3) as i64,
            method: raw.request.method.to_ascii_uppercase(),
            url,
            headers,
            body,
            kind,
            redirect,
        })
    }
}

fn kind(resource_type: Option<&str>, request: &Request, mime: &str) -> Kind {
    let is_html = mime.starts_with("text/html") || mime.starts_with("application/xhtml");
    let wants_with_script =
        request.headers.iter().any(|pair| pair.name.eq_ignore_ascii_case("x-requested-with"));
    match resource_type {
        Some("document") => Kind::Document,
        Some("xhr" | "fetch" | "eventsource" | "ping" | "beacon" | "preflight") => Kind::Script,
        Some(_) => Kind::Part,
        None if wants_with_script => Kind::Script,
        None if is_html => Kind::Document,
        None if request.method.eq_ignore_ascii_case("GET") && !mime.contains("json") => Kind::Part,
        None => Kind::Script,
    }
}

/// Of a form that is only told by its fields, the body that they make.
fn body(post: &PostData) -> Cow<'_, str> {
    match post.text.as_deref().filter(|text| !text.is_empty()) {
        Some(text) => Cow::Borrowed(text),
        None => {
            let pairs = post.params.iter().map(|pair| (&pair.name, &pair.value));
            Cow::Owned(url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish())
        }
    }
}
