//! Logs by hand.

use super::*;
use crate::format::Format;
use crate::timestamp::{Stamp, TimeReader};
use webdyno_model::duration::parse_duration_us;

fn counted(counts: &[(i64, u32)]) -> Seconds {
    let mut seconds = Seconds::default();
    counts.iter().for_each(|(at_s, count)| (0..*count).for_each(|_| seconds.add(*at_s)));
    seconds
}

#[test]
fn the_busiest_stretch_is_found() {
    // 7,199 and 7,200 are in different hours; between 20,000 and 100,000 lie hours without any request.
    let seconds = counted(&[(7_000, 3), (7_199, 4), (7_200, 5), (7_205, 1), (20_000, 8), (100_000, 2)]);
    for (length_s, from_s, requests) in
        [(1, 20_000, 8), (2, 7_199, 9), (10, 7_196, 10), (300, 7_000, 13), (20_000, 7_000, 21)]
    {
        let found = seconds.busiest(length_s).unwrap();
        assert_eq!(found.length_s, length_s);
        assert_eq!(seconds.of(found).iter().sum::<u64>(), requests, "{length_s} {found:?}");
        assert!(found.from_s <= from_s, "{length_s} {found:?}");
    }
    assert_eq!(seconds.busiest(1_000_000).unwrap(), Stretch { from_s: 7_000, length_s: 93_001 });
    assert_eq!(Seconds::default().busiest(10), None);
}

#[test]
fn stages_send_what_each_second_had() {
    assert_eq!(stages(&[3, 3, 0, 10], 1.0), ["2s@3/s", "1s@0/s", "1s@10/s"]);
    assert_eq!(stages(&[3, 3, 10], 2.0), ["1s@6/s", "500ms@20/s"]);
    // Three times as fast no second is a whole number of microseconds, and the end is where it belongs.
    let fast = stages(&(0..60).collect::<Vec<u64>>(), 3.0);
    let us = |stage: &String| parse_duration_us(stage.split('@').next().unwrap()).unwrap();
    assert_eq!(fast.iter().map(us).sum::<u64>(), 20_000_000);
}

#[test]
fn what_cannot_be_sent_again_is_left_out() {
    let format = Format::parse("vhost-combined").unwrap();
    let line = |site: &str, request: &str, status: u16| {
        format!(r#"{site}:80 10.0.0.1 - - [10/Oct/2026:13:55:36 +0000] "{request}" {status} 5 "-" "x""#)
    };
    let filter = Filter { host: Some("a.example".into()), keep_query: true };
    for (line, expected) in [
        (line("a.example", "GET /a?q=1&r=$x HTTP/1.1", 200), Ok("/a?q=1&r=%24x")),
        (line("A.EXAMPLE", "GET /\u{e4}# HTTP/1.1", 304), Ok("/%C3%A4%23")),
        (line("b.example", "GET /a HTTP/1.1", 200), Err(LeftOut::Host)),
        (line("a.example", "POST /a HTTP/1.1", 200), Err(LeftOut::Method)),
        (line("a.example", "GET /a HTTP/1.1", 404), Err(LeftOut::Failed)),
        (line("a.example", r"GET /\xff HTTP/1.1", 200), Err(LeftOut::Unclear)),
        (line("a.example", "-", 408), Err(LeftOut::Unclear)),
    ] {
        let entry = format.entry(line.as_bytes(), &mut TimeReader::default()).unwrap();
        let found = filter.takes(&entry).map(|at_s| (at_s, filter.target(&entry)));
        assert_eq!(found, expected.map(|target| (1_791_640_536, target.to_owned())), "{line}");
    }
    let entry = Entry {
        time: Some(Stamp::default()),
        path: b"/a;jsessionid=secret",
        query: b"secret=1",
        method: b"GET",
        ..Entry::default()
    };
    assert_eq!(Filter::default().target(&entry), "/a");
    assert_eq!(Filter::default().takes(&entry), Ok(0));
}
