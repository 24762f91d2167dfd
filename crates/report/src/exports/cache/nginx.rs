//! For nginx: one file at the level of `http`, which all locations inherit that pass requests on. Where nginx does not serve the site
//! yet, with a server that stands in front of it.
//!
//! <https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_cache>, the same for fastcgi, uwsgi and scgi. An answer of 1 s is
//! fresh until the clock's second after it, so up to 2 s.

use super::Kept;
use std::fmt::Write as _;

/// What passes requests on and can keep answers.
const PASSES: [&str; 4] = ["proxy", "fastcgi", "uwsgi", "scgi"];
/// Longer keys of a map need larger buckets than the 64 bytes of most processors.
const KEY_BYTES_MAX: usize = 40;

/// The file.
pub(super) fn config(kept: &Kept<'_>) -> String {
    let serves = kept.service.is_some_and(|service| service.service == "nginx");
    let place = match serves {
        true => {
            "As a file of conf.d (in the context http): locations inherit it unless they have such directives themselves. It is for the\n# name of the site that was asked for, so that other sites keep nothing: add a line of the map for each other name of it."
        }
        false => {
            "As a file of conf.d (in the context http) of an nginx in front; clients go to the port of its server below."
        }
    };
    let mut out = kept.head("#", place);
    // Behind its own server a cache sees this site alone; what all locations inherit has to tell sites apart.
    let (source, site) = match serves {
        true => ("$http_host$request_uri", authority(kept)),
        false => ("$request_uri", String::new()),
    };
    let longest = kept.targets.iter().map(|target| site.len() + target.len()).max().unwrap_or(0);
    if longest > KEY_BYTES_MAX {
        let _ = writeln!(out, "map_hash_bucket_size {};", (longest + 24).next_power_of_two());
    }
    let _ = writeln!(out, "map {source} $webdyno_other {{\n    default 1;");
    for target in &kept.targets {
        let _ = writeln!(out, "    \"{site}{target}\" 0;");
    }
    out.push_str(
        "}\nmap \"$http_cookie$http_authorization\" $webdyno_personal {\n    default 1;\n    \"\" 0;\n}\n",
    );
    for pass in passes(kept).into_iter().filter(|_| serves) {
        let _ = write!(out, "{}{}", storage(pass), directives(pass, ""));
    }
    if !serves {
        let _ = writeln!(
            out,
            "{}server {{\n    listen 127.0.0.1:8088;\n{}    location / {{\n        proxy_pass {};\n        proxy_http_version 1.1;\n        \
             proxy_set_header Connection \"\";\n        proxy_set_header Host $http_host;\n        \
             proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n    }}\n}}",
            storage("proxy"),
            directives("proxy", "    "),
            kept.origin.as_str().trim_end_matches('/')
        );
    }
    out
}

/// By what the server passes requests on, as its settings say; both that are common where these do not.
fn passes(kept: &Kept<'_>) -> Vec<&'static str> {
    let scoped = kept.service.map_or(&[][..], |service| &service.scoped);
    let is_set = |pass: &&&str| scoped.iter().any(|one| one.setting.strip_suffix("_pass") == Some(**pass));
    let found: Vec<&str> = PASSES.iter().filter(is_set).copied().collect();
    if found.is_empty() { PASSES[..2].to_vec() } else { found }
}

/// The site as requests name it: a port that is not the scheme's own is part of it.
fn authority(kept: &Kept<'_>) -> String {
    let host = kept.origin.host_str().unwrap_or_default();
    kept.origin.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Where kept answers lie: for the context http alone.
fn storage(pass: &str) -> String {
    format!(
        "{pass}_cache_path /var/cache/webdyno-{pass} levels=1:2 keys_zone=webdyno_{pass}:1m max_size=64m inactive=10s use_temp_path=off;\n"
    )
}

fn directives(pass: &str, indent: &str) -> String {
    let lines = [
        format!("{pass}_cache webdyno_{pass}"),
        format!("{pass}_cache_key \"$scheme$request_method$http_host$request_uri\""),
        format!("{pass}_cache_valid 200 1s"),
        format!("{pass}_cache_lock on"),
        format!("{pass}_cache_use_stale updating"),
        format!("{pass}_cache_bypass $webdyno_other $webdyno_personal"),
        format!("{pass}_no_cache $webdyno_other $webdyno_personal"),
    ];
    lines.iter().map(|line| format!("{indent}{line};\n")).collect()
}
