//! A diagnosis on one screen: what limits, what to change, where the time goes, what limits next.

use super::super::page::{ColumnAlign, TextPage, bar};
use super::Room;
use crate::human::{UNKNOWN, number, percent_coarse, time_us};
use crate::phrases;
use webdyno_model::diagnosis::{Ceiling, Diagnosis, TimeBreakdown};

const BAR_COLUMNS: usize = 30;
/// A part of the time below this share is not shown.
const PART_MIN: f64 = 0.01;

pub(super) fn write_diagnosis(page: &mut TextPage, found: &Diagnosis, room: Room) {
    super::verdict(page, found);
    if let Some(trip) = found.run.as_ref().and_then(phrases::harm_guard_text) {
        page.short_item("", &format!("{trip}."), room.text_lines);
    }
    let (first, others) = match found.findings.split_first() {
        Some((first, others)) => (Some(first), others),
        None => (None, [].as_slice()),
    };
    if let Some(first) = first {
        page.short_item("", &first.summary, room.text_lines + 1);
        page.short_item("", &format!("Details: webdyno explain {}", first.id), 1);
        super::change(page, first, room);
    }
    if let Some(run) = &found.run {
        super::load(page, run, room);
        if let Some(tail) = phrases::slow_tail(run, found) {
            page.short_item("Slow tail:", &tail, room.text_lines.min(3));
        }
    }
    if let Some(others) = phrases::live_traffic(found.live_traffic.as_ref()) {
        page.short_item("", &others, 2);
    }
    breakdown(page, &found.time_breakdown_us, room);
    ahead(page, &found.ceilings, room);
    if let Some(next) = found.next_limit.as_ref() {
        page.short_item("", &phrases::next_limit(next), 2);
    }
    super::also(page, others, room);
}

fn breakdown(page: &mut TextPage, time: &TimeBreakdown, room: Room) {
    let parts = phrases::parts(time);
    let known: Vec<(&str, f64)> = parts
        .iter()
        .filter_map(|(name, us)| Some((*name, us.filter(|us| us.is_finite() && *us > 0.0)?)))
        .collect();
    let total: f64 = known.iter().map(|(_, us)| us).sum();
    if total <= 0.0 || room.rows < 3 {
        return;
    }
    page.heading(&format!("Mean response time: {}", time_us(total)));
    let shown = known.iter().filter(|(_, us)| us / total >= PART_MIN);
    let row = |&(name, us): &(&str, f64)| {
        vec![name.into(), time_us(us), percent_coarse(us / total), bar(us / total, BAR_COLUMNS)]
    };
    let rows: Vec<_> = shown.map(row).collect();
    page.table(&[ColumnAlign::Words, ColumnAlign::Number, ColumnAlign::Number, ColumnAlign::Words], &rows);
}

/// The limits that saturate first.
pub(super) fn ahead(page: &mut TextPage, ceilings: &[Ceiling], room: Room) {
    let mut known: Vec<&Ceiling> = ceilings.iter().filter(|ceiling| !ceiling.is_remote).collect();
    let rate = |ceiling: &Ceiling| ceiling.binds_at_rate.unwrap_or(f64::INFINITY);
    known.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    known.truncate(room.rows.min(6));
    if known.is_empty() {
        return;
    }
    page.heading("Limits ahead");
    let value = |value: Option<f64>| value.map_or_else(|| UNKNOWN.into(), number);
    let mut rows = vec![["resource", "now", "limit", "saturates at"].map(str::to_owned).to_vec()];
    rows.extend(known.iter().map(|ceiling| {
        let at = phrases::saturation_rate_text(ceiling);
        vec![ceiling.limit.clone(), value(ceiling.now), value(ceiling.max), at]
    }));
    use ColumnAlign::{Number, Words};
    page.table(&[Words, Number, Number, Number], &rows);
}
