//! Kept recordings: `NAME/NN.jsonl.gz`, the event log of a round as it was written, packed (RFC 1952).

use super::{RecordingPlace, scenario_of};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::event::Event;
use webdyno_model::{Result, UserError};
use webdyno_session::log::FILE_NAME;
use webdyno_session::log::reader::parse;

/// How a kept recording ends.
const SUFFIX: &str = ".jsonl.gz";

/// The events of a recording, packed or not.
pub fn events(file: &Path) -> Result<Vec<Event>> {
    let bytes = std::fs::read(file).map_err(|error| io_error("read", file.display(), &error))?;
    let text = match file.to_string_lossy().ends_with(".gz") {
        true => {
            let mut text = vec![];
            let unpacked = GzDecoder::new(bytes.as_slice()).read_to_end(&mut text);
            unpacked.map_err(|error| io_error("unpack", file.display(), &error))?;
            text
        }
        false => bytes,
    };
    parse(&text).map_err(|(line, why)| {
        UserError::usage(format!("{}, line {line}: {why}", file.display()))
            .hint("record it anew: webdyno lab run")
    })
}

/// The recordings in a directory: of one run, of several runs, or kept ones.
pub fn places(directory: &Path) -> Result<Vec<RecordingPlace>> {
    if let Some(scenario) = scenario_of(directory) {
        let recorded = |entry: &Path| Some(entry.join(FILE_NAME)).filter(|file| file.is_file());
        let mut found = rounds(directory, scenario, recorded)?;
        // A scenario that was run several times has a folder for each.
        let is_number = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        };
        for run in sorted(directory)?.into_iter().filter(is_number) {
            found.extend(rounds(&run, scenario, recorded)?);
        }
        return Ok(found);
    }
    let mut found = vec![];
    for entry in sorted(directory)? {
        let kept = |file: &Path| {
            let is_kept = file.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
            is_kept.then(|| file.to_owned())
        };
        let name = entry.file_name().map(|name| name.to_string_lossy().into_owned());
        match (scenario_of(&entry), name) {
            _ if !entry.is_dir() => {}
            (Some(_), _) => found.extend(places(&entry)?),
            (None, Some(name)) => found.extend(rounds(&entry, &name, kept)?),
            (None, None) => {}
        }
    }
    Ok(found)
}

/// The rounds in a directory: entries that begin with a number, and have a file of events.
fn rounds(
    directory: &Path,
    scenario: &str,
    file: impl Fn(&Path) -> Option<PathBuf>,
) -> Result<Vec<RecordingPlace>> {
    let place = |entry: PathBuf| {
        let name = entry.file_name()?.to_str()?;
        let digits = name.split(|c: char| !c.is_ascii_digit()).next()?;
        let number = digits.parse().ok()?;
        Some(RecordingPlace { scenario: scenario.to_owned(), number, file: file(&entry)? })
    };
    Ok(sorted(directory)?.into_iter().filter_map(place).collect())
}

fn sorted(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(directory).map_err(|error| {
        io_error("read", directory.display(), &error).hint(
            "give the directory of a run, as `webdyno lab run` prints it at its end, or of kept recordings",
        )
    })?;
    let mut entries: Vec<PathBuf> = read.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    Ok(entries)
}

/// Packs recordings into a folder of kept ones, in place of those of the same rounds.
pub fn keep(places: &[RecordingPlace], folder: &Path) -> Result<()> {
    for place in places {
        let text =
            std::fs::read(&place.file).map_err(|error| io_error("read", place.file.display(), &error))?;
        let directory = folder.join(&place.scenario);
        std::fs::create_dir_all(&directory)
            .map_err(|error| io_error("create", directory.display(), &error))?;
        let path = directory.join(format!("{:02}{SUFFIX}", place.number));
        let mut packed = GzEncoder::new(vec![], Compression::best());
        let written = packed.write_all(&text).and_then(|()| packed.finish());
        let written = written.and_then(|bytes| std::fs::write(&path, bytes));
        written.map_err(|error| io_error("write", path.display(), &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_is_the_same() {
        let top = tempfile::tempdir().unwrap();
        let run = top.path().join("20260101T000000Z-lab-x");
        for round in ["01-as-found", "02-mended"] {
            std::fs::create_dir_all(run.join(round)).unwrap();
            let line = r#"{"v":1,"seq":0,"t_us":7,"kind":"session_end","exit_code":0,"error":null}"#;
            std::fs::write(run.join(round).join(FILE_NAME), format!("{line}\n")).unwrap();
        }
        std::fs::write(run.join("by-hand.log"), "").unwrap();
        let recorded = places(&run).unwrap();
        assert_eq!(recorded.iter().map(|place| place.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(places(top.path()).unwrap(), recorded, "several runs");
        let again = top.path().join("20260101T000001Z-lab-y");
        std::fs::create_dir_all(&again).unwrap();
        std::fs::rename(&run, again.join("1")).unwrap();
        assert_eq!(places(&again).unwrap().len(), 2, "run several times");
        std::fs::rename(again.join("1"), &run).unwrap();
        std::fs::remove_dir(&again).unwrap();
        let folder = top.path().join("kept");
        keep(&recorded, &folder).unwrap();
        let kept = places(&folder).unwrap();
        assert_eq!(kept.len(), 2);
        assert_eq!((kept[0].scenario.as_str(), kept[1].number), ("x", 2));
        assert_eq!(events(&kept[0].file).unwrap(), events(&recorded[0].file).unwrap());
        std::fs::write(&kept[0].file, "no gzip").unwrap();
        assert!(events(&kept[0].file).unwrap_err().message.contains("01.jsonl.gz"));
    }
}
