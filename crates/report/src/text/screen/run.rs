//! A load test on one screen: throughput, latency, what failed, and whether the figures are valid.

use super::super::page::{ColumnAlign, TextPage, Tone};
use super::super::run::{latency_rows, objective_rows};
use super::Room;
use crate::human::count;
use crate::{phrases, wording};
use webdyno_model::run::RunReport;
use webdyno_session::view::View;

pub(super) fn write_run(page: &mut TextPage, _: &View, run: &RunReport, room: Room) {
    let missed = run.objectives.iter().any(|objective| !objective.met);
    let is_bad = missed || run.requests.completed == 0 || run.brake.is_some();
    let tone = match (run.client.valid, is_bad) {
        (false, _) => Tone::Warning,
        (true, true) => Tone::Bad,
        (true, false) => Tone::Good,
    };
    page.title(tone, &phrases::run_headline(run), "");
    if let Some(trip) = phrases::harm_guard_text(run) {
        page.short_item("", &format!("{trip}."), room.text_lines);
    }
    let conditions = run.workload.as_ref().map(phrases::load).unwrap_or_default();
    page.short_item("", &format!("{}; {}", conditions.join("; "), phrases::measured(run)), room.text_lines);
    page.short_item("", &format!("{}.", phrases::generator(run)), room.text_lines);
    if let Some(made) = phrases::workers_line(run) {
        page.short_item("", &made, room.text_lines.min(2));
    }
    use ColumnAlign::{Number, Words};
    page.heading("Throughput");
    page.table(&[Words, Number, Number, Number], &phrases::rates(run));
    phrases::replay(run).iter().for_each(|text| page.short_item("", text, room.text_lines));
    let latencies = latency_rows(run);
    if latencies.len() > 1 {
        page.heading("Latency");
        page.table(
            &[Words, Number, Number, Number, Number, Number],
            &latencies[..latencies.len().min(room.rows + 1)],
        );
        if let Some(short) = phrases::too_short_note(run, &latencies) {
            page.short_item("", &short, room.text_lines.min(2));
        }
    }
    if !run.objectives.is_empty() {
        page.heading("Objectives");
        page.table(&[Words, Words, Words], &objective_rows(run));
    }
    if let Some(repeats) = &run.repeats {
        let text = format!("{}: {}", phrases::repeats_headline(repeats), phrases::repeats_spread(repeats));
        page.gap();
        page.short_item("", &text, 2);
    }
    failures(page, run, room);
    if let Some(waiting) = phrases::in_flight(run) {
        page.gap();
        page.short_item("", &format!("{waiting}."), room.text_lines.min(2));
    }
}

/// The classes of errors, each with its remedy.
pub(super) fn failures(page: &mut TextPage, run: &RunReport, room: Room) {
    if run.errors.total() == 0 {
        return;
    }
    page.heading(&format!("Failed: {}", phrases::failures(run)));
    let failed = run.errors.named().into_iter().filter(|(_, failed)| *failed > 0);
    for (class, failed) in failed.take(room.extras.max(2)) {
        let words = wording::error(class);
        let what = words.as_ref().map_or(class, |words| words.what);
        let codes = if class == "status" { phrases::error_statuses(run) } else { String::new() };
        page.short_item(&format!("{} x", count(failed)), &format!("{what} ({class}{codes})"), 2);
        if let Some(words) = words {
            page.short_item("   ->", words.advice, 2);
        }
    }
}
