//! Where a page leads to.

use crate::plan::script::capture::decoded;
use lol_html::html_content::Element;
use lol_html::{ElementContentHandlers, HtmlRewriter, MemorySettings, Selector, Settings};
use std::borrow::Cow;
use std::cell::RefCell;
use url::Url;

/// Memory for one document: its open elements, mostly.
const MEMORY_BYTES_MAX: usize = 16 << 20;

#[derive(Default)]
struct Links {
    base: Option<Url>,
    hrefs: Vec<String>,
    /// `meta name=robots content=nofollow`.
    are_closed: bool,
}

/// The links of the document at `url`, in order, each once. One that cannot be read to its end gives what was found before.
pub(super) fn links(body: &[u8], url: &Url) -> Vec<Url> {
    let Ok(selector) = "a[href], area[href], base[href], meta[name]".parse::<Selector>() else {
        return vec![];
    };
    let links = RefCell::new(Links::default());
    let handler = ElementContentHandlers::default().element(|element: &mut Element<'_, '_>| {
        links.borrow_mut().element(element, url);
        Ok(())
    });
    let memory = MemorySettings::new().with_max_allowed_memory_usage(MEMORY_BYTES_MAX);
    let settings = Settings::new().with_strict(false).with_memory_settings(memory);
    let settings = settings.append_element_content_handler((Cow::Borrowed(&selector), handler));
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    let _ = rewriter.write(body).and_then(|()| rewriter.end());
    let found = links.into_inner();
    if found.are_closed {
        return vec![];
    }
    let base = found.base.as_ref().unwrap_or(url);
    let mut all: Vec<Url> = vec![];
    for href in &found.hrefs {
        let Ok(mut link) = base.join(href.trim()) else { continue };
        link.set_fragment(None);
        if matches!(link.scheme(), "http" | "https") && !all.contains(&link) {
            all.push(link);
        }
    }
    all
}

impl Links {
    fn element(&mut self, element: &Element<'_, '_>, url: &Url) {
        let attribute = |name: &str| element.get_attribute(name).map(decoded).unwrap_or_default();
        let has_word = |text: &str, word: &str| {
            text.split([' ', ',', '\t', '\n']).any(|one| one.trim().eq_ignore_ascii_case(word))
        };
        match element.tag_name().as_str() {
            "meta" => {
                let is_of_robots = attribute("name").eq_ignore_ascii_case("robots");
                let content = attribute("content");
                self.are_closed |=
                    is_of_robots && (has_word(&content, "nofollow") || has_word(&content, "none"));
            }
            // The first one counts.
            "base" if self.base.is_none() => self.base = url.join(&attribute("href")).ok(),
            "a" | "area"
                if !has_word(&attribute("rel"), "nofollow") && !element.has_attribute("download") =>
            {
                self.hrefs.push(attribute("href"));
            }
            _ => {}
        }
    }
}
