//! robots.txt (RFC 9309): what a program may ask a site for. `Crawl-delay` is no part of the RFC, and heeded.

use url::Url;

/// What robots.txt says to us.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Robots {
    /// Whether a rule allows, and its pattern.
    rules: Vec<(bool, String)>,
    /// Seconds from one request to the next.
    pub crawl_delay_s: Option<f64>,
}

/// More of the file is not read (RFC 9309, 2.5: at least 500 KiB).
pub const ROBOTS_BYTES_MAX: usize = 512 << 10;

impl Robots {
    /// What a response to `/robots.txt` means: without the file everything is allowed, and nothing while the server has errors
    /// (RFC 9309, 2.3.1).
    pub fn of_response(status: u16, body: &[u8], program: &str) -> Self {
        match status {
            200..=299 => {
                Self::parse(&String::from_utf8_lossy(&body[..body.len().min(ROBOTS_BYTES_MAX)]), program)
            }
            500..=599 => Self { rules: vec![(false, "/".into())], crawl_delay_s: None },
            _ => Self::default(),
        }
    }

    /// The groups of `program`, or those of `*` where it has none.
    pub fn parse(text: &str, program: &str) -> Self {
        let own = Self::of_group(text, |name| name.eq_ignore_ascii_case(program));
        own.or_else(|| Self::of_group(text, |name| name == "*")).unwrap_or_default()
    }

    fn of_group(text: &str, is_ours: impl Fn(&str) -> bool) -> Option<Self> {
        let mut found: Option<Self> = None;
        let (mut is_in, mut names_go_on) = (false, false);
        for line in text.lines() {
            let line = line.trim_start_matches('\u{feff}').split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            if key == "user-agent" {
                // A version behind the name does not matter.
                let name = value.split('/').next().unwrap_or_default();
                is_in = (is_in && names_go_on) || is_ours(name);
                names_go_on = true;
                if is_in {
                    found.get_or_insert_default();
                }
                continue;
            }
            names_go_on = false;
            let Some(robots) = found.as_mut().filter(|_| is_in) else { continue };
            match key.as_str() {
                // An empty rule is none.
                "allow" | "disallow" if !value.is_empty() => {
                    robots.rules.push((key == "allow", value.to_owned()));
                }
                "crawl-delay" => {
                    let seconds = value.parse().ok().filter(|seconds: &f64| *seconds >= 0.0);
                    robots.crawl_delay_s = seconds.or(robots.crawl_delay_s);
                }
                _ => {}
            }
        }
        found
    }

    /// Whether a URL may be asked for: the longest pattern counts, and of two as long the one that allows.
    pub fn allows(&self, url: &Url) -> bool {
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        if path == "/robots.txt" {
            return true;
        }
        let matching = self.rules.iter().filter(|(_, pattern)| matches(pattern, path));
        matching.max_by_key(|(allows, pattern)| (pattern.len(), *allows)).is_none_or(|(allows, _)| *allows)
    }
}

/// Whether a pattern matches the beginning of a path: `*` is anything, `$` at the end its end.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        if is_whole && index + 1 == parts.len() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    !is_whole || rest.is_empty()
}
