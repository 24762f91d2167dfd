//! Media queries (Media Queries Level 4) and `sizes` (HTML standard, 4.8.4.3.11), for one screen.
//!
//! What is not known here is neither true nor false, as the standard has it (3.1): `not` leaves it unknown, and a query
//! that stays unknown does not match.

use cssparser::{BasicParseErrorKind, ParseError, Parser, Token};

/// The screen.
const WIDTH_PX: f64 = 1280.0;
const HEIGHT_PX: f64 = 720.0;
const FONT_PX: f64 = 16.0;
const DENSITY_DPPX: f64 = 1.0;

type Parsed<'i, T> = Result<T, ParseError<()>>;
/// `None` is unknown.
type Truth = Option<bool>;

fn parse_error<T>(parser: &mut Parser<'_>) -> Parsed<'static, T> {
    let _ = parser;
    Err(ParseError::from_basic_kind(BasicParseErrorKind::QualifiedRuleInvalid))
}

/// Whether a list of media queries matches. An empty one does; a faulty query does not.
pub(super) fn matches(list: &str) -> bool {
    list_matches(&mut Parser::new(list))
}

/// As [`matches()`], of what is left.
pub(super) fn list_matches(parser: &mut Parser<'_>) -> bool {
    if parser.is_exhausted() {
        return true;
    }
    let queries = parser.parse_comma_separated(|one| {
        let matched = one.try_parse(|one| one.parse_entirely(query));
        while one.next().is_ok() {}
        Ok::<_, ParseError<()>>(matched.unwrap_or(Some(false)))
    });
    queries.is_ok_and(|queries| queries.contains(&Some(true)))
}

fn query(parser: &mut Parser<'_>) -> Parsed<'static, Truth> {
    if let Ok(matched) = parser.try_parse(|parser| parser.parse_entirely(condition)) {
        return Ok(matched);
    }
    let mut word = parser.expect_ident()?.to_ascii_lowercase();
    let negated = word == "not";
    if negated || word == "only" {
        word = parser.expect_ident()?.to_ascii_lowercase();
    }
    if matches!(word.as_str(), "not" | "only" | "and" | "or" | "layer") {
        return parse_error(parser);
    }
    let mut matched = Some(matches!(word.as_str(), "all" | "screen"));
    while !parser.is_exhausted() {
        parser.expect_ident_matching("and")?;
        matched = and(matched, term(parser)?);
    }
    Ok(if negated { not(matched) } else { matched })
}

/// A condition: terms in parentheses, joined by `and` or `or`.
fn condition(parser: &mut Parser<'_>) -> Parsed<'static, Truth> {
    let mut all = term(parser)?;
    let mut joined: Option<bool> = None;
    while let Ok(is_and) = parser.try_parse(|parser| {
        let word = parser.expect_ident()?.clone();
        match () {
            () if word.eq_ignore_ascii_case("and") => Ok(true),
            () if word.eq_ignore_ascii_case("or") => Ok(false),
            () => parse_error(parser),
        }
    }) {
        if joined.is_some_and(|before| before != is_and) {
            return parse_error(parser);
        }
        joined = Some(is_and);
        let next = term(parser)?;
        all = if is_and { and(all, next) } else { not(and(not(all), not(next))) };
    }
    Ok(all)
}

/// `not` and a term, or something in parentheses.
fn term(parser: &mut Parser<'_>) -> Parsed<'static, Truth> {
    match parser.next()?.clone() {
        Token::Ident(word) if word.eq_ignore_ascii_case("not") => Ok(not(term(parser)?)),
        Token::ParenthesisBlock => parser.parse_nested_block(|inner| {
            if let Ok(all) = inner.try_parse(|inner| inner.parse_entirely(condition)) {
                return Ok(all);
            }
            let matched = inner.try_parse(|inner| inner.parse_entirely(feature));
            while inner.next().is_ok() {}
            Ok(matched.unwrap_or(None))
        }),
        Token::Function(_) => parser.parse_nested_block(|inner| {
            while inner.next().is_ok() {}
            Ok(None)
        }),
        _ => parse_error(parser),
    }
}

fn not(truth: Truth) -> Truth {
    truth.map(|truth| !truth)
}

fn and(one: Truth, other: Truth) -> Truth {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// How two numbers are compared; the bits of less, equal, greater.
type Relation = u8;
const LESS: Relation = 1;
const EQUAL: Relation = 2;
const GREATER: Relation = 4;

fn holds(relation: Relation, left: f64, right: f64) -> bool {
    // Numbers that were written are equal when they are written alike.
    let equal = (left - right).abs() < 1e-6;
    let is = if equal {
        EQUAL
    } else if left < right {
        LESS
    } else {
        GREATER
    };
    relation & is != 0
}

/// `name`, `name: value`, `name < value`, `value < name < value`.
fn feature(parser: &mut Parser<'_>) -> Parsed<'static, Truth> {
    if let Ok(name) = parser.try_parse(|parser| parser.expect_ident_cloned()) {
        let name = name.to_ascii_lowercase();
        if parser.is_exhausted() {
            return Ok(present(&name));
        }
        if parser.try_parse(Parser::expect_colon).is_ok() {
            return described(&name, parser);
        }
        let relation = relation(parser)?;
        let right = number(parser)?;
        return Ok(measured(&name).map(|left| holds(relation, left, right)));
    }
    let left = number(parser)?;
    let first = relation(parser)?;
    let name = parser.expect_ident_cloned()?.to_ascii_lowercase();
    let value = measured(&name);
    let mut matched = value.map(|value| holds(first, left, value));
    if !parser.is_exhausted() {
        let second = relation(parser)?;
        let right = number(parser)?;
        matched = and(matched, value.map(|value| holds(second, value, right)));
    }
    Ok(matched)
}

fn relation(parser: &mut Parser<'_>) -> Parsed<'static, Relation> {
    let relation = match parser.next()? {
        Token::Delim('<') => LESS,
        Token::Delim('>') => GREATER,
        Token::Delim('=') => return Ok(EQUAL),
        _ => return parse_error(parser),
    };
    let equal = parser.try_parse(|parser| match parser.next_including_whitespace()? {
        Token::Delim('=') => Ok(()),
        _ => parse_error(parser),
    });
    Ok(if equal.is_ok() { relation | EQUAL } else { relation })
}

/// `min-width: 600px` and the like.
fn described(name: &str, parser: &mut Parser<'_>) -> Parsed<'static, Truth> {
    if let Ok(word) = parser.try_parse(|parser| parser.expect_ident_cloned()) {
        return Ok(keyword_feature(name).map(|own| word.eq_ignore_ascii_case(own)));
    }
    let (bare, relation) = match (name.strip_prefix("min-"), name.strip_prefix("max-")) {
        (Some(bare), _) => (bare, GREATER | EQUAL),
        (_, Some(bare)) => (bare, LESS | EQUAL),
        _ => match name.strip_prefix("-webkit-min-").map(|bare| (bare, GREATER | EQUAL)) {
            Some(webkit) => webkit,
            None => name.strip_prefix("-webkit-max-").map_or((name, EQUAL), |bare| (bare, LESS | EQUAL)),
        },
    };
    let value = number(parser)?;
    Ok(measured(bare).map(|own| holds(relation, own, value)))
}

/// Features that are numbers: pixels, dots for each, or counts.
fn measured(name: &str) -> Option<f64> {
    Some(match name {
        "width" | "device-width" => WIDTH_PX,
        "height" | "device-height" => HEIGHT_PX,
        "aspect-ratio" | "device-aspect-ratio" => WIDTH_PX / HEIGHT_PX,
        "resolution" | "device-pixel-ratio" | "-webkit-device-pixel-ratio" => DENSITY_DPPX,
        "color" => 8.0,
        "color-index" | "monochrome" | "grid" => 0.0,
        _ => return None,
    })
}

/// Features that are words.
fn keyword_feature(name: &str) -> Option<&'static str> {
    Some(match name {
        "orientation" => "landscape",
        "hover" | "any-hover" => "hover",
        "pointer" | "any-pointer" => "fine",
        "prefers-color-scheme" => "light",
        "prefers-reduced-motion" | "prefers-contrast" | "prefers-reduced-transparency" => "no-preference",
        "prefers-reduced-data" => "no-preference",
        "forced-colors" | "inverted-colors" => "none",
        "scripting" => "enabled",
        "update" => "fast",
        "display-mode" => "browser",
        "color-gamut" => "srgb",
        "dynamic-range" | "video-dynamic-range" => "standard",
        "overflow-block" | "overflow-inline" => "scroll",
        "scan" => "progressive",
        _ => return None,
    })
}

/// Whether a feature that stands alone is there.
fn present(name: &str) -> Truth {
    match measured(name) {
        Some(own) => Some(own > 0.0),
        None => keyword_feature(name).map(|own| !matches!(own, "none" | "no-preference")),
    }
}

/// A number, ratio, length in pixels, or resolution in dots for each pixel.
fn number(parser: &mut Parser<'_>) -> Parsed<'static, f64> {
    let value = match parser.next()?.clone() {
        Token::Number { value, .. } => f64::from(value),
        Token::Dimension { value, unit, .. } => match in_pixels(f64::from(value), &unit) {
            Some(pixels) => pixels,
            None => match unit.to_ascii_lowercase().as_str() {
                "dppx" | "x" => f64::from(value),
                "dpi" => f64::from(value) / 96.0,
                "dpcm" => f64::from(value) * 2.54 / 96.0,
                _ => return parse_error(parser),
            },
        },
        Token::Function(name) if name.eq_ignore_ascii_case("calc") => parser.parse_nested_block(sum)?,
        _ => return parse_error(parser),
    };
    if parser.try_parse(|parser| parser.expect_delim('/')).is_ok() {
        return Ok(value / f64::from(parser.expect_number()?));
    }
    Ok(value)
}

fn in_pixels(value: f64, unit: &str) -> Option<f64> {
    let each = match unit.to_ascii_lowercase().as_str() {
        "px" => 1.0,
        "em" | "rem" => FONT_PX,
        "ex" | "ch" | "rex" | "rch" => FONT_PX / 2.0,
        "vw" | "svw" | "lvw" | "dvw" | "vi" => WIDTH_PX / 100.0,
        "vh" | "svh" | "lvh" | "dvh" | "vb" => HEIGHT_PX / 100.0,
        "vmin" => WIDTH_PX.min(HEIGHT_PX) / 100.0,
        "vmax" => WIDTH_PX.max(HEIGHT_PX) / 100.0,
        "in" => 96.0,
        "cm" => 96.0 / 2.54,
        "mm" => 9.6 / 2.54,
        "q" => 2.4 / 2.54,
        "pt" => 96.0 / 72.0,
        "pc" => 16.0,
        _ => return None,
    };
    Some(value * each)
}

/// The width that `sizes` defines, in pixels; the whole screen without one.
pub(super) fn sizes_px(sizes: &str) -> f64 {
    let mut parser = Parser::new(sizes);
    let widths = parser.parse_comma_separated(|one| {
        let width = one.try_parse(|one| one.parse_entirely(size));
        while one.next().is_ok() {}
        Ok::<_, ParseError<()>>(width.unwrap_or(None))
    });
    widths.ok().and_then(|widths| widths.into_iter().flatten().next()).unwrap_or(WIDTH_PX)
}

/// A length, or a condition and a length.
fn size(parser: &mut Parser<'_>) -> Parsed<'static, Option<f64>> {
    if let Ok(plain) = parser.try_parse(|parser| parser.parse_entirely(length)) {
        return Ok(Some(plain));
    }
    let matched = condition(parser)?;
    let width = length(parser)?;
    Ok(matched.filter(|&matched| matched).map(|_| width))
}

fn length(parser: &mut Parser<'_>) -> Parsed<'static, f64> {
    match value(parser)? {
        pixels if pixels >= 0.0 => Ok(pixels),
        _ => parse_error(parser),
    }
}

/// A value of CSS Values' mathematics, in pixels or plain.
fn value(parser: &mut Parser<'_>) -> Parsed<'static, f64> {
    match parser.next()?.clone() {
        Token::Number { value, .. } => Ok(f64::from(value)),
        Token::Dimension { value, unit, .. } => {
            in_pixels(f64::from(value), &unit).map_or_else(|| parse_error(parser), Ok)
        }
        Token::ParenthesisBlock => parser.parse_nested_block(sum),
        Token::Function(name) => {
            let name = name.to_ascii_lowercase();
            parser.parse_nested_block(|inner| {
                let values = inner.parse_comma_separated(sum)?;
                match (name.as_str(), values.as_slice()) {
                    ("calc" | "-webkit-calc", [one]) => Ok(*one),
                    ("min", [first, rest @ ..]) => Ok(rest.iter().copied().fold(*first, f64::min)),
                    ("max", [first, rest @ ..]) => Ok(rest.iter().copied().fold(*first, f64::max)),
                    ("clamp", [low, wanted, high]) => Ok(wanted.min(*high).max(*low)),
                    _ => parse_error(inner),
                }
            })
        }
        _ => parse_error(parser),
    }
}

/// Products, added.
fn sum(parser: &mut Parser<'_>) -> Parsed<'static, f64> {
    let mut total = product(parser)?;
    while let Ok(sign) = parser.try_parse(|parser| match parser.next()? {
        Token::Delim('+') => Ok(1.0),
        Token::Delim('-') => Ok(-1.0),
        _ => parse_error(parser),
    }) {
        total += sign * product(parser)?;
    }
    Ok(total)
}

fn product(parser: &mut Parser<'_>) -> Parsed<'static, f64> {
    let mut total = value(parser)?;
    while let Ok(divides) = parser.try_parse(|parser| match parser.next()? {
        Token::Delim('*') => Ok(false),
        Token::Delim('/') => Ok(true),
        _ => parse_error(parser),
    }) {
        let other = value(parser)?;
        total = if divides { total / other } else { total * other };
    }
    Ok(total)
}
