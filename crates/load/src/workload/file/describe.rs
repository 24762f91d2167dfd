//! What a workload means, in a few lines: what `webdyno workload check` prints.

use std::fmt::Write as _;
use webdyno_model::duration::duration_in_parts as time;
use webdyno_model::number::human::{approximate as round, count as grouped, plural};
use webdyno_model::workload::stage;
use webdyno_model::workload::visit::{Resources, SessionSpec, StepSpec, Visits};
use webdyno_model::workload::{Arrival, Workload};

/// Lines about requests, pages and sessions; the rest is counted.
const LINES_MAX: usize = 12;

/// Characters of a line.
const COLUMNS_MAX: usize = 80;

/// The workload in words, each line for itself.
pub fn describe(workload: &Workload, objectives: &[&str]) -> String {
    let mut text = String::new();
    match &workload.visits {
        Some(visits) => sessions(&mut text, workload, visits),
        None => requests(&mut text, workload),
    }
    line(&mut text, "load", &load(workload));
    line(&mut text, "length", &length(workload));
    if let Some(visits) = &workload.visits {
        line(&mut text, "think", &think_summary(workload, visits));
        let yes_or_no = |flag: bool| if flag { "kept" } else { "none" };
        line(
            &mut text,
            "visitors",
            &format!(
                "cookies {}, cache {}, returning {}%, {} to a host",
                yes_or_no(visits.cookies),
                yes_or_no(visits.cache),
                round(visits.returning_fraction * 100.0),
                plural(u64::from(visits.connections_per_host), "connection")
            ),
        );
        for table in &visits.tables {
            line(&mut text, "table", &format!("{}, {}", table.file, plural(table.row_count, "row")));
        }
    }
    line(&mut text, "connections", &connections(workload));
    for objective in objectives {
        line(&mut text, "objective", objective);
    }
    text
}

/// A line that fits a terminal.
fn line(text: &mut String, label: &str, value: &str) {
    let mut whole = format!("  {label:<12} {value}");
    if let Some((at, _)) = whole.char_indices().nth(COLUMNS_MAX) {
        let cut = whole[..at].char_indices().rev().nth(2).map_or(at, |(cut, _)| cut);
        whole.truncate(cut);
        whole.push_str("...");
    }
    let _ = writeln!(text, "{whole}");
}

/// Lines of a kind, the first ones; a label stands before each.
fn lines(text: &mut String, label: &str, values: impl ExactSizeIterator<Item = String>) {
    let count = values.len();
    let shown = if count > LINES_MAX { LINES_MAX - 1 } else { count };
    values.take(shown).for_each(|value| line(text, label, &value));
    if count > shown {
        line(text, label, &format!("... and {} more", grouped((count - shown) as u64)));
    }
}

/// Connections at once, and what lowered them.
fn connections(workload: &Workload) -> String {
    let most = format!("at most {} at once", grouped(u64::from(workload.connections)));
    let each = workload.visits.as_ref().and_then(|visits| visits.connections_per_server);
    match each.filter(|each| *each > workload.connections) {
        Some(each) => format!("{most} (ulimit -n); users would have {}", grouped(u64::from(each))),
        None => match workload.transport.multiplexed_streams() {
            Some(streams) => {
                let version = if workload.transport.http3_streams.is_some() { 3 } else { 2 };
                format!("{most}, HTTP/{version} with up to {} on each", plural(u64::from(streams), "request"))
            }
            None => most,
        },
    }
}

fn requests(text: &mut String, workload: &Workload) {
    if let Some(list) = &workload.list {
        let order = match (list.weighted, list.random) {
            (true, _) => "drawn by their weights",
            (false, true) => "drawn at random",
            (false, false) => "in turn",
        };
        let many = plural(list.count, "request");
        return line(text, "list", &format!("{many} of {}, {order}", list.file));
    }
    let total: f64 = workload.requests.iter().map(|request| request.weight).sum();
    let request = |request: &webdyno_model::workload::RequestSpec| {
        format!("{}{}", share(request.weight, total), request.name)
    };
    lines(text, "request", workload.requests.iter().map(request));
}

fn sessions(text: &mut String, workload: &Workload, visits: &Visits) {
    // A share of all is a whole one.
    let total = |session: &SessionSpec| match visits.in_turn {
        true => session.weight,
        false => visits.sessions.iter().map(|session| session.weight).sum(),
    };
    let pages: usize =
        visits.sessions.iter().flat_map(|session| &session.steps).filter(|s| s.page.is_some()).count();
    line(
        text,
        "holds",
        &format!(
            "{}, {}, {}",
            plural(workload.requests.len() as u64, "request"),
            plural(pages as u64, "page"),
            plural(visits.sessions.len() as u64, "session")
        ),
    );
    let session = |session: &SessionSpec| {
        let steps: Vec<String> = session.steps.iter().map(|step| step_text(workload, step)).collect();
        let steps = steps.join(", ");
        let name =
            if steps.starts_with(&session.name) { String::new() } else { format!("{}: ", session.name) };
        format!("{}{name}{steps}", share(session.weight, total(session)))
    };
    lines(text, "session", visits.sessions.iter().map(session));
}

fn step_text(workload: &Workload, step: &StepSpec) -> String {
    let name = workload.requests.get(step.request).map_or("?", |request| request.name.as_str());
    match step.page.as_ref().map(|page| &page.resources) {
        None => name.to_owned(),
        Some(Resources::Left) => format!("{name} (page without resources)"),
        Some(Resources::Found) => format!("{name} (page with what is found in it)"),
        Some(Resources::Listed(parts)) => {
            let count = parts.len() as u64;
            format!("{name} (page with {})", plural(count, "resource"))
        }
    }
}

/// `25% `, where there is more than one.
fn share(weight: f64, total: f64) -> String {
    if (weight - total).abs() < f64::EPSILON {
        String::new()
    } else {
        format!("{}% ", round(weight / total * 100.0))
    }
}

/// What arrives, and how many sessions a second that makes.
fn load(workload: &Workload) -> String {
    let what = match &workload.visits {
        None => "requests",
        Some(visits) => noun(visits),
    };
    let changing = if workload.stages.is_empty() { "" } else { "up to " };
    match (workload.arrival, &workload.visits) {
        (Arrival::Open { rate_per_s, .. }, _) => format!("{changing}{} {what}/s", round(rate_per_s)),
        (Arrival::Closed, None) => {
            format!("{changing}{} {what} at once", grouped(u64::from(workload.connections)))
        }
        (Arrival::Closed, Some(visits)) => {
            format!("{changing}{}", plural(u64::from(visits.users), "user"))
        }
    }
}

/// How long visitors think, and how many sessions they make at most for that.
fn think_summary(workload: &Workload, visits: &Visits) -> String {
    let think_s = mean_think_s(visits);
    if think_s <= 0.0 {
        return "none".into();
    }
    let mut text = match think_s < 1.0 {
        true => format!("{} ms a session", round(think_s * 1000.0)),
        false => format!("{} s a session", round(think_s)),
    };
    if workload.arrival == Arrival::Closed {
        let most = round(f64::from(visits.users) / think_s);
        let _ = write!(text, ", so that at most {most} {}/s are made", noun(visits));
    }
    text
}

fn noun(visits: &Visits) -> &'static str {
    if visits.sessions.iter().all(is_page) { "pages" } else { "sessions" }
}

fn is_page(session: &SessionSpec) -> bool {
    session.steps.len() == 1 && session.steps[0].page.is_some()
}

/// Seconds of thinking in a session, the mean over all of them.
fn mean_think_s(visits: &Visits) -> f64 {
    let total: f64 = visits.sessions.iter().map(|session| session.weight).sum();
    let step_keys = |step: &StepSpec| step.think.unwrap_or(visits.think).mean_us() / 1e6;
    let of = |session: &SessionSpec| session.steps.iter().map(step_keys).sum::<f64>() * session.weight;
    visits.sessions.iter().map(of).sum::<f64>() / total
}

fn length(workload: &Workload) -> String {
    let Some(all_us) = workload.stop.duration_us else { return "until it is stopped".into() };
    match stage::measured_us(&workload.stages) {
        Some((from, to)) if from > 0 || to < all_us => {
            format!("{}, of which {} are measured", time(all_us), time(to.saturating_sub(from)))
        }
        _ => time(all_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::file::parse;
    use std::path::Path;

    #[test]
    fn short_think_times_are_described_in_milliseconds() {
        let text = "base = \"http://h/\"\nusers = 5\nthink = \"20ms\"\n[[page]]\nurl = \"/\"\n";
        let workload = parse(text, Path::new("w.toml"), &mut |_| Ok(vec![])).unwrap();
        let described = describe(&workload, &[]);
        assert!(described.contains("20 ms a session, so that at most 250 pages/s"), "{described}");
    }

    #[test]
    fn a_workload_is_described_in_a_few_lines() {
        let text = "base = \"http://h/\"\nusers = 4250\nthink = \"exponential 60s\"\nramp = \"30s\"\nduration = \"2m\"\n\
                    [[page]]\nname = \"shop\"\nurl = \"/\"\nweight = 3\nresources = [\"/a.js\", \"/b.css\"]\n\
                    [[session]]\nname = \"buy\"\n[[session.step]]\npage = \"/cart\"\n[[session.step]]\n\
                    request = { url = \"/a-very-long-path-of-an-order-that-does-not-fit-into-a-line\", body = \"x\" }\n";
        let workload = parse(text, Path::new("w.toml"), &mut |_| Ok(vec![])).unwrap();
        assert_eq!(
            describe(&workload, &["page: p95<2s"]),
            "  holds        5 requests, 2 pages, 2 sessions\n  \
               session      75% shop (page with 2 resources)\n  \
               session      25% buy: /cart (page with what is found in it), POST /a-very-l...\n  \
               load         up to 4,250 users\n  \
               length       2m 30s, of which 2m are measured\n  \
               think        75 s a session, so that at most 56.7 sessions/s are made\n  \
               visitors     cookies kept, cache none, returning 0%, 6 connections to a host\n  \
               connections  at most 25,500 at once\n  \
               objective    page: p95<2s\n"
        );
    }

    #[test]
    fn connections_beyond_the_open_files_limit_are_reported() {
        let text = "users = 5000\n[[page]]\nurl = \"http://h/\"\n";
        for (allowed, expected) in [
            (None, "at most 30,000 at once\n"),
            (Some(19_968), "at most 19,968 at once (ulimit -n); users would have 30,000\n"),
        ] {
            let read = crate::workload::file::draft(text, Path::new("w.toml"), &mut |_| Ok(vec![]));
            let mut draft = read.unwrap();
            draft.settings.connections_allowed = allowed;
            let described = describe(&draft.workload_as_written().unwrap(), &[]);
            assert!(described.ends_with(&format!("  connections  {expected}")), "{described}");
        }
    }

    #[test]
    fn a_list_is_described_with_its_size_and_order() {
        for (lines, order) in [
            ("/a\n/b\n", "2 requests of l.urls, in turn"),
            ("/a#weight=2\n/b\n", "2 requests of l.urls, drawn by their weights"),
        ] {
            let list: String = lines.lines().map(|line| format!("http://h{line}\n")).collect();
            let mut read = |_: &Path| Ok(list.clone().into_bytes());
            let workload = parse("[urls]\nfile = \"l.urls\"\n", Path::new("w.toml"), &mut read).unwrap();
            let described = describe(&workload, &[]);
            assert!(described.starts_with(&format!("  list         {order}\n")), "{described}");
        }
    }

    #[test]
    fn plain_requests_are_described_with_their_shares() {
        let request = |path: usize| format!("[[request]]\nurl = \"http://h/{path}\"\n");
        let text: String = (0..20).map(request).collect();
        let workload =
            parse(&format!("rate = 1500\n{text}"), Path::new("w.toml"), &mut |_| Ok(vec![])).unwrap();
        let described = describe(&workload, &[]);
        assert!(
            described.contains("5% /10\n  request      ... and 9 more\n  load         1,500 requests/s\n"),
            "{described}"
        );
    }
}
