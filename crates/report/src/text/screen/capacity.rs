//! A search for the capacity on one screen: the answer, what limits it, and latency against load.

use super::super::capacity::{STEP_COLUMNS, write_answer, write_plot};
use super::super::page::TextPage;
use super::Room;
use crate::phrases;
use webdyno_model::capacity::CapacityReport;
use webdyno_session::view::View;

pub(super) fn write_capacity(page: &mut TextPage, view: &View, found: &CapacityReport, room: Room) {
    write_answer(page, view, found, room.text_lines.min(3));
    write_plot(page, found);
    page.heading(phrases::capacity_steps_title(found));
    page.table(&STEP_COLUMNS, &phrases::capacity_steps(found, room.rows + room.rows / 2));
    for note in found.notes.iter().take(room.extras) {
        page.short_item("-", note, 2);
    }
}
