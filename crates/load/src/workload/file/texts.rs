//! Texts with `${name}` in them, as the user wrote them: which variables they use, and how they are put into URLs,
//! forms and JSON before the variables have values.

use super::source_span::{FileError, FileResult, SourceSpan};
use url::Url;
use url::form_urlencoded::byte_serialize;

/// The filters after the bar in `${name|filter}`.
const FILTERS: [&str; 4] = ["form", "url", "json", "base64"];

/// A stretch of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// As it is; `$${` has become `${`.
    Literal(&'a str),
    /// `${name}` or `${name|filter}`.
    Variable { name: &'a str, filter: Option<&'a str> },
}

/// The pieces of a text, or the cause of an error.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest) = (vec![], text);
    while let Some(at) = rest.find("${") {
        // In `$${` the second dollar begins the literal `${`.
        if rest[..at].ends_with('$') {
            pieces.push(Piece::Literal(&rest[..at - 1]));
            pieces.push(Piece::Literal("${"));
            rest = &rest[at + 2..];
            continue;
        }
        pieces.push(Piece::Literal(&rest[..at]));
        let inside = &rest[at + 2..];
        let end = inside.find('}').ok_or("`${` has no `}` behind it")?;
        let (name, filter) = match inside[..end].split_once('|') {
            Some((name, filter)) => (name, Some(filter)),
            None => (&inside[..end], None),
        };
        if !is_name(name) {
            return Err(format!("`${{{name}}}` is not the name of a variable"));
        }
        if let Some(filter) = filter.filter(|filter| !FILTERS.contains(filter)) {
            return Err(format!("`{filter}` is not a filter; there is {}", FILTERS.join(", ")));
        }
        pieces.push(Piece::Variable { name, filter });
        rest = &inside[end + 1..];
    }
    pieces.push(Piece::Literal(rest));
    pieces.retain(|piece| *piece != Piece::Literal(""));
    Ok(pieces)
}

/// Whether a variable may be called so.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The same of a text at a place.
pub(super) fn read_pieces(at: SourceSpan, text: &str) -> FileResult<Vec<Piece<'_>>> {
    pieces(text).map_err(|why| {
        FileError::new(at, why)
            .hint("write ${name} or ${name|form}; $${ stands for the two characters themselves")
    })
}

/// Gathers the variables of a request's texts.
#[derive(Default)]
pub(super) struct VariableUses(pub(super) Vec<(String, SourceSpan)>);

impl VariableUses {
    /// Notes the variables of a text, and returns the text.
    pub(super) fn collect<'a>(&mut self, at: SourceSpan, text: &'a str) -> FileResult<&'a str> {
        for piece in read_pieces(at, text)? {
            if let Piece::Variable { name, .. } = piece {
                self.0.push((name.to_owned(), at));
            }
        }
        Ok(text)
    }
}

/// The names of the variables in a text that is known to be right.
#[cfg(test)]
pub(super) fn names(text: &str) -> Vec<&str> {
    let variable = |piece| match piece {
        Piece::Variable { name, .. } => Some(name),
        Piece::Literal(_) => None,
    };
    pieces(text).unwrap_or_default().into_iter().filter_map(variable).collect()
}

/// The text with what stands between the variables changed by `literal`, and variables without a filter given this one.
fn map_literals(text: &str, filter: &str, literal: impl Fn(&str) -> String) -> String {
    let Ok(pieces) = pieces(text) else { return literal(text) };
    let change = |piece: &Piece<'_>| match piece {
        Piece::Literal(text) => escaped(&literal(text)),
        Piece::Variable { name, filter: given } => format!("${{{name}|{}}}", given.unwrap_or(filter)),
    };
    pieces.iter().map(change).collect()
}

/// As a name or value of a form.
pub(super) fn form_text(text: &str) -> String {
    map_literals(text, "form", |literal| byte_serialize(literal.as_bytes()).collect())
}

/// As a text of JSON, with its quotes.
pub(super) fn json_text(text: &str) -> String {
    let inside = |literal: &str| {
        let quoted = serde_json::Value::from(literal).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    format!("\"{}\"", map_literals(text, "json", inside))
}

/// A text in which nothing is to be replaced, as it is written where variables are.
pub(super) fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

/// A text without variables, as it is meant.
pub(super) fn unescaped(text: &str) -> String {
    text.replace("$${", "${")
}

/// A URL in full, without fragment, from the base that it is written against. Variables stay as they are, and so does
/// `$${`; the server must be plain. The error is its cause; a relative URL without a base is `None`.
pub(super) fn full_url(text: &str, base: Option<&Url>) -> Result<Option<String>, String> {
    let pieces = pieces(text)?;
    let is_variable = |piece: &Piece<'_>| matches!(piece, Piece::Variable { .. });
    if pieces.len() == 1 && is_variable(&pieces[0]) {
        return Ok(Some(text.to_owned()));
    }
    // The placeholder of a variable must be of letters and digits, which no part of a URL changes, and occur nowhere
    // else.
    let mut mark = String::from("webdyno0variable");
    while text.to_lowercase().contains(&mark) {
        mark.push('0');
    }
    let stand_in = |index: usize| format!("{mark}x{index}x");
    let (mut plain, mut written) = (String::new(), vec![]);
    for piece in &pieces {
        match piece {
            Piece::Literal(literal) => plain.push_str(literal),
            Piece::Variable { name, filter } => {
                plain.push_str(&stand_in(written.len()));
                written.push(match filter {
                    Some(filter) => format!("${{{name}|{filter}}}"),
                    None => format!("${{{name}}}"),
                });
            }
        }
    }
    let mut url = match (Url::parse(&plain), base) {
        (Ok(url), _) => url,
        (Err(url::ParseError::RelativeUrlWithoutBase), Some(base)) => {
            base.join(&plain).map_err(|error| format!("`{text}` is not a URL: {error}"))?
        }
        (Err(url::ParseError::RelativeUrlWithoutBase), None) => return Ok(None),
        (Err(error), _) => return Err(format!("`{text}` is not a URL: {error}")),
    };
    url.set_fragment(None);
    let authority = &url[..url::Position::BeforePath];
    if authority.contains(&mark) || url.scheme().contains(&mark) {
        return Err(format!("`{text}` has a variable in its server, which must be known before the load"));
    }
    let mut full = escaped(url.as_str());
    for (index, variable) in written.iter().enumerate() {
        full = full.replace(&stand_in(index), variable);
    }
    Ok(Some(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_between_literals() {
        let variable = |name, filter| Piece::Variable { name, filter };
        assert_eq!(
            pieces("a${b}$${c}${d|form}$").unwrap(),
            [
                Piece::Literal("a"),
                variable("b", None),
                Piece::Literal("${"),
                Piece::Literal("c}"),
                variable("d", Some("form")),
                Piece::Literal("$"),
            ]
        );
        for invalid in ["${", "${a", "${}", "${a b}", "${1}", "${a|}", "${a|html}", "${é}", "x${"] {
            assert!(pieces(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn texts_are_encoded_around_their_variables() {
        assert_eq!(form_text("a b&${x}=${y|base64}$${"), "a+b%26${x|form}%3D${y|base64}%24%7B");
        assert_eq!(json_text("say \"${x}\"\n$${"), "\"say \\\"${x|json}\\\"\\n$${\"");
        assert_eq!(unescaped(&escaped("a${b")), "a${b");
    }

    #[test]
    fn urls_are_made_full_around_their_variables() {
        let base = Url::parse("http://h:81/shop/").unwrap();
        for (text, full) in [
            ("/a b", "http://h:81/a%20b"),
            ("item?id=${id}", "http://h:81/shop/item?id=${id}"),
            ("/${a|url}/${b}?x={1}$${", "http://h:81/${a|url}/${b}?x={1}$${"),
            ("https://other/${a}", "https://other/${a}"),
            ("HTTP://Other", "http://other/"),
            ("${next}", "${next}"),
            ("//cdn/x", "http://cdn/x"),
            ("?p=${n}", "http://h:81/shop/?p=${n}"),
        ] {
            assert_eq!(full_url(text, Some(&base)), Ok(Some(full.into())), "{text}");
        }
        assert_eq!(full_url("/a", None), Ok(None));
        for invalid in
            ["http://${host}/", "http://h:${port}/", "${scheme}://h/", "http://a b/", "http://${u}@h/"]
        {
            assert!(full_url(invalid, Some(&base)).is_err(), "{invalid}");
        }
    }
}
