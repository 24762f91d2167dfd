//! The change record: one page on what `tune --apply` did to a server, for whoever keeps its books.
//!
//! What was changed and why, the proof, the risk, the measured outage, what was tried and put back, how to undo it and
//! how to see by hand that it is in force; the whole difference at the end. A pure function of the view, so that
//! `webdyno report` writes the same bytes again.

mod manual_steps;
mod markdown;
mod rounds;

use crate::human::{plural, times, times_interval};
use crate::phrases;
use markdown::Markdown;
use rounds::{AttemptedChange, attempted};
use webdyno_model::change::{ChangedHost, JournalPlace};
use webdyno_model::tune::{TuneReport, TuneState};
use webdyno_session::view::{Outcome, SessionEnd, View};

/// How much is told: this is a page, and the report has the rest.
struct ItemLimits {
    /// Facts of each change that stayed.
    facts: usize,
    /// Attempts that did not stay.
    tried: usize,
    /// Notes.
    notes: usize,
}

impl ItemLimits {
    /// The more stayed, the less of all else.
    fn for_kept_count(stayed_count: usize) -> Self {
        match stayed_count {
            0 | 1 => Self { facts: 4, tried: 3, notes: 3 },
            2 => Self { facts: 2, tried: 1, notes: 1 },
            _ => Self { facts: 1, tried: 1, notes: 1 },
        }
    }
}

/// What became of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    /// Changes that were verified better stay.
    Stayed,
    /// It is as it was.
    Unchanged,
    /// The session broke off with changes in force: whether they still are is not in the recording.
    Unknown,
}

/// The change record of a session; `None` for one that changed nothing and was not to, such as a plan.
pub fn record(view: &View) -> Option<String> {
    let Outcome::Tune(tune) = &view.outcome else { return None };
    let attempts = attempted(view, tune);
    let was_applied = attempts.iter().any(AttemptedChange::was_applied);
    let is_due = match view.end {
        SessionEnd::Done(_) => tune.state != TuneState::Planned,
        _ => was_applied,
    };
    (view.command == "tune" && is_due).then(|| write_change_record(view, tune, &attempts))
}

fn write_change_record(view: &View, tune: &TuneReport, attempts: &[AttemptedChange<'_>]) -> String {
    let fate = server_state(view, tune, attempts);
    let stays = |attempt: &&AttemptedChange<'_>| match fate {
        ServerState::Stayed => attempt.was_kept(),
        ServerState::Unchanged => false,
        ServerState::Unknown => attempt.may_be_in_force(),
    };
    let (stayed, tried): (Vec<_>, Vec<_>) = attempts.iter().partition(stays);
    let mut page = Markdown::default();
    head(&mut page, view, tune, fate, stayed.len());
    let most = ItemLimits::for_kept_count(stayed.len());
    stayed.iter().for_each(|attempt| rounds::write_in_full(&mut page, attempt, most.facts));
    write_reverted(&mut page, &tried, most.tried);
    notes(&mut page, view, most.notes);
    if fate != ServerState::Unchanged {
        undo(&mut page, view);
        manual_steps::section(&mut page, view.service.as_ref(), &stayed);
        difference(&mut page, &stayed);
    }
    page.finish()
}

fn server_state(view: &View, tune: &TuneReport, attempts: &[AttemptedChange<'_>]) -> ServerState {
    match (tune.state, &view.end) {
        (TuneState::Applied, SessionEnd::Done(_)) => ServerState::Stayed,
        (TuneState::Applied, _) | (_, SessionEnd::Torn) => ServerState::Unknown,
        _ if attempts.iter().any(AttemptedChange::may_be_in_force) => ServerState::Unknown,
        _ => ServerState::Unchanged,
    }
}

/// The title, the result in a sentence, and who did it where and when.
fn head(page: &mut Markdown, view: &View, tune: &TuneReport, fate: ServerState, stayed_count: usize) {
    let service = view.service.as_ref().map_or("the server", |service| service.service.as_str());
    let host = tune.environment.hostname.as_deref().unwrap_or("a host of unknown name");
    page.title(&format!("Change record: {service} on {host}"));
    page.gap();
    page.paragraph(&match fate {
        ServerState::Stayed => format!(
            "{} made and kept. {}.",
            if stayed_count == 1 { "1 change was".into() } else { format!("{stayed_count} changes were") },
            phrases::gain_text(tune)
        ),
        ServerState::Unchanged => "Nothing was changed: the server has its original configuration.".into(),
        ServerState::Unknown => {
            "The session was interrupted after a change took effect. Its guardian reverts everything \
                          that was not kept; when that could not be done, a change is still in force. \
                          See below how to undo it, which is safe in any case."
                .into()
        }
    });
    match &view.end {
        SessionEnd::Done(_) => {}
        SessionEnd::Failed(130, _) => page.paragraph("The session was interrupted."),
        SessionEnd::Failed(_, error) => page.paragraph(&format!("The session ended with an error: {error}.")),
        SessionEnd::Torn => {
            page.paragraph("The recording is incomplete: the session was killed or still runs.")
        }
    }
    page.gap();
    page.item("Server", &phrases::machine(&tune.environment));
    if let Some(service) = &view.service {
        page.item("Service", &phrases::service(service));
    }
    let by = view.operator.as_deref().map(|by| format!(", by {by}")).unwrap_or_default();
    // Whole seconds: the log has the rest.
    let (second, zone) =
        view.started_at.split_once('.').map_or((view.started_at.as_str(), ""), |(s, _)| (s, "Z"));
    let with = format!("with `webdyno tune --apply` of webdyno {}", view.webdyno_version);
    page.item("When", &format!("{second}{zone}{by}, {with}"));
    page.item("Goal", &phrases::goal(tune));
    if let Some(directory) = &view.directory {
        page.item("Recording", &format!("`{directory}`"));
    }
    if let Some(journal) = &view.journal {
        let place = format!("session {} in `{}` on {host}", journal.id, journal.state_directory);
        page.item("Undo journal", &place);
    }
}

fn write_reverted(page: &mut Markdown, tried: &[&AttemptedChange<'_>], most: usize) {
    if tried.is_empty() {
        return;
    }
    page.heading("Tried and not kept");
    tried.iter().take(most).for_each(|attempt| rounds::write_in_short(page, attempt));
    let more = tried.len().saturating_sub(most);
    if more > 0 {
        page.item("And", &format!("{} in the report", plural(more as u64, "more attempt")));
    }
}

fn notes(page: &mut Markdown, view: &View, most: usize) {
    if view.notes.is_empty() {
        return;
    }
    page.heading("Notes");
    view.notes.iter().take(most).for_each(|note| page.item("Note", note));
    let more = view.notes.len().saturating_sub(most);
    if more > 0 {
        page.item("And", &format!("{} in the report", plural(more as u64, "more note")));
    }
}

fn undo(page: &mut Markdown, view: &View) {
    page.heading("Rollback");
    page.paragraph(
        "On the server, as the same user. Every file gets its content, mode and owner of before back, and the \
         service takes them over; while others use the site nothing is restarted for it, and what only a \
         restart brings back is told. It undoes what other sessions have kept there as well.",
    );
    page.code("", std::iter::once(rollback(view).as_str()));
    for (on, command) in rollback_of_others(view) {
        page.paragraph(&format!("Also {on}:"));
        page.code("", std::iter::once(command.as_str()));
    }
}

/// The whole difference, original to now: where two changes touch one file, one after the other.
fn difference(page: &mut Markdown, stayed: &[&AttemptedChange<'_>]) {
    page.heading("The whole difference");
    let diffs: Vec<_> = stayed.iter().map(|attempt| attempt.diff).filter(|diff| !diff.is_empty()).collect();
    if diffs.is_empty() {
        page.paragraph("No file was written.");
        return;
    }
    if diffs.len() > 1 {
        page.paragraph("In the order in which it was made: where a file comes twice, the second starts where the first ends.");
    }
    for diff in diffs {
        page.code("diff", diff.lines());
    }
}

/// The command that puts everything back: where the journal is not at its usual place, it says so.
pub(crate) fn rollback(view: &View) -> String {
    rollback_with(view.journal.as_ref())
}

fn rollback_with(journal: Option<&JournalPlace>) -> String {
    match journal.filter(|journal| !journal.is_default) {
        Some(journal) => format!("WEBDYNO_STATE={} webdyno rollback", quoted(&journal.state_directory)),
        None => "webdyno rollback".into(),
    }
}

/// The same for each other host that was changed: where, and the command.
pub(crate) fn rollback_of_others(view: &View) -> Vec<(String, String)> {
    let command = |(host, journal): (&ChangedHost, &Option<JournalPlace>)| {
        let role = &host.role;
        match &host.server {
            Some(server) => (format!("for {role}"), format!("webdyno rollback --server {}", quoted(server))),
            None => (format!("on {role}"), rollback_with(journal.as_ref())),
        }
    };
    view.other_journals.iter().map(command).collect()
}

/// A word for a shell (POSIX.1-2017, 2.2.2).
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// `2.9 times (95% interval 2.8 to 3.0)`.
fn ratio(ratio: f64, ci95: Option<[f64; 2]>) -> String {
    match ci95 {
        Some(ci95) => format!("{} (95% interval {})", times(ratio), times_interval(ratio, ci95)),
        None => format!("{} (interval unknown)", times(ratio)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_command() {
        for (path, expected) in [
            ("/var/lib/webdyno", "/var/lib/webdyno"),
            ("/a b", "'/a b'"),
            ("/a'; rm b", "'/a'\\''; rm b'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(path), expected);
        }
    }
}
