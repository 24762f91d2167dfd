//! What a file sets for all of its requests: base URL, header lines and authentication.

use super::ReadShared;
use super::keys::{TableKeys, Value};
use super::source_span::{FileError, FileResult, Files, SourceSpan};
use super::texts::VariableUses;
use crate::plan::{check_fields, parse_url};
use url::Url;
use webdyno_model::workload::RequestSpec;
use webdyno_model::workload::visit::Auth;

/// Every key of an authentication.
pub(super) const AUTH_KEYS: &[&str] = &["user", "password", "bearer"];

/// Base URL, header lines and authentication for all requests of one file.
pub(super) struct Scope<'t> {
    pub(super) files: &'t Files,
    pub(super) fetch: &'t ReadShared<'t>,
    /// What URLs are relative to.
    pub(super) base: Option<Url>,
    /// Headers of all requests.
    pub(super) headers: Vec<(String, String)>,
    /// Who sends them.
    pub(super) auth: Option<Auth>,
    /// The variables in those.
    pub(super) uses: Vec<(String, SourceSpan)>,
}

impl<'t> Scope<'t> {
    /// The scope of a file: its own settings, else those of the file that includes it.
    pub(super) fn new(
        files: &'t Files,
        fetch: &'t ReadShared<'t>,
        top: &TableKeys<'_>,
        outer: Option<&Scope<'t>>,
    ) -> FileResult<Self> {
        let mut scope = Self {
            files,
            fetch,
            base: outer.and_then(|outer| outer.base.clone()),
            headers: outer.map(|outer| outer.headers.clone()).unwrap_or_default(),
            auth: outer.and_then(|outer| outer.auth.clone()),
            uses: outer.map(|outer| outer.uses.clone()).unwrap_or_default(),
        };
        let mut uses = VariableUses::default();
        if let Some(base) = top.read("base", base)? {
            scope.base = Some(base);
        }
        if let Some(headers) = top.read("headers", |value| headers(value, &mut uses))? {
            merge(&mut scope.headers, headers);
        }
        if let Some(auth) = top.read("auth", |value| auth(value, &mut uses))? {
            scope.auth = Some(auth);
        }
        scope.uses.extend(uses.0);
        Ok(scope)
    }
}

/// The base of a file: an address without variables.
pub(super) fn base(value: &Value<'_>) -> FileResult<Url> {
    let text = value.text()?;
    parse_url(text).map_err(|error| {
        FileError::from_user_error(value.at, error, "write it as in base = \"http://127.0.0.1:8080\"")
    })
}

/// Header lines, in their order; a list of texts is as many lines.
pub(super) fn headers(value: &Value<'_>, uses: &mut VariableUses) -> FileResult<Vec<(String, String)>> {
    let mut headers = vec![];
    for (name, at, value) in value.entries("headers")? {
        let lines = value.as_list().unwrap_or_else(|| vec![value]);
        for line in lines {
            let text = line.plain()?;
            uses.collect(line.at, &text)?;
            let one = RequestSpec { headers: vec![(name.to_owned(), text)], ..RequestSpec::default() };
            let is_length = name.eq_ignore_ascii_case("content-length");
            if !is_length {
                check_fields(&one).map_err(|error| {
                    FileError::from_user_error(
                        at,
                        error,
                        "a header is written as headers = { Accept = \"text/html\" }",
                    )
                })?;
            }
            headers.extend(one.headers);
        }
    }
    Ok(headers)
}

/// Adds headers; those of the same name are replaced.
pub(super) fn merge(into: &mut Vec<(String, String)>, headers: Vec<(String, String)>) {
    into.retain(|(name, _)| !headers.iter().any(|(new, _)| new.eq_ignore_ascii_case(name)));
    into.extend(headers);
}

/// Who sends requests.
pub(super) fn auth(value: &Value<'_>, uses: &mut VariableUses) -> FileResult<Auth> {
    let keys = value.keys("an authentication", AUTH_KEYS)?;
    let mut text = |value: &Value<'_>| -> FileResult<String> {
        Ok(uses.collect(value.at, value.non_empty_text()?)?.to_owned())
    };
    keys.one_of(&["user", "bearer"])?;
    keys.one_of(&["password", "bearer"])?;
    if let Some(token) = keys.get("bearer") {
        return Ok(Auth::Bearer { token: text(&token)? });
    }
    let example = "auth = { user = \"ann\", password = \"..\" }, or { bearer = \"TOKEN\" }";
    let name = keys.required("user", example)?;
    let password = keys.required("password", example)?;
    if name.text()?.contains(':') {
        return Err(FileError::new(name.at, "the name of a user has no colon: it ends there (RFC 7617)")
            .hint("write the password as `password`"));
    }
    Ok(Auth::Basic { name: text(&name)?, password: text(&password)? })
}
