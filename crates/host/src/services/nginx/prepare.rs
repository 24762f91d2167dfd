//! Renders changes of nginx to a plan. Reads only.
//!
//! A value is written where it stands, if it stands in one place only; where several servers have their own, whose value is
//! meant is for a person to say. One that is nowhere is written into its block.

use super::config::{self, Config, Overlay};
use super::edit::{ValueEdit, has_block};
use super::settings::{SETTINGS, Setting, find};
use crate::config_management::Managers;
use crate::services::common::edit::{self, Edited};
use crate::visibility::mount_namespace;
use crate::visibility::process_view::Root;
use std::path::PathBuf;
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, Change, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::{ServiceSnapshot, SettingValue};

/// Why a change is one for a person, and what helps.
type Obstacle = (String, Option<String>);

/// Renders changes of the nginx of a snapshot. Writes nothing.
pub fn prepare(snapshot: &ServiceSnapshot, changes: &[SettingChange]) -> Result<Preparation> {
    if mount_namespace::has_other_root(snapshot.pid) {
        return Ok(Preparation::NotPreparable {
            why: "nginx runs in a container: its files are not those of this machine".into(),
            hint: Some("run the agent inside of the container".into()),
        });
    }
    let Some(main_file) = &snapshot.config_file else {
        return Ok(Preparation::not_preparable("nginx does not say which configuration it read"));
    };
    let config = config::read(&Root::ours(), main_file);
    Ok(match plan(&config, changes) {
        Ok(plan) => Preparation::Plan(Box::new(plan)),
        Err((why, hint)) => Preparation::NotPreparable { why, hint },
    })
}

fn plan(config: &Config, changes: &[SettingChange]) -> std::result::Result<RenderedPlan, Obstacle> {
    let mut wanted: Vec<(Change, ValueEdit)> = vec![];
    for change in changes {
        let one = written(config, understood(change)?, change)?;
        wanted.retain(|(known, _)| known.setting != one.0.setting);
        if one.0.from.as_ref() != Some(&one.0.to) {
            wanted.push(one);
        }
    }
    if wanted.is_empty() {
        return Err(("every setting already has the value that is wanted".into(), None));
    }
    let (changes, edits): (Vec<Change>, Vec<ValueEdit>) = wanted.into_iter().unzip();
    let edited = edit::apply(&edits, &Managers::here());
    let Edited { files, diff, managed } = edited.map_err(|error| (error.message, error.hint))?;
    let overlay: Overlay = files.iter().map(|file| (PathBuf::from(&file.path), file.after.clone())).collect();
    prove(config, &edits, &overlay)?;
    let class = if managed.is_empty() { ApplyClass::Reload } else { ApplyClass::Manual };
    Ok(RenderedPlan { changes, files, class, diff, managed })
}

fn understood(change: &SettingChange) -> std::result::Result<&'static Setting, Obstacle> {
    let (name, to) = (&change.setting.name, &change.to);
    let Some(setting) = find(name) else {
        let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        let why = format!("`{name}` is not a setting of nginx that webdyno changes");
        return Err((why, Some(format!("it changes {}", names.join(", ")))));
    };
    if setting.shape.accepts(to) {
        return Ok(setting);
    }
    let why = format!("{name} cannot be `{}`", to.to_string().replace(['\r', '\n'], " "));
    Err((why, Some(format!("it takes {}", setting.shape.expects()))))
}

/// Where a value goes.
fn written(
    config: &Config,
    setting: &'static Setting,
    change: &SettingChange,
) -> std::result::Result<(Change, ValueEdit), Obstacle> {
    let name = setting.name;
    let found = config.occurrences(name);
    let (file, from) = match &found[..] {
        [one] => (one.file.clone(), Some(SettingValue::parse(&one.value))),
        [] => {
            let file = match setting.block.name() {
                None => Some(config.main_file().to_owned()),
                Some(block) => config.file_of(block),
            };
            let is_whole = |file: &String| {
                std::fs::read_to_string(file).is_ok_and(|text| has_block(&text, setting.block))
            };
            let why = format!("no file of nginx has a place for {name}");
            (file.filter(is_whole).ok_or((why, None))?, None)
        }
        several => {
            let places: Vec<_> =
                several.iter().take(4).map(|one| format!("{}:{}", one.file, one.line)).collect();
            let why = format!("{name} stands in {} places: {}", several.len(), places.join(", "));
            return Err((why, Some(format!("set {} there by hand, where the site needs it", change.to))));
        }
    };
    let real = std::fs::canonicalize(&file).unwrap_or_else(|_| PathBuf::from(&file));
    let value = change.to.to_string();
    let planned = Change {
        setting: change.setting.clone(),
        from,
        to: change.to.clone(),
        file: real.to_string_lossy().into_owned(),
        class: ApplyClass::Reload,
        server: None,
    };
    Ok((planned, ValueEdit { file: file.into(), setting, value, replaces: !found.is_empty() }))
}

/// Reads the configuration with the new texts: each value must be there once.
fn prove(config: &Config, edits: &[ValueEdit], overlay: &Overlay) -> std::result::Result<(), Obstacle> {
    // The edited files are known by their real names, the configuration by those that it includes.
    let named = edits.iter().filter_map(|edit| {
        let real = std::fs::canonicalize(&edit.file).ok()?;
        Some((edit.file.clone(), overlay.get(&real)?.clone()))
    });
    let overlay: Overlay = named.collect();
    let after = config::read_with(&Root::ours(), config.main_file(), &overlay);
    for ValueEdit { setting, value, file, .. } in edits {
        let found = after.occurrences(setting.name);
        if !matches!(&found[..], [one] if one.value == *value) {
            let why = format!("{} {value} in {} would not hold", setting.name, file.display());
            return Err((why, Some("set it by hand".into())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::NAME;
    use super::*;
    use webdyno_model::setting::SettingId;

    fn change(name: &str, to: SettingValue) -> SettingChange {
        SettingChange { setting: SettingId::of_service(NAME, name), to }
    }

    fn number(name: &str, to: i64) -> SettingChange {
        change(name, SettingValue::Integer(to))
    }

    /// A configuration in a folder, with a link to one of its files.
    fn config(folder: &std::path::Path, site: &str) -> Config {
        let main = "user x;\nevents {\n  worker_connections 64;\n}\nhttp {\n  include sites/*;\n}\n";
        std::fs::create_dir_all(folder.join("sites")).unwrap();
        std::fs::write(folder.join("nginx.conf"), main).unwrap();
        std::fs::write(folder.join("site.conf"), site).unwrap();
        let _ = std::os::unix::fs::symlink("../site.conf", folder.join("sites/site"));
        config::read(&Root::ours(), &folder.join("nginx.conf").to_string_lossy())
    }

    #[test]
    fn values_go_where_they_stand_or_into_their_block() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let config = config(&root, "server {\n  keepalive_timeout 0;\n}\n");
        let wanted = [
            number("worker_connections", 1024),
            number("worker_rlimit_nofile", 4096),
            number("keepalive_timeout", 65),
            number("keepalive_requests", 500),
        ];
        let plan = plan(&config, &wanted).unwrap();
        assert_eq!((plan.class, plan.files.len(), plan.changes.len()), (ApplyClass::Reload, 2, 4));
        assert_eq!(
            plan.files[0].after,
            "worker_rlimit_nofile 4096;\nuser x;\nevents {\n  worker_connections 1024;\n}\n\
             http {\n    keepalive_requests 500;\n  include sites/*;\n}\n"
        );
        assert_eq!(plan.files[1].path, root.join("site.conf").to_string_lossy());
        assert_eq!(plan.files[1].after, "server {\n  keepalive_timeout 65;\n}\n");
        assert_eq!(plan.changes[0].from, Some(SettingValue::Integer(64)));
        assert!(
            plan.diff.contains("-  worker_connections 64;\n+  worker_connections 1024;\n"),
            "{}",
            plan.diff
        );
    }

    #[test]
    fn what_cannot_be_planned_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let two = "server { sendfile off; }\nserver { sendfile on; }\n";
        let config = config(&root, two);
        for (wanted, part) in [
            (change("sendfile", SettingValue::Text("on".into())), "sendfile stands in 2 places"),
            (number("limit_rate", 0), "`limit_rate` is not a setting of nginx that webdyno changes"),
            (number("worker_connections", 1), "worker_connections cannot be `1`"),
            (
                change("ssl_session_cache", SettingValue::Text("off; evil".into())),
                "ssl_session_cache cannot be",
            ),
            (number("worker_connections", 64), "every setting already has the value"),
        ] {
            let (why, _) = plan(&config, &[wanted]).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
