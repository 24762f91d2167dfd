//! What may be shown of a directive: words from lists of what is known to hold no secret, and never the rest of a line.

use super::backends;
use crate::services::apache::config::Placed;
use crate::services::apache::config::known::{Known, Show};

/// Longest value that is shown.
const VALUE_CHARACTERS_MAX: usize = 200;

/// Most words that are shown.
const WORDS_MAX: usize = 32;

/// Settings of PHP that decide speed and memory. https://www.php.net/manual/en/ini.list.php
const PHP: [&str; 36] = [
    "memory_limit",
    "max_execution_time",
    "max_input_time",
    "max_input_vars",
    "post_max_size",
    "upload_max_filesize",
    "max_file_uploads",
    "file_uploads",
    "output_buffering",
    "implicit_flush",
    "zlib.output_compression",
    "realpath_cache_size",
    "realpath_cache_ttl",
    "display_errors",
    "log_errors",
    "error_reporting",
    "engine",
    "default_socket_timeout",
    "session.save_handler",
    "session.auto_start",
    "session.lazy_write",
    "session.gc_probability",
    "session.gc_divisor",
    "session.gc_maxlifetime",
    "mysqli.allow_persistent",
    "mysqli.max_persistent",
    "pdo_mysql.cache_size",
    "opcache.enable",
    "opcache.memory_consumption",
    "opcache.interned_strings_buffer",
    "opcache.max_accelerated_files",
    "opcache.revalidate_freq",
    "opcache.validate_timestamps",
    "opcache.jit",
    "opcache.jit_buffer_size",
    "xdebug.mode",
];

/// Environment variables by which modules are steered. https://httpd.apache.org/docs/2.4/env.html
const VARIABLES: [&str; 15] = [
    "rate-limit",
    "rate-initial-burst",
    "no-gzip",
    "gzip-only-text/html",
    "no-brotli",
    "nokeepalive",
    "proxy-nokeepalive",
    "proxy-sendcl",
    "proxy-sendchunked",
    "proxy-initial-not-pooled",
    "force-proxy-request-1.0",
    "force-response-1.0",
    "downgrade-1.0",
    "no-cache",
    "dont-vary",
];

/// Headers that steer caches and connections.
const HEADERS: [&str; 8] =
    ["Cache-Control", "Expires", "Pragma", "Vary", "ETag", "Last-Modified", "Connection", "Keep-Alive"];

/// What is told of a backend's connections (and not `secret`), and of processes.
const SIZES: [&str; 33] = [
    "min",
    "max",
    "smax",
    "acquire",
    "connectiontimeout",
    "disablereuse",
    "enablereuse",
    "flushpackets",
    "flushwait",
    "iobuffersize",
    "keepalive",
    "lbset",
    "loadfactor",
    "ping",
    "receivebuffersize",
    "retry",
    "status",
    "timeout",
    "ttl",
    "addressttl",
    "upgrade",
    "lbmethod",
    "maxattempts",
    "nofailover",
    "failontimeout",
    "processes",
    "threads",
    "maximum-requests",
    "request-timeout",
    "inactivity-timeout",
    "listen-backlog",
    "deadlock-timeout",
    "stack-size",
];

/// The value of a directive as it may be shown, after the name by which it is shown; `None` when nothing of it may be.
pub fn displayable(known: &Known, placed: &Placed) -> Option<(String, String)> {
    let words = placed.words();
    let name = known.names.iter().find(|name| placed.name.eq_ignore_ascii_case(name));
    let name = (*name.or(known.names.first())?).to_owned();
    let listed = |list: &[&str], word: &str| list.iter().any(|known| known.eq_ignore_ascii_case(word));
    let value = match known.show {
        Show::All => bounded(&words),
        Show::First(count) => bounded(&words[..words.len().min(count)]),
        Show::Sizes => bounded(&sizes(&words)),
        Show::Backend => {
            let backend = words.iter().filter(|word| is_path(word) || *word == "!").take(1).cloned();
            let url = words.iter().find_map(|word| backends::url(word).or_else(|| socket(&words, word)));
            let all: Vec<String> = backend.chain(url).chain(sizes(&words)).collect();
            bounded(&all)
        }
        Show::Handler => {
            let handler = words.first()?;
            // What ap_expr decides may hold anything.
            let is_plain = !handler.starts_with("expr=") && !handler.contains(['%', '(']);
            backends::url(handler).or_else(|| is_plain.then(|| handler.clone()))?
        }
        Show::Require => require(&words)?,
        Show::Php => match words.as_slice() {
            [setting, value] if listed(&PHP, setting) => {
                return Some((format!("{name} {setting}"), cut(value)));
            }
            _ => return None,
        },
        Show::Variable => {
            let conditional = !name.eq_ignore_ascii_case("SetEnv");
            variables(&words, conditional)?
        }
        Show::Header => {
            let actions = ["always", "onsuccess"];
            let words: Vec<String> = words.into_iter().filter(|word| !listed(&actions, word)).collect();
            match words.as_slice() {
                [action, header, value @ ..] if listed(&HEADERS, header.trim_end_matches(':')) => {
                    let value = value.first().filter(|value| !value.contains('%'));
                    let all = [Some(action), Some(header), value];
                    bounded(&all.into_iter().flatten().cloned().collect::<Vec<_>>())
                }
                _ => return None,
            }
        }
        Show::Rewrite => {
            let flags = words.get(2)?.trim_matches(['[', ']']).to_ascii_uppercase();
            let passes = flags.split(',').any(|flag| ["P", "PROXY"].contains(&flag.trim()));
            format!("{} [P]", backends::url(words.get(1).filter(|_| passes)?)?)
        }
    };
    (!value.is_empty()).then(|| (name, cut(&value)))
}

/// Text of so many words at most.
fn bounded(words: &[String]) -> String {
    words[..words.len().min(WORDS_MAX)].join(" ")
}

fn cut(value: &str) -> String {
    let plain = value.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(VALUE_CHARACTERS_MAX).collect()
}

fn is_path(word: &str) -> bool {
    word.starts_with('/') && !word.contains('@')
}

/// The words with `=` that are known.
fn sizes(words: &[String]) -> Vec<String> {
    let is_known = |word: &&String| {
        word.split_once('=').is_some_and(|(key, _)| SIZES.iter().any(|known| known.eq_ignore_ascii_case(key)))
    };
    words.iter().filter(is_known).cloned().collect()
}

/// `-host 127.0.0.1:9000` and `-socket /run/x.sock` of mod_fastcgi, as a URL.
fn socket(words: &[String], word: &str) -> Option<String> {
    let at = words.iter().position(|other| other == word)?;
    let before = words.get(at.checked_sub(1)?)?;
    match before.as_str() {
        "-host" => Some(format!("fcgi://{word}")),
        "-socket" if word.starts_with('/') => Some(format!("unix:{word}|fcgi://localhost")),
        _ => None,
    }
}

/// `host example.org`, `from name`: what is looked up for each request; `all denied`; of other conditions their kind.
fn require(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (negated, words) = match words.split_first()? {
        (first, rest) if first.eq_ignore_ascii_case("not") => ("not ", rest),
        _ => ("", words.as_slice()),
    };
    let (kind, rest) = words.split_first()?;
    let is_name = |word: &&&str| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
        plain && word.chars().any(|c| c.is_ascii_alphabetic())
    };
    let shows = ["host", "forward-dns", "from"].iter().any(|known| known.eq_ignore_ascii_case(kind));
    let decides = |word: &str| ["granted", "denied"].iter().any(|known| known.eq_ignore_ascii_case(word));
    let is_shown = |word: &&&str| match kind.eq_ignore_ascii_case("all") {
        true => decides(word),
        false => shows && is_name(word),
    };
    let names: Vec<&str> = rest.iter().filter(is_shown).copied().collect();
    Some(format!("{negated}{kind} {}", names.join(" ")).trim_end().to_owned())
}

/// The variables that steer modules; a condition in front of them is left out.
fn variables(words: &[String], conditional: bool) -> Option<String> {
    let is_known = |name: &str| VARIABLES.iter().any(|known| known.eq_ignore_ascii_case(name));
    if !conditional {
        let (name, value) = (words.first()?, words.get(1).map_or("1", String::as_str));
        return is_known(name).then(|| format!("{name} {value}"));
    }
    let set = words
        .iter()
        .skip(1)
        .filter(|word| is_known(word.trim_start_matches('!').split('=').next().unwrap_or_default()));
    let set: Vec<String> = set.cloned().collect();
    (!set.is_empty()).then(|| bounded(&set))
}
