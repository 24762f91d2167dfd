//! A recommendation of machines on one screen: the answer first, then what else would do, what to set, what it rests on.

use super::page::{ColumnAlign, TextPage, Tone};
use crate::human::{UNKNOWN, bytes, count, number, percent_coarse, time_us};
use webdyno_model::sizing::{Demand, KneeCheck, SizeCheck, SizeChoice, SizeReport};

/// Notes are no longer than this, and as many as fit the screen.
const NOTE_LINES: usize = 2;
const LINES_MAX: usize = 40;
/// More machines are in the JSON.
const CHOICES_MAX: usize = 3;
/// A prediction that is off by no more is near.
const NEAR: f64 = 0.15;

/// The recommendation as text, with a final newline.
pub fn size(report: &SizeReport) -> String {
    let mut page = TextPage::default();
    if !report.validation.is_empty() {
        validation(&mut page, &report.validation);
        knees(&mut page, &report.knees);
        report.notes.iter().for_each(|note| page.item("-", note));
        return page.finish();
    }
    let tone = if report.refused.is_some() { Tone::Warning } else { Tone::Good };
    page.title(tone, &headline(report), "");
    page.gap();
    if let Some(why) = &report.refused {
        page.paragraph(why);
    }
    if let Some(best) = report.choices.first() {
        answer(&mut page, report, best);
        page.gap();
        choices(&mut page, report);
        page.heading("Settings to start with");
        for one in &report.settings {
            page.short_item(&format!("{} {}", one.setting, one.value), &one.why, 1);
        }
    }
    page.heading("What a request takes");
    demands(&mut page, &report.demands);
    let mut text = page.finish() + "\n";
    for note in &report.notes {
        let mut item = TextPage::default();
        item.short_item("-", note, NOTE_LINES);
        let item = item.finish();
        if text.lines().count() + item.lines().count() <= LINES_MAX {
            text += &item;
        }
    }
    text.trim_end().to_owned() + "\n"
}

/// `2 servers with 4 cores, 8 GB, 300 Mbit/s, and 1 database server with 2 cores, 4 GB`.
fn headline(report: &SizeReport) -> String {
    let Some(best) = report.choices.first() else { return "Nothing is recommended".into() };
    let link = report.needs.as_ref().and_then(|needs| needs.link_bit_s);
    let mut text = format!(
        "{}{}",
        machines(best.count, "server", best.cores, best.memory_bytes),
        link.map_or(String::new(), |bits| format!(", {}", bit_s(bits)))
    );
    if let Some(database) = &best.database {
        text += &format!(
            ", and {}",
            machines(database.count, "database server", database.cores, database.memory_bytes)
        );
    }
    text
}

fn machines(count: u64, what: &str, cores: f64, memory_bytes: Option<f64>) -> String {
    let ending = |many: bool| if many { "s" } else { "" };
    let memory = memory_bytes.map_or(String::new(), |memory| format!(", {}", bytes(memory)));
    format!(
        "{count} {what}{} with {} core{}{memory}",
        ending(count != 1),
        number(cores),
        ending(cores != 1.0)
    )
}

fn bit_s(bits: f64) -> String {
    match bits {
        bits if bits >= 1e9 => format!("{} Gbit/s", number(bits / 1e9)),
        bits => format!("{} Mbit/s", number(bits / 1e6)),
    }
}

fn answer(page: &mut TextPage, report: &SizeReport, best: &SizeChoice) {
    let goal = report.goal.map_or(String::new(), |goal| goal.to_string());
    let rate = report.goal_rate.map_or(String::new(), |rate| format!(": {} req/s to carry", number(rate)));
    let spare = if best.spare > 0 { format!(", {} spare", count(best.spare)) } else { String::new() };
    page.paragraph(&format!("Goal {goal}{rate}; {} headroom{spare}.", percent_coarse(report.headroom)));
    let response = report
        .response_time_mean_us
        .map_or(String::new(), |us| format!("; at the goal a response takes {} on average", time_us(us)));
    page.paragraph(&format!(
        "{} {} req/s (p10 {}, p90 {}){response}.",
        if best.count == 1 { "It carries" } else { "They carry" },
        number(best.rate.p50),
        number(best.rate.p10),
        number(best.rate.p90)
    ));
    let limits = [&best.first_limit, &best.second_limit].map(|limit| limit.as_deref());
    if let [Some(first), second] = limits {
        let then = second.map_or(String::new(), |second| format!(", then {second}"));
        page.paragraph(&format!(
            "First limit: {first}{then}. CPU at the goal: {}.",
            percent_coarse(best.cpu_fraction)
        ));
    }
    if let Some(needs) = &report.needs {
        let cache = needs.cache_bytes.map_or(String::new(), |cache| format!(" ({} for files)", bytes(cache)));
        let memory = needs.memory_bytes.map_or(UNKNOWN.to_owned(), bytes) + &cache;
        let link = needs.link_bit_s.map_or(UNKNOWN.to_owned(), bit_s);
        page.paragraph(&format!("Each needs {} cores, memory {memory}, link {link}.", number(needs.cores)));
    }
}

fn choices(page: &mut TextPage, report: &SizeReport) {
    let is_priced = report.choices.iter().any(|one| one.cost.is_some());
    let cost = report.currency.clone().unwrap_or_else(|| "cost".into());
    let row = |one: &SizeChoice| {
        let database =
            one.database.as_ref().map_or(String::new(), |one| format!(" + {} {} (db)", one.count, one.name));
        let mut cells = vec![
            format!("{} {}{database}", one.count, one.name),
            number(one.cores),
            one.memory_bytes.map_or(UNKNOWN.to_owned(), bytes),
            number(one.rate.p50),
            format!("{} to {}", number(one.rate.p10), number(one.rate.p90)),
            one.first_limit.clone().unwrap_or_else(|| UNKNOWN.into()),
        ];
        cells.extend(is_priced.then(|| one.cost.map_or(UNKNOWN.to_owned(), number)));
        cells
    };
    let mut head =
        ["machines", "cores", "memory", "req/s", "p10 to p90", "first limit"].map(str::to_owned).to_vec();
    head.extend(is_priced.then_some(cost));
    let rows: Vec<Vec<String>> =
        std::iter::once(head).chain(report.choices.iter().take(CHOICES_MAX).map(row)).collect();
    let right = ColumnAlign::Number;
    let columns = [ColumnAlign::Words, right, right, right, right, ColumnAlign::Words, right];
    page.table(&columns[..rows[0].len()], &rows);
}

fn demands(page: &mut TextPage, demands: &[Demand]) {
    let row = |one: &Demand| {
        let text = |value: f64| if one.unit == "us" { time_us(value) } else { bytes(value) };
        let interval =
            one.ci95.map_or(UNKNOWN.to_owned(), |[low, high]| format!("{} to {}", text(low), text(high)));
        vec![one.resource.clone(), text(one.per_request), interval]
    };
    let head = ["", "each", "95% interval"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(demands.iter().map(row)).collect();
    page.table(&[ColumnAlign::Words, ColumnAlign::Number, ColumnAlign::Number], &rows);
}

fn validation(page: &mut TextPage, all: &[SizeCheck]) {
    let told: Vec<f64> = all.iter().filter_map(|one| one.error).collect();
    let near = told.iter().filter(|error| error.abs() <= NEAR).count();
    let tone = if near == told.len() && !told.is_empty() { Tone::Good } else { Tone::Warning };
    let title =
        format!("{near} of {} predictions within {} of what was measured", told.len(), percent_coarse(NEAR));
    page.title(tone, &title, "");
    page.gap();
    let head = ["load", "from", "to", "predicted", "measured", "error"].map(str::to_owned).to_vec();
    let row = |one: &SizeCheck| {
        vec![
            one.what.clone(),
            one.from.clone(),
            one.to.clone(),
            one.predicted.as_ref().map_or(UNKNOWN.to_owned(), |found| number(found.value)),
            number(one.measured),
            one.error.map_or(UNKNOWN.to_owned(), |error| format!("{:+.1}%", 100.0 * error)),
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(all.iter().map(row)).collect();
    let (words, right) = (ColumnAlign::Words, ColumnAlign::Number);
    page.table(&[words, words, words, right, right, right], &rows);
    let reasons: std::collections::BTreeSet<&str> = all.iter().filter_map(|one| one.why.as_deref()).collect();
    if !reasons.is_empty() {
        page.gap();
    }
    reasons.iter().for_each(|why| page.item("-", &format!("Nothing is predicted: {why}.")));
}

/// The memory that stores of files need.
fn knees(page: &mut TextPage, all: &[KneeCheck]) {
    if all.is_empty() {
        return;
    }
    page.heading("Memory for 90% of the rate with plenty of it");
    let head = ["load", "from", "held", "predicted", "measured", "error"].map(str::to_owned).to_vec();
    let row = |one: &KneeCheck| {
        let sizes = [one.from_bytes, one.held_bytes, one.predicted_bytes, one.measured_bytes].map(bytes);
        let error = format!("{:+.1}%", 100.0 * one.error);
        std::iter::once(one.what.clone()).chain(sizes).chain([error]).collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(all.iter().map(row)).collect();
    let right = ColumnAlign::Number;
    page.table(&[ColumnAlign::Words, right, right, right, right, right], &rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::prediction::Estimate;
    use webdyno_model::sizing::{DatabaseChoice, RateSpread, SizeGoal, SizeNeeds, StartSetting};

    fn full() -> SizeReport {
        let choice = SizeChoice {
            name: "4x8".into(),
            cores: 4.0,
            memory_bytes: Some(8e9),
            nic_bit_s: Some(1e9),
            count: 2,
            spare: 1,
            first_limit: Some("working-set-exceeds-memory".into()),
            second_limit: Some("network-saturated".into()),
            rate: RateSpread { p10: 1500.0, p50: 1700.0, p90: 1900.0 },
            cpu_fraction: 0.55,
            database: Some(DatabaseChoice {
                name: "2x4".into(),
                cores: 2.0,
                memory_bytes: Some(4e9),
                count: 1,
            }),
            cost: Some(120.5),
        };
        let demand = |resource: &str, unit: &str| Demand {
            resource: resource.into(),
            unit: unit.into(),
            per_request: 12_345.0,
            ci95: Some([11_111.0, 13_333.0]),
        };
        let names =
            ["cpu", "database cpu", "link", "wait", "worker memory", "child memory", "connection memory"];
        let setting =
            |name: &str| StartSetting { setting: name.into(), value: 40, why: "a reason ".repeat(20) };
        SizeReport {
            goal: Some(SizeGoal::Rate(500.0)),
            goal_rate: Some(864.0),
            headroom: 0.3,
            demands: names
                .map(|name| demand(name, if name.ends_with("cpu") { "us" } else { "bytes" }))
                .to_vec(),
            choices: vec![choice; 5],
            needs: Some(SizeNeeds {
                cores: 3.01,
                memory_bytes: Some(3e9),
                cache_bytes: Some(1e9),
                link_bit_s: Some(300e6),
            }),
            response_time_mean_us: Some(8000.0),
            settings: ["MaxRequestWorkers", "pm.max_children", "max_connections", "net.core.somaxconn"]
                .map(setting)
                .to_vec(),
            currency: Some("EUR/month".into()),
            notes: vec!["what it rests on and cannot tell ".repeat(9); 7],
            ..SizeReport::default()
        }
    }

    #[test]
    fn the_answer_comes_first_and_all_fits_a_screen() {
        let text = size(&full());
        let answer = "2 servers with 4 cores, 8 GB, 300 Mbit/s, and 1 database server with 2 cores, 4";
        assert!(text.starts_with(answer), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines.len() <= 40 && lines.iter().all(|line| line.chars().count() <= 80),
            "{}\n{text}",
            lines.len()
        );
        for part in [
            "Goal 500 req/s: 864 req/s to carry; 30% headroom, 1 spare.",
            "p10 1,500, p90 1,900",
            "EUR/month",
            " 121 ",
            "2 4x8 + 1 2x4 4 8 GB",
        ] {
            assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "{part}\n{text}");
        }
        let refused = SizeReport { refused: Some("Too far.".into()), choices: vec![], ..full() };
        assert!(size(&refused).starts_with("Nothing is recommended\n\n  Too far."), "{}", size(&refused));
    }

    #[test]
    fn what_was_predicted_stands_beside_what_was_measured() {
        let check = |error: Option<f64>, why: Option<&str>| SizeCheck {
            what: "/p.php".into(),
            from: "1 core".into(),
            to: "2 cores".into(),
            predicted: error.map(|_| Estimate { value: 400.0, ci95: None }),
            measured: 380.0,
            error,
            why: why.map(str::to_owned),
        };
        let validation =
            vec![check(Some(0.053), None), check(Some(-0.2), None), check(None, Some("no rate"))];
        let text = size(&SizeReport { validation, ..SizeReport::default() });
        assert!(text.starts_with("1 of 2 predictions within 15% of what was measured\n"), "{text}");
        assert!(
            text.contains("+5.3%")
                && text.contains("-20.0%")
                && text.contains("Nothing is predicted: no rate."),
            "{text}"
        );
    }
}
