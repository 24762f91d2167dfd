//! The configuration of a cache in front that keeps for a second what a diagnosis saw to be cacheable, and nothing else.
//!
//! What they share: only the URLs that were looked at, only GET and HEAD, never for a request with a cookie or `Authorization`, and
//! one request at a time renews an answer. A page of somebody who is logged in is neither kept nor answered.

mod apache;
mod nginx;
mod varnish;

use url::Url;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// A program that keeps answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheProgram {
    /// `proxy_cache`, `fastcgi_cache`, ...: <https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache>.
    Nginx,
    /// Apache's mod_cache: <https://httpd.apache.org/docs/2.4/mod/mod_cache.html>.
    ModCache,
    /// <https://varnish-cache.org/docs/7.4/reference/vcl.html>.
    Varnish,
}

impl CacheProgram {
    /// The one that needs no further program before this service.
    fn of_service(service: Option<&ServiceSnapshot>) -> Self {
        match service.map(|service| service.service.as_str()) {
            Some("apache") => Self::ModCache,
            _ => Self::Nginx,
        }
    }
}

/// What a cache is to keep.
struct Kept<'a> {
    /// The site, as `http://host:8080`.
    origin: Url,
    /// Paths with their queries, the most requested first; each plain enough to stand between quotes.
    targets: Vec<String>,
    /// What serves the site.
    service: Option<&'a ServiceSnapshot>,
}

impl Kept<'_> {
    /// The first lines: what it is, and what it does not do.
    fn head(&self, comment: &str, place: &str) -> String {
        let count = self.targets.len();
        let urls = if count == 1 { "URL" } else { "URLs" };
        let lines = [
            format!("A microcache of 1 s for {}: {count} {urls} that webdyno saw to be the same for everybody.", self.origin),
            place.to_owned(),
            "Requests with a cookie or Authorization, other methods and all other URLs pass by it: a page of somebody".into(),
            "who is logged in is neither kept nor answered. Keep it so when you add URLs: look at each of them first.".into(),
        ];
        lines.iter().map(|line| format!("{comment} {line}\n")).collect()
    }
}

/// The configuration for a program, or for the one that serves the site already. An error where nothing was seen to be cacheable.
pub fn cache_config(recording: &Recording, program: Option<CacheProgram>) -> Result<String> {
    let cache = recording.diagnosis()?.and_then(|diagnosis| diagnosis.site?.cache);
    let urls = cache.map_or(vec![], |cache| cache.urls);
    let kept = urls.iter().filter(|url| url.cacheable == Some(true));
    let urls: Vec<Url> = kept.filter_map(|kept| Url::parse(&kept.url).ok()).collect();
    let first = urls.first().ok_or_else(|| {
        UserError::cannot_run("no URL of this session was seen to be cacheable, so there is nothing to keep")
            .hint("`webdyno diagnose URL` looks at the URLs of its load; --json has for each why it is not (site.cache)")
    })?;
    let is_plain = |target: &String| !target.chars().any(|c| c.is_control() || "\"'\\`{}<>^|$ ".contains(c));
    let same = urls.iter().filter(|url| url.origin() == first.origin());
    let targets: Vec<String> = same
        .map(|url| url[url::Position::BeforePath..url::Position::AfterQuery].to_owned())
        .filter(is_plain)
        .collect();
    if targets.is_empty() {
        return Err(UserError::cannot_run(
            "the cacheable URLs of this session cannot stand in a configuration as they are",
        ));
    }
    let service = recording.services.last().map(|(_, service)| service);
    let origin = Url::parse(&first.origin().ascii_serialization()).map_err(|error| {
        UserError::cannot_run(format!("the URLs of this session name no server: {error}"))
    })?;
    let kept = Kept { origin, targets, service };
    match program.unwrap_or_else(|| CacheProgram::of_service(service)) {
        CacheProgram::Nginx => Ok(nginx::config(&kept)),
        CacheProgram::ModCache => apache::config(&kept),
        CacheProgram::Varnish => varnish::config(&kept),
    }
}

#[cfg(test)]
mod tests;
