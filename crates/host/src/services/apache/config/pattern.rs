//! Patterns and regular expressions that choose sections.
//!
//! `ap_strcmp_match` of httpd and `apr_fnmatch` with APR_FNM_PATHNAME. Regular expressions are those of PCRE; what the
//! `regex` crate cannot do (looking around, references) is told and not guessed.

use crate::os::wildcard;
use regex::{Regex, RegexBuilder};

/// Most bytes that a compiled expression may have.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Whether a text matches a pattern of `*` and `?`.
pub fn is_match(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Whether a path matches a pattern, of which a star does not match a slash. A leading dot needs no dot.
pub fn is_path_match(pattern: &str, path: &str) -> bool {
    let (patterns, parts): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    patterns.len() == parts.len()
        && patterns.iter().zip(&parts).all(|(pattern, part)| match wildcard::is_pattern(pattern) {
            true => wildcard::matches_any(pattern, part),
            false => wildcard::unescaped(pattern) == *part,
        })
}

/// A compiled expression, or why it cannot be told what it matches.
pub fn expression(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .dot_matches_new_line(true)
        .build();
    built.map_err(|_| format!("the regular expression {text} is not one that webdyno evaluates"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_httpd() {
        for (pattern, text, expected) in [
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "example.org", false),
            ("w?w.*", "www.example.org", true),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b", "axxc", false),
        ] {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
        for (pattern, path, expected) in [
            ("/home/*/public_html/", "/home/anna/public_html/", true),
            ("/home/*/public_html/", "/home/anna/b/public_html/", false),
            ("/a?/", "/ab/", true),
            ("/[ab]/", "/b/", true),
            ("/*/", "/.git/", true),
            ("/x\\*/", "/x*/", true),
        ] {
            assert_eq!(is_path_match(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn expressions_that_cannot_be_told_say_so() {
        assert!(expression("^/[a-z]+$").unwrap().is_match("/abc"));
        assert!(expression("(?!x)y").is_err());
        assert!(expression("(").is_err());
    }
}
