//! The syntax of lighttpd's configuration: values, and blocks that hold under a condition.
//!
//! Facts: <https://redmine.lighttpd.net/projects/lighttpd/wiki/Docs_Configuration>, and configparser.y of lighttpd 1.4.69:
//! `key = value`, `key += value`, `key := value`; a value is a text in quotes, a number, a list in parentheses, another key,
//! or several of them joined by `+`; `$HTTP["host"] == "x" { .. } else { .. }`; `include`, `include_shell`; `#` comments.

/// How deep blocks and lists may nest.
const DEPTH_MAX: usize = 32;

/// Most statements of one file.
const STATEMENTS_MAX: usize = 100_000;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// In quotes.
    Text(String),
    /// A whole number.
    Number(i64),
    /// `( "key" => value, value )`.
    List(Vec<(Option<String>, Self)>),
    /// What another key stands for, and whatever else is known only to lighttpd.
    Other,
}

impl Value {
    /// As text, where it is a text or a number.
    pub fn plain(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The value of a key of a list.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::List(items) = self else { return None };
        items.iter().find(|(known, _)| known.as_deref() == Some(key)).map(|(_, value)| value)
    }
}

/// What a statement does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `key = value`; whether it is added to what is there (`+=`).
    Set(String, Value, bool),
    /// `include "pattern"`.
    Include(Value),
    /// `include_shell "command"`: is not run.
    Shell,
    /// A block, and its condition in words.
    Block(String, Vec<Statement>),
}

/// A statement with its line, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Its line.
    pub line: u32,
    /// What it does.
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    /// `=`, `=>`, `+=`, `(`, `{`, `==` and so on.
    Sign(&'static str),
}

/// Signs, the longer ones before those that they begin with.
const SIGNS: [&str; 21] = [
    "=>", "==", "=~", "=^", "=$", "!=", "!~", "+=", ":=", "=", "+", "(", ")", "{", "}", "[", "]", ",", "$",
    "!", ":",
];

fn tokens(text: &str) -> Vec<(u32, Token)> {
    let mut found = vec![];
    let mut rest = text;
    let mut line = 1;
    while let Some(c) = rest.chars().next() {
        if c == '#' {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if c == '"' {
            let (text, length) = quoted(rest);
            found.push((line, Token::Text(text)));
            line += rest[..length].matches('\n').count() as u32;
            rest = &rest[length..];
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            found.push((line, Token::Sign(sign)));
            rest = &rest[sign.len()..];
        } else if c.is_whitespace() {
            line += u32::from(c == '\n');
            rest = &rest[c.len_utf8()..];
        } else {
            let is_part = |c: char| c.is_alphanumeric() || "._-".contains(c);
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len()).max(c.len_utf8());
            found.push((line, Token::Word(rest[..end].to_owned())));
            rest = &rest[end..];
        }
    }
    found
}

/// A text in quotes, and how long it is with them.
fn quoted(text: &str) -> (String, usize) {
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (content, at + 1),
            '\\' => match chars.next() {
                Some((_, next @ ('"' | '\\'))) => content.push(next),
                Some((_, next)) => content.extend(['\\', next]),
                None => {}
            },
            _ => content.push(c),
        }
    }
    (content, text.len())
}

/// Reads a file: its statements, and what is wrong with it, each with its line. Goes on behind what is wrong.
pub fn parse(text: &str) -> (Vec<Statement>, Vec<(u32, String)>) {
    let tokens = tokens(text);
    let mut parser = Parser { tokens: &tokens, at: 0, count: 0, problems: vec![] };
    let statements = parser.block(0);
    (statements, parser.problems)
}

struct Parser<'a> {
    tokens: &'a [(u32, Token)],
    at: usize,
    count: usize,
    problems: Vec<(u32, String)>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(line, _)| *line)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(is_it);
        is_it
    }

    fn block(&mut self, depth: usize) -> Vec<Statement> {
        let mut found = vec![];
        while let Some(token) = self.peek().cloned() {
            let line = self.line();
            self.count += 1;
            if self.count > STATEMENTS_MAX || depth > DEPTH_MAX {
                self.problems.push((line, "more statements than are read, or deeper".into()));
                self.at = self.tokens.len();
                return found;
            }
            self.at += 1;
            let kind = match token {
                Token::Sign("}") if depth > 0 => return found,
                Token::Sign("$") => self.condition(depth),
                Token::Word(word) => self.statement(word, depth),
                Token::Sign(_) | Token::Text(_) => None,
            };
            match kind {
                Some(kind) => found.push(Statement { line, kind }),
                None => {
                    self.problems.push((line, "this is no statement".into()));
                    self.skip_line(line);
                }
            }
        }
        if depth > 0 {
            self.problems.push((self.line(), "the file ends within a block".into()));
        }
        found
    }

    /// Goes on with the next line.
    fn skip_line(&mut self, line: u32) {
        while self.tokens.get(self.at).is_some_and(|(found, _)| *found == line) {
            self.at += 1;
        }
    }

    fn statement(&mut self, word: String, depth: usize) -> Option<Kind> {
        match word.as_str() {
            "include" => return self.value(0).map(Kind::Include),
            "include_shell" => return self.value(0).map(|_| Kind::Shell),
            "else" | "elseif" | "elsif" | "if" => {
                if self.takes("$") {
                    return self.condition(depth);
                }
                return self.braces("else".into(), depth);
            }
            "global" => return self.braces("global".into(), depth),
            _ => {}
        }
        let adds = self.takes("+=");
        if !adds && !self.takes("=") && !self.takes(":=") {
            return None;
        }
        Some(Kind::Set(word, self.value(0)?, adds))
    }

    fn braces(&mut self, label: String, depth: usize) -> Option<Kind> {
        self.takes("{").then(|| Kind::Block(label, self.block(depth + 1)))
    }

    /// Behind a `$`: `HTTP["host"] == "x" {`.
    fn condition(&mut self, depth: usize) -> Option<Kind> {
        let mut label = "$".to_owned();
        loop {
            match self.peek()?.clone() {
                Token::Sign("{") => return self.braces(label, depth),
                Token::Sign("}") => return None,
                Token::Word(word) => label += &word,
                Token::Text(text) => label += &format!("\"{text}\""),
                Token::Sign(sign @ ("[" | "]" | "$")) => label += sign,
                Token::Sign(sign) => label += &format!(" {sign} "),
            }
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let mut value = self.operand(depth)?;
        while self.takes("+") {
            value = match (value, self.operand(depth)?) {
                (Value::List(mut items), Value::List(more)) => {
                    items.extend(more);
                    Value::List(items)
                }
                (first, second) => match (first.plain(), second.plain()) {
                    (Some(first), Some(second)) => Value::Text(first + &second),
                    _ => Value::Other,
                },
            };
        }
        Some(value)
    }

    fn operand(&mut self, depth: usize) -> Option<Value> {
        let token = self.peek()?.clone();
        self.at += 1;
        match token {
            Token::Text(text) => Some(Value::Text(text)),
            Token::Word(word) => Some(word.parse().map_or(Value::Other, Value::Number)),
            Token::Sign("(") if depth < DEPTH_MAX => self.list(depth + 1),
            Token::Sign(_) => {
                self.at -= 1;
                None
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Value> {
        let mut items = vec![];
        loop {
            if self.takes(")") {
                return Some(Value::List(items));
            }
            if self.takes(",") {
                continue;
            }
            let first = self.value(depth)?;
            match self.takes("=>") {
                true => items.push((first.plain(), self.value(depth)?)),
                false => items.push((None, first)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> (String, Value, bool) {
        let (statements, problems) = parse(text);
        assert_eq!(problems, vec![], "{text}");
        match statements.into_iter().next().unwrap().kind {
            Kind::Set(key, value, adds) => (key, value, adds),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_are_read() {
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(set("server.port = 80 # why"), ("server.port".into(), Value::Number(80), false));
        assert_eq!(set("a = \"b \\\"c\\\" #\""), ("a".into(), text("b \"c\" #"), false));
        assert_eq!(set("a = \"b\" + \"c\""), ("a".into(), text("bc"), false));
        assert_eq!(set("a = var.x + \"c\""), ("a".into(), Value::Other, false));
        let (_, list, adds) =
            set("fastcgi.server += ( \".php\" => (( \"socket\" => \"/run/x\", \"max-procs\" => 1, )) )");
        assert!(adds);
        let Value::List(backends) = list.get(".php").unwrap() else { panic!("{list:?}") };
        assert_eq!(backends[0].1.get("socket"), Some(&text("/run/x")));
        assert_eq!(backends[0].1.get("max-procs"), Some(&Value::Number(1)));
    }

    #[test]
    fn conditions_and_includes_are_read() {
        let (statements, problems) = parse(
            "include \"a/*.conf\"\ninclude_shell \"cmd \" + server.port\n$HTTP[\"host\"] =~ \"^x\" {\n  a = 1\n} else {\n a = 2 }\n",
        );
        assert_eq!(problems, vec![]);
        let kinds: Vec<_> = statements.iter().map(|statement| (statement.line, &statement.kind)).collect();
        assert_eq!(kinds[0], (1, &Kind::Include(Value::Text("a/*.conf".into()))));
        assert_eq!(kinds[1], (2, &Kind::Shell));
        assert!(
            matches!(kinds[2], (3, Kind::Block(label, block)) if label == "$HTTP[\"host\"] =~ \"^x\"" && block[0].line == 4)
        );
        assert!(matches!(kinds[3], (5, Kind::Block(label, _)) if label == "else"));
    }

    #[test]
    fn what_is_wrong_is_told_and_the_rest_read() {
        for (text, message) in [
            ("nonsense here\na = 1\n", "no statement"),
            ("= 3\na = 1\n", "no statement"),
            ("a = 1\n$HTTP[\"x\"] == \"y\" {\nb = 2\n", "ends within a block"),
            ("} \na = 1\n", "no statement"),
            ("b = ( 1, {\na = 1\n", "no statement"),
        ] {
            let (statements, problems) = parse(text);
            assert!(problems.iter().any(|(_, problem)| problem.contains(message)), "{text}: {problems:?}");
            let is_there =
                |statement: &Statement| matches!(&statement.kind, Kind::Set(key, ..) if key == "a");
            assert!(statements.iter().any(is_there), "{text}: {statements:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[a-z=+(){}\\[\\],\"\\\\$!~#> \né-]{0,200}") {
            let (statements, _) = parse(&text);
            let lines = text.lines().count() as u32 + 1;
            prop_assert!(statements.iter().all(|statement| statement.line <= lines));
        }
    }
}
