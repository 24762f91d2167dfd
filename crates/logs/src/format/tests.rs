//! Formats against lines: fields, presets, what is refused, what is recognised.

use super::*;

fn fields(format: &str, line: &str) -> Option<String> {
    let mut times = TimeReader::default();
    let format = Format::parse(format).unwrap();
    let entry = format.entry(line.as_bytes(), &mut times)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let number = |number: Option<u64>| number.map_or("?".into(), |number| number.to_string());
    let texts = [entry.host, entry.client, entry.method, entry.path, entry.query, entry.agent].map(text);
    let time = entry.time.map_or(0, |stamp| stamp.utc_s);
    let numbers =
        format!("{time} {} {} {}", entry.status, number(entry.bytes), number(entry.service_time_us));
    Some(format!("{} | {numbers}", texts.join(" ")))
}

#[test]
fn lines_are_taken_apart_as_their_format_says() {
    let vhost = r#"www.example.org:443 ::1 - - [10/Oct/2026:13:55:36 +0200] "GET /a?b=c HTTP/1.1" 200 512 "-" "Mozilla \"x\"""#;
    let nginx = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_time"#;
    let json = r#"{"time":"2026-10-10T11:55:36Z","remote_addr":"::1","request":"GET /a?b HTTP/2.0","status":200,"body_bytes_sent":"5","request_time":0.25,"x":[1,{}],"http_user_agent":"M"}"#;
    let caddy = r#"{"level":"info","ts":1791633336.5,"request":{"remote_ip":"::1","method":"GET","host":"h","uri":"/a","headers":{"User-Agent":["M"]}},"duration":0.002,"size":7,"status":404}"#;
    for (format, line, expected) in [
        (
            "common",
            r#"::1 - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 304 -"#,
            " ::1 GET /   | 1791633336 304 0 ?",
        ),
        ("vhost-combined", vhost, r#"www.example.org ::1 GET /a b=c Mozilla \"x\" | 1791633336 200 512 ?"#),
        ("common", r#"h - - [10/Oct/2026:13:55:36 +0200] "-" 408 -"#, " h     | 1791633336 408 0 ?"),
        (
            "common",
            r#"h - - [10/Oct/2026:13:55:36 +0200] "\x16\x03\x01" 400 226"#,
            " h     | 1791633336 400 226 ?",
        ),
        (
            "common",
            r#"h - - [10/Oct/2026:13:55:36 +0200] "GET http://x/y?z HTTP/1.0" 200 1"#,
            " h GET /y z  | 1791633336 200 1 ?",
        ),
        (
            r#"%h %l %t %D %{ms}T "%m %U" %q %>s"#,
            r#"h 5 [10/Oct/2026:13:55:36 +0200] 1500 1 "GET /a" ?b 200"#,
            " h GET /a b  | 1791633336 200 ? 1500",
        ),
        (
            r#"%h %t "%m %U%q" %>s"#,
            r#"h [10/Oct/2026:13:55:36 +0200] "GET /a?b" 200"#,
            " h GET /a b  | 1791633336 200 ? ?",
        ),
        (
            r#"%{msec}t %a %s %T \"%r\""#,
            r#"1791633336123 ::1 200 2 "HEAD / HTTP/1.1""#,
            " ::1 HEAD /   | 1791633336 200 ? 2000000",
        ),
        (
            nginx,
            r#"::1 - - [10/Oct/2026:13:55:36 +0200] "GET /a HTTP/1.1" 200 9 "-" "M" 0.004"#,
            " ::1 GET /a  M | 1791633336 200 9 4000",
        ),
        (
            "'$msec $status '\n  '\"$request\"'",
            r#"1791633336.123 200 "GET / HTTP/1.1""#,
            "  GET /   | 1791633336 200 ? ?",
        ),
        (
            r"time:$time_local\thost:$remote_addr\treq:$request\tstatus:$status",
            "time:10/Oct/2026:13:55:36 +0200\thost:::1\treq:GET /a HTTP/1.1\tstatus:200",
            " ::1 GET /a   | 1791633336 200 ? ?",
        ),
        ("json", json, " ::1 GET /a b M | 1791633336 200 5 250000"),
        ("json", caddy, "h ::1 GET /a  M | 1791633336 404 7 2000"),
    ] {
        assert_eq!(fields(format, line).as_deref(), Some(expected), "{format}");
    }
}

#[test]
fn lines_of_json_are_read_by_the_names_that_programs_give() {
    for (line, expected) in [
        // Traefik's redirect to https, Caddy's, and a format of Apache's with `%U`.
        (
            r#"{"ClientHost":"::1","DownstreamStatus":301,"Duration":45210,"RequestPath":"/a?b","StartUTC":"2026-10-10T11:55:36Z"}"#,
            " ::1  /a b  | 1791633336 301 ? 45",
        ),
        (r#"{"ts":1791633336.5,"uri":"/a","status":200,"duration":2}"#, "   /a   | 1791633336 200 ? 2000000"),
        (
            r#"{"time":"[10/Oct/2026:13:55:36 +0200]","request":"/a","query":"?b","method":"GET","status":"200"}"#,
            "  GET /a b  | 1791633336 200 ? ?",
        ),
    ] {
        assert_eq!(fields("json", line).as_deref(), Some(expected), "{line}");
    }
}

#[test]
fn of_fields_that_tell_the_same_the_better_one_counts() {
    let time = "[10/Oct/2026:13:55:36 +0200]";
    for (format, line, expected) in [
        (
            r#"[$time_local] "$request" $status $uri $args $request_time"#,
            format!(r#"{time} "GET /shop/a?b HTTP/1.1" 200 /index.php q=/shop/a&b 0.250"#),
            "  GET /shop/a b  | 1791633336 200 ? 250000",
        ),
        (
            r#"%t "%r" %>s %U %D %T"#,
            format!(r#"{time} "GET /a%20b HTTP/1.1" 200 /a-b 1500 0"#),
            "  GET /a%20b   | 1791633336 200 ? 1500",
        ),
        // Milliseconds as Apache can write them, between a time and its zone.
        (
            r#"%h [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] "%r" %>s"#,
            r#"h [10/Oct/2026:13:55:36.123 +0200] "GET / HTTP/1.1" 200"#.into(),
            " h GET /   | 1791633336 200 ? ?",
        ),
        (
            "$msec $request_method $uri $status",
            "1791633336.1 GET /a 200".into(),
            "  GET /a   | 1791633336 200 ? ?",
        ),
    ] {
        assert_eq!(fields(format, &line).as_deref(), Some(expected), "{format}");
    }
}

#[test]
fn lines_of_another_format_are_refused() {
    for (format, line) in [
        ("common", ""),
        ("common", "rubbish"),
        ("common", r#"h - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 1 "-" "more""#),
        ("common", r#"h - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 2000 1"#),
        ("common", r#"h - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 x"#),
        ("combined", r#"h - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 1 "-" "unfinished"#),
        ("combined", r#"h - - [99/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 1 "-" "a""#),
        ("json", "{}"),
        ("json", r#"{"status":200"#),
        ("json", r#"{"status":200,"time":"rubbish"}"#),
        // Lists that do not end, or hold nothing between their commas.
        ("json", r#"{"status":[}"#),
        ("json", r#"{"status":[,]}"#),
        ("json", r#"{"a":[[[["#),
    ] {
        assert_eq!(fields(format, line), None, "{format}: {line}");
    }
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(50_000), "]".repeat(50_000));
    assert_eq!(fields("json", &deep), None);
}

#[test]
fn formats_that_cannot_be_read_back_are_refused() {
    for (format, why) in [
        ("combinde", "is no format"),
        ("%h %r", "no time"),
        ("%t %h", "neither"),
        ("%t%r", ""),
        ("%r%t %h%u", "nothing between"),
        ("%t %", "ends within"),
    ] {
        let parsed = Format::parse(format);
        assert!(
            parsed.as_ref().err().is_some_and(|error| error.message.contains(why)) || why.is_empty(),
            "{format}: {parsed:?}"
        );
    }
}

#[test]
fn the_format_is_recognised_by_the_lines() {
    let combined = r#"h - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 1 "-" "a""#;
    let common = r#"h - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 1"#;
    let check = |lines: &[String], names: &[&str]| {
        let found = recognise(lines.iter().map(String::as_bytes));
        assert_eq!(found.iter().map(Format::name).collect::<Vec<_>>(), names, "{lines:?}");
    };
    for (line, name) in [
        (combined.to_owned(), "combined"),
        (common.to_owned(), "common"),
        (format!("{combined} 1500"), "combined %D"),
        (format!("{combined} 0.150"), "combined $request_time"),
        (format!("{combined} x=1 y"), "combined, with more behind it"),
        (format!("www:80 {combined}"), "vhost-combined"),
        (format!("www {common}"), "vhost-common"),
        (r#"{"ts":1791633336,"status":200}"#.into(), "json"),
    ] {
        check(&[line.clone(), "rubbish".into(), line], &[name]);
    }
    let mixed = [vec![combined.to_owned(); 9], vec![common.to_owned(); 3]].concat();
    check(&mixed, &["combined", "common"]);
    check(&["rubbish".into(), "# comment".into()], &[]);
}
