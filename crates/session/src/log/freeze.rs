//! Takes the time around an incident out of a ring, as a recording of its own that explains itself: the ring goes on, and
//! would forget it.

use super::context::LogContext;
use super::writer::EventLog;
use super::{merge, ring};
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::error::io_error;
use webdyno_model::event::{Event, EventBody};

/// The window around an incident that is diagnosed: so long before it was seen,
pub const INCIDENT_BEFORE_US: u64 = 5_000_000;
/// and so long after it. More would be the time in which all was well again.
pub const INCIDENT_AFTER_US: u64 = 15_000_000;

/// The folder of the frozen incidents in a run directory.
pub const FOLDER: &str = "incidents";
/// So much is kept of the time before an incident: what led to it,
const BEFORE_US: u64 = 300_000_000;
/// and of the time after it: how it went on.
pub const AFTER_US: u64 = 30_000_000;
/// The most incidents that are kept: the oldest go.
const INCIDENTS_MAX: usize = 20;
/// What is being written has this before its name.
const UNFINISHED: &str = ".unfinished-";

/// An incident that is a recording now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenIncident {
    /// Its run directory.
    pub directory: PathBuf,
    /// When it was seen, microseconds since the session began.
    pub t_us: u64,
    /// The metric that showed it.
    pub metric: String,
    /// What went wrong.
    pub what: String,
}

/// Freezes what a ring of this length has around an incident of the session that writes it. `wall` names the folder.
pub fn freeze(
    directory: &Path,
    length_us: u64,
    wall: &str,
    incident: &FrozenIncident,
) -> Result<FrozenIncident> {
    let (from_us, to_us) = (incident.t_us.saturating_sub(BEFORE_US), incident.t_us.saturating_add(AFTER_US));
    let merged = merge::merged(&ring::last_segments(directory, length_us, to_us - from_us))?;
    let folder = directory.join(FOLDER);
    let name = name(wall, &incident.metric);
    let (unfinished, whole) = (folder.join(format!("{UNFINISHED}{name}")), folder.join(&name));
    // One that was cut off in the middle is in the way, and takes room.
    remove_unfinished(&folder)?;
    let shift_us = merged.shift_us;
    let at_us = incident.t_us + shift_us;
    let copied = write_window(&unfinished, merged.events, (from_us + shift_us, to_us + shift_us), at_us);
    copied.inspect_err(|_| drop(remove_all(&unfinished)))?;
    remove_all(&whole)?;
    std::fs::rename(&unfinished, &whole).map_err(|error| io_error("write", whole.display(), &error))?;
    remove_oldest(&folder)?;
    Ok(FrozenIncident { directory: whole, ..incident.clone() })
}

/// Writes the events of a window as a recording whose diagnosed window is around the incident.
fn write_window(to: &Path, events: Vec<Event>, (from_us, until_us): (u64, u64), at_us: u64) -> Result<()> {
    let mut log = EventLog::create(to)?;
    let mut head = LogContext::default();
    let mut begun = false;
    let mut last_us = at_us;
    for mut event in events {
        let is_before = event.t_us < from_us;
        if !is_before && !begun {
            begun = true;
            head.events(from_us).into_iter().try_for_each(|body| log.append(from_us, body))?;
        }
        head.update(&mut event);
        let ends = matches!(event.body, EventBody::SessionEnd { .. });
        if is_before || event.t_us > until_us || ends {
            continue;
        }
        if matches!(event.body, EventBody::Sample { .. }) {
            last_us = last_us.max(event.t_us);
        }
        log.append(event.t_us, event.body)?;
    }
    let (begins_us, ends_us) = (at_us.saturating_sub(INCIDENT_BEFORE_US), at_us + INCIDENT_AFTER_US);
    let (begins_us, ends_us) = (begins_us.max(from_us), ends_us.min(last_us));
    log.append(ends_us, EventBody::Watch { length_us: ends_us.saturating_sub(begins_us) })?;
    log.append(last_us, EventBody::SessionEnd { exit_code: 0, error: None })?;
    log.flush()
}

/// `20261122T031204Z-sockets.listen_overflows_count`: sorts by time, needs no quotes.
fn name(wall: &str, metric: &str) -> String {
    let time: String =
        wall.split('.').next().unwrap_or(wall).chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let metric: String =
        metric.chars().take(100).map(|letter| if plain(letter) { letter } else { '_' }).collect();
    format!("{}Z-{metric}", time.trim_end_matches('Z'))
}

/// Whether a folder may be one of ours.
fn is_frozen(name: &str) -> bool {
    let (time, rest) = name.split_at_checked(15).unwrap_or((name, ""));
    time.chars().enumerate().all(|(n, c)| if n == 8 { c == 'T' } else { c.is_ascii_digit() })
        && rest.starts_with("Z-")
}

/// The names in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(|error| io_error("read", folder.display(), &error))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

fn remove_unfinished(folder: &Path) -> Result<()> {
    let is_unfinished = |name: &&String| name.strip_prefix(UNFINISHED).is_some_and(is_frozen);
    names(folder)?.iter().filter(is_unfinished).try_for_each(|name| remove_all(&folder.join(name)))
}

fn remove_oldest(folder: &Path) -> Result<()> {
    let mut ours: Vec<String> = names(folder)?.into_iter().filter(|name| is_frozen(name)).collect();
    ours.sort();
    let too_many = ours.len().saturating_sub(INCIDENTS_MAX);
    ours[..too_many].iter().try_for_each(|name| remove_all(&folder.join(name)))
}

fn remove_all(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error("remove", directory.display(), &error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ours_are_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let ours: Vec<String> =
            (0..25).map(|n| name(&format!("2026-11-22T03:12:{n:02}.5Z"), "a.*/b c_count")).collect();
        assert_eq!(ours[4], "20261122T031204Z-a.__b_c_count");
        let others =
            ["20261122T031204Z", "notes", "x20261122T031204Z-a", ".unfinished-20261122T031204Z-a", "ä"];
        for name in ours.iter().map(String::as_str).chain(others) {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        remove_oldest(place.path()).unwrap();
        let left = |name: &str| place.path().join(name).exists();
        assert!(others.into_iter().all(left));
        assert_eq!(ours.iter().filter(|name| left(name)).count(), INCIDENTS_MAX);
        assert!(left(&ours[24]) && !left(&ours[0]));
        remove_unfinished(place.path()).unwrap();
        assert!(!left(others[3]) && left(others[1]) && left(&ours[24]));
    }
}
