//! The lines of an Apache configuration file, kept byte for byte so that one of them can be changed and the rest
//! stays as it was.
//!
//! The rules are those of `ap_cfg_getline` and `ap_getword_conf` in httpd's server/util.c, and of
//! `ap_build_config_sub` in server/config.c: a backslash before the line end continues a line (of a comment, too),
//! white space around a line does not count, words may be quoted, and the line number of a continued line is the
//! number of its last part.

/// A file as lines; [`Document::render`] gives back exactly the bytes that were parsed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// In the order of the file.
    pub lines: Vec<Line>,
}

/// One logical line: a physical line with those that continue it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its bytes with all line ends.
    pub raw: Vec<u8>,
    /// What Apache reads: continuations joined, white space around it removed; not UTF-8 is replaced.
    pub text: String,
    /// Number of its first physical line, from 1.
    pub number: u32,
    /// Number of its last physical line: the one that Apache's messages give.
    pub number_last: u32,
    /// Whether a NUL byte ends what Apache reads of it before its line end.
    pub is_cut: bool,
}

/// What a logical line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Nothing, or white space.
    Blank,
    /// Starts with `#`.
    Comment,
    /// `<Name arguments>`; `closed` tells whether the `>` is there.
    Open {
        /// Without `<`.
        name: String,
        /// Without the closing `>`.
        arguments: String,
        /// Whether the `>` is there.
        closed: bool,
    },
    /// `</Name>`.
    Close {
        /// Without brackets.
        name: String,
    },
    /// `Name arguments`.
    Directive {
        /// As it is written.
        name: String,
        /// Everything after the name.
        arguments: String,
    },
}

impl Document {
    /// Cuts bytes into logical lines. Never fails: what makes no sense to Apache is still a line.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut lines = Vec::new();
        let mut raw = Vec::new();
        let mut joined: Vec<u8> = Vec::new();
        let (mut number, mut number_last) = (1_u32, 0_u32);
        for physical in bytes.split_inclusive(|&byte| byte == b'\n') {
            number_last = number_last.saturating_add(1);
            raw.extend_from_slice(physical);
            // C's strings end at a NUL byte, and with it the line, whatever its end looks like.
            let end = physical.iter().position(|&byte| byte == 0);
            joined.extend_from_slice(&physical[..end.unwrap_or(physical.len())]);
            if end.is_none()
                && let Some(kept) = continued(&joined)
            {
                joined.truncate(kept);
                continue;
            }
            lines.push(line(&mut raw, &mut joined, number, number_last, end.is_some()));
            number = number_last.saturating_add(1);
        }
        if !raw.is_empty() {
            lines.push(line(&mut raw, &mut joined, number, number_last, false));
        }
        Self { lines }
    }

    /// The bytes of the file.
    pub fn render(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| line.raw.iter().copied()).collect()
    }

    /// The line end that most lines use: `\r\n` or `\n`.
    pub fn line_end(&self) -> &'static str {
        let windows = self.lines.iter().filter(|line| line.raw.ends_with(b"\r\n")).count();
        if windows * 2 > self.lines.len() { "\r\n" } else { "\n" }
    }

    /// Gives the directive that ends at physical line `number_last` new arguments. Indentation, the name as it is
    /// written and the line end stay; continuations become one line. False when there is no directive.
    pub fn set_arguments(&mut self, number_last: u32, arguments: &str) -> bool {
        let Some(line) = self.lines.iter_mut().find(|line| line.number_last == number_last) else {
            return false;
        };
        if !matches!(line.statement(), Statement::Directive { .. }) {
            return false;
        }
        let blank = |byte: &u8| byte.is_ascii_whitespace();
        let indentation = line.raw.iter().take_while(|byte| blank(byte)).count();
        let name = line.raw[indentation..].iter().take_while(|byte| !blank(byte) && **byte != b'\\').count();
        let gap =
            line.raw[indentation + name..].iter().take_while(|&&byte| byte == b' ' || byte == b'\t').count();
        let mut raw = line.raw[..indentation + name + gap].to_vec();
        if gap == 0 {
            raw.push(b' ');
        }
        raw.extend_from_slice(arguments.as_bytes());
        raw.extend_from_slice(end_of(&line.raw));
        line.text = logical(&raw);
        line.raw = raw;
        true
    }

    /// Gives a parameter (`name=value`, a word of its own) of the directive that ends at physical line `number_last` another value;
    /// every other byte stays. False where it is not there just once, or its value is written in a way that no single place gives.
    pub fn set_parameter(&mut self, number_last: u32, name: &str, (from, to): (&str, &str)) -> bool {
        let Some(line) = self.lines.iter_mut().find(|line| line.number_last == number_last) else {
            return false;
        };
        let (Statement::Directive { name: directive, arguments }, Ok(raw)) =
            (line.statement(), std::str::from_utf8(&line.raw))
        else {
            return false;
        };
        let mut wanted = words(&arguments);
        let mut found = wanted.iter_mut().filter(|word| parameter(word, name).is_some());
        let (Some(word), None) = (found.next(), found.next()) else { return false };
        if parameter(word, name) != Some(from) {
            return false;
        }
        word.replace_range(name.len() + 1.., to);
        // Quotes and continuations are left to who reads them: the place is the one that makes of the line what is wanted.
        let at_each = raw.match_indices('=').map(|(at, _)| at + 1).filter(|at| raw[*at..].starts_with(from));
        let changed = at_each.map(|at| format!("{}{to}{}", &raw[..at], &raw[at + from.len()..]));
        let is_wanted = |raw: &String| {
            let parsed = Self::parse(raw.as_bytes());
            let [one] = &parsed.lines[..] else { return false };
            matches!(one.statement(), Statement::Directive { name, arguments } if name == directive && words(&arguments) == wanted)
        };
        let Some(raw) = changed.into_iter().find(is_wanted) else { return false };
        line.text = Self::parse(raw.as_bytes()).lines.swap_remove(0).text;
        line.raw = raw.into_bytes();
        true
    }

    /// Appends text, after ending the last line if the file does not end with one.
    pub fn append(&mut self, text: &str) {
        let mut bytes = self.render();
        let end = self.line_end();
        if bytes.last().is_some_and(|&byte| byte != b'\n') {
            bytes.extend_from_slice(end.as_bytes());
        }
        for line in text.lines() {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(end.as_bytes());
        }
        *self = Self::parse(&bytes);
    }
}

impl Line {
    /// What it is. Variables are not resolved.
    pub fn statement(&self) -> Statement {
        statement(&self.text)
    }
}

/// What a trimmed logical line is.
pub fn statement(text: &str) -> Statement {
    if text.is_empty() {
        return Statement::Blank;
    }
    if text.starts_with('#') {
        return Statement::Comment;
    }
    let (name, rest) = next_word(text);
    if let Some(closing) = name.strip_prefix("</") {
        let name = closing.strip_suffix('>').unwrap_or(closing);
        return Statement::Close { name: name.to_owned() };
    }
    if let Some(opening) = name.strip_prefix('<') {
        if let Some(name) = opening.strip_suffix('>').filter(|_| rest.is_empty()) {
            return Statement::Open { name: name.to_owned(), arguments: String::new(), closed: true };
        }
        let (arguments, closed) = match rest.rfind('>') {
            Some(at) => (&rest[..at], true),
            None => (rest, false),
        };
        return Statement::Open { name: opening.to_owned(), arguments: arguments.trim().to_owned(), closed };
    }
    Statement::Directive { name, arguments: rest.to_owned() }
}

/// The words of arguments: quotes and escapes resolved.
pub fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = arguments.trim_start();
    while !rest.is_empty() {
        let (word, after) = next_word(rest);
        words.push(word);
        rest = after;
    }
    words
}

/// The value of a word that is a parameter of this name: `4` of `max=4`.
pub fn parameter<'a>(word: &'a str, name: &str) -> Option<&'a str> {
    let (known, value) = word.split_once('=')?;
    known.eq_ignore_ascii_case(name).then_some(value)
}

/// The first word and what follows it, as `ap_getword_conf` cuts them.
pub fn next_word(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''));
    let body = if quote.is_some() { &text[1..] } else { text };
    let end = word_end(body, quote);
    let word = unescape(&body[..end], quote);
    let after = &body[end..];
    let after = match quote {
        Some(quote) => after.strip_prefix(quote).unwrap_or(after),
        None => after,
    };
    (word, after.trim_start())
}

/// Where a word ends: at its quote, or at white space.
fn word_end(body: &str, quote: Option<char>) -> usize {
    let Some(quote) = quote else {
        return body.find(|c: char| c.is_ascii_whitespace() || c == '\u{b}').unwrap_or(body.len());
    };
    let mut characters = body.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if character == quote {
            return at;
        }
        let escaped = |next: &(usize, char)| next.1 == quote || next.1 == '\\';
        if character == '\\' && characters.peek().is_some_and(escaped) {
            characters.next();
        }
    }
    body.len()
}

/// `\\` is a backslash, and a backslash before the quote is the quote.
fn unescape(word: &str, quote: Option<char>) -> String {
    let mut plain = String::with_capacity(word.len());
    let mut characters = word.chars().peekable();
    while let Some(character) = characters.next() {
        let escaped = |next: &char| *next == '\\' || Some(*next) == quote;
        match characters.next_if(|next| character == '\\' && escaped(next)) {
            Some(next) => plain.push(next),
            None => plain.push(character),
        }
    }
    plain
}

/// How many of the joined bytes stay when the line continues; `None` when it ends here.
fn continued(joined: &[u8]) -> Option<usize> {
    let line = joined.strip_suffix(b"\n")?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.strip_suffix(b"\\").map(<[u8]>::len)
}

/// The line end of a raw line; empty at the end of a file that has none.
fn end_of(raw: &[u8]) -> &[u8] {
    if raw.ends_with(b"\r\n") {
        b"\r\n"
    } else if raw.ends_with(b"\n") {
        b"\n"
    } else {
        b""
    }
}

/// A raw line as Apache reads it.
fn logical(raw: &[u8]) -> String {
    trimmed(&String::from_utf8_lossy(raw)).to_owned()
}

/// Without the white space that C's isspace knows.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}')
}

/// Takes what was gathered as one line.
fn line(raw: &mut Vec<u8>, joined: &mut Vec<u8>, number: u32, number_last: u32, is_cut: bool) -> Line {
    let text = trimmed(&String::from_utf8_lossy(joined)).to_owned();
    joined.clear();
    Line { raw: std::mem::take(raw), text, number, number_last, is_cut }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(input: &str) -> Vec<(u32, u32, String)> {
        let document = Document::parse(input.as_bytes());
        document.lines.into_iter().map(|line| (line.number, line.number_last, line.text)).collect()
    }

    #[test]
    fn lines_join_as_apache_joins_them() {
        for (input, expected) in [
            ("A 1\nB 2", vec![(1, 1, "A 1"), (2, 2, "B 2")]),
            ("A \\\n  1\nB\n", vec![(1, 2, "A   1"), (3, 3, "B")]),
            ("# c \\\nA 1\r\nB\r\n", vec![(1, 2, "# c A 1"), (3, 3, "B")]),
            ("A \\\r\n1\r\n", vec![(1, 2, "A 1")]),
            ("A \\", vec![(1, 1, "A \\")]),
            ("A \\\n", vec![(1, 1, "A")]),
            // Two backslashes: the first remains, and joins once more with an empty line.
            ("A\\\\\n\nB\n", vec![(1, 3, "AB")]),
            ("\\\nA\n", vec![(1, 2, "A")]),
            ("", vec![]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(a, b, text)| (a, b, text.to_owned())).collect();
            assert_eq!(texts(input), expected, "{input:?}");
        }
    }

    #[test]
    fn words_are_cut_as_apache_cuts_them() {
        for (input, expected) in [
            (r#"a "b c" d"#, vec!["a", "b c", "d"]),
            (r#""a \" b" 'c\'d'"#, vec![r#"a " b"#, "c'd"]),
            (r"C:\\dir a\b", vec![r"C:\dir", r"a\b"]),
            (r#""open"#, vec!["open"]),
            (r#""a"b"#, vec!["a", "b"]),
            ("  ", vec![]),
            ("\"\" x", vec!["", "x"]),
        ] {
            assert_eq!(words(input), expected, "{input:?}");
        }
    }

    #[test]
    fn statements_are_told_apart() {
        let open = |name: &str, arguments: &str, closed| Statement::Open {
            name: name.into(),
            arguments: arguments.into(),
            closed,
        };
        for (text, expected) in [
            ("", Statement::Blank),
            ("# <VirtualHost>", Statement::Comment),
            ("<IfModule !mod_ssl.c>", open("IfModule", "!mod_ssl.c", true)),
            ("<Else>", open("Else", "", true)),
            ("<Location \"/a>b\" >", open("Location", "\"/a>b\"", true)),
            ("<Directory /x", open("Directory", "/x", false)),
            ("</IfModule>", Statement::Close { name: "IfModule".into() }),
            (
                "Listen  80 https",
                Statement::Directive { name: "Listen".into(), arguments: "80 https".into() },
            ),
        ] {
            assert_eq!(statement(text), expected, "{text}");
        }
    }

    #[test]
    fn one_line_changes_and_the_rest_stays() {
        for (input, number, arguments, expected) in [
            ("a 1\n\tMaxClients  5\nb 2\n", 2, "10", "a 1\n\tMaxClients  10\nb 2\n"),
            ("MaxClients \\\r\n  5\r\nb", 2, "10", "MaxClients 10\r\nb"),
            ("MaxClients\\\n 5\nb", 2, "10", "MaxClients 10\nb"),
            ("KeepAlive On", 1, "Off", "KeepAlive Off"),
        ] {
            let mut document = Document::parse(input.as_bytes());
            assert!(document.set_arguments(number, arguments), "{input:?}");
            assert_eq!(String::from_utf8(document.render()).unwrap(), expected);
        }
        let mut document = Document::parse(b"# only a comment\n<If x>\n");
        assert!(!document.set_arguments(1, "x") && !document.set_arguments(2, "x"));
        assert!(!document.set_arguments(9, "x"));
    }

    #[test]
    fn appending_keeps_the_line_ends_of_the_file() {
        for (input, expected) in [("a 1", "a 1\nb 2\n"), ("a 1\r\n", "a 1\r\nb 2\r\n"), ("", "b 2\n")] {
            let mut document = Document::parse(input.as_bytes());
            document.append("b 2\n");
            assert_eq!(String::from_utf8(document.render()).unwrap(), expected, "{input:?}");
        }
    }

    proptest! {
        // Whatever the bytes are, parsing and rendering gives them back.
        #[test]
        fn render_of_parse_is_identity(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(Document::parse(&bytes).render(), bytes);
        }

        // The same with the characters that mean something, which random bytes seldom hit.
        #[test]
        fn render_of_parse_is_identity_for_configurations(text in "([ \\t\\\\\r\n\"'#<>/${}A]|Listen|</IfModule>|<If){0,60}") {
            let document = Document::parse(text.as_bytes());
            prop_assert_eq!(document.render(), text.as_bytes());
            for line in &document.lines {
                if let Statement::Directive { arguments, .. } = line.statement() {
                    words(&arguments);
                }
            }
        }

        // A changed parameter reads back, and no byte changes but those of its value: however it is quoted, continued and surrounded.
        #[test]
        fn a_set_parameter_changes_nothing_else(
            indent in "[ \t]{0,3}",
            head in "ProxyPass( |\t)(\\\\\r?\n)?( |\t)*/a( |\t)(\\\\\r?\n)?( |\t)*http://h:1/",
            before in "(( |\t)(\\\\\r?\n)?( |\t)*(retry=4|smax=4|\"a max=4\"|ttl=\"4\"|flushpackets=on)){0,4}",
            gap in "( |\t)(\\\\\r?\n)?( |\t)*",
            quote in "[\"']?",
            after in "(( |\t)(\\\\\r?\n)?( |\t)*(timeout=4|min=4|'4 max=4')){0,4}( |\t)*",
            to in 1..10_000_u32,
        ) {
            let around = |value: &str| {
                let word = format!("{quote}max={value}{quote}");
                format!("# max=4 \\\n max=4\nMaxClients 4\n{indent}{head}{before}{gap}{word}{after}\nBalancerMember http://h:1 max=4\n")
            };
            let text = around("4");
            let mut document = Document::parse(text.as_bytes());
            let line = document.lines.iter().find(|line| line.text.starts_with("ProxyPass")).map(|line| line.number_last);
            prop_assert!(document.set_parameter(line.unwrap(), "max", ("4", &to.to_string())), "{}", text);
            prop_assert_eq!(String::from_utf8(document.render()).unwrap(), around(&to.to_string()));
        }

        // A changed value reads back, and no other line changes.
        #[test]
        fn a_set_value_reads_back(before in "([a-z]{1,8} [a-z0-9]{1,8}(\r)?\n){0,5}", after in "([a-z]{1,8} [0-9]{1,4}\n){0,5}", value in 0..100_000_u32) {
            let text = format!("{before}  ServerLimit  7\n{after}");
            let mut document = Document::parse(text.as_bytes());
            let number = before.matches('\n').count() as u32 + 1;
            prop_assert!(document.set_arguments(number, &value.to_string()));
            prop_assert_eq!(document.render(), format!("{before}  ServerLimit  {value}\n{after}").into_bytes());
        }
    }
}
