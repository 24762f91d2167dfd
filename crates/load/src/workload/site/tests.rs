//! Sites by hand.

use super::*;
use crate::workload::file::to_toml;

const BOUNDS: Bounds = Bounds { requests_max: 50, depth_max: 3 };

fn url(path: &str) -> Url {
    Url::parse("http://h/").unwrap().join(path).unwrap()
}

/// Pages by path: their HTML, or where they lead to.
fn walked(pages: &[(&str, &str)], robots: &str, bounds: Bounds) -> (Walk, Vec<String>) {
    let mut walk = Walk::new(url("/"), Robots::parse(robots, "webdyno"), bounds);
    let mut asked = vec![];
    while let Some((next, depth)) = walk.next_url() {
        let path = next[url::Position::BeforePath..].to_owned();
        let fetched = pages.iter().find(|(known, _)| *known == path).map(|(_, body)| Fetched {
            status: if body.starts_with('>') { 302 } else { 200 },
            content_type: if body.starts_with('%') { "application/pdf" } else { "text/html;charset=utf-8" }
                .into(),
            location: body.strip_prefix('>').map(str::to_owned),
            body: body.as_bytes().to_vec(),
        });
        asked.push(path);
        walk.add((next, depth), fetched.as_ref());
    }
    (walk, asked)
}

#[test]
fn a_site_is_walked_along_its_links() {
    let pages = [
        (
            "/",
            "<a href=/a>A</a> <a href='b?x=1&amp;y=2#part'>B</a><a href=http://other/>no</a><a href=mailto:x@y>no</a>",
        ),
        (
            "/a",
            "<a href=/>home</a><a href=/b?x=1&y=2>B</a><a href=/secret/x>no</a><a rel='nofollow x' href=/no>no</a>",
        ),
        ("/b?x=1&y=2", "<a href=/moved>m</a><a href=/f.pdf>f</a><a href=/gone>g</a><a href=/>home</a>"),
        ("/moved", ">/new"),
        ("/new", "<meta name=ROBOTS content='noindex, nofollow'><a href=/closed>no</a>"),
        ("/f.pdf", "%PDF"),
    ];
    let (walk, asked) = walked(&pages, "User-agent: *\nDisallow: /secret", BOUNDS);
    assert_eq!(asked, ["/", "/a", "/b?x=1&y=2", "/moved", "/f.pdf", "/gone", "/new"]);
    assert_eq!(walk.counts(), WalkCounts { pages: 4, files: 1, failed: 1, kept_out: 1, left_out: 0 });
    let workload = walk.workload(5).unwrap();
    let weights: Vec<(&str, f64)> = workload
        .visits
        .as_ref()
        .unwrap()
        .sessions
        .iter()
        .map(|session| (session.name.as_str(), session.weight))
        .collect();
    assert_eq!(weights, [("/", 3.0), ("/a", 1.0), ("/b?x=1&y=2", 2.0), ("/f.pdf", 1.0), ("/new", 1.0)]);
    let text = to_toml(&workload).unwrap();
    assert!(text.contains("/f.pdf") && text.contains("weight = 3.0"), "{text}");
}

#[test]
fn a_walk_has_its_bounds() {
    let endless: Vec<(String, String)> =
        (0..100).map(|n| (format!("/{n}"), format!("<a href=/{}>next</a>", n + 1))).collect();
    let mut pages: Vec<(&str, &str)> =
        endless.iter().map(|(path, body)| (path.as_str(), body.as_str())).collect();
    pages.push(("/", "<a href=/0>0</a>"));
    let (walk, asked) = walked(&pages, "", Bounds { requests_max: 5, depth_max: 50 });
    assert_eq!((asked.len(), walk.counts().left_out), (5, 1));
    let (walk, asked) = walked(&pages, "", Bounds { requests_max: 50, depth_max: 2 });
    assert_eq!((asked.len(), walk.counts().pages), (3, 3));
    let (walk, _) = walked(&[], "", BOUNDS);
    assert!(walk.workload(1).is_none());
}

/// The examples of RFC 9309, 2.2 and 5.
#[test]
fn robots_txt_is_read_as_its_standard_says() {
    let text = "User-agent: *\nDisallow: *.gif$\nDisallow: /example/\nAllow: /publications/\nCrawl-delay: 2\n\n\
                user-agent: foobot\nDisallow:/\nAllow:/example/page.html\nAllow:/example/allowed.gif\n\n\
                User-agent: barbot\nUser-agent: bazbot\nDisallow: /example/page.html # a comment\n\nUser-agent: quxbot\n";
    for (program, path, expected) in [
        ("webdyno", "/", true),
        ("webdyno", "/a.gif", false),
        ("webdyno", "/a.gif?x", true),
        ("webdyno", "/example/page.html", false),
        ("webdyno", "/publications/", true),
        ("FooBot", "/", false),
        ("foobot", "/example/page.html", true),
        ("barbot", "/example/page.html", false),
        ("bazbot", "/example/page.html", false),
        ("bazbot", "/a.gif", true),
        ("quxbot", "/example/", true),
    ] {
        assert_eq!(Robots::parse(text, program).allows(&url(path)), expected, "{program} {path}");
    }
    assert_eq!(Robots::parse(text, "webdyno").crawl_delay_s, Some(2.0));
    // Of two as long the one that allows; the longest first.
    let both =
        Robots::parse("user-agent:*\nallow:/p\ndisallow:/\nallow:/x/y\ndisallow:/x/y\ndisallow:/p/*/z", "w");
    for (path, expected) in [("/page", true), ("/q", false), ("/x/y", true), ("/p/a/b/z1", false)] {
        assert_eq!(both.allows(&url(path)), expected, "{path}");
    }
    for (status, expected) in [(200, false), (404, true), (403, true), (503, false)] {
        let robots = Robots::of_response(status, b"user-agent: *\ndisallow: /", "webdyno");
        assert_eq!(robots.allows(&url("/a")), expected, "{status}");
    }
}
