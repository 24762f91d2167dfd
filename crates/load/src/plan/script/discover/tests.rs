//! Discovery against tricky documents and styles, and against what Chromium asked for.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn base() -> Url {
    Url::parse("http://h/dir/page.html").unwrap()
}

/// As they would be written at the base.
fn names(found: &[FoundUrl]) -> String {
    let relative = |found: &FoundUrl| {
        let text = found.url.as_str();
        text.strip_prefix("http://h/dir/").or(text.strip_prefix("http://h")).unwrap_or(text).to_owned()
    };
    found.iter().map(relative).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check_html(document: &str, expected: &str) {
    assert_eq!(names(&html(document.as_bytes(), &base())), expected, "{document}");
}

#[track_caller]
fn check_css(sheet: &str, expected: &str) {
    assert_eq!(names(&css(sheet.as_bytes(), &base())), expected, "{sheet}");
}

/// What Chromium asks for and we do not find, and the reverse, each with its reason.
const ONLY_CHROMIUM: [&str; 3] = [
    "/favicon.ico",     // nothing names it
    "/sub/font.woff",   // the fixture's fonts are none, so it tries the next one
    "/sub/written.png", // a script writes the element
];
const ONLY_OURS: [&str; 8] = [
    // No element that is shown has these styles: there is no layout here.
    "/sub/after-bad-string.png",
    "/sub/body-background.png",
    "/sub/custom.png",
    "/sub/td.png",
    "/sub/unmatched.png",
    "/sub/webkit-set.png",
    // It does not know `cross-fade` in this form.
    "/sub/fade-1.png",
    "/sub/fade-2.png",
];

#[test]
fn chromium_asks_for_the_same() {
    let page = Url::parse("http://h/page.html").unwrap();
    let mut all = html(include_bytes!("fixtures/page.html"), &page);
    let sheet = page.join("sub/sheet.css").unwrap();
    assert!(all.contains(&FoundUrl { url: sheet.clone(), kind: ResourceKind::StyleSheet }));
    all.extend(css(include_bytes!("fixtures/sheet.css"), &sheet));
    let path = |found: &FoundUrl| found.url[url::Position::BeforePath..].to_owned();
    let ours: BTreeSet<String> = all.iter().map(path).collect();
    let recorded = include_str!("fixtures/chromium.txt").lines();
    let theirs: BTreeSet<String> = recorded.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect();
    assert!(theirs.len() > 90);
    let only = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<BTreeSet<_>>();
    assert_eq!(only(&ours, &theirs), ONLY_OURS.map(str::to_owned).into());
    assert_eq!(only(&theirs, &ours), ONLY_CHROMIUM.map(str::to_owned).into());
}

#[test]
fn resources_have_their_kind() {
    let document = "<link rel=stylesheet href=a.css><link rel=stylesheet href=p.css media=print><script src=s.js>\
        </script><img src=i.png><link rel='shortcut icon' href=1.ico><link rel=icon href=2.ico><iframe src=f.html>\
        </iframe><link rel=preload as=style href=later.css><link rel=stylesheet href=later.css>\
        <style>@font-face { src: url(f.woff2) }</style><object data=o.bin></object>";
    let kinds: Vec<_> = html(document.as_bytes(), &base()).iter().map(|found| found.kind).collect();
    use ResourceKind::*;
    assert_eq!(kinds, [StyleSheet, Other, Script, Image, Frame, StyleSheet, Font, Other, Icon]);
    check_html("<link rel=icon href=1.ico><img src=a><link rel=ICON href=2.ico>", "a 2.ico");
}

#[test]
fn documents_are_read_as_browsers_read_them() {
    for (document, expected) in [
        ("", ""),
        ("<img src=a><img src=a#x><img src=./a>", "a"),
        ("<img src=page.html><img src=>", ""),
        (
            "<img src=http://other/x><img src=//third/y><img src=https://h/z>",
            "http://other/x http://third/y https://h/z",
        ),
        ("<img src=http://me:secret@h/a><img src=http://me@h/b>", ""),
        ("<img src='a b'><img src='%20'><img src=\"'\">", "a%20b %20 '"),
        ("<img src=\u{0}a><im\u{0}g src=b><img \u{0}src=c><img src=d>", "%EF%BF%BDa d"),
        ("<base href=//other/x/><img src=a><base href=/no/><img src=b>", "http://other/x/a http://other/x/b"),
        ("<base target=_top><base href=x/><img src=a>", "x/a"),
        ("<base href=data:x><img src=a>", "a"),
        ("<!-- > <img src=a> --!><img src=b>", "b"),
        ("<!--><img src=a>--><img src=b>", "a b"),
        ("<? <img src=a> ?>", ""),
        ("<![CDATA[ <img src=a> ]]>", ""),
        ("<svg><![CDATA[ <image href=a /> ]]><image href=b /></svg><image href=c>", "b"),
        ("<noscript><img src=a></noscript><img src=b>", "b"),
        ("<template><template></template><img src=a></template><img src=b>", "b"),
        ("<template><img src=a>", ""),
        ("<style>@import 'a.css'", "a.css"),
        ("<style>p{background:url(a)}</style><style>q{background:url(a)}</style>", "a"),
        ("<style>/* </style><img src=a>", "a"),
        ("<script>var x = '</script><img src=a>", "a"),
        ("<picture><img src=a></picture><img src=b>", "a b"),
        ("<picture><source srcset=a></picture><img src=b>", "b"),
        ("<picture><source srcset=a><img src=b><img src=c></picture>", "a c"),
        ("<video><source src=v.mp4></video><audio src=a.mp3></audio>", ""),
        ("<link rel=stylesheet><link href=a.css><link rel='a stylesheet b' href=b.css>", "b.css"),
        ("<link rel=prefetch href=a><link rel=preconnect href=b><link rel=manifest href=c>", ""),
        ("<p style='background:url(a)' style='background:url(b)'>", "a"),
        ("<p style='background:url(a);}background:url(b);background:url(c)'>", "a c"),
        ("<a style=background:url(a)><td style=background:url(b)>", "a b"),
        ("<ImG sRc=a", ""),
        ("<img src=\"a", ""),
        ("<img src=a /><p", "a"),
        ("</img src=a><//img src=b>", ""),
    ] {
        check_html(document, expected);
    }
}

#[test]
fn styles_are_read_as_browsers_read_them() {
    for (sheet, expected) in [
        ("@import url(a);@import 'b' screen;@import \"c\"", "a b c"),
        ("@import url(a) layer;@import 'b' layer(x) supports(y: z) not print;", "a b"),
        ("@import a.css;@import 'b'; p{}@import 'c';", "b"),
        ("@IMPORT 'a'; @charset 'x'; @layer y; @import 'b'", "a b"),
        ("\u{feff}@import 'a'", "a"),
        ("<!-- @import 'a'; -->p{background:url(b)}", "a b"),
        ("p{background:url('a'),url(\"b\"),url( c ),URL(d)}", "a b c d"),
        ("p{background:url(a\\)b)} q{background:url('a\\'b\\\nc')} i{background:url(\\61 z)}", "a)b a'bc az"),
        ("p{background:url(a'b)}q{background:url(c)}", "c"),
        ("p{background:url()}q{background:url('')}", ""),
        ("p{background:url(data:,x),url(about:blank),url(#x),url(a#x)}", "a"),
        ("p{/*url(a)*/background/**/:/**/url(b)/*;*/}", "b"),
        ("p{content:'url(a)'}q{x:url(b)}i{content:url(c)}", "c"),
        ("p[x='url(a)'], q::before{mask:url(b)}", "b"),
        ("@media print{p{background:url(a)}}@media screen{p{background:url(b)}}", "b"),
        ("@media screen,print{p{background:url(a)}}@media not screen{p{background:url(b)}}", "a"),
        ("@supports(x:y){p{background:url(a)}}@supports not (x:y){p{background:url(b)}}", "a"),
        ("@layer x{@media screen{p{background:url(a);q{background:url(b)}}}}", "a b"),
        ("@keyframes x{from{background:url(a)}}@page{background:url(b)}@unknown{p{background:url(c)}}", "a"),
        ("@unknown url(a); @unknown 'b' p{background:url(c)} p{background:url(d)}", "d"),
        ("p{background:url(a)", "a"),
        ("p{background:url(a", "a"),
        ("p{background:url('a", "a"),
        ("}p{background:url(a)}", ""),
        ("p{background:url(a)}}q{background:url(b)}", "a"),
        ("p{color:)}q{background:url(b)}", "b"),
        ("@font-face{src:url(a.eot);src:url(a.woff2)format('woff2'),url(a.woff)format('woff')}", "a.woff2"),
        ("@font-face{src:url(a.svg)format('svg')}@font-face{src:local(x),url(b.ttf)}", "b.ttf"),
        ("@font-face{src:url(a.ttf)format(truetype)tech(variations)}", "a.ttf"),
        (
            "@font-face{src:url(a);unicode-range:U+400-4FF}@font-face{src:url(b);unicode-range:U+0-FF,U+131}",
            "b",
        ),
        ("@font-face{src:url(a)} @font-face{x:url(b)} p{src:url(c)}", "a"),
        ("p{background:image-set('a' 2x,'b' 1x)}q{background:image-set(url(c)2x)}", "b c"),
        (
            "p{background:image-set('a' 96dpi type('image/avif'),'b' type('x/y'),linear-gradient(red,red))}",
            "a",
        ),
        ("p{behavior:url(a);-moz-binding:url(b);zoom:url(c)}", ""),
    ] {
        check_css(sheet, expected);
    }
}

#[test]
fn one_candidate_of_a_srcset_is_taken() {
    for (srcset, sizes, src, expected) in [
        ("", None, Some("s"), Some("s")),
        (" , ,", None, None, None),
        ("a", None, Some("s"), Some("a")),
        ("a 1.0x", None, Some("s"), Some("a")),
        ("a 2x", None, Some("s"), Some("s")),
        ("a 2x", None, Some("  "), Some("a")),
        ("a 0.5x, b 1.5x, c 3x", None, None, Some("b")),
        ("a 0.5x, b 0.7x", None, None, Some("b")),
        ("a 1x, b 1x", None, None, Some("a")),
        ("a,b 2x", None, None, Some("a,b")),
        ("a, b 2x", None, None, Some("a")),
        ("a,,, b 2x", None, None, Some("a")),
        ("a 1x,b 2x", None, None, Some("a")),
        ("a\t1x\n,\x0c b 2x", None, None, Some("a")),
        ("a -1x, b 2x", None, None, Some("b")),
        ("a 1x 2x, b 0x", None, None, Some("b")),
        ("a 1e0x", None, None, Some("a")),
        ("a 100w, b 2000w", None, Some("s"), Some("b")),
        ("a 100w, b 1280w, c 9999w", None, None, Some("b")),
        ("a 100w, b 1280w", Some("50px"), None, Some("a")),
        ("a 100w, b 1280w", Some("0px"), None, Some("a")),
        ("a 100w, b 1280w", Some("(max-width: 9px) 50px, calc(10em - 60px)"), None, Some("a")),
        ("a 320w, b 640w", Some("(min-width: 1000px) 25vw, 100vw"), None, Some("a")),
        ("a 320w, b 640w", Some("min(25vw, 900px)"), None, Some("a")),
        ("a 320w, b 640w", Some("nonsense, 320px"), None, Some("a")),
        ("a 320w, b 640w", Some("-5px"), None, Some("b")),
        ("a 320w 200h, b 640w 400h", Some("300px"), None, Some("a")),
        ("a 1.5w, b +5w, c 0w, d 100h", None, Some("s"), Some("s")),
        ("a 5w 1x, b 6x", None, None, Some("b")),
        ("a (, b 1x), c", None, None, Some("c")),
        ("ä 1x, 😀 2x", None, None, Some("ä")),
        ("a 1😀", None, None, None),
    ] {
        assert_eq!(srcset::choose(srcset, sizes, src), expected, "{srcset} {sizes:?} {src:?}");
    }
}

#[test]
fn media_queries_match_one_screen() {
    for yes in [
        "",
        "all",
        "screen",
        "SCREEN",
        "only screen",
        "print, screen",
        "not print",
        "(min-width: 1280px)",
        "screen and (max-width:80em)",
        "(width: 1280px)",
        "(width > 5px)",
        "(5px < width <= 1280px)",
        "(1in = 96px), all",
        "(orientation:landscape)",
        "not (orientation: portrait)",
        "(hover) and (pointer: fine)",
        "(color)",
        "(min-resolution: 96dpi)",
        "(-webkit-min-device-pixel-ratio: 1)",
        "(aspect-ratio: 16/9)",
        "(grid: 0)",
        "(prefers-color-scheme: light)",
        "(not (width < 5px)) or (x)",
        "(min-width: calc(1000px + 10em))",
        "not screen and (max-width: 5px)",
        "(x) or (color)",
        "(prefers-reduced-motion: no-preference)",
    ] {
        assert!(media::matches(yes), "{yes}");
    }
}

#[test]
fn media_queries_of_other_screens_do_not_match() {
    for no in [
        "print",
        "not all",
        "not screen",
        "tv",
        "(max-width: 1279px)",
        "(width < 1280px)",
        "(unknown)",
        "not (unknown)",
        "(unknown: 5) or (monochrome)",
        "screen and",
        "and",
        "(",
        ",",
        "screen (color)",
        "()",
        "(color) and (grid) or (color)",
        "(min-resolution: 2dppx)",
        "(prefers-color-scheme: dark)",
        "only",
        "(color) nonsense",
        "(prefers-reduced-motion)",
        "screen or (color)",
        "(width > 5px > 3)",
        "layer",
    ] {
        assert!(!media::matches(no), "{no}");
    }
}

/// Each would take minutes, or the stack, if its time or depth grew with more than the length.
#[test]
fn long_and_deep_inputs_end() {
    const BYTES: usize = 1 << 20;
    let repeated = |piece: &str| piece.repeat(BYTES / piece.len());
    for piece in [
        "<div>",
        "</p>",
        "<a></b>",
        "<img src=a ",
        "<!--",
        "<template>",
        "<p style='",
        "<img srcset='a 1x, ",
        "&amp;",
    ] {
        html(repeated(piece).as_bytes(), &base());
    }
    for inside in ["a,", "a 1x,", "(", " ", ",", "a (1x ", "&am"] {
        html(format!("<img srcset='{}'>", repeated(inside)).as_bytes(), &base());
    }
    for piece in
        ["{", "(", "[", "url(", "p{background:url(", "@media (", "/*", "'", "@import '", "\\", "a{", "@x "]
    {
        css(repeated(piece).as_bytes(), &base());
    }
    let many: String = (0..FOUND_MAX + 9).map(|number| format!("<img src={number}>")).collect();
    assert_eq!(html(many.as_bytes(), &base()).len(), FOUND_MAX);
    check_html(&format!("<img src={}><img src=b>", "a".repeat(URL_BYTES_MAX + 1)), "b");
    check_html(&format!("{}<img src=b>", "<div>".repeat(10_000)), "b");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Anything ends, and what is found can be asked for: once, over HTTP, without fragment and credentials.
    #[test]
    fn anything_can_be_read(
        pieces in prop::collection::vec(
            prop::sample::select(&[
                "<", ">", "img", " src=", "srcset", "=", "'", "\"", "a", " 1x", ",", "<style>", "</style>", "@import ",
                "url(", ")", "{", "}", ";", ":", "background", "<!--", "-->", "<base href=", "http://x/", "<svg>", "&#0;",
                "\u{0}", "ü", "image-set(", "@media ", "(min-width:1px)", "<template>", "</template>", "<picture>",
                "<source ", "@font-face{src:", "unicode-range:U+", "calc(", "<link rel=stylesheet href=", "\\", "/*", "*/",
            ][..]),
            0..60,
        ),
        tail in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut body = pieces.concat().into_bytes();
        body.extend(tail);
        let mut found = html(&body, &base());
        for one in css(&body, &base()).iter().chain(&found) {
            prop_assert!(matches!(one.url.scheme(), "http" | "https"));
            prop_assert!(one.url.fragment().is_none() && one.url.username().is_empty());
            prop_assert!(one.url.has_host());
        }
        let before = found.len();
        found.sort_by(|a, b| a.url.cmp(&b.url));
        found.dedup_by(|a, b| a.url == b.url);
        prop_assert_eq!(found.len(), before);
    }

    /// A URL that is written as an attribute may be is found as it was meant, whatever stands around it.
    #[test]
    fn a_url_survives_its_writing(
        name in "[a-zA-Z0-9._~!$*,;:@/-]{0,20}[a-z0-9]",
        query in "([a-z]{1,5}=[a-z0-9]{0,5}&){0,3}z=1",
        before in "[^<>&]{0,20}",
        style in 0..6,
    ) {
        // `x/` keeps names with a colon, or two slashes, from being something else.
        let reference = format!("x/{name}?{query}");
        let escaped = reference.replace('&', "&amp;");
        let document = match style {
            0 => format!("{before}<img src='{escaped}'>"),
            1 => format!("{before}<IMG alt=x SRC=\"{escaped}\"/>"),
            2 => format!("{before}<img src={escaped} >"),
            3 => format!("{before}<img srcset='{escaped} 1x'>"),
            4 => format!("{before}<style>p{{background:url(\"{reference}\")}}</style>"),
            _ => format!("{before}<p style='background:url(\"{escaped}\")'>"),
        };
        let found = html(document.as_bytes(), &base());
        let wanted = base().join(&reference).unwrap();
        prop_assert_eq!(found.into_iter().map(|found| found.url).collect::<Vec<_>>(), vec![wanted]);
    }
}
