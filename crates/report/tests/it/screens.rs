//! What a command prints by itself: one screen, with the verdict in its colour.

use crate::sample;
use webdyno_report::{ResultPaths, text};
use webdyno_session::view::Outcome;

/// A tail of SYN retransmits has a cause of its own, whatever limits the rate.
#[test]
fn what_makes_the_slow_ones_slow_is_told_beside_what_limits_the_rate() {
    let shown = |p99_us: u64, peaks: bool, behind: Option<&str>| {
        let mut view = sample::diagnosis_exhausted();
        let Outcome::Diagnosis(diagnosis) = &mut view.outcome else { panic!("a diagnosis") };
        diagnosis.findings.truncate(1);
        if let Some(id) = behind {
            let finding =
                webdyno_model::diagnosis::Finding { id: id.into(), ..diagnosis.findings[0].clone() };
            diagnosis.findings.push(finding);
        }
        let run = diagnosis.run.as_mut().unwrap();
        run.response_time_us.p99 = Some(p99_us);
        let peak = webdyno_model::run::ConnectPeak { lost_syns: 1, after_s: 1, count: 37 };
        run.connect_peaks = if peaks { vec![peak] } else { vec![] };
        [webdyno_report::TextStyle::FULL, webdyno_report::TextStyle::default()].map(|style| {
            text(&view, &ResultPaths::default(), style).split_whitespace().collect::<Vec<_>>().join(" ")
        })
    };
    for text in shown(1_200_000, true, Some("accept-queue-overflow")) {
        let tail = "Slow tail: p99 1.2 s: 37 connections took about 1 s to connect: the first SYN was lost: Accept queue overflows";
        assert!(text.contains(tail), "{text}");
    }
    for text in shown(1_200_000, true, None) {
        assert!(text.contains("the first SYN was lost: see webdyno explain lost-syns"), "{text}");
    }
    // A second of connecting is no cause of nine.
    let others = [shown(500_000, true, None), shown(1_200_000, false, None), shown(9_000_000, true, None)];
    for text in others.into_iter().flatten() {
        assert!(!text.contains("Slow tail"), "{text}");
    }
}

/// The colours of a verdict stand around the title alone, and are there only where they are wanted.
#[test]
fn verdicts_have_colours_where_they_are_wanted() {
    let style = |has_color| webdyno_report::TextStyle { has_color, is_verbose: false };
    for (view, colour) in [
        (sample::diagnosis_exhausted(), "\u{1b}[1;31m"),
        (sample::run_with_errors(), "\u{1b}[1;31m"),
        (sample::tune_kept(), "\u{1b}[1;32m"),
    ] {
        let shown = text(&view, &ResultPaths::default(), style(true));
        assert!(shown.starts_with(colour), "{shown:?}");
        assert_eq!(shown.matches("\u{1b}[0m").count(), shown.matches("\u{1b}[1").count());
        let plain = text(&view, &ResultPaths::default(), style(false));
        assert!(!plain.contains('\u{1b}'), "{plain}");
        let stripped = ["\u{1b}[1;31m", "\u{1b}[1;32m", "\u{1b}[1;33m", "\u{1b}[1m", "\u{1b}[0m"]
            .iter()
            .fold(shown, |shown, code| shown.replace(code, ""));
        assert_eq!(stripped, plain);
    }
}
