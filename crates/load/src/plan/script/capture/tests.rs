//! Captures, table by table.

use super::*;
use proptest::prelude::*;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX-Token:  t1 \r\nset-cookie: b=2\r\n\
    Location: /next?x=\xff\r\nX-Empty:\r\n\r\n";

fn taken(from: CaptureFrom, body: &[u8]) -> Option<Vec<u8>> {
    let mut names = Names::default();
    let spec = CaptureSpec { name: "value".into(), from };
    let captures = Captures::compile(&[spec], &mut names).unwrap();
    let id = names.find("value").unwrap();
    let mut variables = Variables::default();
    variables.set(id, b"of the step before");
    let missed: Vec<usize> = captures.extract(HEAD, body, &mut variables).collect();
    let value = variables.get(id).map(<[u8]>::to_vec);
    // What is missed has no value, not that of before.
    assert_eq!(missed, if value.is_some() { vec![] } else { vec![0] });
    value
}

#[track_caller]
fn check(from: CaptureFrom, body: &[u8], expected: Option<&str>) {
    let value = taken(from.clone(), body).map(|value| String::from_utf8_lossy(&value).into_owned());
    assert_eq!(value.as_deref(), expected, "{from:?} in {}", String::from_utf8_lossy(body));
}

#[test]
fn a_pattern_gives_its_first_group_or_all() {
    for (pattern, body, expected) in [
        ("token=([a-z]+)", &b"x token=abc token=def"[..], Some("abc")),
        ("[0-9]+", b"ab 12 34", Some("12")),
        ("(a)|(b)", b"b", None),
        ("(a)(b)", b"ab", Some("a")),
        ("x(.*)y", b"xy", Some("")),
        ("nothing", b"some", None),
        ("", b"", Some("")),
        ("(?-u:\\xff(.))", b"\xffz", Some("z")),
        ("<title>(.*?)</title>", b"<title>\xfc</title>", None),
        ("<title>((?s-u:.*?))</title>", b"<title>\xfc</title>", Some("\u{fffd}")),
    ] {
        check(CaptureFrom::Regex(pattern.into()), body, expected);
    }
    // The bytes themselves, not what they look like.
    assert_eq!(taken(CaptureFrom::Regex("(?-u)x(..)".into()), b"x\xfc\xff"), Some(b"\xfc\xff".to_vec()));
}

#[test]
fn a_pointer_gives_text_or_json() {
    let body =
        br#"{"a": {"b": [10, "x\u00e9\n", {"c": true}], "": 1.50, "m~n": 1, "o/p": 2}, "n": null, "a b": "s",
        "dup": 1, "dup": 2, "big": 123456789012345678901234567890, "esc\u0061ped": "y", "empty": ""}"#;
    for (pointer, expected) in [
        ("/a/b/0", Some("10")),
        ("/a/b/1", Some("xé\n")),
        ("/a/b/2", Some("{\"c\": true}")),
        ("/a/b/2/c", Some("true")),
        ("/a/b/3", None),
        ("/a/b/00", None),
        ("/a/b/+0", None),
        ("/a/b/-", None),
        ("/a/", Some("1.50")),
        ("/a/m~0n", Some("1")),
        ("/a/o~1p", Some("2")),
        ("/a/b/0/x", None),
        ("/a/x", None),
        ("/n", None),
        ("/n/x", None),
        ("/a b", Some("s")),
        ("/a b/0", None),
        ("/dup", Some("2")),
        ("/big", Some("123456789012345678901234567890")),
        ("/escaped", Some("y")),
        ("/empty", Some("")),
    ] {
        check(CaptureFrom::JsonPointer(pointer.into()), body, expected);
    }
    for (pointer, body, expected) in [
        ("", &b" [1, 2] "[..], Some("[1, 2]")),
        ("", b"\"x\"", Some("x")),
        ("", b"", None),
        ("/0", b"[1, 2", None),
        ("/0", b"\xef\xbb\xbf[1]", Some("1")),
        ("/0", b"[1] and more", Some("1")),
        ("/a", b"{\"a\": \"\\ud800\"}", None),
        ("/a", b"{\"a\": \"\xff\"}", None),
        ("/a", b"{\"b\": \"\xff\", \"a\": 1}", Some("1")),
        ("/a", b"<html>", None),
        ("/a", b"{'a': 1}", None),
    ] {
        check(CaptureFrom::JsonPointer(pointer.into()), body, expected);
    }
    let deep = [b"[".repeat(1 << 20), b"]".repeat(1 << 20)].concat();
    assert_eq!(taken(CaptureFrom::JsonPointer("/0/0".into()), &deep).unwrap().len(), deep.len() - 4);
    let far = CaptureFrom::JsonPointer("/0".repeat(1000));
    assert_eq!(taken(far, &deep).map(|value| value.len()), None);
}

#[test]
fn a_field_gives_its_first_line() {
    for (name, expected) in [
        ("x-token", Some("t1")),
        ("SET-COOKIE", Some("a=1")),
        ("Location", Some("/next?x=\u{fffd}")),
        ("X-Empty", Some("")),
        ("Age", None),
    ] {
        check(CaptureFrom::Header(name.into()), b"", expected);
    }
}

#[test]
fn an_attribute_is_that_of_the_first_element() {
    let body = b"<!-- <input name=csrf value=no> --><script>'<input name=csrf value=no>'</script>
        <FORM id=Login class='a b'><INPUT type=hidden NAME='csrf' VALUE=\"a&amp;b&lt;&#39;&copy=1&eacute;\"/>
        <input name=csrf value=second><input name=bare checked><input name=empty value=''></form>
        <input name=twice value=1 value=2><input name=uml value=\xc3\xbc><input name=latin value=\xfc>
        <template><a href=t></a></template><a>none</a><a href=/next>more</a><meta name=x content='y";
    for (selector, attribute, expected) in [
        ("input[name=csrf]", "value", Some("a&b<'&copy=1é")),
        ("#Login > input:nth-of-type(2)", "VALUE", Some("second")),
        ("form.a.b input[name=\"csrf\"]", "value", Some("a&b<'&copy=1é")),
        ("input[name=bare]", "checked", Some("")),
        ("input[name=empty]", "value", Some("")),
        ("input[name=bare]", "value", None),
        ("input[name=twice]", "value", Some("1")),
        ("input[name=uml]", "value", Some("ü")),
        ("input[name=latin]", "value", Some("\u{fffd}")),
        ("a[href^='/']", "href", Some("/next")),
        ("a:not([href])", "href", None),
        ("meta[name=x]", "content", None),
        ("nothing", "value", None),
    ] {
        let from = CaptureFrom::HtmlAttribute { selector: selector.into(), attribute: attribute.into() };
        check(from, body, expected);
    }
}

fn attribute(selector: &str) -> CaptureFrom {
    CaptureFrom::HtmlAttribute { selector: selector.into(), attribute: "value".into() }
}

#[test]
fn several_values_are_captured_from_one_response() {
    let from = [
        CaptureFrom::Header("X-Token".into()),
        attribute("b"),
        CaptureFrom::Regex("nothing".into()),
        attribute("a"),
        attribute("c"),
        CaptureFrom::Regex("<(.)".into()),
    ];
    let specs: Vec<_> = from
        .into_iter()
        .enumerate()
        .map(|(place, from)| CaptureSpec { name: format!("v{place}"), from })
        .collect();
    let mut names = Names::default();
    let captures = Captures::compile(&specs, &mut names).unwrap();
    assert!(captures.needs_body() && !captures.is_empty());
    let mut variables = Variables::default();
    let missed: Vec<usize> =
        captures.extract(HEAD, b"<a value=1><a value=3><b value=2>", &mut variables).collect();
    assert_eq!(missed, [2, 4]);
    let value = |name| names.find(name).and_then(|id| variables.get(id));
    let values = ["v0", "v1", "v2", "v3", "v4", "v5"].map(value);
    assert_eq!(values, [Some(&b"t1"[..]), Some(b"2"), None, Some(b"1"), None, Some(b"a")]);
    let head_only = [CaptureSpec { name: "x".into(), from: CaptureFrom::Header("A".into()) }];
    assert!(!Captures::compile(&head_only, &mut names).unwrap().needs_body());
    assert!(Captures::compile(&[], &mut names).unwrap().is_empty());
}

#[test]
fn what_cannot_be_captured_is_refused() {
    let pointer = |pointer: &str| CaptureFrom::JsonPointer(pointer.into());
    for (name, from, message) in [
        ("x y", attribute("a"), "capture `x y`: `x y` cannot be the name of a variable"),
        ("x", CaptureFrom::Regex("(a".into()), "capture `x`: `(a` is no regular expression: unclosed group"),
        ("x", pointer("a"), "capture `x`: JSON pointer `a` does not begin with `/`"),
        ("x", pointer("/a~2"), "capture `x`: JSON pointer `/a~2` has `~` without 0 or 1"),
        ("x", CaptureFrom::Header("a b".into()), "capture `x`: `a b` cannot be the name of a header"),
        ("x", CaptureFrom::Header(String::new()), "capture `x`: `` cannot be the name of a header"),
        ("x", attribute("a b["), "capture `x`: `a b[` is no CSS selector that can be used: "),
        ("x", attribute("a + b"), "capture `x`: `a + b` is no CSS selector that can be used: "),
        ("x", attribute(""), "capture `x`: `` is no CSS selector that can be used: "),
    ] {
        let error =
            Captures::compile(&[CaptureSpec { name: name.into(), from }], &mut Names::default()).unwrap_err();
        assert!(error.message.starts_with(message), "{}", error.message);
        assert_eq!(error.exit_code(), 2);
        assert!(!error.message.contains('\n'));
    }
    let from = CaptureFrom::HtmlAttribute { selector: "a".into(), attribute: "a b".into() };
    assert!(Captures::compile(&[CaptureSpec { name: "x".into(), from }], &mut Names::default()).is_err());
    let many = vec![CaptureSpec { name: "x".into(), from: attribute("a") }; CAPTURES_MAX + 1];
    assert!(Captures::compile(&many, &mut Names::default()).is_err());
    let all = vec![CaptureSpec { name: "x".into(), from: attribute("a") }; CAPTURES_MAX];
    let captures = Captures::compile(&all, &mut Names::default()).unwrap();
    assert_eq!(captures.extract(HEAD, b"", &mut Variables::default()).count(), CAPTURES_MAX);
}

proptest! {
    /// Where serde_json and its pointers find something, it is the same.
    #[test]
    fn pointers_agree_with_another_reader(
        pieces in prop::collection::vec(
            prop::sample::select(&["{", "}", "[", "]", ",", ":", "\"a\"", "\"b\"", "1", "-2.5", "null", "true", " "][..]),
            0..20,
        ),
        pointer in prop::sample::select(&["", "/a", "/b", "/a/b", "/0", "/1", "/0/a", "/a/0"][..]),
    ) {
        let body = pieces.concat();
        let ours = taken(CaptureFrom::JsonPointer(pointer.into()), body.as_bytes());
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(&body) {
            let theirs = value.pointer(pointer).filter(|value| !value.is_null());
            let ours = ours.map(|ours| String::from_utf8(ours).unwrap());
            match theirs {
                Some(serde_json::Value::String(text)) => prop_assert_eq!(ours.as_ref(), Some(text)),
                Some(other) => {
                    let ours: serde_json::Value = serde_json::from_str(&ours.unwrap()).unwrap();
                    prop_assert_eq!(&ours, other);
                }
                None => prop_assert_eq!(ours, None),
            }
        }
    }

    /// Whatever a server sends, captures end.
    #[test]
    fn anything_can_be_searched(body in any::<Vec<u8>>(), head in any::<Vec<u8>>()) {
        let from = [attribute("a"), CaptureFrom::JsonPointer("/a".into()), CaptureFrom::Header("a".into())];
        let specs = from.map(|from| CaptureSpec { name: "x".into(), from });
        let captures = Captures::compile(&specs, &mut Names::default()).unwrap();
        prop_assert!(captures.extract(&head, &body, &mut Variables::default()).count() <= 3);
    }
}
