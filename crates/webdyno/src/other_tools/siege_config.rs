//! What siege reads besides its flags: its resource file (siegerc) and its list of URLs (urls.txt). Pure.

use super::flags::with_scheme;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use webdyno_model::{Result, UserError};

/// A URL that is asked for, with what is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// With its scheme.
    pub url: String,
    /// The method that the line names; GET without one.
    pub method: &'static str,
    /// What is sent, or the file that holds it.
    pub body: Option<TargetBody>,
}

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetBody {
    Text(String),
    File(PathBuf),
}

/// Directives of a resource file: `name = value`, lines that begin with `#` left out; several of a name are kept in order.
pub fn directives(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_ascii_lowercase(), replaced(value.trim(), variable))).collect()
}

/// The lines of a list of URLs: `NAME = VALUE` defines what `$(NAME)` stands for, `URL POST DATA` and `URL POST <FILE` send something.
pub fn targets(text: &str, path: &Path) -> Result<Vec<Target>> {
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    let mut targets = vec![];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((name, value)) = line.split_once('=').filter(|(name, _)| is_name(name.trim())) {
            let value = replaced(value.trim(), &|name| variables.get(name).cloned());
            variables.insert(name.trim().to_owned(), value);
            continue;
        }
        targets.push(target(&replaced(line, &|name| variables.get(name).cloned())));
    }
    if targets.is_empty() {
        return Err(UserError::usage(format!("{} names no URL", path.display()))
            .hint("write one on each line, as in `http://www.example.org/ POST name=value`"));
    }
    Ok(targets)
}

/// A URL with what follows it.
pub fn target(line: &str) -> Target {
    let (url, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (method, data) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    let method =
        ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"].into_iter().find(|known| *known == method);
    let data = data.trim();
    let body = match (method.is_some_and(|method| method.starts_with('P')), data.strip_prefix('<')) {
        (false, _) => None,
        (true, Some(path)) => Some(TargetBody::File(path.trim().into())),
        (true, None) => Some(TargetBody::Text(data.to_owned())),
    };
    Target { url: with_scheme(url), method: method.unwrap_or("GET"), body }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A text with `$(NAME)`, `${NAME}` and `$NAME` replaced; one that is not known stays.
fn replaced(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        done.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let closed = [('(', ')'), ('{', '}')].into_iter().find_map(|(open, close)| {
            let inside = behind.strip_prefix(open)?;
            let end = inside.find(close)?;
            Some((&inside[..end], end + 2))
        });
        let plain = || {
            let end = behind
                .find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
                .unwrap_or(behind.len());
            (&behind[..end], end)
        };
        let (name, length) = closed.unwrap_or_else(plain);
        match variable(name) {
            Some(value) => done.push_str(&value),
            None => done.push_str(&rest[at..at + 1 + length]),
        }
        rest = &behind[length..];
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_variables_bodies_and_comments() {
        let text = "# a list\nHOST = www.example.org\nBASE=http://$(HOST)/shop\n\n$(BASE)/\nwww/a POST b=1&c=$x\n${BASE}/put PUT <./file\n$(BASE)/gone DELETE\n";
        let target = |url: &str, method, body| Target { url: url.into(), method, body };
        assert_eq!(
            targets(text, Path::new("urls.txt")).unwrap(),
            [
                target("http://www.example.org/shop/", "GET", None),
                target("http://www/a", "POST", Some(TargetBody::Text("b=1&c=$x".into()))),
                target("http://www.example.org/shop/put", "PUT", Some(TargetBody::File("./file".into()))),
                target("http://www.example.org/shop/gone", "DELETE", None),
            ]
        );
        assert!(
            targets("# nothing\nA = 1\n", Path::new("urls.txt"))
                .unwrap_err()
                .message
                .contains("urls.txt names no URL")
        );
    }

    #[test]
    fn directives_have_the_environment() {
        let read = directives("# c\nconcurrent = 25\nFile = $HOME/u.txt\nheader = A: b=c\n", &|name| {
            (name == "HOME").then(|| "/root".into())
        });
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read, [pair("concurrent", "25"), pair("file", "/root/u.txt"), pair("header", "A: b=c")]);
    }
}
