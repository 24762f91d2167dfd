//! Attributes of HTML elements, found by CSS selectors in one pass that ends with the last one found.

use lol_html::{ElementContentHandlers, HtmlRewriter, MemorySettings, Selector, Settings};
use std::borrow::Cow;
use std::cell::RefCell;
use webdyno_model::{Result, UserError};

/// Memory for one document: its open elements, mostly.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Attributes that are looked for.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<(Selector, String)>);

impl Attributes {
    /// One more; returns its place. A usage error for an invalid selector.
    pub(super) fn add(&mut self, selector: &str, attribute: &str) -> Result<usize> {
        let parsed: Selector = selector.parse().map_err(|problem| {
            UserError::usage(format!("`{selector}` is no CSS selector that can be used: {problem}"))
                .hint("as in `form#login input[name=csrf]`; `+`, `~` and most pseudo-classes cannot be used")
        })?;
        if attribute.is_empty() || attribute.contains(|c: char| c.is_whitespace() || "\"'>/=".contains(c)) {
            return Err(UserError::usage(format!("`{attribute}` cannot be the name of an attribute")));
        }
        self.0.push((parsed, attribute.to_ascii_lowercase()));
        Ok(self.0.len() - 1)
    }

    /// The value of each in a document; `None` for one whose selector matches nothing, or whose first match lacks it.
    pub(super) fn extract(&self, body: &[u8]) -> Vec<Option<String>> {
        if self.0.is_empty() {
            return vec![];
        }
        // Outer: whether the selector matched; inner: its attribute.
        let found: RefCell<Vec<Option<Option<String>>>> = RefCell::new(vec![None; self.0.len()]);
        let mut settings = Settings::new()
            .with_strict(false)
            .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MEMORY_BYTES_MAX));
        for (place, (selector, attribute)) in self.0.iter().enumerate() {
            let found = &found;
            let handler = ElementContentHandlers::default().element(
                move |element: &mut lol_html::html_content::Element<'_, '_>| {
                    let mut found = found.borrow_mut();
                    if let Some(open @ None) = found.get_mut(place) {
                        *open = Some(element.get_attribute(attribute).map(decoded));
                    }
                    if found.iter().all(Option::is_some) { Err("all were found".into()) } else { Ok(()) }
                },
            );
            settings = settings.append_element_content_handler((Cow::Borrowed(selector), handler));
        }
        let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
        // An error ends the search: all were found, or the document is more than can be held.
        let _ = rewriter.write(body).and_then(|()| rewriter.end());
        found.into_inner().into_iter().map(Option::flatten).collect()
    }
}

/// The value of an attribute as it is written: its character references stand for characters, and NUL for U+FFFD (HTML
/// standard, 13.2.5.36 to 38).
pub(crate) fn decoded(value: String) -> String {
    let value = if value.contains('\0') { value.replace('\0', "\u{fffd}") } else { value };
    match htmlize::unescape_attribute(&value) {
        Cow::Borrowed(_) => value,
        Cow::Owned(decoded) => decoded,
    }
}
