//! A document that is well-formed and escaped by construction: tags close with their closure, text and attribute values
//! have no way in but through the escape. What comes out is valid as HTML and as XML (WHATWG HTML 14, "The XML
//! syntax"; XML 1.0, 2.2 for the characters that may occur).

/// Attributes by name.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a str)];

/// A growing document.
#[derive(Default)]
pub(super) struct Markup {
    out: String,
}

impl Markup {
    /// The finished document.
    pub(super) fn finish(self) -> String {
        self.out
    }

    /// The first line of every HTML document.
    pub(super) fn doctype(&mut self) {
        self.out.push_str("<!DOCTYPE html>\n");
    }

    /// The style sheet: a constant of this crate, the only text that is written as it is. It holds no `<` and no `&`.
    pub(super) fn style(&mut self, css: &'static str) {
        self.out.push_str("<style>\n");
        self.out.push_str(css);
        self.out.push_str("</style>\n");
    }

    /// An element with what the closure writes in it.
    pub(super) fn element(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        fill: impl FnOnce(&mut Self),
    ) {
        self.open(tag, attributes);
        fill(self);
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push('>');
        if is_block(tag) {
            self.out.push('\n');
        }
    }

    /// An element with text.
    pub(super) fn text_element(&mut self, tag: &'static str, text: &str) {
        self.text_element_with(tag, &[], text);
    }

    /// An element with attributes and text.
    pub(super) fn text_element_with(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.element(tag, attributes, |m| m.text(text));
    }

    /// An element that never has content (`meta`, `line`, `path`, ...).
    pub(super) fn empty(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.open(tag, attributes);
        self.out.pop();
        self.out.push_str("/>\n");
    }

    /// Text, escaped.
    pub(super) fn text(&mut self, text: &str) {
        escape(&mut self.out, text);
    }

    fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            self.out.push(' ');
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape(&mut self.out, value);
            self.out.push('"');
        }
        self.out.push('>');
    }
}

fn is_block(tag: &str) -> bool {
    !matches!(tag, "a" | "b" | "code" | "span" | "td" | "th" | "tspan" | "em" | "strong")
}

fn escape(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            // Neither XML nor HTML may hold control characters; the last two are not characters at all.
            _ if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            // They could make a line read as another one (UAX #9).
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Invariant: whatever text and attribute values are, an XML parser reads them back, controls replaced.
        #[test]
        fn any_text_survives(text in any::<String>(), value in any::<String>()) {
            let mut markup = Markup::default();
            markup.text_element_with("p", &[("title", &value)], &text);
            let out = markup.finish();
            let document = roxmltree::Document::parse(&out).unwrap();
            let root = document.root_element();
            prop_assert!(root.children().all(|child| child.is_text()));
            let mut controls_replaced = String::new();
            escape(&mut controls_replaced, &text);
            prop_assert_eq!(root.text().unwrap_or_default().is_empty(), controls_replaced.is_empty());
            if !text.chars().any(|c| c.is_control() || ('\u{202a}'..='\u{2069}').contains(&c) || c >= '\u{fffe}') {
                prop_assert_eq!(root.text().unwrap_or_default(), text.as_str());
            }
        }
    }
}
