//! Lists as users write them, and what is wrong with others.

use super::*;
use proptest::prelude::*;

/// Reads a list where `BASE` is in the environment and `form.txt` and `doc.json` are files.
fn read(text: &[u8]) -> Result<UrlList> {
    let variable = |name: &str| (name == "BASE").then(|| "http://env:81".to_owned());
    let mut files = |path: &Path| match path.to_str() {
        Some("form.txt") => Ok(b" a=1\n".to_vec()),
        Some("doc.json") => Ok(b"{}\n".to_vec()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    parse("urls.txt", text, ListContext { method: "GET", variable: &variable, read: &mut files })
}

/// What an entry comes to: `POST http://h/a text/plain <body>`.
fn describe_entry(list: &UrlList, number: usize) -> String {
    let entry = list.entries.entries[number];
    let kind = &list.kinds[entry.kind as usize];
    let server = url::Url::parse(&kind.url).unwrap().origin().ascii_serialization();
    let target = String::from_utf8_lossy(list.entries.target(&entry));
    let body = String::from_utf8_lossy(list.entries.body(&entry).0).into_owned();
    let content_type = kind.content_type.as_ref().map(|of| format!(" {of}")).unwrap_or_default();
    format!("{} {server}{target}{content_type} {body}", kind.method).trim_end().to_owned()
}

fn check(text: &str, expected: &[&str]) {
    let list = read(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {}", error.message));
    let got: Vec<String> =
        (0..list.entries.entries.len()).map(|number| describe_entry(&list, number)).collect();
    assert_eq!(got, expected, "{text:?}");
}

#[test]
fn lines_are_read_as_siege_reads_them() {
    check("http://h/a\nhttps://h:444/b?c=d\n", &["GET http://h/a", "GET https://h:444/b?c=d"]);
    check(
        "\u{FEFF}h\r\n\r\n  localhost:8080/x  \r\n//h/y",
        &["GET http://h/", "GET http://localhost:8080/x", "GET http://h/y"],
    );
    check(
        "# no\n   # no\nHTTP://H:80/#part\nh # why\nh/b#c # d",
        &["GET http://h/", "GET http://h/", "GET http://h/b"],
    );
    check(
        "h/a b.html\nh/ü?q=ü&r= s\nh/x/../y",
        &["GET http://h/a%20b.html", "GET http://h/%C3%BC?q=%C3%BC&r=%20s", "GET http://h/y"],
    );
    check(
        "h?a=1\n[::1]:8/x\nh/a?b?c=%zz",
        &["GET http://h/?a=1", "GET http://[::1]:8/x", "GET http://h/a?b?c=%zz"],
    );
}

#[test]
fn methods_and_bodies_are_read_as_siege_reads_them() {
    let form = "application/x-www-form-urlencoded";
    let post = format!("POST http://h/ {form} a=1 # b");
    check(
        "h POST a=1 # b\nh\tPUT\nh/x y POST  \nh HEAD # c",
        &[&post, "PUT http://h/", "POST http://h/x%20y", "HEAD http://h/"],
    );
    check(
        "h/f POST <form.txt\nh/f PATCH < doc.json",
        &["POST http://h/f text/plain a=1", "PATCH http://h/f application/json {}"],
    );
    let odd = format!("POST http://h/ {form} -Tx");
    check(
        "h POST -T text/xml; a;b\nh POST -T text/xml\nh POST -Tx",
        &["POST http://h/ text/xml a;b", "POST http://h/", &odd],
    );
    check(
        "h/POST\nh/a POSTER\nh DELETE",
        &["GET http://h/POST", "GET http://h/a%20POSTER", "DELETE http://h/"],
    );
    assert_eq!(read(b"h POST <doc.json").unwrap().entries.bodies[0].bytes(), b"{}\n");
}

#[test]
fn variables_are_replaced_as_siege_replaces_them() {
    check("HOST=a:80\n${HOST}/x", &["GET http://a/x"]);
    check("S=https\nH=h # the host\nP=$(H)/p\n${S}://${P}/$(S)", &["GET https://h/p/https"]);
    check("$(BASE)/x\nBASE=h\n${BASE}/x", &["GET http://env:81/x", "GET http://h/x"]);
    check(r"h/?a=$5&b=\$(c)&d=$", &["GET http://h/?a=$5&b=$(c)&d=$"]);
    check("B=h\n$(B)/1\nB=i\n$(B)/2", &["GET http://h/1", "GET http://i/2"]);
    check("V=1 2\nh POST a=${V}#x", &["POST http://h/ application/x-www-form-urlencoded a=1 2#x"]);
}

#[test]
fn weights_stand_in_the_fragment() {
    let list = read(b"h/a\nh/b#weight=2.5\nh/c#part\nh/d#weight=1e-3 POST x").unwrap();
    assert_eq!(list.entries.weights, [1.0, 2.5, 1.0, 1e-3]);
    assert!(read(b"h/a\nh/b#part").unwrap().entries.weights.is_empty());
}

#[test]
fn wrong_lines_are_reported_with_line_and_column() {
    for (text, place, part) in [
        ("h/a\n  ftp://h/b", "2:3", "another scheme"),
        ("http:/h", "1:1", "another scheme"),
        ("/index.html", "1:1", "names no host"),
        ("?a", "1:1", "names no host"),
        ("http://", "1:8", "not a URL"),
        ("h\nü é/$(x", "2:5", "`$(x` is no variable"),
        ("h/${NOT}", "1:3", "`NOT` has no value"),
        ("=x", "1:1", "no name"),
        ("http://me:pw@h/", "1:8", "credentials"),
        ("h:0/", "1:1", "port 0"),
        ("h:99999/", "1:1", "invalid port"),
        ("h/a\x01b", "1:4", "control character"),
        ("h/a POST <none.txt", "1:11", "cannot read `none.txt`"),
        ("h/a POST < ", "1:11", "no file"),
        ("h/a GET x", "1:9", "carries no body"),
        ("h/a POST -T", "1:10", "`-T`"),
        ("h/a#weight=0", "1:5", "not the weight"),
        ("h/a#weight=-1 # x", "1:5", "not the weight"),
        ("h/a#weight=nan", "1:5", "not the weight"),
    ] {
        let error = read(text.as_bytes()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.message.starts_with(&format!("urls.txt:{place}: ")), "{text:?}: {}", error.message);
        assert!(error.message.contains(part), "{text:?}: {}", error.message);
    }
    assert_eq!(
        read(b"h/a\xE9").unwrap_err().message,
        "urls.txt:1:4: a byte that is not UTF-8 is no part of a URL"
    );
    let long = format!("h/{}", "a".repeat(70_000));
    assert!(read(long.as_bytes()).unwrap_err().message.contains("70001 bytes"));
    for empty in ["", "\n\n", "# a\n", "A=b"] {
        assert_eq!(read(empty.as_bytes()).unwrap_err().message, "urls.txt holds no URL", "{empty:?}");
    }
}

#[test]
fn of_many_wrong_lines_a_few_are_shown() {
    let error = read("ftp://h/\n".repeat(100_000).as_bytes()).unwrap_err();
    assert!(
        error.message.starts_with("urls.txt has 100000 wrong lines\n  urls.txt:1:1: "),
        "{}",
        error.message
    );
    assert_eq!(error.message.lines().count(), 7);
    assert!(error.message.ends_with("\n  and 99995 more"), "{}", error.message);
    assert!(error.hint.is_some());
    let two = read(b"h/a\n=x\nh/b\n=y").unwrap_err();
    assert_eq!(two.message.lines().count(), 3);
}

#[test]
fn names_are_few() {
    let names = |text: &str| read(text.as_bytes()).unwrap().entries.names;
    assert_eq!(names("h\nh/a\nh/a?b\nh/c/d\nh/c/e/f POST x"), ["/", "/a", "/c/*", "POST /c/*"]);
    assert_eq!(names("h/a\nhttps://h/a"), ["http://h/a", "https://h/a"]);
    let many = |ending: fn(usize) -> String| -> String {
        (0..100).map(|n| format!("h/{n}/{n}{}\n", ending(n))).collect()
    };
    assert_eq!(
        names(&many(|n| if n % 2 == 0 { ".html".into() } else { String::new() })),
        ["*.html", "(no ending)"]
    );
    let list = read(many(|n| format!(".x{n}")).as_bytes()).unwrap();
    assert_eq!((list.entries.names.len(), list.entries.names[20].as_str()), (21, "(other)"));
    let numbers: Vec<u16> = list.entries.entries.iter().map(|entry| entry.name).collect();
    assert!(numbers[..20].iter().copied().eq(0..20) && numbers[20..].iter().all(|&number| number == 20));
}

#[test]
fn kinds_are_what_requests_have_in_common() {
    let list = read(b"h/a\nH:80/b\nh/c POST x\nh/d POST -T a/b x\nh/e POST x\ni/f").unwrap();
    let kinds: Vec<u32> = list.entries.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [0, 0, 1, 2, 1, 3]);
    assert_eq!(list.kinds[1].url, "http://h/c");
    let servers: String = (0..=KINDS_MAX).map(|n| format!("h{n}\n")).collect();
    assert!(read(servers.as_bytes()).unwrap_err().message.contains("more than 4096 kinds"));
}

proptest! {
    // Invariant: however a list is cut into pieces, it is read as a whole.
    #[test]
    fn pieces_make_the_same_list(cuts in prop::collection::vec(0usize..90, 0..6)) {
        let text = "\u{FEFF}A=h\r\n\r\n${A}/1#weight=2\n# c\nh/2 POST <form.txt\r\n  h/3 POST a=b\nh/\u{FC}".as_bytes();
        let variable = |_: &str| None;
        let mut files = |_: &Path| Ok(b"x".to_vec());
        let mut reader = Reader::new("urls.txt", ListContext { method: "GET", variable: &variable, read: &mut files });
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            reader.feed(&text[from..cut]);
            from = cut;
        }
        let mut files = |_: &Path| Ok(b"x".to_vec());
        let whole = parse("urls.txt", text, ListContext { method: "GET", variable: &variable, read: &mut files });
        prop_assert_eq!(reader.finish(), whole);
    }

    // Invariant: no text is too strange to be read or refused.
    #[test]
    fn any_text_is_read_or_refused(text in prop::collection::vec(prop::sample::select(b"h/.:#$({})=\\ \n\r<POSTweight=1@[]?%\xE9\0".to_vec()), 0..80)) {
        match read(&text) {
            Ok(list) => prop_assert!(!list.entries.entries.is_empty()),
            Err(error) => prop_assert!(error.message.lines().count() <= 7),
        }
    }
}
