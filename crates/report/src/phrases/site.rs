//! What kind of site it is, in words: a label and a sentence for each thing that could be told.

use crate::human::{bytes, number, percent_coarse, rate_interval};
use webdyno_model::site::{KeepAlive, Site, SiteBackend, SiteCache, SiteKind, SiteTls, SiteUrl};

/// Most URLs that are shown.
const URLS_MAX: usize = 5;

/// Longest path that is shown whole.
const PATH_LETTERS_MAX: usize = 32;

/// Each thing that could be told; empty when nothing could.
pub(crate) fn site(site: &Site) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> =
        site.urls.iter().take(URLS_MAX).map(|url| (short_path(&url.path), url_responses(url))).collect();
    if let Some(left) = site.urls.len().checked_sub(URLS_MAX).filter(|left| *left > 0) {
        lines.push(("and".into(), format!("{left} more")));
    }
    let reported = [
        ("answers", site.answer_bytes_mean.map(|mean| format!("{} on average", bytes(mean)))),
        ("keep-alive", keep_alive(&site.keep_alive)),
        ("TLS", tls(&site.tls)),
        ("behind it", backends(&site.backends)),
        ("cacheable", site.cache.as_ref().map(cache)),
    ];
    lines.extend(reported.into_iter().filter_map(|(label, text)| Some((label.to_owned(), text?))));
    lines
}

/// A path, its middle left out where it is long.
fn short_path(path: &str) -> String {
    let letters: Vec<char> = path.chars().collect();
    if letters.len() <= PATH_LETTERS_MAX {
        return path.to_owned();
    }
    let half = PATH_LETTERS_MAX / 2;
    let part = |letters: &[char]| letters.iter().collect::<String>();
    format!("{}...{}", part(&letters[..half]), part(&letters[letters.len() - half..]))
}

fn url_responses(url: &SiteUrl) -> String {
    let kind = match url.kind {
        Some(SiteKind::Static) => "a file",
        Some(SiteKind::Dynamic) => "made by a program",
        None => "a file or a program's answer, not known",
    };
    format!("{kind}: {}", url.how)
}

fn keep_alive(keep: &KeepAlive) -> Option<String> {
    let yes =
        |what: &str, known: Option<bool>| known.map(|yes| format!("{}{what}", if yes { "" } else { "not " }));
    let reused = keep
        .reused_fraction
        .map(|share| format!("{} of the requests on kept connections", percent_coarse(share)));
    let parts: Vec<String> =
        [yes("wanted", keep.wanted), yes("allowed", keep.allowed), reused].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn tls(tls: &SiteTls) -> Option<String> {
    let used = tls.used?;
    let key = tls.key.as_ref().filter(|_| used).map(|key| format!("key {key}"));
    let handshakes =
        tls.handshakes_per_request.map(|each| format!("{} handshakes for each request", number(each)));
    let resumed = tls.resumed_fraction.map(|share| format!("{} resumed", percent_coarse(share)));
    let first = if used { "used" } else { "not used" };
    let parts: Vec<String> =
        [Some(first.to_owned()), key, handshakes, resumed].into_iter().flatten().collect();
    Some(parts.join(", "))
}

/// What a cache in front could answer, and what it would give; of URLs that it could not, the most requested one.
fn cache(cache: &SiteCache) -> String {
    let share = format!(
        "{} of the requests (anonymous GETs whose answers repeat and a program makes)",
        percent_coarse(cache.cacheable_fraction)
    );
    let range = cache.predicted_ci95.map(rate_interval);
    let expected = cache
        .predicted_rate
        .zip(range)
        .map(|(rate, range)| format!("a cache of 1 s in front: about {} req/s ({range})", number(rate)));
    let unknown =
        cache.not_predicted.as_ref().map(|why| format!("what a cache would give is not known: {why}"));
    let other = cache.urls.iter().find(|url| url.cacheable != Some(true));
    let other = other.map(|url| {
        let target = url.url.splitn(4, '/').nth(3).unwrap_or_default();
        format!("not {}: {}", short_path(&format!("/{target}")), url.how)
    });
    [Some(share), expected, unknown, other].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn backends(backends: &[SiteBackend]) -> Option<String> {
    let one = |backend: &SiteBackend| {
        let cores = backend.cpu_cores.map(|cores| format!("{} cores", number(cores)));
        let reported: Vec<String> = backend.by.iter().cloned().chain(cores).collect();
        let reported =
            if reported.is_empty() { String::new() } else { format!(" ({})", reported.join(", ")) };
        format!("{}{reported}", backend.service)
    };
    (!backends.is_empty()).then(|| backends.iter().map(one).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::site::SiteCacheUrl;

    #[test]
    fn what_is_known_is_told_and_the_rest_left_out() {
        assert_eq!(site(&Site::default()), []);
        assert_eq!(short_path(&"/ab".repeat(20)), "/ab/ab/ab/ab/ab/...b/ab/ab/ab/ab/ab");
        let url = SiteUrl {
            path: "/a".into(),
            kind: Some(SiteKind::Static),
            how: "its name ends in .html".into(),
            ..SiteUrl::default()
        };
        let keep_alive = KeepAlive { wanted: Some(true), allowed: Some(false), reused_fraction: Some(0.0) };
        let tls = SiteTls { used: Some(false), ..SiteTls::default() };
        let cacheable = |url: &str, cacheable| SiteCacheUrl {
            url: format!("http://h{url}"),
            cacheable: Some(cacheable),
            how: "sets a cookie".into(),
            ..SiteCacheUrl::default()
        };
        let cache = SiteCache {
            urls: vec![cacheable("/a.php", true), cacheable("/b.php?x=1", false)],
            cacheable_fraction: 0.8,
            predicted_rate: Some(1200.0),
            predicted_ci95: Some([700.0, 2000.0]),
            ..SiteCache::default()
        };
        let backend = SiteBackend { service: "mariadb".into(), ..SiteBackend::default() };
        let known = Site {
            urls: vec![url],
            keep_alive,
            tls,
            backends: vec![backend],
            cache: Some(cache),
            ..Site::default()
        };
        let lines = site(&known);
        let lines: Vec<_> = lines.iter().map(|(label, text)| (label.as_str(), text.as_str())).collect();
        assert_eq!(
            lines,
            [
                ("/a", "a file: its name ends in .html"),
                ("keep-alive", "wanted, not allowed, 0% of the requests on kept connections"),
                ("TLS", "not used"),
                ("behind it", "mariadb"),
                (
                    "cacheable",
                    "80% of the requests (anonymous GETs whose answers repeat and a program makes); a cache of 1 s in front: about 1,200 \
                     req/s (700/s to 2,000/s); not /b.php?x=1: sets a cookie"
                ),
            ]
        );
    }
}
