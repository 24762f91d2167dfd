//! What a page embeds: the URLs that a browser asks for because a document, or a style sheet, names them.
//!
//! The browser that is meant is one with scripts on, 1280 by 720 pixels at density 1, that knows the formats which all
//! current browsers know. Elements are parsed by `lol_html` and styles by `cssparser`; which of them fetch, and which
//! candidate, is defined by the HTML standard (2.4.3 URLs, 4.2.4 link, 4.8 embedded content, 4.12.1 script), CSS
//! Cascade (`@import`), CSS Fonts (`src`) and CSS Images (`image-set`), and was compared with Chromium (the fixtures
//! beside the tests).
//!
//! There is no layout and no script here. Images of styles are found whether an element uses them or not, unlike in a
//! browser; images that come into view later (`loading=lazy`) are found, as are frames, but not what scripts add, nor
//! the data of `audio` and `video`, which come in parts, nor a `/favicon.ico` that nothing names.

mod css;
mod html;
mod media;
mod media_types;
mod srcset;

pub(crate) use css::css;
pub(crate) use html::html;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use url::Url;

/// Most URLs that one document or style sheet may name; the others are left out, and its page is incomplete.
pub(crate) const FOUND_MAX: usize = 4096;
/// Longest URL that is used; no server accepts more (the default of Apache's `LimitRequestLine` is 8190).
const URL_BYTES_MAX: usize = 16 << 10;

/// What a resource is fetched as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    /// Its own URLs are found by [`css()`].
    StyleSheet,
    /// A script or module.
    Script,
    /// An image of an element or a style.
    Image,
    /// An icon of the page.
    Icon,
    /// A font of a style.
    Font,
    /// A document within: its own URLs are found by [`html()`].
    Frame,
    /// Anything else, as data that scripts want early.
    Other,
}

/// A resource that a document or style sheet fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundUrl {
    /// Where: `http` or `https`, without fragment.
    pub(crate) url: Url,
    pub(crate) kind: ResourceKind,
}

/// What was found so far, each URL once, in the order of the fetches.
#[derive(Debug)]
struct FoundUrls {
    base: Url,
    found: Vec<FoundUrl>,
    /// The index of each; [`usize::MAX`] for the document itself.
    places: HashMap<Url, usize>,
}

impl FoundUrls {
    fn new(document: &Url) -> Self {
        let mut own = document.clone();
        own.set_fragment(None);
        Self { base: document.clone(), found: vec![], places: [(own, usize::MAX)].into() }
    }

    /// Notes a reference as it is written in an attribute or a style.
    fn add(&mut self, reference: &str, kind: ResourceKind) {
        let reference = reference.trim_matches(|c: char| c <= ' ');
        if reference.is_empty() || reference.len() > URL_BYTES_MAX || self.found.len() >= FOUND_MAX {
            return;
        }
        let Ok(mut url) = self.base.join(reference) else { return };
        // Browsers block credentials in URLs of what a page embeds (Fetch standard, 4.1).
        let credentials = !url.username().is_empty() || url.password().is_some();
        if !matches!(url.scheme(), "http" | "https") || credentials {
            return;
        }
        url.set_fragment(None);
        match self.places.entry(url) {
            Entry::Vacant(place) => {
                self.found.push(FoundUrl { url: place.key().clone(), kind });
                place.insert(self.found.len() - 1);
            }
            Entry::Occupied(place) => {
                // A style sheet that was preloaded is still one when it is used.
                if let Some(found) = self.found.get_mut(*place.get())
                    && kind == ResourceKind::StyleSheet
                {
                    found.kind = kind;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
