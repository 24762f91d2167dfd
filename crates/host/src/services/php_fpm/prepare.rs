//! Renders changes of PHP-FPM and its PHP to a plan. Reads only.
//!
//! A pool's value is written where the pool stands: a file of our own that opens the pool once more would keep FPM from
//! starting on the day on which somebody removes that pool. A value of PHP goes to a file of our own beside php.ini.

use super::config::{self, Config, Overlay};
use super::edit::{Section, ValueEdit};
use super::ini;
use super::php::{self, IniFiles};
use super::settings::{Place, SETTINGS, Setting};
use crate::config_management::Managers;
use crate::os::procfs;
use crate::services::common::edit;
use crate::services::common::shape::understood;
use crate::visibility::listeners::NEEDS_RIGHTS;
use crate::visibility::mount_namespace;
use crate::visibility::process_view::Root;
use std::path::PathBuf;
use webdyno_model::Result;
use webdyno_model::change::{
    ApplyClass, Change, NOTHING_TO_CHANGE, Obstacle, Preparation, RenderedPlan, SettingChange,
};
use webdyno_model::service::{ServiceSnapshot, SettingValue};

/// Renders changes of the FPM of a snapshot. Writes nothing.
pub fn prepare(snapshot: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation> {
    Ok(Fpm::of(snapshot).and_then(|fpm| plan(&fpm, changes)).into())
}

/// A running FPM, as its files say.
struct Fpm {
    pid: u32,
    main_file: String,
    prefix: String,
    config: Config,
}

impl Fpm {
    fn of(snapshot: &ServiceSnapshot) -> std::result::Result<Self, Obstacle> {
        if mount_namespace::has_other_root(snapshot.pid) {
            let why = "PHP-FPM runs in a container: its files are not those of this machine";
            return Err((why.into(), Some("run the agent inside of the container".into())));
        }
        if !procfs::may_inspect(snapshot.pid) {
            let why =
                "PHP-FPM runs as another user, and how it was started cannot be read: permission denied";
            return Err((why.into(), Some(NEEDS_RIGHTS.into())));
        }
        let Some(main_file) = snapshot.config_file.clone() else {
            return Err(("PHP-FPM does not say which configuration it read".into(), None));
        };
        let prefix = php::prefix(snapshot.executable.as_deref());
        let config = config::read(&Root::ours(), &main_file, &prefix);
        Ok(Self { pid: snapshot.pid, main_file, prefix, config })
    }
}

/// A change that was understood: the line to be written, and what it replaces.
struct Wanted {
    setting: &'static Setting,
    change: Change,
    edit: ValueEdit,
}

fn plan(fpm: &Fpm, changes: &[SettingChange]) -> std::result::Result<RenderedPlan, Obstacle> {
    let mut ini = None;
    let mut wanted: Vec<Wanted> = vec![];
    let lowered = spare_to_lower(fpm, changes);
    for change in changes.iter().chain(&lowered) {
        let setting = understood(&SETTINGS, "PHP-FPM", change)?;
        let one = match setting.place {
            Place::Pool | Place::Global => of_fpm(fpm, setting, change)?,
            Place::Ini => of_php(fpm, setting, change, ini_files(fpm, &mut ini)?)?,
        };
        wanted.retain(|known| known.change.setting != one.change.setting);
        if one.change.from.as_ref() != Some(&one.change.to) {
            wanted.push(one);
        }
    }
    if wanted.is_empty() {
        return Err((NOTHING_TO_CHANGE.into(), None));
    }
    let edits: Vec<ValueEdit> = wanted.iter().map(|one| one.edit.clone()).collect();
    let edited = edit::apply(&edits, &Managers::here()).map_err(|error| (error.message, error.hint))?;
    prove(fpm, &wanted, ini.as_ref(), &edited.overlay())?;
    Ok(edited.plan(wanted.into_iter().map(|one| one.change).collect(), ApplyClass::Reload))
}

/// FPM does not start a dynamic pool that has fewer processes than are to be idle (fpm_conf.c): these go down with them.
fn spare_to_lower(fpm: &Fpm, changes: &[SettingChange]) -> Vec<SettingChange> {
    let mut lowered = vec![];
    for change in changes.iter().filter(|change| change.setting.name == "pm.max_children") {
        let (Ok(pool), SettingValue::Integer(most)) = (pool(&fpm.config, change), &change.to) else {
            continue;
        };
        let asked = |name: &str| {
            let is_it =
                |one: &&SettingChange| one.setting.name == name && one.setting.pool == change.setting.pool;
            changes.iter().find(is_it).map(|one| one.to.to_string())
        };
        if asked("pm").or(pool.value("pm").map(str::to_owned)).as_deref() != Some("dynamic") {
            continue;
        }
        for name in ["pm.start_servers", "pm.min_spare_servers", "pm.max_spare_servers"] {
            let is_more =
                pool.value(name).and_then(|value| value.parse::<i64>().ok()).is_some_and(|now| now > *most);
            if is_more && asked(name).is_none() {
                let setting =
                    webdyno_model::setting::SettingId { name: name.into(), ..change.setting.clone() };
                lowered.push(SettingChange { setting, to: SettingValue::Integer(*most) });
            }
        }
    }
    lowered
}

/// A value of `[global]` or a pool: where its line is, or at the end of its section.
fn of_fpm(
    fpm: &Fpm,
    setting: &'static Setting,
    change: &SettingChange,
) -> std::result::Result<Wanted, Obstacle> {
    let name = setting.name;
    let section = match setting.place {
        Place::Pool => pool(&fpm.config, change)?,
        _ => &fpm.config.global,
    };
    let placed = section.get(name);
    let Some(file) = placed.or(section.values.last()).map(|placed| placed.file.clone()) else {
        return Err((
            format!("[{}] has no line in {} that {name} could stand beside", section.name, fpm.main_file),
            None,
        ));
    };
    let from = placed.map(|placed| SettingValue::parse(&placed.value));
    let edited = Section::Named(section.name.clone());
    Ok(wanted(setting, change, from, (file.into(), edited)))
}

/// The pool that a change is for.
fn pool<'a>(
    config: &'a Config,
    change: &SettingChange,
) -> std::result::Result<&'a config::Section, Obstacle> {
    let names = || config.pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(", ");
    match (&change.setting.pool, &config.pools[..]) {
        (Some(name), _) => {
            let none = || (format!("PHP-FPM has no pool {name}"), Some(format!("it has {}", names())));
            config.pool(name).ok_or_else(none)
        }
        (None, [only]) => Ok(only),
        (None, []) => Err(("PHP-FPM has no pool".into(), None)),
        (None, _) => {
            let why = format!("{} has a value in each of the pools {}", change.setting.name, names());
            Err((why, Some("set it by hand in the pool that the site uses".into())))
        }
    }
}

/// A value of php.ini: in our own file, or in the one that is read later and sets it.
fn of_php(
    fpm: &Fpm,
    setting: &'static Setting,
    change: &SettingChange,
    files: &IniFiles,
) -> std::result::Result<Wanted, Obstacle> {
    let name = setting.name;
    let in_pool = fpm.config.pools.iter().find_map(|pool| Some((pool, pool.php(name)?)));
    if let Some((pool, placed)) = in_pool {
        let why = format!(
            "the pool {} sets {name} in {}:{}, which wins over php.ini",
            pool.name, placed.file, placed.line
        );
        return Err((why, Some("remove that line, or set the value there by hand".into())));
    }
    let (from, file) = ini::place(files, name)?;
    Ok(wanted(setting, change, from, (file, Section::AllRequests)))
}

fn ini_files<'a>(fpm: &Fpm, known: &'a mut Option<IniFiles>) -> std::result::Result<&'a IniFiles, Obstacle> {
    if known.is_none() {
        let executable = procfs::executable(fpm.pid).ok();
        let files = php::query_ini_files(fpm.pid, executable.as_ref());
        *known = Some(files.map_err(|missing| (missing.why, Some(missing.how_to_enable)))?);
    }
    known.as_ref().ok_or_else(|| ("PHP-FPM does not say which files it reads".into(), None))
}

fn wanted(
    setting: &'static Setting,
    change: &SettingChange,
    from: Option<SettingValue>,
    (file, section): (PathBuf, Section),
) -> Wanted {
    let real = std::fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
    let pool = change.setting.pool.clone().filter(|_| setting.place == Place::Pool);
    let setting_id = webdyno_model::setting::SettingId { pool, ..change.setting.clone() };
    let value = change.to.to_string();
    Wanted {
        setting,
        change: Change { setting: setting_id, ..change.planned(from, real, ApplyClass::Reload) },
        edit: ValueEdit { file, section, key: setting.name, value },
    }
}

/// Reads the configuration with the new texts: each value must win.
fn prove(
    fpm: &Fpm,
    wanted: &[Wanted],
    ini: Option<&IniFiles>,
    overlay: &Overlay,
) -> std::result::Result<(), Obstacle> {
    let config = config::read_with(&Root::ours(), &fpm.main_file, &fpm.prefix, overlay);
    for one in wanted {
        let name = one.setting.name;
        let placed = match &one.edit.section {
            Section::AllRequests => ini.and_then(|ini| ini.placed(name, overlay)),
            Section::Named(pool) if one.setting.place == Place::Pool => {
                config.pool(pool).and_then(|pool| pool.get(name)).cloned()
            }
            Section::Named(_) => config.global.get(name).cloned(),
        };
        if placed.as_ref().map(|placed| placed.value.as_str()) != Some(one.edit.value.as_str()) {
            let wins = placed.map_or_else(
                || "nothing reads it there".to_owned(),
                |placed| format!("{}:{} wins with {}", placed.file, placed.line, placed.value),
            );
            let why =
                format!("{name} = {} in {} would not hold: {wins}", one.edit.value, one.edit.file.display());
            return Err((why, Some("set it by hand where it is read last".into())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::NAME;
    use super::super::settings::find;
    use super::*;
    use std::path::Path;
    use webdyno_model::setting::SettingId;

    /// An FPM whose files are in a folder, with two pools.
    fn fpm(folder: &Path) -> Fpm {
        let path = |name: &str| folder.join(name).display().to_string();
        std::fs::create_dir_all(folder.join("pool.d")).unwrap();
        let main =
            format!("[global]\npid = /run/x.pid\nprocess.max = 20\ninclude={}\n", path("pool.d/*.conf"));
        std::fs::write(path("fpm.conf"), main).unwrap();
        std::fs::write(path("pool.d/www.conf"), "[www]\nlisten = 9000\npm = static\npm.max_children = 5\n")
            .unwrap();
        std::fs::write(path("pool.d/api.conf"), "[api]\nlisten = 9001\npm = static\npm.max_children = 7\n")
            .unwrap();
        let config = config::read(&Root::ours(), &path("fpm.conf"), "/usr");
        Fpm { pid: std::process::id(), main_file: path("fpm.conf"), prefix: "/usr".into(), config }
    }

    fn change(name: &str, pool: Option<&str>, to: i64) -> SettingChange {
        let setting = SettingId { pool: pool.map(str::to_owned), ..SettingId::of_service(NAME, name) };
        SettingChange { setting, to: SettingValue::Integer(to) }
    }

    #[test]
    fn a_pool_gets_its_value_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let fpm = fpm(&folder.path().canonicalize().unwrap());
        let wanted = [change("pm.max_children", Some("www"), 52), change("process.max", None, 72)];
        let plan = plan(&fpm, &wanted).unwrap();
        assert_eq!((plan.class, plan.files.len()), (ApplyClass::Reload, 2));
        assert_eq!(plan.changes[0].from, Some(SettingValue::Integer(5)));
        assert_eq!(plan.files[0].after, "[www]\nlisten = 9000\npm = static\npm.max_children = 52\n");
        assert!(plan.files[1].after.contains("\nprocess.max = 72\n"), "{}", plan.files[1].after);
        assert!(plan.diff.contains("-pm.max_children = 5\n+pm.max_children = 52\n"), "{}", plan.diff);
    }

    #[test]
    fn processes_that_are_to_be_idle_go_down_with_all_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut fpm = fpm(&root);
        let www = "[www]\nlisten = 9000\npm = dynamic\npm.max_children = 50\npm.start_servers = 5\n\
                   pm.min_spare_servers = 5\npm.max_spare_servers = 30\n";
        std::fs::write(root.join("pool.d/www.conf"), www).unwrap();
        fpm.config = config::read(&Root::ours(), &fpm.main_file, "/usr");
        let after = |changes: &[SettingChange]| plan(&fpm, changes).unwrap().files[0].after.clone();
        let lowered = after(&[change("pm.max_children", Some("www"), 20)]);
        let expected = www.replace("= 50", "= 20").replace("= 30", "= 20");
        assert_eq!(lowered, expected);
        assert_eq!(after(&[change("pm.max_children", Some("www"), 60)]), www.replace("= 50", "= 60"));
    }

    #[test]
    fn what_cannot_be_planned_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let refused = |changes: &[SettingChange]| plan(&fpm(&root), changes).unwrap_err().0;
        for (wanted, why) in [
            (
                change("listen.backlog", Some("www"), 9),
                "`listen.backlog` is not a setting of PHP-FPM that webdyno changes",
            ),
            (change("pm.max_children", Some("www"), 0), "pm.max_children cannot be `0`"),
            (change("pm.max_children", Some("gone"), 9), "PHP-FPM has no pool gone"),
            (change("pm.max_children", None, 9), "in each of the pools api, www"),
            (change("pm.max_children", Some("www"), 5), "every setting already has"),
        ] {
            let said = refused(&[wanted]);
            assert!(said.contains(why), "{said}");
        }
        // A later file has another value.
        std::fs::write(root.join("pool.d/zz.conf"), "[www]\ninclude = other.conf\n").unwrap();
        std::fs::write(root.join("pool.d/www.conf"), "[www]\nlisten = 9000\npm.max_children = 5\n").unwrap();
        let over = "[www]\npm.max_children = 6\n";
        std::fs::write(root.join("pool.d/zzz.conf"), over).unwrap();
        let late = plan(&fpm(&root), &[change("pm.max_children", Some("www"), 9)]);
        // The files of `fpm()` are written anew, zzz.conf stays: there it is changed.
        assert_eq!(late.unwrap().files[0].after, "[www]\npm.max_children = 9\n");
    }

    #[test]
    fn a_value_of_php_that_a_pool_overrides_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut fpm = fpm(&root);
        let api = "[api]\nlisten = 9001\nphp_admin_value[opcache.memory_consumption] = 64\n";
        std::fs::write(root.join("pool.d/api.conf"), api).unwrap();
        fpm.config = config::read(&Root::ours(), &fpm.main_file, "/usr");
        let setting = find("opcache.memory_consumption").unwrap();
        let files = IniFiles::default();
        let refused = of_php(&fpm, setting, &change(setting.name, None, 256), &files).err().unwrap();
        assert!(refused.0.contains("the pool api sets opcache.memory_consumption"), "{}", refused.0);
        let setting = find("opcache.enable").unwrap();
        let refused = of_php(&fpm, setting, &change(setting.name, None, 1), &files).err().unwrap();
        assert!(refused.0.contains("reads no folder of .ini files"), "{}", refused.0);
    }
}
