//! File names and patterns, as the Apache Portable Runtime compares them (`apr_fnmatch`).

/// Whether a text contains a wildcard, as `apr_fnmatch_test` tells it.
pub fn is_pattern(text: &str) -> bool {
    let mut open = false;
    let mut escaped = false;
    for character in text.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '*' | '?' => return true,
            '[' => open = true,
            ']' if open => return true,
            _ => {}
        }
    }
    false
}

/// Whether a file name matches a pattern (`*`, `?`, `[a-z]`, `[!a]`, backslash). A leading dot must be written.
pub fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    matches_any(pattern, name)
}

/// The same where a leading dot need not be written.
pub fn matches_any(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    // Where the last star was tried: instead of recursing, go back there and let it take one more character.
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, n));
            p += 1;
        } else if let Some(length) = one(&pattern[p..], name[n]) {
            p += length;
            n += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&character| character == '*')
}

/// A pattern without wildcards as the text that it matches.
pub fn unescaped(pattern: &str) -> String {
    let mut plain = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next()),
            other => plain.push(other),
        }
    }
    plain
}

/// How many pattern characters match this one character; `None` when they do not.
fn one(pattern: &[char], character: char) -> Option<usize> {
    match *pattern.first()? {
        '?' => Some(1),
        '[' => class(pattern, character),
        '\\' => (pattern.get(1) == Some(&character)).then_some(2),
        '*' => None,
        plain => (plain == character).then_some(1),
    }
}

/// A bracket expression; one without its end stands for itself.
fn class(pattern: &[char], character: char) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let start = if negated { 2 } else { 1 };
    let Some(end) = (start + 1..pattern.len()).find(|&at| pattern[at] == ']') else {
        return (character == '[').then_some(1);
    };
    let mut at = start;
    let mut found = false;
    while at < end {
        let ranged = at + 2 < end && pattern[at + 1] == '-';
        let (low, high) = if ranged { (pattern[at], pattern[at + 2]) } else { (pattern[at], pattern[at]) };
        found |= (low..=high).contains(&character);
        at += if ranged { 3 } else { 1 };
    }
    (found != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_patterns() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("*.conf", ".conf", false),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("*", "anything", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]*", "b1", true),
            ("[!a-c]*", "b1", false),
            ("[]x]", "]", true),
            ("[ab", "[ab", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("*a*b*", "xaybz", true),
            ("*a*b", "xaybz", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
