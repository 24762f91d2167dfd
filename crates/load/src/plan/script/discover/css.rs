//! What a style sheet fetches: `@import`, `url()`, `image-set()` and fonts. CSS Syntax Level 3 defines what a rule, a
//! declaration and a URL are; `cssparser` reads them.
//!
//! Left out is what no browser fetches: `@namespace`, other at-rules that are not for the screen, references within the
//! document (`url(#clip)`), `behavior`, and fonts that hold no letter of the Latin alphabet (their `unicode-range` is
//! there so that a browser fetches only those that a text needs). Of a font's sources the first one in a known format
//! is taken.

use super::{FoundUrl, FoundUrls, ResourceKind, media};
use cssparser::{Delimiter, ParseError, Parser, Token, UnicodeRange};
use url::Url;

type Parsed<T> = Result<T, ParseError<()>>;

/// What the style sheet at `base` fetches, in order.
pub(crate) fn css(body: &[u8], base: &Url) -> Vec<FoundUrl> {
    let mut finds = FoundUrls::new(base);
    let text = String::from_utf8_lossy(body);
    sheet(text.strip_prefix('\u{feff}').unwrap_or(&text), &mut finds);
    finds.found
}

/// Notes what a style sheet, or the content of a `style` element, fetches.
pub(super) fn sheet(text: &str, finds: &mut FoundUrls) {
    let mut parser = Parser::new(text);
    let mut imports = true;
    while let Ok(token) = parser.next() {
        let token = token.clone();
        match token {
            Token::AtKeyword(name) if name.eq_ignore_ascii_case("import") => {
                import(&mut parser, imports, finds)
            }
            Token::AtKeyword(name) => {
                // CSS Cascade Level 5, 2: imports come first, but for `@charset` and `@layer`.
                imports &= name.eq_ignore_ascii_case("charset") || name.eq_ignore_ascii_case("layer");
                at_rule(&name, &mut parser, finds);
            }
            Token::CDO | Token::CDC => {}
            Token::CurlyBracketBlock => {
                imports = false;
                block(&mut parser, finds);
            }
            first => {
                imports = false;
                rule(&first, &mut parser, finds);
            }
        }
    }
}

/// A rule whose selector begins with `token`. What looks like a URL in a selector is not one.
fn rule(token: &Token<'_>, parser: &mut Parser<'_>, finds: &mut FoundUrls) {
    // With a bracket that closes nothing it is no selector, and the rule is dropped.
    let mut valid = !token.is_parse_error();
    while let Ok(token) = parser.next() {
        if *token != Token::CurlyBracketBlock {
            valid &= !token.is_parse_error();
        } else if valid {
            return block(parser, finds);
        } else {
            return;
        }
    }
}

/// Notes what the declarations of a `style` attribute fetch.
pub(super) fn declarations(text: &str, finds: &mut FoundUrls) {
    content(&mut Parser::new(text), finds);
}

/// Behind `@import`, up to its semicolon.
fn import(parser: &mut Parser<'_>, allowed: bool, finds: &mut FoundUrls) {
    let parsed = parser.parse_until_after(Delimiter::Semicolon, |parser| {
        let url = parser.expect_url_or_string()?;
        // `layer`, `layer(x)` and `supports(x)`, before the media.
        loop {
            let before = parser.state();
            match parser.next().cloned() {
                Ok(Token::Ident(word)) if word.eq_ignore_ascii_case("layer") => {}
                Ok(Token::Function(name))
                    if name.eq_ignore_ascii_case("layer") || name.eq_ignore_ascii_case("supports") => {}
                _ => {
                    parser.reset(&before);
                    break;
                }
            }
        }
        let matched = media::list_matches(parser);
        while parser.next().is_ok() {}
        Ok::<_, ParseError<()>>((url, matched))
    });
    if let Ok((url, matched)) = parsed
        && allowed
    {
        // One that is not for this screen is fetched, but nothing of it.
        finds.add(&url, if matched { ResourceKind::StyleSheet } else { ResourceKind::Other });
    }
}

/// What an at-rule of this name holds, up to its end.
fn at_rule(name: &str, parser: &mut Parser<'_>, finds: &mut FoundUrls) {
    let name = name.to_ascii_lowercase();
    let end = Delimiter::Semicolon | Delimiter::CurlyBracketBlock;
    let counts = parser.parse_until_before(end, |prelude| {
        let counts = match name.as_str() {
            "media" => media::list_matches(prelude),
            // Everything is supported.
            "supports" => prelude.try_parse(|prelude| prelude.expect_ident_matching("not")).is_err(),
            _ => true,
        };
        while prelude.next().is_ok() {}
        Ok::<_, ParseError<()>>(counts)
    });
    if !matches!(parser.next(), Ok(Token::CurlyBracketBlock)) {
        return;
    }
    match name.as_str() {
        _ if !counts.unwrap_or(false) => {}
        "media" | "supports" | "layer" | "container" | "scope" | "starting-style" => block(parser, finds),
        "keyframes" | "-webkit-keyframes" => block(parser, finds),
        "font-face" => font(parser, finds),
        _ => {}
    }
}

/// The block whose bracket was just read.
fn block(parser: &mut Parser<'_>, finds: &mut FoundUrls) {
    // It ends at its bracket whatever it holds; an error says that it is too deep, and it is left out.
    let _ = parser.parse_nested_block(|inner| {
        content(inner, finds);
        Ok::<_, ParseError<()>>(())
    });
}

/// Declarations and rules, mixed. What comes before a bracket was a selector, what comes before a semicolon a
/// declaration.
fn content(parser: &mut Parser<'_>, finds: &mut FoundUrls) {
    let mut item = Item::default();
    while let Ok(token) = parser.next() {
        match token.clone() {
            Token::Semicolon => std::mem::take(&mut item).end(finds),
            Token::CurlyBracketBlock => {
                item = Item::default();
                block(parser, finds);
            }
            Token::AtKeyword(name) if item.is_new() => at_rule(&name, parser, finds),
            token => item.add(&token, parser),
        }
    }
    item.end(finds);
}

/// A declaration, or what turns out to be a selector.
#[derive(Debug, Default)]
struct Item {
    /// Its name, once it is known, and whether the colon was read.
    name: Option<String>,
    has_colon: bool,
    urls: Vec<String>,
}

impl Item {
    fn is_new(&self) -> bool {
        self.name.is_none()
    }

    fn add(&mut self, token: &Token<'_>, parser: &mut Parser<'_>) {
        match token {
            Token::Ident(name) if self.is_new() => self.name = Some(name.to_ascii_lowercase()),
            Token::Colon if !self.has_colon => self.has_colon = !self.is_new(),
            _ if self.is_new() => self.name = Some(String::new()),
            _ => value(token, parser, &mut self.urls),
        }
    }

    fn end(self, finds: &mut FoundUrls) {
        let name = self.name.unwrap_or_default();
        let fetches = self.has_colon && accepts_images(&name);
        if fetches {
            for url in self.urls.iter().filter(|url| !url.starts_with('#')) {
                finds.add(url, ResourceKind::Image);
            }
        }
    }
}

/// Whether a property shows images or filters; a variable may be for one. What no browser knows, as `behavior`, fetches
/// nothing.
fn accepts_images(name: &str) -> bool {
    const WORDS: [&str; 9] = [
        "background",
        "image",
        "mask",
        "cursor",
        "content",
        "list-style",
        "filter",
        "shape-outside",
        "clip-path",
    ];
    name.starts_with("--") || WORDS.iter().any(|word| name.contains(word))
}

/// The URLs of a value; `token` is the one that was just read.
fn value(token: &Token<'_>, parser: &mut Parser<'_>, urls: &mut Vec<String>) {
    match token {
        Token::UnquotedUrl(url) => urls.push(url.to_string()),
        Token::Function(name) if name.eq_ignore_ascii_case("url") || name.eq_ignore_ascii_case("src") => {
            urls.extend(quoted(parser));
        }
        Token::Function(name)
            if name.eq_ignore_ascii_case("image-set") || name.eq_ignore_ascii_case("-webkit-image-set") =>
        {
            let chosen = parser.parse_nested_block(|inner| Ok::<_, ParseError<()>>(image_set(inner)));
            urls.extend(chosen.ok().flatten());
        }
        Token::Function(_) | Token::ParenthesisBlock | Token::SquareBracketBlock => {
            let _ = parser.parse_nested_block(|inner| {
                while let Ok(token) = inner.next().cloned() {
                    value(&token, inner, urls);
                }
                Ok::<_, ParseError<()>>(())
            });
        }
        _ => {}
    }
}

/// The string of `url("...")`, whose bracket was just read.
fn quoted(parser: &mut Parser<'_>) -> Option<String> {
    let string = parser.parse_nested_block(|inner| {
        // Modifiers, which CSS Values Level 4 would allow behind it, are known to no browser.
        Ok::<_, ParseError<()>>(inner.expect_string()?.to_string())
    });
    string.ok()
}

/// CSS Images Level 4, 5: of those whose type is known, the one that suits the screen, as in `srcset`.
fn image_set(parser: &mut Parser<'_>) -> Option<String> {
    let options = parser.parse_comma_separated(|one| {
        let option = image_option(one);
        while one.next().is_ok() {}
        Ok::<_, ParseError<()>>(option.ok())
    });
    let mut best: Option<(f64, String)> = None;
    for (new, url) in options.ok()?.into_iter().flatten().flatten() {
        let better = best
            .as_ref()
            .is_none_or(|(old, _)| if *old < 1.0 { new > *old } else { new >= 1.0 && new < *old });
        if better {
            best = Some((new, url));
        }
    }
    best.map(|(_, url)| url)
}

/// Density and URL; `None` for one of another type, or without URL.
fn image_option(parser: &mut Parser<'_>) -> Parsed<Option<(f64, String)>> {
    let mut url = None;
    let mut density = 1.0;
    let mut known = true;
    while let Ok(token) = parser.next().cloned() {
        match token {
            Token::QuotedString(text) | Token::UnquotedUrl(text) => url = Some(text.to_string()),
            Token::Function(name) if name.eq_ignore_ascii_case("url") => url = quoted(parser),
            Token::Function(name) if name.eq_ignore_ascii_case("type") => {
                known = quoted(parser).is_none_or(|kind| super::media_types::is_image_type(&kind));
            }
            Token::Dimension { value, unit, .. } => {
                let each = match unit.to_ascii_lowercase().as_str() {
                    "x" | "dppx" => 1.0,
                    "dpi" => 1.0 / 96.0,
                    "dpcm" => 2.54 / 96.0,
                    _ => return Ok(None),
                };
                density = f64::from(value) * each;
            }
            _ => {}
        }
    }
    Ok(url.filter(|_| known).map(|url| (density, url)))
}

/// The block of `@font-face`, whose bracket was just read.
fn font(parser: &mut Parser<'_>, finds: &mut FoundUrls) {
    let mut source = None;
    let mut latin = true;
    let _ = parser.parse_nested_block(|inner| {
        while !inner.is_exhausted() {
            let _ = inner.parse_until_after(Delimiter::Semicolon, |inner| {
                let name = inner.expect_ident_cloned()?;
                inner.expect_colon()?;
                if name.eq_ignore_ascii_case("src") {
                    // The last one counts that names a font.
                    source = font_source(inner)?.or(source.take());
                } else if name.eq_ignore_ascii_case("unicode-range") {
                    let ranges = inner
                        .parse_comma_separated(|one| Ok::<_, ParseError<()>>(UnicodeRange::parse(one)?))?;
                    let letters = u32::from('A')..=u32::from('z');
                    latin = ranges
                        .iter()
                        .any(|range| range.start <= *letters.end() && range.end >= *letters.start());
                }
                while inner.next().is_ok() {}
                Ok::<_, ParseError<()>>(())
            });
        }
        Ok::<_, ParseError<()>>(())
    });
    if let Some(source) = source.filter(|_| latin) {
        finds.add(&source, ResourceKind::Font);
    }
}

/// The first source of a list in a format that is known.
fn font_source(parser: &mut Parser<'_>) -> Parsed<Option<String>> {
    let sources = parser.parse_comma_separated(|one| {
        let mut url = None;
        let mut known = true;
        while let Ok(token) = one.next().cloned() {
            match token {
                Token::UnquotedUrl(text) => url = Some(text.to_string()),
                Token::Function(name) if name.eq_ignore_ascii_case("url") => url = quoted(one),
                Token::Function(name) if name.eq_ignore_ascii_case("format") => {
                    known = one.parse_nested_block(|inner| {
                        let format = inner.expect_ident_or_string()?.to_ascii_lowercase();
                        while inner.next().is_ok() {}
                        Ok::<_, ParseError<()>>(is_font_format(&format))
                    })?;
                }
                _ => {}
            }
        }
        Ok::<_, ParseError<()>>(url.filter(|_| known))
    })?;
    Ok(sources.into_iter().flatten().next())
}

/// CSS Fonts Level 4, 4.3: formats that current browsers take; the others are obsolete.
fn is_font_format(format: &str) -> bool {
    matches!(
        format,
        "woff2"
            | "woff"
            | "truetype"
            | "opentype"
            | "collection"
            | "woff2-variations"
            | "woff-variations"
            | "truetype-variations"
            | "opentype-variations"
    )
}
