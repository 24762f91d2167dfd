//! The lines of an event log. Tolerates a torn last line (the session was killed) and skips kinds that it does not know.

use serde::Deserialize;
use std::path::Path;
use webdyno_model::UserError;
use webdyno_model::event::{Event, EventBody, VERSION};

/// What any version of an event has.
#[derive(Deserialize)]
struct EventHeader {
    v: u32,
    kind: String,
}

/// Why a log is damaged that has no event.
pub(super) const EMPTY: &str = "there is no event in it";

/// What is wrong with a file of a recording.
pub(super) fn damage_error(path: &Path, line: usize, why: &str) -> UserError {
    UserError::usage(format!("{}, line {line}: {why}", path.display()))
        .hint("the recording is damaged or was made by a newer version of webdyno")
}

/// The times of the whole lines of a log, in their order; lines that have none are left out.
pub fn times_us(text: &[u8]) -> impl Iterator<Item = u64> + '_ {
    #[derive(Deserialize)]
    struct TimedEvent {
        t_us: u64,
    }
    let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.filter_map(|line| serde_json::from_slice::<TimedEvent>(line).ok()).map(|timed| timed.t_us)
}

/// Parses the text of a log. The error names the line, from 1.
pub fn parse(text: &[u8]) -> std::result::Result<Vec<Event>, (usize, String)> {
    let mut events = Vec::new();
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    // What stands behind the last line feed is torn, or empty: it was never completely written.
    let whole = lines.len().saturating_sub(1);
    for (index, line) in lines[..whole].iter().enumerate() {
        if let Some(event) = parse_line(line).map_err(|why| (index + 1, why))? {
            events.push(event);
        }
    }
    if events.is_empty() {
        return Err((1, EMPTY.into()));
    }
    Ok(events)
}

/// One line; `None` for a kind that is not known.
pub(super) fn parse_line(line: &[u8]) -> std::result::Result<Option<Event>, String> {
    match serde_json::from_slice::<Event>(line) {
        Ok(event) if event.v <= VERSION => Ok(Some(event)),
        Ok(event) => Err(format!("it has version {}, this program reads up to {VERSION}", event.v)),
        Err(error) => match serde_json::from_slice::<EventHeader>(line) {
            Ok(head) if head.v > VERSION => {
                Err(format!("it has version {}, this program reads up to {VERSION}", head.v))
            }
            Ok(head) if !EventBody::KINDS.contains(&head.kind.as_str()) => Ok(None),
            _ => Err(format!("it is not an event: {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = r#"{"v":1,"seq":0,"t_us":5,"kind":"note","text":"x"}"#;

    #[test]
    fn a_torn_end_and_unknown_kinds_are_skipped() {
        let text = format!(
            "{NOTE}\n{{\"v\":1,\"seq\":1,\"t_us\":6,\"kind\":\"hologram\",\"depth\":3}}\n{}",
            &NOTE[..20]
        );
        let events = parse(text.as_bytes()).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].body, EventBody::Note { text: "x".into() });
    }

    #[test]
    fn damage_is_named_with_its_line() {
        for (middle, word) in [
            (r#"{"v":1,"seq":1,"t_us":6,"kind":"note"}"#, "missing field"),
            (r#"{"v":9,"seq":1,"t_us":6,"kind":"new"}"#, "version 9"),
            ("garbage", "not an event"),
            ("", "not an event"),
        ] {
            let (line, why) = parse(format!("{NOTE}\n{middle}\n{NOTE}\n").as_bytes()).unwrap_err();
            assert_eq!(line, 2);
            assert!(why.contains(word), "{why}");
        }
        assert!(parse(b"").is_err());
    }

    #[test]
    fn every_kind_is_listed() {
        // A kind that is not in the list would be skipped when damaged, instead of named.
        let written = serde_json::to_string(&EventBody::Watch { length_us: 1 }).unwrap();
        let kind = written.split('"').nth(3).unwrap().to_owned();
        assert!(EventBody::KINDS.contains(&kind.as_str()), "{kind}");
    }
}
