//! Lines that are shown, without what they say of people: addresses, the first word (a client's name), users and query strings.

/// What of the clients may be in the result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Privacy {
    /// The busiest clients, and addresses in lines that are shown.
    pub show_clients: bool,
    /// URLs with their query strings, and with the ids of sessions in paths.
    pub keep_query: bool,
}

/// Of a longer line the beginning is shown.
const LENGTH_MAX: usize = 160;
/// So much more is looked at: an address that is cut off is one.
const AHEAD: usize = 64;

/// A line as it may be shown.
pub(crate) fn redacted(line: &[u8], privacy: Privacy) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(LENGTH_MAX + AHEAD)]);
    let is_dot = |letter: char| letter.is_control() || letter == '\u{fffd}';
    // As it is shown, so that what looks like an address there is taken for one.
    let text: String = text.chars().map(|letter| if is_dot(letter) { '.' } else { letter }).collect();
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    if line.len() > LENGTH_MAX + AHEAD && words.len() > 1 {
        words.pop();
    }
    let count = words.len();
    for (at, word) in words.iter_mut().enumerate() {
        let end = without_session(word.as_bytes()).len();
        if !privacy.keep_query && end < word.len() {
            word.truncate(end);
            word.push_str(";...");
        }
        if !privacy.keep_query
            && let Some(mark) = word.find('?')
        {
            word.truncate(mark + 1);
            word.push_str("...");
        }
        let is_name = at < 3 && count > 1 && word.starts_with(|letter: char| letter.is_alphanumeric());
        if !privacy.show_clients && (is_name || is_address(word)) {
            *word = "...".into();
        }
    }
    let joined = words.join(" ");
    let shown: String = joined.chars().take(LENGTH_MAX).collect();
    if line.len() > LENGTH_MAX { shown + " ..." } else { shown }
}

/// A path without the id of a session, which programs of Java put behind it where there is no cookie (Jakarta Servlet 6.0, 7.1.3):
/// `/cart.jsp;jsessionid=1A2B`. Who knows it is that user.
pub(crate) fn without_session(path: &[u8]) -> &[u8] {
    const NAME: &[u8] = b";jsessionid=";
    let is_name =
        |at: &usize| path[*at..].get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
    &path[..memchr::memchr_iter(b';', path).find(is_name).unwrap_or(path.len())]
}

/// Whether a word may hold an address: digits with three points, or hexadecimal ones with two colons.
fn is_address(word: &str) -> bool {
    let is_v4 = word
        .split(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .any(|part| part.split('.').filter(|digits| !digits.is_empty()).count() >= 4);
    let is_v6 = word
        .split(|letter: char| !letter.is_ascii_hexdigit() && letter != ':')
        .any(|part| part.matches(':').count() >= 2 && !is_clock(part));
    is_v4 || is_v6
}

/// `2026:13:55:36`, as in times.
fn is_clock(part: &str) -> bool {
    part.split(':')
        .skip(1)
        .all(|number| number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_names_no_client() {
        let open = Privacy { show_clients: true, keep_query: true };
        for (line, shown) in [
            (
                "10.1.2.3 - bob [10/Oct/2026:13:55:36 +0200] \"GET /?token=x HTTP",
                "... - ... [10/Oct/2026:13:55:36 +0200] \"GET /?... HTTP",
            ),
            ("{\"addr\":\"2001:db8::1\", \"x\": 1}", "... \"x\": ..."),
            ("- - - \"GET /a;JSESSIONID=1A2B?b HTTP", "- - - \"GET /a;... HTTP"),
            ("from=[10.1.2.3]", "..."),
            ("\u{1}\u{2}rubbish", "..rubbish"),
            ("client.example.org - - broken", "... - - broken"),
        ] {
            assert_eq!(redacted(line.as_bytes(), Privacy::default()), shown);
            assert!(!redacted(line.as_bytes(), open).contains("..."), "{line}");
        }
        assert_eq!(redacted(&[b'x'; 1000], open).len(), LENGTH_MAX + 4);
    }
}
