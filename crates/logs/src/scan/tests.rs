//! What holds for any lines: each is counted once, and a log in parts comes to the same as in one.

use super::*;
use crate::format::recognise;
use crate::ordered::Ordered;
use crate::report::report;
use proptest::prelude::*;
use webdyno_model::logs::LogsReport;

/// The report of blocks, each scanned by the thread of its number.
fn counted(blocks: &[&[u8]], formats: &[Format], threads: usize) -> LogsReport {
    let mut counts: Vec<Counts> = (0..threads).map(|_| Counts::new(Privacy::default())).collect();
    let mut ordered = Ordered::default();
    let mut sampled = Sampled::default();
    for (number, block) in blocks.iter().enumerate() {
        let mut events = BlockEvents::default();
        counts[number % threads].block(block, formats, &sampled, &mut events);
        sampled = ordered.add(&events);
    }
    let mut counts = counts.into_iter();
    let mut whole = counts.next().unwrap();
    counts.for_each(|other| whole.merge(other));
    whole.settle();
    report(&whole, &ordered, vec![])
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let good = (0..40u8, 0..3u8, 0..30u8, 0..200u16, any::<bool>()).prop_map(|(client, minute, second, page, is_bot)| {
        let agent = if is_bot { "Googlebot/2.1 (+http://www.google.com/bot.html)" } else { "Mozilla/5.0" };
        let status = [200, 304, 404, 500][usize::from(page % 4)];
        format!(
            "10.0.0.{client} - - [10/Oct/2026:10:0{minute}:{second:02} +0200] \"GET /p{page}.html?q HTTP/1.1\" {status} {page} \"-\" \"{agent}\""
        )
        .into_bytes()
    });
    let rubbish = prop::collection::vec(any::<u8>(), 0..120)
        .prop_map(|bytes| bytes.into_iter().filter(|byte| *byte != b'\n').collect());
    // Good lines with a byte that is wrong.
    let damaged =
        (good.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut line, at, byte)| {
            let at = at.index(line.len());
            line[at] = if byte == b'\n' { b' ' } else { byte };
            line
        });
    prop_oneof![6 => good, 1 => rubbish, 2 => damaged]
}

proptest! {
    // Invariant: a line is a request, blank or not understood, whatever is in it.
    #[test]
    fn each_line_is_counted_once(lines in prop::collection::vec(line(), 0..60), format in prop_oneof![Just("combined"), Just("json"), Just("$msec $request")]) {
        let block: Vec<u8> = lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect();
        let formats = [Format::parse(format).unwrap()];
        let report = counted(&[&block], &formats, 1);
        prop_assert_eq!(report.lines.total, lines.len() as u64);
        prop_assert_eq!(report.requests + report.lines.blank + report.lines.not_understood, lines.len() as u64);
        prop_assert_eq!(report.statuses.iter().map(|one| one.requests).sum::<u64>(), report.requests);
        prop_assert_eq!(report.types.iter().map(|one| one.requests).sum::<u64>(), report.requests);
        prop_assert_eq!(report.rates.by_hour.iter().sum::<u64>(), report.requests);
        drop(recognise(block.split(|byte| *byte == b'\n')));
    }

    // Invariant: however a log is cut into blocks, and whoever scans these, the report is the same.
    #[test]
    fn parts_come_to_the_whole(lines in prop::collection::vec(line(), 1..80), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5)) {
        let formats = [Format::parse("combined").unwrap()];
        let block = |lines: &[Vec<u8>]| -> Vec<u8> { lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect() };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(lines.len())).chain([0, lines.len()]).collect();
        cuts.sort_unstable();
        let parts: Vec<Vec<u8>> = cuts.windows(2).map(|pair| block(&lines[pair[0]..pair[1]])).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let whole = block(&lines);
        let mut expected = counted(&[&whole], &formats, 1);
        for threads in [1, 3] {
            let mut report = counted(&parts, &formats, threads);
            // Which lines are shown depends on who saw them first.
            report.lines.samples.clear();
            expected.lines.samples.clear();
            prop_assert_eq!(&report, &expected);
        }
    }
}

#[test]
fn the_id_of_a_session_is_no_part_of_a_url() {
    let line = |id: &str| {
        format!(
            "10.0.0.1 - - [10/Oct/2026:10:00:00 +0200] \"GET /cart.jsp;jsessionid={id}?a HTTP/1.1\" 200 9 \"-\" \"-\"\n"
        )
    };
    let block = line("1A2B") + &line("3C4D");
    let report = counted(&[block.as_bytes()], &[Format::parse("combined").unwrap()], 1);
    let urls: Vec<_> = report.urls.by_requests.iter().map(|url| (url.url.as_str(), url.requests)).collect();
    assert_eq!(urls, [("/cart.jsp", 2)]);
    assert_eq!(report.working_set.unwrap().objects, 2.0, "a cache keeps each by itself");
}
