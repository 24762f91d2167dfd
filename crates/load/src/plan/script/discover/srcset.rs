//! One candidate of a `srcset`: HTML standard, 4.8.4.3.10 (parsing), 4.8.4.3.11 (sizes) and 4.8.4.3.13 (densities).
//!
//! Which one is taken is the browser's choice. At density 1 Chromium takes the smallest density that is not below it,
//! and else the largest (`SelectionLogic` in `html_srcset_parser.cc`).

use super::media;

/// A URL, and how dense its picture is.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate<'a> {
    url: &'a str,
    size: Size,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Size {
    /// Pixels of the picture for each pixel of the screen.
    Density(f64),
    /// Width of the picture in pixels.
    Width(f64),
}

/// The URL that is taken from `srcset`, `sizes` and `src`.
pub(super) fn choose<'a>(srcset: &'a str, sizes: Option<&str>, src: Option<&'a str>) -> Option<&'a str> {
    let mut candidates = parse(srcset);
    let has_widths = candidates.iter().any(|one| matches!(one.size, Size::Width(_)));
    let has_plain = candidates.iter().any(|one| one.size == Size::Density(1.0));
    if let Some(src) = src.filter(|src| !src.trim().is_empty())
        && !has_widths
        && !has_plain
    {
        candidates.push(Candidate { url: src, size: Size::Density(1.0) });
    }
    let shown_px = if has_widths { media::sizes_px(sizes.unwrap_or_default()) } else { 1.0 };
    let density = |candidate: &Candidate<'_>| match candidate.size {
        Size::Density(density) => density,
        Size::Width(width) if shown_px > 0.0 => width / shown_px,
        Size::Width(_) => f64::INFINITY,
    };
    let mut best: Option<(f64, &str)> = None;
    for candidate in &candidates {
        let new = density(candidate);
        let better = best.is_none_or(|(old, _)| if old < 1.0 { new > old } else { new >= 1.0 && new < old });
        if better {
            best = Some((new, candidate.url));
        }
    }
    best.map(|(_, url)| url)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r')
}

/// The candidates; what is faulty is left out.
fn parse(srcset: &str) -> Vec<Candidate<'_>> {
    let bytes = srcset.as_bytes();
    let mut candidates = vec![];
    let mut at = 0;
    let skip = |mut at: usize, while_is: &dyn Fn(u8) -> bool| {
        while bytes.get(at).is_some_and(|&byte| while_is(byte)) {
            at += 1;
        }
        at
    };
    loop {
        at = skip(at, &|byte| is_space(byte) || byte == b',');
        if at >= bytes.len() {
            return candidates;
        }
        let begin = at;
        at = skip(at, &|byte| !is_space(byte));
        let url = &srcset[begin..at];
        let trimmed = url.trim_end_matches(',');
        // A comma at the end of the URL ends the candidate: it has no descriptors.
        let (size, next) = if trimmed.len() < url.len() {
            (descriptors(&[]), at)
        } else {
            let (descriptor_words, next) = split_descriptors(srcset, at);
            (descriptors(&descriptor_words), next)
        };
        at = next;
        if let Some(size) = size {
            candidates.push(Candidate { url: trimmed, size });
        }
    }
}

/// The descriptors from `at` on, and where they end, behind their comma. Commas in parentheses do not end them.
fn split_descriptors(srcset: &str, at: usize) -> (Vec<&str>, usize) {
    let bytes = srcset.as_bytes();
    let (mut descriptor_words, mut begin, mut inside) = (vec![], None, false);
    for (place, &byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            b'(' => inside = true,
            b')' => inside = false,
            _ => {}
        }
        let ends = !inside && byte == b',';
        if ends || !inside && is_space(byte) {
            if let Some(begin) = begin.take() {
                descriptor_words.push(&srcset[begin..place]);
            }
            if ends {
                return (descriptor_words, place + 1);
            }
        } else if begin.is_none() {
            begin = Some(place);
        }
    }
    if let Some(begin) = begin {
        descriptor_words.push(&srcset[begin..]);
    }
    (descriptor_words, bytes.len())
}

/// The size that the descriptors define; `None` when they are faulty.
fn descriptors(descriptor_words: &[&str]) -> Option<Size> {
    let (mut density, mut width, mut height) = (None, None, None);
    for word in descriptor_words {
        let unit = word.chars().last()?;
        let number = &word[..word.len() - unit.len_utf8()];
        let whole = || number.parse::<u32>().ok().filter(|&whole| whole > 0 && !number.starts_with('+'));
        match unit {
            'w' if width.is_none() && density.is_none() => width = Some(f64::from(whole()?)),
            'h' if height.is_none() && density.is_none() => height = Some(whole()?),
            'x' if density.is_none() && width.is_none() && height.is_none() => {
                density = Some(number.parse::<f64>().ok().filter(|x| *x >= 0.0 && x.is_finite())?);
            }
            _ => return None,
        }
    }
    match (density, width, height) {
        (Some(density), ..) => Some(Size::Density(density)),
        (None, Some(width), _) => Some(Size::Width(width)),
        (None, None, Some(_)) => None,
        (None, None, None) => Some(Size::Density(1.0)),
    }
}
