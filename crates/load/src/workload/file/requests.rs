//! Requests and pages of a workload file.

use super::bodies;
use super::keys::{TableKeys, Value};
use super::scope::{Scope, auth, headers, merge};
use super::source_span::{FileError, FileResult, SourceSpan};
use super::texts::{self, Piece, VariableUses};
use crate::plan::{check_fields, parse_url};
use url::Url;
use webdyno_model::workload::visit::{Auth, PageSpec, Part, Resources};
use webdyno_model::workload::{RequestSpec, redact_query};

/// Every key of a request.
pub(super) const REQUEST_KEYS: &[&str] = &[
    "name",
    "url",
    "method",
    "grpc",
    "headers",
    "auth",
    "body",
    "body_file",
    "body_hex",
    "body_base64",
    "form",
    "multipart",
    "json",
    "weight",
];
/// Every key of a page: it is a request with what it embeds.
pub(super) const PAGE_KEYS: &[&str] = &[
    "name",
    "url",
    "method",
    "headers",
    "auth",
    "body",
    "body_file",
    "body_hex",
    "body_base64",
    "form",
    "multipart",
    "json",
    "weight",
    "resources",
];
/// Every key of a resource that is a table.
pub(super) const RESOURCE_KEYS: &[&str] = &["url", "name", "headers", "required"];
/// A request that was read.
#[derive(Debug)]
pub(super) struct ParsedRequest {
    /// What is sent.
    pub(super) spec: RequestSpec,
    /// Where its name stands, if it has one.
    pub(super) named: Option<SourceSpan>,
    /// Its place in the file.
    pub(super) at: SourceSpan,
    /// The variables in it, and where.
    pub(super) uses: Vec<(String, SourceSpan)>,
}

/// Whether a message of WebSocket is sent there.
fn is_message(url: &str) -> bool {
    url.starts_with("ws://") || url.starts_with("wss://")
}

/// The default name of a request: its path with the query, secrets replaced.
pub fn request_name(url: &str) -> String {
    // A URL that is one variable has no path before that has a value.
    let Some((_, rest)) = url.split_once("://") else { return url.to_owned() };
    let path = rest.find('/').map_or("/", |slash| &rest[slash..]);
    redact_query(path.split('#').next().unwrap_or("/"))
}

/// A request from its table. `base` is what its URL is relative to.
pub(super) fn read(scope: &Scope<'_>, keys: &TableKeys<'_>, base: Option<&Url>) -> FileResult<ParsedRequest> {
    let mut uses = VariableUses::default();
    let url = keys.required("url", "url = \"/path\"")?;
    let url = full_url(url.at, uses.collect(url.at, url.non_empty_text()?)?, base)?;
    let body = bodies::read(scope, keys, &mut uses)?;
    let is_message = is_message(&url);
    let method = match keys.get("method") {
        Some(value) => method(&value)?,
        None if is_message => {
            let is_binary = body.as_ref().is_some_and(|body| body.is_raw);
            (if is_binary { "BINARY" } else { "TEXT" }).into()
        }
        None if body.is_some() => "POST".into(),
        None => "GET".into(),
    };
    let name = keys.get("name");
    let given = name.as_ref().map(Value::non_empty_text).transpose()?;
    let mut spec = RequestSpec { method, ..request_for_url(scope, &url, &mut uses)? };
    if let Some(value) = keys.get("headers") {
        merge(&mut spec.headers, headers(&value, &mut uses)?);
    }
    if let Some(value) = keys.get("auth") {
        spec.auth = Some(auth(&value, &mut uses)?);
    }
    let mut is_raw = false;
    if keys.read("grpc", Value::flag)?.unwrap_or(false) {
        is_raw = true;
        grpc_call(keys, &mut spec, body)?;
    } else if let Some(body) = body {
        is_raw = body.is_raw;
        let has_content_type = spec.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        match body.content_type {
            Some(_) if has_content_type && body.is_multipart => {
                return Err(FileError::new(
                    keys.at,
                    "a multipart form names its boundary in a Content-Type of its own",
                )
                .hint("leave the header out"));
            }
            // That of a message is no header of its upgrade.
            Some(_) if is_message => {}
            Some(content_type) if !has_content_type => {
                spec.headers.push(("Content-Type".into(), content_type))
            }
            _ => {}
        }
        spec.body = body.bytes.into();
    }
    spec.name = match given {
        Some(name) => name.to_owned(),
        None if spec.method == "GET" || keys.get("grpc").is_some() => request_name(&url),
        None => format!("{} {}", spec.method, request_name(&url)),
    };
    let found = ParsedRequest { spec, named: name.map(|value| value.at), at: keys.at, uses: uses.0 };
    finish_request(found, is_raw)
}

/// Makes a unary call of gRPC of a request: its body is the message, as protobuf has it.
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
fn grpc_call(keys: &TableKeys<'_>, spec: &mut RequestSpec, body: Option<bodies::Body>) -> FileResult<()> {
    let message = body.as_ref().map_or(&[][..], |body| &body.bytes);
    if body.as_ref().is_some_and(|body| !body.is_raw) || keys.get("method").is_some() {
        return Err(FileError::new(keys.at, "a call of gRPC is a POST of one message in protobuf's bytes")
            .hint(
                "write them as body_hex, body_base64 or body_file, and no method; protoc --encode makes them",
            ));
    }
    spec.method = "POST".into();
    let length = (message.len() as u32).to_be_bytes();
    spec.body = [&[0], &length[..], message].concat().into();
    for (name, value) in [("Content-Type", "application/grpc"), ("TE", "trailers")] {
        if !spec.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
            spec.headers.push((name.into(), value.into()));
        }
    }
    Ok(())
}

/// A GET of a URL that is already full, with the headers that all requests of the file have.
fn request_for_url(scope: &Scope<'_>, url: &str, uses: &mut VariableUses) -> FileResult<RequestSpec> {
    uses.0.extend(scope.uses.iter().cloned());
    Ok(RequestSpec {
        name: request_name(url),
        url: url.to_owned(),
        headers: scope.headers.clone(),
        auth: scope.auth.clone(),
        method: if is_message(url) { "TEXT".into() } else { "GET".into() },
        ..RequestSpec::default()
    })
}

/// A GET of a URL in a text.
pub(super) fn read_url(
    scope: &Scope<'_>,
    at: SourceSpan,
    text: &str,
    base: Option<&Url>,
) -> FileResult<ParsedRequest> {
    let mut uses = VariableUses::default();
    let url = full_url(at, uses.collect(at, text)?, base)?;
    let spec = request_for_url(scope, &url, &mut uses)?;
    finish_request(ParsedRequest { spec, named: None, at, uses: uses.0 }, false)
}

/// Whether its texts are to be filled in decides how they are written: `$${` stays where they are. A raw body is sent
/// as it is.
fn finish_request(mut found: ParsedRequest, is_raw: bool) -> FileResult<ParsedRequest> {
    let spec = &mut found.spec;
    spec.has_variables = !found.uses.is_empty();
    match (spec.has_variables, is_raw) {
        (true, true) => spec.body = bodies::escaped_bytes(spec.body.bytes()).into(),
        (false, false) if !spec.body.is_empty() => {
            spec.body = bodies::unescaped_bytes(spec.body.bytes()).into();
        }
        _ => {}
    }
    if !spec.has_variables {
        let headers = spec.headers.iter_mut().map(|(_, value)| value);
        let auth = match &mut spec.auth {
            Some(Auth::Basic { name, password }) => vec![name, password],
            Some(Auth::Bearer { token }) => vec![token],
            None => vec![],
        };
        for text in headers.chain(auth).chain([&mut spec.url]) {
            *text = texts::unescaped(text);
        }
    }
    let length = spec.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if length && spec.has_variables {
        let message = "Content-Length is given, and the length is not known before the variables have values";
        return Err(
            FileError::new(found.at, message).hint("leave the header out: it is sent with every body")
        );
    }
    check_fields(spec).map_err(|error| {
        FileError::from_user_error(
            found.at,
            error,
            "a header is written as headers = { Accept = \"text/html\" }",
        )
    })?;
    Ok(found)
}

fn method(value: &Value<'_>) -> FileResult<String> {
    let text = value.text()?;
    let is_good = (1..=32).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
        && !text.eq_ignore_ascii_case("CONNECT");
    if is_good {
        return Ok(text.to_ascii_uppercase());
    }
    Err(FileError::new(value.at, format!("`{text}` is not a method that can be sent"))
        .hint("write one such as GET, HEAD, POST, PUT or DELETE"))
}

fn full_url(at: SourceSpan, text: &str, base: Option<&Url>) -> FileResult<String> {
    let hint = "write it as in \"/path\" or \"http://127.0.0.1:8080/path\"";
    let full = match texts::full_url(text, base) {
        Ok(Some(full)) => full,
        Ok(None) => {
            return Err(FileError::new(at, format!("`{text}` names no server, and the file has no base"))
                .hint("write base = \"http://127.0.0.1:8080\" at the top of the file"));
        }
        Err(why) => return Err(FileError::new(at, why).hint(hint)),
    };
    let pieces = texts::read_pieces(at, &full)?;
    if !matches!(pieces[..], [Piece::Variable { .. }]) {
        let fill = |piece: &Piece<'_>| match piece {
            Piece::Literal(literal) => (*literal).to_owned(),
            Piece::Variable { .. } => "x".to_owned(),
        };
        let filled: String = pieces.iter().map(fill).collect();
        let as_written = |error: webdyno_model::UserError| webdyno_model::UserError {
            message: error.message.replace(&filled, text),
            ..error
        };
        parse_url(&filled).map_err(|error| FileError::from_user_error(at, as_written(error), hint))?;
    }
    Ok(full)
}

/// A page's resources that are listed: what is sent, and whether the page fails without it.
pub(super) enum ParsedResources {
    /// Nothing, or what is found.
    Rule(Resources),
    /// These.
    Parts(Vec<(ParsedRequest, bool)>),
}

/// What a page embeds; URLs are relative to the page's own.
pub(super) fn resources(
    scope: &Scope<'_>,
    keys: &TableKeys<'_>,
    document: &str,
) -> FileResult<ParsedResources> {
    let Some(value) = keys.get("resources") else { return Ok(ParsedResources::Rule(Resources::Found)) };
    let Some(list) = value.as_list() else {
        return match value.as_text() {
            Some("found") => Ok(ParsedResources::Rule(Resources::Found)),
            Some("none") => Ok(ParsedResources::Rule(Resources::Left)),
            _ => Err(value.type_error("\"found\", \"none\" or a list of URLs", "\"found\"")),
        };
    };
    let page = Url::parse(document).ok();
    let base = page.as_ref().or(scope.base.as_ref());
    let mut parts = vec![];
    for element in list {
        if let Some(text) = element.as_text() {
            parts.push((read_url(scope, element.at, text, base)?, true));
            continue;
        }
        if !element.is_table() {
            return Err(element
                .type_error("a URL or a table", "[\"/a.png\", { url = \"/b.png\", required = false }]"));
        }
        let keys = element.keys("a resource", RESOURCE_KEYS)?;
        let required = keys.read("required", Value::flag)?.unwrap_or(true);
        parts.push((read(scope, &keys, base)?, required));
    }
    Ok(ParsedResources::Parts(parts))
}

/// The page of its parts' places.
pub(super) fn page_from_parts(parts: Vec<(usize, bool)>) -> PageSpec {
    let part = |(request, required)| Part { request, required };
    PageSpec { resources: Resources::Listed(parts.into_iter().map(part).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_by_their_path() {
        for (url, name) in [
            ("http://h/a/b?x=1", "/a/b?x=1"),
            ("http://h", "/"),
            ("http://h:80/p#f", "/p"),
            ("${next}", "${next}"),
            ("http://h/?token=s3cret", "/?token=[redacted]"),
        ] {
            assert_eq!(request_name(url), name);
        }
    }
}
