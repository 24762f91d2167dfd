//! What must hold for any figures and any strings: widths, escapes, well-formedness, no figure that is none.

use crate::invented::{Leaves, any_decimal, any_decimals, decimals, replaced, spoil, whole};
use crate::sample;
use proptest::prelude::*;
use webdyno_report::{ResultPaths, html, json, page_data, record, text};
use webdyno_session::view::{Outcome, View};

const COLUMNS: usize = 80;

/// What a page shows: the answer that is written as elements, and the data.
fn parts(page: &str) -> (&str, serde_json::Value) {
    let (_, rest) = page.split_once("<main>\n").unwrap();
    let (answer, rest) = rest.split_once("</main>").unwrap();
    let (_, rest) = rest.split_once("id=\"page-data\">").unwrap();
    (answer, serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap())
}

/// All strings and figures of some data.
fn leaves(data: &serde_json::Value) -> Vec<String> {
    use serde_json::Value;
    match data {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        Value::Object(members) => members.values().flat_map(leaves).collect(),
        other => vec![other.to_string()],
    }
}

/// Commands are kept whole so that they can be copied.
fn is_command(line: &str) -> bool {
    line.trim_start().starts_with("$ ")
}

/// Finds `NaN`, `inf` and `-0` where they stand as figures; hunk headers of diffs have `-0,0`.
fn figure_that_is_none(rendered: &str) -> Option<String> {
    let suspicious = |word: &str| {
        let number = word.trim_end_matches(|c: char| !c.is_ascii_digit() && c != 'N' && c != 'f');
        matches!(number, "NaN" | "inf" | "-inf" | "-0")
            || number.starts_with("-0.") && number.trim_matches(['-', '0', '.']).is_empty()
    };
    let lines = rendered.lines().filter(|line| !line.trim_start().starts_with("@@"));
    let mut words =
        lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || "\"<>(),;:ML[]{}".contains(c)));
    words.find(|word| suspicious(word)).map(str::to_owned)
}

fn check_figures(view: &View) -> std::result::Result<(), TestCaseError> {
    let (text, page) = (text(view, &ResultPaths::default(), webdyno_report::TextStyle::FULL), html(view));
    prop_assert_eq!(figure_that_is_none(&text), None, "{}", text);
    let (answer, data) = parts(&page);
    for shown in [answer.to_owned(), leaves(&data).join("\n")] {
        prop_assert_eq!(figure_that_is_none(&shown), None, "{}", shown);
    }
    if let Some(record) = record(view) {
        prop_assert_eq!(figure_that_is_none(&record), None, "{}", record);
    }
    Ok(())
}

#[test]
fn no_string_gets_into_the_page_unescaped() {
    let attack = "<script>alert(\"x\")</script>' onload='y' &amp; ]]> -->\u{0}\u{1b}[31m";
    let leaves = Leaves { text: Some(attack), whole: &[], decimals: &[] };
    for (name, view) in sample::all() {
        let page = html(&replaced(&view, &leaves).unwrap());
        let (answer, data) = parts(&page);
        assert!(
            !answer.contains("<script") && answer.chars().all(|c| c == '\n' || !c.is_control()),
            "{name}"
        );
        assert!(answer.contains("&lt;script&gt;"), "{name}: the string is shown, escaped");
        assert!(data.to_string().contains("<script>alert"), "{name}: the string is in the data as it is");
        assert!(page.matches("<script").count() == 2 && page.matches("</script").count() == 2, "{name}");
    }
}

#[test]
fn no_string_drives_the_terminal() {
    let leaves = Leaves { text: Some("a\u{1b}[2J\r\u{9b}31m\u{7}\nb"), whole: &[], decimals: &[] };
    for (name, view) in sample::all() {
        let view = View { command: view.command.clone(), ..replaced(&view, &leaves).unwrap() };
        let text = text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL)
            + &record(&view).unwrap_or_default();
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{name}: {text:?}");
    }
}

/// The same load with other names where they are keys.
fn long_keys(mut view: View, name: &str) -> View {
    if let Outcome::Run(run) = &mut view.outcome {
        let longer = |key: String| format!("{key}{name}");
        let requests = std::mem::take(&mut run.requests_by_name);
        run.requests_by_name = requests.into_iter().map(|(key, named)| (longer(key), named)).collect();
        if let Some(pages) = &mut run.pages {
            let pages_by_name = std::mem::take(&mut pages.by_name);
            pages.by_name = pages_by_name.into_iter().map(|(key, named)| (longer(key), named)).collect();
        }
        if let Some(visits) = &mut run.visits {
            visits.captures_missed.insert(format!("{name}: {name}"), 3);
        }
    }
    view
}

#[test]
fn the_page_needs_nothing_else() {
    for (name, view) in sample::all() {
        let page = html(&view);
        for part in ["<link", "<img", "<iframe", " src=\"", " href=\"", "url(", "@import"] {
            assert!(!page.contains(part), "{name}: {part}");
        }
        // Nothing in the bundle ends its own element.
        assert_eq!((page.matches("</style").count(), page.matches("</script").count()), (1, 2), "{name}");
    }
}

/// All blocks of a page of one kind, folded ones too.
fn blocks<'a>(data: &'a serde_json::Value, kind: &str) -> Vec<&'a serde_json::Value> {
    let mut found = vec![];
    let mut left = vec![data];
    while let Some(value) = left.pop() {
        found.extend(Some(value).filter(|value| value["kind"] == kind));
        left.extend(value.as_array().into_iter().flatten());
        left.extend(value.as_object().into_iter().flat_map(serde_json::Map::values));
    }
    found
}

#[test]
fn every_moment_of_a_plot_has_a_value_of_each_line() {
    let data = serde_json::to_value(page_data(&sample::tune_applied())).unwrap();
    let plots: Vec<_> =
        blocks(&data, "plots").into_iter().flat_map(|block| block["plots"].as_array().unwrap()).collect();
    let ids: Vec<_> = plots.iter().filter_map(|plot| plot["id"].as_str()).collect();
    for id in ["rate", "latency", "in-flight", "reading-0"] {
        assert!(ids.contains(&id), "{id}: {ids:?}");
    }
    for plot in plots {
        let length = |value: &serde_json::Value| value.as_array().unwrap().len();
        for line in plot["lines"].as_array().unwrap() {
            assert_eq!(length(&plot["t_s"]), length(&line["values"]), "{}", plot["id"]);
        }
        let times: Vec<f64> = plot["t_s"].as_array().unwrap().iter().map(|t| t.as_f64().unwrap()).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    }
    let percentiles = blocks(&data, "percentiles");
    assert_eq!(percentiles[0]["lines"].as_array().unwrap().len(), 2, "before and after");
    assert_eq!(blocks(&data, "heat_map").len(), 1);
    let zero = blocks(&data, "text").into_iter().any(|block| block["text"] == "Always 0: CPU: stolen.");
    assert!(zero, "what never happened needs no plot");
}

#[test]
fn the_same_view_gives_the_same_bytes() {
    for (name, view) in sample::all() {
        assert_eq!(html(&view), html(&view.clone()), "{name}");
        assert_eq!(
            text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL),
            text(&view.clone(), &ResultPaths::default(), webdyno_report::TextStyle::FULL),
            "{name}"
        );
        if view.outcome != Outcome::Nothing {
            assert_eq!(json(&view).unwrap(), json(&view.clone()).unwrap(), "{name}");
        }
    }
}

#[test]
fn json_is_the_outcome_in_its_own_schema() {
    let parsed = |view: &View| {
        let written = json(view).unwrap();
        assert!(written.starts_with("{\n  \"schema\": ") && written.ends_with("\n}\n"), "{written}");
        serde_json::from_str::<serde_json::Value>(&written).unwrap()
    };
    let run = parsed(&sample::run_with_errors());
    assert_eq!(run["schema"], "webdyno/run/v1");
    assert_eq!((&run["requests"]["failed"], &run["errors"]["status"]), (&120.into(), &97.into()));
    assert_eq!(run["objectives"][2]["value"], serde_json::Value::Null, "unknown is null");

    let diagnosis = parsed(&sample::diagnosis_exhausted());
    assert_eq!(diagnosis["schema"], "webdyno/diagnosis/v1");
    assert_eq!(diagnosis["findings"][0]["remedies"][0]["to"], 64);

    let tune = parsed(&sample::tune_planned());
    assert_eq!((&tune["schema"], &tune["state"]), (&"webdyno/tune/v1".into(), &"planned".into()));
    assert_eq!(tune["improvement"]["ratio"], serde_json::Value::Null, "unknown is null");
    assert_eq!(tune["rounds"][0].get("managed"), None);

    let proposed = parsed(&sample::tune_proposed());
    assert_eq!(proposed["rounds"][0]["managed"][0]["by"], "Puppet");
    assert!(proposed["rounds"][0]["diff"].as_str().unwrap().contains("+ServerLimit 64"));
    let page = html(&sample::tune_proposed());
    for part in ["is managed by Puppet", "make the change there", "+ServerLimit 64", "proposed, not written"]
    {
        assert!(page.contains(part), "{part}");
    }

    let mut to_decide = sample::tune_proposed();
    if let Outcome::Tune(report) = &mut to_decide.outcome {
        report.rounds[0].managed.clear();
        report.rounds[0].to_decide = vec!["the rules in /srv/.htaccess would no longer count".into()];
    }
    assert_eq!(parsed(&to_decide)["rounds"][0]["to_decide"][0].as_str().map(str::len), Some(49));
    let page = html(&to_decide);
    for part in ["manual change: the rules in /srv/.htaccess", "+ServerLimit 64", "proposed, not written"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn without_an_outcome_there_is_no_json_but_an_error_that_helps() {
    let error = json(&sample::torn()).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert_eq!(
        error.to_string(),
        "the `tune` of 2026-11-21T20:26:00Z ended before there was anything to report"
    );
    assert!(error.hint.is_some());
}

#[test]
fn what_is_unknown_is_never_nothing() {
    let mut view = sample::tune_applied();
    let Outcome::Tune(tune) = &mut view.outcome else { panic!("a tuning session") };
    (tune.baseline.rate, tune.improvement.ratio, tune.rounds[0].outage_us) = (None, None, None);
    let text = text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL);
    assert!(text.contains("unknown -> 2,190 req/s: gain unknown"), "{text}");
    assert!(text.contains("downtime unknown"), "{text}");
    assert!(!text.contains(" 0 ->"), "{text}");
}

#[test]
fn an_invalid_run_says_so_before_any_figure() {
    let mut view = sample::run_with_errors();
    let Outcome::Run(run) = &mut view.outcome else { panic!("a run") };
    (run.client.valid, run.client.saturated) = (false, true);
    let text = text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL);
    let (invalid, times) = (text.find("INVALID").unwrap(), text.find("Latency").unwrap());
    assert!(invalid < times, "{text}");
    let page = html(&view);
    let (answer, _) = parts(&page);
    assert!(answer.find("INVALID").unwrap() < answer.find("<h1>").unwrap());
}

#[test]
fn a_load_that_was_stopped_says_why_in_text_html_and_json() {
    let view = sample::tune_braked();
    let (text, page, json) = (
        text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL),
        html(&view),
        json(&view).unwrap(),
    );
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "nothing could run for 132 ms of the last second for want of memory";
    for reported in [flat.as_str(), page.as_str()] {
        assert!(
            reported.contains(&format!("stopped to prevent harm (full memory pressure): {why}")),
            "{reported}"
        );
        assert!(reported.contains(&format!("the load after this change was stopped: {why}")), "{reported}");
    }
    assert!(page.contains("worse, reverted: full memory pressure"), "{page}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["baseline"]["brake"]["cause"], "memory_pressure");
    assert_eq!(json["rounds"][0]["brake"]["value"], 132_000.0);
    let unharmed: serde_json::Value =
        serde_json::from_str(&webdyno_report::json(&sample::tune_applied()).unwrap()).unwrap();
    assert!(
        unharmed["best"]["brake"].is_null() && unharmed["best"].as_object().unwrap().contains_key("brake")
    );
}

#[test]
fn what_was_better_and_put_back_is_not_said_to_have_failed() {
    let mut view = sample::tune_reverted();
    let Outcome::Tune(tune) = &mut view.outcome else { panic!("a tuning session") };
    (tune.rounds[0].verdict, tune.limit) = (None, None);
    let text = text(&view, &ResultPaths::default(), webdyno_report::TextStyle::FULL);
    assert!(text.contains("all changes reverted") && text.contains("not measured, reverted"), "{text}");
    assert!(!text.contains("none helped") && !text.contains("planned"), "{text}");
    assert!(text.contains("unknown: the session ended before it was measured"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Invariant: no line is longer than 80 columns, commands apart.
    #[test]
    fn lines_fit_a_terminal(whole in whole(), decimals in decimals()) {
        let leaves = Leaves { text: None, whole: &whole, decimals: &decimals };
        for (name, view) in sample::all() {
            let text = text(&replaced(&view, &leaves).unwrap(), &ResultPaths::default(), webdyno_report::TextStyle::FULL);
            for line in text.lines().filter(|line| !is_command(line)) {
                prop_assert!(line.chars().count() <= COLUMNS, "{}: {}\n{}", name, line, text);
            }
        }
    }

    // Invariant: no rendering has a figure that is none, and the data of every page can be read, for measurements.
    #[test]
    fn figures_are_figures(whole in whole(), decimals in decimals()) {
        let leaves = Leaves { text: None, whole: &whole, decimals: &decimals };
        for (_, view) in sample::all() {
            check_figures(&replaced(&view, &leaves).unwrap())?;
        }
    }

    // Invariant: the same for decimals that no measurement gives.
    #[test]
    fn no_decimal_spoils_a_report(decimals in any_decimals(), figure in any_decimal()) {
        let leaves = Leaves { text: None, whole: &[], decimals: &decimals };
        for (_, view) in sample::all() {
            let mut view = replaced(&view, &leaves).unwrap();
            spoil(&mut view, figure);
            check_figures(&view)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // Invariant: no line of a load's report is longer than 80 columns but one that is a name or URL, which is to be copied.
    #[test]
    fn long_names_fit_a_terminal(name in "[a-z/.:?=]{0,300}", words in "([a-z]{1,90} ){0,9}", whole in whole()) {
        for text in [name, words] {
            let leaves = Leaves { text: Some(&text), whole: &whole, decimals: &[] };
            let loads = sample::all().into_iter().filter(|(_, view)| matches!(view.outcome, Outcome::Run(_)));
            for (sample, view) in loads {
                let view = replaced(&view, &leaves).unwrap();
                let text = webdyno_report::text(&long_keys(view, &text), &ResultPaths::default(), webdyno_report::TextStyle::FULL);
                for line in text.lines() {
                    let is_whole = line.trim().split(' ').any(|word| word.chars().count() > COLUMNS / 2);
                    prop_assert!(is_whole || line.chars().count() <= COLUMNS, "{}: {}\n{}", sample, line, text);
                }
            }
        }
    }
}
