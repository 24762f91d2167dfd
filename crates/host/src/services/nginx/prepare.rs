//! Renders changes of nginx to a plan. Reads only.
//!
//! A value is written where it stands, if it stands in one place only; where several servers have their own, whose value is
//! meant is for a person to say. One that is nowhere is written into its block.

use super::config::{self, Config, Occurrence, Overlay, distinct};
use super::edit::TextEdit;
use super::settings::{Place, SETTINGS, Setting, find};
use super::{parameters, upstream};
use crate::config_management::Managers;
use crate::services::common::edit;
use crate::services::common::shape::understood;
use crate::visibility::mount_namespace;
use crate::visibility::process_view::Root;
use std::path::{Path, PathBuf};
use webdyno_model::Result;
use webdyno_model::change::{
    ApplyClass, Change, NOTHING_TO_CHANGE, Obstacle, Preparation, RenderedPlan, SettingChange,
};
use webdyno_model::service::{ServiceSnapshot, SettingValue};

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
    Ok(plan(&config, snapshot.port, changes).into())
}

fn plan(
    config: &Config,
    port: u16,
    changes: &[SettingChange],
) -> std::result::Result<RenderedPlan, Obstacle> {
    let mut wanted: Vec<(Change, Vec<TextEdit>)> = vec![];
    for change in changes {
        let one = written(config, port, change)?;
        wanted.retain(|(known, _)| known.setting != one.0.setting);
        if !one.1.is_empty() {
            wanted.push(one);
        }
    }
    if wanted.is_empty() {
        return Err((NOTHING_TO_CHANGE.into(), None));
    }
    let (planned, edits): (Vec<Change>, Vec<Vec<TextEdit>>) = wanted.into_iter().unzip();
    let edited =
        edit::apply(&edits.concat(), &Managers::here()).map_err(|error| (error.message, error.hint))?;
    prove(config, port, &planned, &edited.overlay())?;
    Ok(edited.plan(planned, ApplyClass::Reload))
}

/// What is to be written for a change: nothing where its value is in force.
fn written(
    config: &Config,
    port: u16,
    change: &SettingChange,
) -> std::result::Result<(Change, Vec<TextEdit>), Obstacle> {
    let setting = understood(&SETTINGS, "nginx", change)?;
    let value = change.to.to_string();
    let (from, edits) = match setting.place {
        Place::Main | Place::Events | Place::Http => directive(config, setting, &value)?,
        Place::Logs => (None, parameters::buffered_logs(config, &value)?),
        Place::Listeners => {
            let (from, edits) = parameters::backlogs(config, port, change.to.number().unwrap_or(0.0) as i64)?;
            (Some(SettingValue::Integer(from)), edits)
        }
        Place::UpstreamServer => parameters::max_conns(config, change.setting.pool.as_deref(), &value)?,
        Place::Upstream => upstream::keepalive(config, change.setting.pool.as_deref(), &value)?,
    };
    let file = edits.first().map_or(Path::new(config.main_file()), |edit| &edit.file);
    Ok((change.planned(from, real(file), ApplyClass::Reload), edits))
}

/// A value in place of the one that is there, or in its block.
fn directive(
    config: &Config,
    setting: &Setting,
    value: &str,
) -> std::result::Result<(Option<SettingValue>, Vec<TextEdit>), Obstacle> {
    let name = setting.name;
    let line = format!("{name} {value};");
    match &distinct(config.occurrences(name))[..] {
        [one] => {
            let edit = (one.value != value).then(|| TextEdit::instead(one, line));
            Ok((Some(SettingValue::parse(&one.value)), edit.into_iter().collect()))
        }
        [] => {
            let edit = match setting.place.block() {
                None => Some(TextEdit::at_begin(config.main_file(), line)),
                Some(block) => config.outermost(block).map(|block| TextEdit::first_in(&block, line)),
            };
            Ok((None, vec![edit.ok_or_else(|| (format!("no file of nginx has a place for {name}"), None))?]))
        }
        several => {
            let places: Vec<_> = several.iter().take(4).map(Occurrence::place).collect();
            let why = format!("{name} stands in {} places: {}", several.len(), places.join(", "));
            Err((why, Some(format!("set {value} there by hand, where the site needs it"))))
        }
    }
}

fn real(file: &Path) -> PathBuf {
    std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned())
}

/// Reads the configuration with the new texts: nothing may be left to be written, and no header may be lost.
fn prove(
    config: &Config,
    port: u16,
    changes: &[Change],
    overlay: &Overlay,
) -> std::result::Result<(), Obstacle> {
    // The edited files are known by their real names, the configuration by those that it includes.
    let names = config.sources().files.into_iter();
    let named = names.filter_map(|name| Some((name.clone(), overlay.get(&real(&name))?.clone())));
    let after = config::read_with(&Root::ours(), config.main_file(), &named.collect());
    for Change { setting, to, file, .. } in changes {
        let change = SettingChange { setting: setting.clone(), to: to.clone() };
        if !written(&after, port, &change)?.1.is_empty() {
            let why = format!("{} {to} in {file} would not hold", setting.name);
            return Err((why, Some("set it by hand".into())));
        }
        if find(&setting.name).is_some_and(|setting| setting.place == Place::Upstream) {
            upstream::keeps_headers(config, &after)?;
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
        let plan = plan(&config, 80, &wanted).unwrap();
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
    fn one_plan_keeps_connections_in_several_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let site = "upstream app { server 10.0.0.2; }\nserver { listen 8080; location / { proxy_pass http://app; } }\n";
        let config = config(&root, site);
        let wanted =
            [number("keepalive", 16), number("listen backlog", 1024), number("worker_connections", 1024)];
        let plan = plan(&config, 8080, &wanted).unwrap();
        let site = "upstream app { server 10.0.0.2;\nkeepalive 16; }\nserver { listen 8080 backlog=1024; location / {\n    \
                    proxy_http_version 1.1;\n    proxy_set_header Connection \"\"; proxy_pass http://app; } }\n";
        assert_eq!((plan.files.len(), plan.files[0].after.as_str()), (2, site));
        assert_eq!(plan.changes[1].from, Some(SettingValue::Integer(511)));
        for (path, after) in plan.files.iter().map(|file| (&file.path, &file.after)) {
            std::fs::write(path, after).unwrap();
        }
        let config = config::read(&Root::ours(), config.main_file());
        let (why, _) = super::plan(&config, 8080, &wanted).unwrap_err();
        assert!(why.contains("every setting already has the value"), "{why}");
        assert!(super::plan(&config, 80, &wanted[1..2]).unwrap_err().0.contains("names port 80"));
    }

    #[test]
    fn a_location_of_two_servers_hands_on_the_headers_of_both() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let app = "location / { proxy_pass http://app; }\n";
        std::fs::write(root.join("app.conf"), app).unwrap();
        let servers = |of_second: &str| {
            let first =
                "server { proxy_set_header Host $host; proxy_set_header X-Token t; include app.conf; }";
            format!(
                "upstream app {{ server 10.0.0.2; }}\n{first}\nserver {{ {of_second} include app.conf; }}\n"
            )
        };
        let wanted = [number("keepalive", 16)];
        let (why, hint) = plan(&config(&root, &servers("")), 80, &wanted).unwrap_err();
        let place = format!("{}:1", root.join("app.conf").display());
        assert_eq!(why, format!("{place} would no longer hand on Host, X-Token, which its server sets"));
        assert!(hint.unwrap().contains("Connection"));
        // Where both have headers of their own, each has the one more.
        let plan =
            plan(&config(&root, &servers("proxy_set_header X-Real-IP $remote_addr;")), 80, &wanted).unwrap();
        let texts: Vec<_> = plan.files.iter().map(|file| file.after.matches("Connection").count()).collect();
        assert_eq!(texts, [2, 0], "the site, and the location");
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
            let (why, _) = plan(&config, 80, &[wanted]).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
