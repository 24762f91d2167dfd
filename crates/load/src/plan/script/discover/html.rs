//! What a document fetches, element by element.

use super::media_types::{is_font_type, is_image_type, is_script_type, is_style_type};
use super::{FoundUrl, FoundUrls, ResourceKind, css, media, srcset};
use crate::plan::script::capture::decoded;
use lol_html::html_content::{Element, TextChunk};
use lol_html::{ElementContentHandlers, HtmlRewriter, MemorySettings, Selector, Settings};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use url::Url;

/// Memory for one document: its open elements, mostly.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// What the document at `base` fetches, in order. A document that cannot be read to its end, as it is nested too
/// deeply, gives what was found before.
pub(crate) fn html(body: &[u8], base: &Url) -> Vec<FoundUrl> {
    static SELECTORS: OnceLock<Option<(Selector, Selector)>> = OnceLock::new();
    let selectors = SELECTORS.get_or_init(|| Some(("*".parse().ok()?, "style".parse().ok()?)));
    let Some((any, style)) = selectors else { return vec![] };
    let reader = RefCell::new(Reader::new(base));
    let elements = ElementContentHandlers::default().element(|element: &mut Element<'_, '_>| {
        reader.borrow_mut().element(element);
        Ok(())
    });
    let texts = ElementContentHandlers::default().text(|chunk: &mut TextChunk<'_>| {
        reader.borrow_mut().style_text(chunk);
        Ok(())
    });
    let settings = Settings::new()
        .with_strict(false)
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MEMORY_BYTES_MAX))
        .append_element_content_handler((Cow::Borrowed(any), elements))
        .append_element_content_handler((Cow::Borrowed(style), texts));
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    let _ = rewriter.write(body).and_then(|()| rewriter.end());
    reader.into_inner().end()
}

/// What was read so far.
struct Reader {
    finds: FoundUrls,
    base_seen: bool,
    /// How many `template` elements are open: what they hold is not part of the document.
    templates: Rc<Cell<u32>>,
    /// Whether a `picture` is open, and what its sources gave.
    in_picture: Rc<Cell<bool>>,
    picture_source: Option<String>,
    /// The icon that counts: the last one (HTML standard, 4.6.6.8).
    icon: Option<String>,
    /// The content of the open `style` element, when it counts.
    style: Option<String>,
}

/// An attribute as [`decoded`]; empty ones are as good as none here.
fn attribute(element: &Element<'_, '_>, name: &str) -> Option<String> {
    element.get_attribute(name).filter(|value| !value.is_empty()).map(decoded)
}

impl Reader {
    fn new(base: &Url) -> Self {
        Self {
            finds: FoundUrls::new(base),
            base_seen: false,
            templates: Rc::default(),
            in_picture: Rc::default(),
            picture_source: None,
            icon: None,
            style: None,
        }
    }

    fn end(mut self) -> Vec<FoundUrl> {
        if let Some(icon) = self.icon.take() {
            self.finds.add(&icon, ResourceKind::Icon);
        }
        self.finds.found
    }

    fn element(&mut self, element: &mut Element<'_, '_>) {
        let name = element.tag_name();
        if name == "template" && !element.has_attribute("shadowrootmode") {
            let open = Rc::clone(&self.templates);
            let closed = Rc::clone(&self.templates);
            let ends = element.on_end_tag(Box::new(move |_| {
                closed.set(closed.get().saturating_sub(1));
                Ok(())
            }));
            if ends.is_ok() {
                open.set(open.get() + 1);
            }
        }
        if self.templates.get() > 0 {
            self.style = None;
            return;
        }
        if let Some(style) = attribute(element, "style") {
            css::declarations(&style, &mut self.finds);
        }
        match element.namespace_uri() {
            "http://www.w3.org/2000/svg" => self.drawing(&name, element),
            "http://www.w3.org/1999/xhtml" => self.html_element(&name, element),
            _ => {}
        }
    }

    fn html_element(&mut self, name: &str, element: &mut Element<'_, '_>) {
        let take = |attribute_name: &str| attribute(element, attribute_name);
        match name {
            "base" => self.base(take("href")),
            "link" => self.link(element),
            "script" => self.script(element, take("src")),
            "style" => self.style_element(element),
            "picture" => self.picture(element),
            "source" => self.source(element),
            "img" => self.image(element),
            "video" => self.add(take("poster"), ResourceKind::Image),
            "input" if take("type").is_some_and(|kind| kind.eq_ignore_ascii_case("image")) => {
                self.add(take("src"), ResourceKind::Image);
            }
            "iframe" if !element.has_attribute("srcdoc") => self.add(take("src"), ResourceKind::Frame),
            "frame" => self.add(take("src"), ResourceKind::Frame),
            "embed" => self.add(take("src"), ResourceKind::Other),
            "object" => self.add(take("data"), ResourceKind::Other),
            "body" | "table" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th" => {
                self.add(take("background"), ResourceKind::Image);
            }
            _ => {}
        }
    }

    /// SVG within the document (SVG 2, 12.3 and 16.1.4).
    fn drawing(&mut self, name: &str, element: &Element<'_, '_>) {
        let reference = || attribute(element, "href").or_else(|| attribute(element, "xlink:href"));
        match name {
            "image" | "feimage" => self.add(reference(), ResourceKind::Image),
            // Of this document, unless a file is named.
            "use" => self.add(reference().filter(|target| !target.starts_with('#')), ResourceKind::Other),
            "script" => self.script(element, reference()),
            "style" => self.style_element(element),
            _ => {}
        }
    }

    fn add(&mut self, reference: Option<String>, kind: ResourceKind) {
        if let Some(reference) = reference {
            self.finds.add(&reference, kind);
        }
    }

    /// HTML standard, 4.2.3: the first one with a URL counts.
    fn base(&mut self, href: Option<String>) {
        if let Some(href) = href.filter(|_| !self.base_seen) {
            self.base_seen = true;
            let joined = self.finds.base.join(href.trim());
            if let Ok(base) = joined
                && !matches!(base.scheme(), "data" | "javascript")
            {
                self.finds.base = base;
            }
        }
    }

    /// HTML standard, 4.6.6: what a link fetches for this document.
    fn link(&mut self, element: &Element<'_, '_>) {
        let rel = attribute(element, "rel").unwrap_or_default().to_ascii_lowercase();
        let is = |wanted: &str| rel.split_ascii_whitespace().any(|word| word == wanted);
        let kind = attribute(element, "type").unwrap_or_default();
        let href = attribute(element, "href");
        let on_screen = || attribute(element, "media").is_none_or(|list| media::matches(&list));
        if is("stylesheet") {
            if is_style_type(&kind) && !element.has_attribute("disabled") {
                // One that is not for this screen is fetched all the same, but nothing of it.
                let counts = on_screen() && !is("alternate");
                self.add(href, if counts { ResourceKind::StyleSheet } else { ResourceKind::Other });
            }
        } else if is("icon") {
            if (kind.is_empty() || is_image_type(&kind)) && on_screen() {
                self.icon = href.or(self.icon.take());
            }
        } else if is("modulepreload") {
            self.add(href.filter(|_| on_screen()), ResourceKind::Script);
        } else if is("preload") && on_screen() {
            self.preload(element, href, &kind);
        }
    }

    /// HTML standard, 4.6.6.17: without a destination nothing is fetched.
    fn preload(&mut self, element: &Element<'_, '_>, href: Option<String>, kind: &str) {
        let wanted = attribute(element, "as").unwrap_or_default().to_ascii_lowercase();
        let any = kind.is_empty();
        match wanted.as_str() {
            "script" if any || is_script_type(kind) => self.add(href, ResourceKind::Script),
            "style" if is_style_type(kind) => self.add(href, ResourceKind::Other),
            "font" if any || is_font_type(kind) => self.add(href, ResourceKind::Font),
            "image" if any || is_image_type(kind) => {
                let candidates = attribute(element, "imagesrcset").unwrap_or_default();
                let sizes = attribute(element, "imagesizes");
                let chosen = srcset::choose(&candidates, sizes.as_deref(), href.as_deref());
                self.add(chosen.map(str::to_owned), ResourceKind::Image);
            }
            "fetch" => self.add(href, ResourceKind::Other),
            _ => {}
        }
    }

    /// HTML standard, 4.12.1.1: scripts of other types are data, and those without modules are for old browsers.
    fn script(&mut self, element: &Element<'_, '_>, source: Option<String>) {
        let kind = element.get_attribute("type").unwrap_or_default();
        let module = kind.trim().eq_ignore_ascii_case("module");
        let classic = kind.is_empty() || is_script_type(&kind);
        if module || classic && !element.has_attribute("nomodule") {
            self.add(source, ResourceKind::Script);
        }
    }

    fn style_element(&mut self, element: &Element<'_, '_>) {
        let kind = attribute(element, "type").unwrap_or_default();
        let on_screen = attribute(element, "media").is_none_or(|list| media::matches(&list));
        self.style = (is_style_type(&kind) && on_screen).then(String::new);
    }

    /// A piece of the content of a `style` element.
    fn style_text(&mut self, chunk: &TextChunk<'_>) {
        let Some(style) = &mut self.style else { return };
        style.push_str(chunk.as_str());
        if !chunk.last_in_text_node() {
            return;
        }
        let text = std::mem::take(style);
        if chunk.text_type().allows_html_entities() {
            css::sheet(&htmlize::unescape(&text), &mut self.finds);
        } else {
            css::sheet(&text, &mut self.finds);
        }
    }

    fn picture(&mut self, element: &mut Element<'_, '_>) {
        self.picture_source = None;
        let open = Rc::clone(&self.in_picture);
        let ends = element.on_end_tag(Box::new(move |_| {
            open.set(false);
            Ok(())
        }));
        self.in_picture.set(ends.is_ok());
    }

    /// HTML standard, 4.8.4.3.12: the first source of a picture that suits is taken.
    fn source(&mut self, element: &Element<'_, '_>) {
        if !self.in_picture.get() || self.picture_source.is_some() {
            return;
        }
        let kind_suits = attribute(element, "type").is_none_or(|kind| is_image_type(&kind));
        if !kind_suits || attribute(element, "media").is_some_and(|list| !media::matches(&list)) {
            return;
        }
        let candidates = attribute(element, "srcset").unwrap_or_default();
        let sizes = attribute(element, "sizes");
        self.picture_source = srcset::choose(&candidates, sizes.as_deref(), None).map(str::to_owned);
    }

    fn image(&mut self, element: &Element<'_, '_>) {
        if let Some(source) = self.picture_source.take().filter(|_| self.in_picture.get()) {
            self.finds.add(&source, ResourceKind::Image);
            return;
        }
        let candidates = attribute(element, "srcset").unwrap_or_default();
        let (sizes, src) = (attribute(element, "sizes"), attribute(element, "src"));
        let chosen = srcset::choose(&candidates, sizes.as_deref(), src.as_deref());
        self.add(chosen.map(str::to_owned), ResourceKind::Image);
    }
}
