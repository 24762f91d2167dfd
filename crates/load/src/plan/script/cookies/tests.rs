//! Cookies, against RFC 6265 and what browsers drop.

use super::*;
use proptest::prelude::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn header(jar: &mut Jar, at: &str) -> String {
    let mut line = vec![];
    jar.write_header(&url(at), &mut line);
    let text = String::from_utf8(line).unwrap();
    match text.as_str() {
        "" => String::new(),
        line => line.strip_prefix("Cookie: ").unwrap().strip_suffix("\r\n").unwrap().to_owned(),
    }
}

/// What is sent to the second URL after the first one has set a cookie.
#[track_caller]
fn check(set_at: &str, set_cookie: &str, asked: &str, expected: &str) {
    let mut jar = Jar::default();
    jar.store(&url(set_at), set_cookie.as_bytes());
    assert_eq!(header(&mut jar, asked), expected, "{set_cookie} of {set_at} at {asked}");
    // The second time from what is kept ready.
    assert_eq!(header(&mut jar, asked), expected);
}

const AT: &str = "http://www.site.test/dir/page";

#[test]
fn a_cookie_goes_where_it_belongs() {
    for (set_cookie, asked, expected) in [
        // Domains: 5.1.3, 5.3 (5, 6).
        ("a=1", AT, "a=1"),
        ("a=1", "http://www.site.test:8080/dir/x", "a=1"),
        ("a=1", "https://www.site.test/dir/", "a=1"),
        ("a=1", "http://site.test/dir/x", ""),
        ("a=1", "http://sub.www.site.test/dir/x", ""),
        ("a=1; Domain=site.test", "http://other.site.test/dir/x", "a=1"),
        ("a=1; Domain=.SITE.test", "http://site.test/dir/x", "a=1"),
        ("a=1; domain=site.test", "http://badsite.test/dir/x", ""),
        ("a=1; Domain=sub.www.site.test", "http://sub.www.site.test/dir/x", ""),
        ("a=1; Domain=other.test", "http://other.test/dir/x", ""),
        ("a=1; Domain=", "http://www.site.test/dir/x", "a=1"),
        // Paths: 5.1.4, 5.2.4.
        ("a=1", "http://www.site.test/dir", "a=1"),
        ("a=1", "http://www.site.test/dir/sub/x", "a=1"),
        ("a=1", "http://www.site.test/", ""),
        ("a=1", "http://www.site.test/directory", ""),
        ("a=1; Path=/", "http://www.site.test/x", "a=1"),
        ("a=1; Path=/x", "http://www.site.test/x/y", "a=1"),
        ("a=1; Path=/x", "http://www.site.test/xy", ""),
        ("a=1; Path=/x/", "http://www.site.test/x", ""),
        ("a=1; Path=relative", "http://www.site.test/dir/", "a=1"),
        ("a=1; Path=", "http://www.site.test/dir/", "a=1"),
        // Secure.
        ("a=1; Secure", "http://www.site.test/dir/", ""),
        ("a=1; Secure", "https://www.site.test/dir/", "a=1"),
        ("a=1; HttpOnly; SameSite=Strict", "http://www.site.test/dir/", "a=1"),
        // Lifetimes: 5.2.1, 5.2.2.
        ("a=1; Max-Age=100", AT, "a=1"),
        ("a=1; Max-Age=0", AT, ""),
        ("a=1; Max-Age=-1", AT, ""),
        ("a=1; Max-Age=99999999999999999999", AT, "a=1"),
        ("a=1; Max-Age=soon", AT, "a=1"),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", AT, ""),
        ("a=1; Expires=Fri, 31 Dec 9999 23:59:59 GMT", AT, "a=1"),
        ("a=1; Expires=Thu, 01-Jan-1970 00:00:01 GMT", AT, ""),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=100", AT, "a=1"),
        ("a=1; Expires=never", AT, "a=1"),
    ] {
        check(AT, set_cookie, asked, expected);
    }
    check("http://127.0.0.1:8080/", "a=1", "http://127.0.0.1/", "a=1");
    check("http://127.0.0.1:8080/", "a=1", "http://127.0.0.2/", "");
    check("http://[::1]/", "a=1", "http://[::1]/", "a=1");
    // What browsers hold of this machine: it needs no TLS to be safe.
    check("http://localhost/", "a=1; Secure", "http://localhost/", "a=1");
}

#[test]
fn a_cookie_is_what_browsers_take_for_one() {
    for (set_cookie, asked, expected) in [
        // Names and values: 5.2.
        (" a = 1 ; Path=/", AT, "a=1"),
        ("a=1=2", AT, "a=1=2"),
        ("a=", AT, "a="),
        ("a=\"1 2\"", AT, "a=\"1 2\""),
        ("a=%20;", AT, "a=%20"),
        ("=1", AT, ""),
        ("", AT, ""),
        ("a=1\n2", AT, ""),
        ("a=1\u{0}", AT, ""),
        ("a=ü😀", AT, "a=ü😀"),
        // Prefixes: draft-ietf-httpbis-rfc6265bis, 4.1.3.
        ("__Secure-a=1", "https://www.site.test/dir/", ""),
        ("__Secure-a=1; Secure", "https://www.site.test/dir/", "__Secure-a=1"),
        ("__Host-a=1; Secure; Path=/", "https://www.site.test/", "__Host-a=1"),
        ("__Host-a=1; Secure", "https://www.site.test/dir/", ""),
        ("__Host-a=1; Secure; Path=/; Domain=site.test", "https://www.site.test/", ""),
    ] {
        check(AT, set_cookie, asked, expected);
    }
}

#[test]
fn bytes_come_back_as_they_came() {
    let mut jar = Jar::default();
    let at = url("http://h/");
    jar.store(&at, b"a=\xfc\xff; Path=/");
    let mut line = vec![];
    jar.write_header(&at, &mut line);
    assert_eq!(line, b"Cookie: a=\xfc\xff\r\n");
}

#[test]
fn the_newest_value_counts_and_the_order_stays() {
    let mut jar = Jar::default();
    let at = url("http://h/x/y");
    for set_cookie in ["a=1; Path=/", "b=1; Path=/", "c=1; Path=/x", "a=2; Path=/"] {
        jar.store(&at, set_cookie.as_bytes());
    }
    assert_eq!(header(&mut jar, "http://h/x/z"), "c=1; a=2; b=1");
    assert_eq!(header(&mut jar, "http://h/"), "a=2; b=1");
    // The same name elsewhere is another cookie, also for the host itself and for its domain (rfc6265bis, 5.7).
    jar.store(&at, b"d=1; Path=/; Domain=h");
    jar.store(&at, b"d=2; Path=/");
    assert_eq!(header(&mut jar, "http://h/"), "a=2; b=1; d=1; d=2");
    jar.store(&at, b"d=1; Path=/; Domain=h; Max-Age=0");
    jar.store(&at, b"d=1; Path=/; Max-Age=0");
    jar.store(&at, b"a=3; Path=/x");
    assert_eq!(header(&mut jar, "http://h/x/z"), "c=1; a=3; a=2; b=1");
    jar.store(&at, b"b=; Path=/; Max-Age=0");
    assert_eq!(header(&mut jar, "http://h/x/z"), "c=1; a=3; a=2");
    assert_eq!(header(&mut jar, "http://h/"), "a=2");
    assert_eq!(jar.count(), 3);
    jar.clear();
    assert_eq!((header(&mut jar, "http://h/x/z"), jar.count()), (String::new(), 0));
}

#[test]
fn what_is_kept_ready_goes_with_a_change() {
    let mut jar = Jar::default();
    let at = url("http://h/");
    jar.store(&at, b"a=1");
    for set_cookie in ["a=2", "b=1", "a=2; Max-Age=60", "a=; Max-Age=0", "c=1; Path=/p", "b=2; Secure"] {
        header(&mut jar, "http://h/");
        header(&mut jar, "http://h/p/q");
        jar.store(&at, set_cookie.as_bytes());
        for asked in ["http://h/", "http://h/p/q", "https://h/", "http://other/"] {
            let kept = header(&mut jar, asked);
            jar.rendered.clear();
            assert_eq!(kept, header(&mut jar, asked), "{set_cookie} at {asked}");
        }
    }
}

#[test]
fn a_cookie_ends_in_time() {
    let mut jar = Jar::default();
    jar.store(&url("http://h/"), b"a=1; Max-Age=1");
    jar.store(&url("http://h/"), b"b=1");
    assert_eq!(header(&mut jar, "http://h/"), "a=1; b=1");
    jar.cookies[0].expire();
    jar.note_ends();
    assert_eq!(header(&mut jar, "http://h/"), "b=1");
    assert_eq!(jar.count(), 1);
}

#[test]
fn what_is_huge_is_dropped_as_browsers_drop_it() {
    let mut jar = Jar::default();
    let at = url("http://h/");
    jar.store(&at, format!("a={}", "x".repeat(COOKIE_BYTES_MAX - 2)).as_bytes());
    jar.store(&at, format!("b={}", "x".repeat(COOKIE_BYTES_MAX - 1)).as_bytes());
    assert_eq!(jar.count(), 1);
    // An attribute that is too long is as if it were not there.
    jar.store(&at, format!("c=1; Path=/{}; Max-Age=0", "x".repeat(ATTRIBUTE_BYTES_MAX)).as_bytes());
    jar.store(&at, format!("d=1; Path=/{}", "x".repeat(ATTRIBUTE_BYTES_MAX)).as_bytes());
    assert!(header(&mut jar, "http://h/").ends_with("xxx; d=1"));
    for number in 0..1000 {
        jar.store(&at, format!("n{number}=1").as_bytes());
    }
    assert_eq!(jar.count(), COOKIES_MAX);
    assert!(header(&mut jar, "http://h/").ends_with("; n999=1"));
}

proptest! {
    /// Any field and any URL: the jar takes it or not, writes at most one line, and writes the same from what it keeps
    /// ready as anew.
    #[test]
    fn any_field_can_be_stored(
        fields in prop::collection::vec("[a-c]{0,2}=?[ -~é]{0,8}(; ?(Path|Domain|Max-Age|Expires|Secure|x)=?[/a-c.0-9-]{0,6}){0,3}", 0..12),
        path in "(/[a-c]{0,2}){0,3}",
    ) {
        let mut jar = Jar::default();
        for field in &fields {
            jar.store(&url("http://a.b/c/a"), field.as_bytes());
            let asked = format!("http://a.b{path}");
            let kept = header(&mut jar, &asked);
            jar.rendered.clear();
            prop_assert_eq!(&kept, &header(&mut jar, &asked));
            prop_assert!(!kept.contains(['\r', '\n']));
        }
    }

    /// Each cookie of the list is where cookie_store's own store would send it. That store, as RFC 6265, has one place
    /// for a host's own cookie and one of the same name for its domain, which browsers keep apart: they are left out.
    #[test]
    fn the_library_s_own_store_sends_the_same(
        fields in prop::collection::vec("[a-c]=[0-9](; (Path=/[ab]?|Domain=(\\.?b|ab|c\\.b)|Max-Age=[0-9]|Secure)){0,2}", 0..8),
        asked in "http://(a\\.b|b|c\\.b)/[ab]?",
    ) {
        let (mut jar, mut store) = (Jar::default(), cookie_store::CookieStore::default());
        for field in &fields {
            jar.store(&url("http://a.b/a/x"), field.as_bytes());
            let _ = store.parse(field, &url("http://a.b/a/x"));
        }
        let sorted = |mut pairs: Vec<String>| { pairs.sort(); pairs };
        let theirs: Vec<String> =
            store.get_request_values(&url(&asked)).map(|(name, value)| format!("{name}={value}")).collect();
        let line = header(&mut jar, &asked);
        let ours = line.split("; ").filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
        prop_assert_eq!(sorted(ours), sorted(theirs));
    }
}
