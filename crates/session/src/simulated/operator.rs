//! The operator, who edits the same files meanwhile: what he did, so that it can be told whether it was respected.

use crate::simulated::files::{Files, new_file};
use crate::simulated::layout::{ConfigStyle, ETC};
use crate::simulated::random::Random;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use webdyno_host::change::action::OldFile;

/// The configuration, by path.
pub type Configuration = BTreeMap<PathBuf, OldFile>;

/// What an operator did to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorEdit {
    /// What he found.
    pub over: Option<OldFile>,
    /// What he left.
    pub now: Option<OldFile>,
}

/// The operator's work so far.
#[derive(Debug, Clone, Default)]
pub struct Operator {
    /// The files at the beginning.
    pub original: BTreeMap<PathBuf, OldFile>,
    /// By file, in order.
    pub edits: BTreeMap<PathBuf, Vec<OperatorEdit>>,
    /// Whether the service was ended by others.
    /// Whether the service was ended by others.
    pub killed_service: bool,
}

impl Operator {
    /// Adds a line to a file that is there.
    pub fn edit(&mut self, files: &mut Files, random: &mut Random, clock_us: u64) {
        let there: Vec<_> = configuration(files).into_iter().collect();
        let (path, over) = random.pick(&there).clone();
        let mut content = over.content.clone();
        content.extend_from_slice(format!("# by hand at {clock_us}\n").as_bytes());
        let modified = Some((clock_us as i64 / 1_000_000, clock_us as i64 % 1_000_000));
        self.record_edit(files, &path, Some(OldFile { content, modified, ..over }));
    }

    /// Removes a file that may be missing.
    pub fn delete(&mut self, files: &mut Files, random: &mut Random) {
        let there: Vec<_> = configuration(files).into_keys().filter(|path| is_optional(path)).collect();
        if !there.is_empty() {
            let path = random.pick(&there).clone();
            self.record_edit(files, &path, None);
        }
    }

    /// Puts a file back as it was at the beginning.
    pub fn restore_original(&mut self, files: &mut Files, random: &mut Random) {
        let now = configuration(files);
        let differs = |path: &&PathBuf| now.get(*path) != self.original.get(*path);
        let changed: Vec<PathBuf> = now.keys().chain(self.original.keys()).filter(differs).cloned().collect();
        if !changed.is_empty() {
            let path = random.pick(&changed).clone();
            let original = self.original.get(&path).cloned();
            self.record_edit(files, &path, original);
        }
    }

    /// Takes lines that spoil everything out of files that he edited himself: those are his now.
    pub fn repair_config(&mut self, files: &mut Files) {
        for (path, file) in configuration(files) {
            let text = String::from_utf8_lossy(&file.content).into_owned();
            let good = text.lines().filter(|line| !ConfigStyle::POISONS.contains(line));
            let content = good.map(|line| format!("{line}\n")).collect::<String>().into_bytes();
            if content != file.content && self.edits.contains_key(&path) {
                self.record_edit(files, &path, Some(OldFile { content, ..file }));
            }
        }
    }

    fn record_edit(&mut self, files: &mut Files, path: &Path, now: Option<OldFile>) {
        let over = files.read(path).cloned();
        files.write_durable(path, now);
        let now = files.read(path).cloned();
        self.edits.entry(path.to_owned()).or_default().push(OperatorEdit { over, now });
    }

    /// What he left of a file last; `None` when he did not touch it.
    pub fn last_edit(&self, path: &Path) -> Option<&OperatorEdit> {
        self.edits.get(path)?.last()
    }
}

/// The files of the configuration, without what begins with a dot.
pub fn configuration(files: &Files) -> Configuration {
    let mut all = files.below(Path::new(ETC));
    all.retain(|path, _| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
    all
}

fn is_optional(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("conf-enabled"))
}

/// The files at the beginning, with rights and times of their own; with our own file from an earlier session, or without.
pub fn original(has_drop_in: bool) -> Configuration {
    let file = |text: &str, mode: u32, uid: u32| OldFile {
        uid,
        gid: 50,
        modified: Some((1_600_000_000 + i64::from(uid), 123_000_000)),
        attributes: [("user.note".to_owned(), "eA==".to_owned())].into(),
        ..new_file(text.as_bytes().to_vec(), mode)
    };
    let etc = Path::new(ETC);
    let mut all = BTreeMap::from([
        (etc.join("apache2.conf"), file("Listen 80\nKeepAlive On\n", 0o644, 0)),
        (etc.join("mods-enabled/mpm.conf"), file("ServerLimit 256\nMaxRequestWorkers 150\n", 0o640, 7)),
    ]);
    if has_drop_in {
        all.insert(etc.join("conf-enabled/zz-webdyno.conf"), file("# ours, emptied\n", 0o604, 9));
    }
    all
}
