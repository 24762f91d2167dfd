//! The syntax of nginx's configuration: directives that end in `;`, or hold a block.
//!
//! Facts: ngx_conf_read_token in src/core/ngx_conf_file.c of nginx 1.27: words are divided by blanks; a quote counts at the
//! begin of a word, a backslash takes the next character as it is, `#` at the begin of a word comments the rest of the
//! line, `${` in a word is a variable. The backslash goes before quotes and itself, `\t`, `\r` and `\n` are what C means, and
//! before anything else it stays. A block of lua (`.._by_lua_block`) is lua up to its last brace, and skipped.

use std::ops::Range;
use std::rc::Rc;

/// How deep blocks may nest.
const DEPTH_MAX: usize = 64;

/// Most directives of one file.
const DIRECTIVES_MAX: usize = 200_000;

/// A directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// `listen`.
    pub name: String,
    /// The words behind the name, quotes taken off.
    pub words: Vec<String>,
    /// Its line, from 1.
    pub line: u32,
    /// Its bytes in the text: from its name to behind its `;`, or behind the `{` that opens its block.
    pub span: Range<usize>,
    /// What stands in its braces, or in the files that it includes.
    pub block: Option<Rc<Vec<Self>>>,
}

/// Reads a file: its directives, and what is wrong with it, each with its line. Goes on behind what is wrong where that can
/// be told.
pub fn parse(text: &str) -> (Vec<Directive>, Vec<(u32, String)>) {
    let mut parser =
        Parser { rest: text.char_indices().peekable(), text, line: 1, count: 0, problems: vec![] };
    let directives = parser.block(0);
    (directives, parser.problems)
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::CharIndices<'a>>,
    text: &'a str,
    line: u32,
    count: usize,
    problems: Vec<(u32, String)>,
}

/// What ends a directive.
#[derive(Debug, PartialEq)]
enum End {
    Semicolon,
    Open,
    Close,
    File,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        let (_, c) = self.rest.next()?;
        self.line += u32::from(c == '\n');
        Some(c)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().map(|(_, c)| *c)
    }

    /// The directives up to the brace that closes the block, or to the end of the file.
    fn block(&mut self, depth: usize) -> Vec<Directive> {
        let mut found = vec![];
        loop {
            let (words, (line, start), end) = self.words();
            let span = start..self.at();
            let mut words = words.into_iter();
            let name = words.next();
            if end == End::Open && depth >= DEPTH_MAX {
                self.problems.push((line, format!("blocks nest more than {DEPTH_MAX} deep")));
                self.skip_rest();
                return found;
            }
            let block = (end == End::Open).then(|| match &name {
                Some(name) if name.ends_with("_by_lua_block") => {
                    self.skip_lua();
                    Rc::default()
                }
                _ => Rc::new(self.block(depth + 1)),
            });
            match (name, &end) {
                (Some(name), End::Semicolon | End::Open) => {
                    found.push(Directive { name, words: words.collect(), line, span, block });
                }
                (Some(name), _) => self.problems.push((line, format!("`{name}` is not ended by `;`"))),
                (None, End::Open) => self.problems.push((line, "a block without a name".into())),
                (None, _) => {}
            }
            self.count += 1;
            match end {
                End::Close if depth == 0 => {
                    self.problems.push((self.line, "a `}` that closes nothing".into()))
                }
                End::Close => return found,
                End::File if depth > 0 => {
                    self.problems.push((self.line, "the file ends within a block".into()));
                    return found;
                }
                End::File => return found,
                _ if self.count > DIRECTIVES_MAX => {
                    self.problems.push((self.line, format!("more than {DIRECTIVES_MAX} directives")));
                    self.skip_rest();
                    return found;
                }
                _ => {}
            }
        }
    }

    fn skip_rest(&mut self) {
        while self.next().is_some() {}
    }

    /// How many bytes were read.
    fn at(&mut self) -> usize {
        self.rest.peek().map_or(self.text.len(), |(at, _)| *at)
    }

    /// The words of one directive, line and byte of the first one, and what ends them.
    fn words(&mut self) -> (Vec<String>, (u32, usize), End) {
        let mut words = vec![];
        let mut line = (self.line, 0);
        loop {
            match self.peek() {
                None => return (words, line, End::File),
                Some(';') => {
                    self.next();
                    return (words, line, End::Semicolon);
                }
                Some('{') => {
                    self.next();
                    return (words, line, End::Open);
                }
                Some('}') => {
                    self.next();
                    return (words, line, End::Close);
                }
                Some('#') => while self.next().is_some_and(|c| c != '\n') {},
                Some(c) if c.is_ascii_whitespace() => drop(self.next()),
                Some(c) => {
                    if words.is_empty() {
                        line = (self.line, self.at());
                    }
                    words.push(if matches!(c, '"' | '\'') { self.quoted(c) } else { self.word() });
                }
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek() {
            let in_variable = c == '{' && word.ends_with('$');
            if c.is_ascii_whitespace() || c == ';' || (c == '{' && !in_variable) {
                break;
            }
            self.next();
            match c {
                '\\' => self.escaped(&mut word),
                _ => word.push(c),
            }
        }
        word
    }

    /// What follows a backslash, in quotes and without: before what means nothing there the backslash stays.
    fn escaped(&mut self, word: &mut String) {
        match self.next() {
            Some(next @ ('"' | '\'' | '\\')) => word.push(next),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            other => {
                word.push('\\');
                word.extend(other);
            }
        }
    }

    fn quoted(&mut self, quote: char) -> String {
        let begun = self.line;
        self.next();
        let mut word = String::new();
        while let Some(c) = self.next() {
            if c == quote {
                return word;
            }
            match c {
                '\\' => self.escaped(&mut word),
                _ => word.push(c),
            }
        }
        self.problems.push((begun, "a quote that is not closed".into()));
        word
    }

    /// Skips lua up to the brace that closes its block: braces in strings and comments do not count.
    fn skip_lua(&mut self) {
        let begun = self.line;
        let mut depth = 1;
        while let Some(c) = self.next() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                '"' | '\'' => self.skip_lua_string(c),
                '-' if self.peek() == Some('-') => self.skip_lua_comment(),
                '[' => drop(self.skip_long_bracket()),
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
        self.problems.push((begun, "a block of lua that is not closed".into()));
    }

    fn skip_lua_string(&mut self, quote: char) {
        while let Some(c) = self.next() {
            if c == '\\' {
                self.next();
            } else if c == quote || c == '\n' {
                return;
            }
        }
    }

    fn skip_lua_comment(&mut self) {
        self.next();
        if self.peek() == Some('[') {
            self.next();
            if self.skip_long_bracket() {
                return;
            }
        }
        while self.peek().is_some_and(|c| c != '\n') {
            self.next();
        }
    }

    /// Behind a `[`: skips `[..]` and `=[..]=]`, long strings and comments; false when it is none.
    fn skip_long_bracket(&mut self) -> bool {
        let at = self.rest.peek().map_or(self.text.len(), |(at, _)| *at);
        let behind = &self.text[at..];
        let level = behind.len() - behind.trim_start_matches('=').len();
        if !behind[level..].starts_with('[') {
            return false;
        }
        let close = format!("]{}]", "=".repeat(level));
        let end = behind.find(&close).map_or(self.text.len(), |end| at + end + close.len());
        while self.rest.peek().is_some_and(|(at, _)| *at < end) {
            self.next();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As text again: blocks in braces.
    fn shown(directives: &[Directive]) -> String {
        let one = |directive: &Directive| {
            let words = [std::slice::from_ref(&directive.name), &directive.words].concat().join("|");
            match &directive.block {
                Some(block) => format!("{words}{{{}}}", shown(block)),
                None => format!("{words};"),
            }
        };
        directives.iter().map(one).collect()
    }

    fn check(text: &str, expected: &str, problems: &[&str]) {
        let (directives, found) = parse(text);
        assert_eq!(shown(&directives), expected, "{text}");
        assert_eq!(found.len(), problems.len(), "{text}: {found:?}");
        for (problem, (_, found)) in problems.iter().zip(&found) {
            assert!(found.contains(problem), "{found}");
        }
    }

    #[test]
    fn directives_and_blocks_are_read() {
        check(
            "user www-data;\nevents { worker_connections 768; }",
            "user|www-data;events{worker_connections|768;}",
            &[],
        );
        check("a 'b c' \"d;e\" f#g; # h;\ni;", "a|b c|d;e|f#g;i;", &[]);
        check("root ${base}/x;", "root|${base}/x;", &[]);
        check("location ~ \\.php$ { }", "location|~|\\.php${}", &[]);
        check("a \"x\\\"y\";", "a|x\"y;", &[]);
        check("a 'x\\\"y\\tz\\d' b\\t\\;c\\\\;", "a|x\"y\tz\\d|b\t\\;c\\;", &[]);
        check("http{server{listen 80;}}", "http{server{listen|80;}}", &[]);
        let (directives, _) = parse("a\n  b;\n\n# c\nd {\n  e; }");
        let lines = (directives[0].line, directives[1].line, directives[1].block.as_ref().unwrap()[0].line);
        assert_eq!(lines, (1, 5, 6));
        let text = "é a; # b\n c 'x;y' ;d\t{ e f; }";
        let (directives, _) = parse(text);
        let inner = &directives[2].block.as_ref().unwrap()[0];
        let spans = directives.iter().chain([inner]).map(|one| &text[one.span.clone()]).collect::<Vec<_>>();
        assert_eq!(spans, ["é a;", "c 'x;y' ;", "d\t{", "e f;"]);
    }

    #[test]
    fn lua_is_skipped() {
        let lua = "content_by_lua_block {\n local t = { a = '}' } -- }\n --[[ } ]] x = [==[ } ]==] y = \"\\\"}\"\n}\nb;";
        check(lua, "content_by_lua_block{}b;", &[]);
        check("x_by_lua_block { {", "x_by_lua_block{}", &["lua that is not closed"]);
    }

    #[test]
    fn what_is_wrong_is_told_and_the_rest_read() {
        check("a b", "", &["`a` is not ended"]);
        check("a { b;", "a{b;}", &["ends within a block"]);
        check("} a;", "a;", &["closes nothing"]);
        check("a { b } c;", "a{}c;", &["`b` is not ended"]);
        check("a \"b; c;", "", &["quote that is not closed", "`a` is not ended"]);
        check("{ a; } b;", "b;", &["a block without a name"]);
        let deep = "a {".repeat(100);
        assert!(parse(&deep).1.iter().any(|(_, message)| message.contains("more than 64 deep")));
    }

    proptest! {
        // Any text: directives with lines of it, or problems, and an end.
        #[test]
        fn any_text_is_survived(text in "[a-z{};#\"'$\\\\\\[\\]=\n -]{0,200}", lua in any::<bool>()) {
            let text = if lua { format!("x_by_lua_block {{{text}") } else { text };
            let (directives, problems) = parse(&text);
            let lines = text.lines().count() as u32 + 1;
            prop_assert!(directives.iter().all(|directive| directive.line <= lines));
            prop_assert!(problems.iter().all(|(line, _)| *line <= lines));
            prop_assert!(directives.iter().all(|one| text[one.span.clone()].starts_with(&one.name)
                || text[one.span.clone()].contains(['"', '\'', '\\'])));
        }

        // What is written from words is read as these words.
        #[test]
        fn written_is_read(words in prop::collection::vec("[a-z0-9/._$:;{} #-]{1,12}", 1..6)) {
            let text = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" ") + ";";
            let (directives, problems) = parse(&text);
            prop_assert_eq!(problems, vec![]);
            prop_assert_eq!(&directives[0].name, &words[0]);
            prop_assert_eq!(&directives[0].words[..], &words[1..]);
        }
    }
}
