//! Values of php.ini, whoever runs PHP: where one goes, and a plan for them.

use super::config::Overlay;
use super::edit::{DROP_IN, Section, ValueEdit};
use super::php::IniFiles;
use super::settings::{Place, Setting, find};
use crate::config_management::Managers;
use crate::services::common::edit;
use std::path::{Path, PathBuf};
use webdyno_model::change::{ApplyClass, Change, NOTHING_TO_CHANGE, Obstacle, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;

/// Whether a setting is one of php.ini that webdyno changes.
pub fn is_value(name: &str) -> bool {
    find(name).is_some_and(|setting| setting.place == Place::Ini)
}

/// What a value is now, and the file that another one goes to: our own, or the one that is read later and sets it.
pub fn place(files: &IniFiles, name: &str) -> Result<(Option<SettingValue>, PathBuf), Obstacle> {
    let placed = files.placed(name, &Overlay::new());
    let own = files.folder.as_ref().map(|folder| Path::new(folder).join(DROP_IN));
    let is_late =
        |file: &Path| own.as_ref().is_none_or(|own| file.parent() == own.parent() && file > own.as_path());
    let file = match &placed {
        Some(placed) if is_late(Path::new(&placed.file)) => Some(PathBuf::from(&placed.file)),
        _ => own,
    };
    let why = || format!("PHP reads no folder of .ini files, and none of its files sets {name}");
    let file = file.ok_or_else(|| (why(), Some("set it in php.ini by hand, and reload".to_owned())))?;
    Ok((placed.map(|placed| SettingValue::parse(&placed.value)), file))
}

/// The files of a PHP whose folder of .ini files is known: the main one stands beside it, or in another folder.
pub fn files_of(main_folder: &Path, folder: &Path) -> IniFiles {
    let main = main_folder.join("php.ini");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut more: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "ini")).collect();
    more.sort();
    let all = main.is_file().then_some(main).into_iter().chain(more);
    IniFiles {
        read: all.map(|path| path.to_string_lossy().into_owned()).collect(),
        folder: Some(folder.to_string_lossy().into_owned()),
    }
}

/// A plan for values of php.ini, each of a known setting. The class is that of a reload.
pub fn plan(files: &IniFiles, changes: &[SettingChange]) -> Result<RenderedPlan, Obstacle> {
    let mut planned: Vec<(Change, ValueEdit)> = vec![];
    for wanted in changes {
        let SettingChange { setting, to } = wanted;
        let known = understood(&setting.name, to)?;
        let (from, file) = place(files, known.name)?;
        planned.retain(|(other, _)| other.setting != *setting);
        if from.as_ref() == Some(to) {
            continue;
        }
        let real = std::fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
        let edit = ValueEdit { file, section: Section::AllRequests, key: known.name, value: to.to_string() };
        planned.push((wanted.planned(from, real, ApplyClass::Reload), edit));
    }
    if planned.is_empty() {
        return Err((NOTHING_TO_CHANGE.into(), None));
    }
    let (changes, edits): (Vec<Change>, Vec<ValueEdit>) = planned.into_iter().unzip();
    let edited = edit::apply(&edits, &Managers::here()).map_err(|error| (error.message, error.hint))?;
    let overlay = edited.overlay();
    for edit in &edits {
        let wins = files.placed(edit.key, &overlay).map(|placed| placed.value);
        if wins.as_deref() != Some(edit.value.as_str()) {
            let why = format!("{} = {} in {} would not hold", edit.key, edit.value, edit.file.display());
            return Err((why, Some("set it by hand where it is read last".into())));
        }
    }
    Ok(edited.plan(changes, ApplyClass::Reload))
}

fn understood(name: &str, to: &SettingValue) -> Result<&'static Setting, Obstacle> {
    let known = find(name).filter(|setting| setting.place == Place::Ini);
    let setting =
        known.ok_or_else(|| (format!("`{name}` is not a setting of php.ini that webdyno changes"), None))?;
    setting.shape.check(name, to).map(|()| setting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::setting::SettingId;

    #[test]
    fn values_go_to_our_own_file_or_where_they_are_set_later() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("conf.d")).unwrap();
        std::fs::write(root.join("php.ini"), "opcache.enable = 0\n").unwrap();
        std::fs::write(root.join("conf.d/zzzz-shop.ini"), "realpath_cache_ttl = 5\n").unwrap();
        let files = files_of(&root, &root.join("conf.d"));
        assert_eq!(files.read.len(), 2);
        let change = |name: &str, to: i64| SettingChange {
            setting: SettingId::of_service("apache", name),
            to: SettingValue::Integer(to),
        };
        let wanted = [change("opcache.enable", 1), change("realpath_cache_ttl", 600)];
        let plan = plan(&files, &wanted).unwrap();
        assert_eq!(plan.changes[0].from, Some(SettingValue::Integer(0)));
        assert!(plan.files[0].path.ends_with("/conf.d/zzz-webdyno.ini"), "{}", plan.files[0].path);
        assert!(plan.files[0].after.ends_with("\nopcache.enable = 1\n"), "{}", plan.files[0].after);
        assert_eq!(plan.files[1].after, "realpath_cache_ttl = 600\n");
        for (wanted, part) in [
            (change("opcache.enable", 0), "already has the value"),
            (change("opcache.enable", 5), "opcache.enable cannot be `5`"),
            (change("pm", 5), "`pm` is not a setting of php.ini"),
        ] {
            let (why, _) = super::plan(&files, &[wanted]).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert!(is_value("opcache.enable") && !is_value("pm.max_children") && !is_value("KeepAlive"));
    }
}
