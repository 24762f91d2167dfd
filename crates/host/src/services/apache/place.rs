//! Decides where a setting is written so that it wins.
//!
//! Apache takes the last directive at server scope. A file of our own that is included after every place that sets
//! the directive is the least intrusive; where there is none the winning line is edited; else the main file gets a
//! line at its end. A value inside `<VirtualHost>` beats the one of the server, so it is edited in place.

use super::config::model::Included;
use super::config::{Evaluation, Placed};
use super::settings::{Mpm, Setting};
use crate::os::wildcard::{is_pattern, matches};
use crate::services::common::edit::DROP_IN;
use std::path::{Path, PathBuf};
use webdyno_model::{Result, UserError};

/// Where one value is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In our own file, which may not exist yet.
    DropIn(PathBuf),
    /// Instead of the arguments of this line.
    Line {
        /// The file.
        file: PathBuf,
        /// The line as Apache counts it.
        line: u32,
    },
    /// At the end of this file.
    Append(PathBuf),
}

impl Place {
    /// The file that is written.
    pub fn file(&self) -> &Path {
        match self {
            Self::DropIn(file) | Self::Line { file, .. } | Self::Append(file) => file,
        }
    }
}

/// All places at which a setting must be written to be in force for the server and for the virtual hosts of `port`.
pub fn places(
    evaluation: &Evaluation,
    main_file: &Path,
    setting: &Setting,
    mpm: Mpm,
    port: u16,
) -> Result<Vec<Place>> {
    let mut places = vec![global(evaluation, main_file, setting, mpm)?];
    for placed in overrides(evaluation, setting, port) {
        places.push(line(placed)?);
    }
    Ok(places)
}

/// The directives inside virtual hosts of `port` that beat the value of the server.
pub fn overrides<'a>(
    evaluation: &'a Evaluation,
    setting: &'a Setting,
    port: u16,
) -> impl Iterator<Item = &'a Placed> {
    evaluation.all(setting.names).filter(move |placed| match placed.scope.as_ref() {
        [host] => {
            host.name.eq_ignore_ascii_case("VirtualHost") && host.words.iter().any(|word| serves(word, port))
        }
        _ => false,
    })
}

/// Whether an address of a virtual host is for a port: one without a port is for all.
fn serves(address: &str, port: u16) -> bool {
    match address.rsplit_once(':') {
        Some((_, "*")) => true,
        Some((host, text)) if !host.contains(':') || host.ends_with(']') => text.parse() == Ok(port),
        _ => true,
    }
}

fn line(placed: &Placed) -> Result<Place> {
    if placed.via.is_some() {
        return Err(UserError::cannot_run(format!(
            "{} is set in a macro, whose lines hold for all that use it: {}",
            placed.name,
            placed.place()
        ))
        .hint("change the macro by hand"));
    }
    match &placed.file {
        Some(file) => Ok(Place::Line { file: file.to_path_buf(), line: placed.line }),
        None => Err(UserError::cannot_run(format!(
            "{} is set on Apache's command line, which no file can change",
            placed.name
        ))
        .hint("take it out of the command that starts Apache, and start it again")),
    }
}

fn global(evaluation: &Evaluation, main_file: &Path, setting: &Setting, mpm: Mpm) -> Result<Place> {
    let loaded = |placed: &&Placed| placed.words().first().is_some_and(|symbol| symbol == mpm.module());
    let module = evaluation.all(&["LoadModule"]).find(loaded);
    let occurrences: Vec<&Placed> =
        evaluation.all(setting.names).filter(|placed| placed.is_global()).collect();
    // Our file asks for the MPM's module, so it must come after that, too.
    let mut before: Vec<&Placed> = occurrences.clone();
    before.extend(module.filter(|_| setting.of_mpm));
    if let Some(file) = drop_in(evaluation, main_file, &before) {
        return Ok(Place::DropIn(file));
    }
    match occurrences.last() {
        Some(winner) => line(winner),
        None => Ok(Place::Append(main_file.to_path_buf())),
    }
}

/// A file of ours that is read after all of these directives, if an include of the main file allows one.
pub fn drop_in(evaluation: &Evaluation, main_file: &Path, before: &[&Placed]) -> Option<PathBuf> {
    let mut candidates: Vec<(PathBuf, usize)> = Vec::new();
    for included in evaluation.includes.iter().filter(|included| is_ours(included, main_file)) {
        let Some(file) = room(included) else { continue };
        let order = position(included, &file);
        let after = |placed: &&&Placed| placed.file.as_deref() != Some(&file) && placed.order >= order;
        if !before.iter().any(|placed| after(&placed)) {
            candidates.push((file, order));
        }
    }
    candidates.sort_by_key(|(file, order)| (file.exists(), !is_for_sites(file), *order));
    candidates.pop().map(|(file, _)| file)
}

/// Whether the main file itself includes at server scope.
fn is_ours(included: &Included, main_file: &Path) -> bool {
    included.is_global && included.file.as_deref() == Some(main_file)
}

/// The path that our file would have in an include; `None` when it would not be read.
fn room(included: &Included) -> Option<PathBuf> {
    let pattern = &included.pattern;
    let (directory, name) = (pattern.parent()?, pattern.file_name()?.to_str()?);
    if pattern.is_dir() {
        return Some(pattern.join(DROP_IN));
    }
    let literal = !is_pattern(&directory.to_string_lossy());
    (literal && is_pattern(name) && matches(name, DROP_IN) && directory.is_dir())
        .then(|| directory.join(DROP_IN))
}

/// Where in the order of evaluation our file stands: after the files that sort before it.
fn position(included: &Included, file: &Path) -> usize {
    let earlier = included.files.iter().filter(|(path, _)| path.as_path() < file);
    earlier.map(|(_, order)| *order).next_back().unwrap_or(included.order)
}

/// Directories of virtual hosts are the last choice: people look for settings of the server elsewhere.
fn is_for_sites(file: &Path) -> bool {
    let directory =
        file.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().to_ascii_lowercase());
    directory.is_some_and(|name| name.starts_with("sites") || name.starts_with("vhost"))
}

#[cfg(test)]
mod tests {
    use super::super::config::{Input, evaluate};
    use super::super::settings::find;
    use super::*;
    use std::fs;

    /// Writes files, evaluates `httpd.conf`, and tells the places of a setting relative to the directory.
    fn check(files: &[(&str, &str)], setting: &str, port: u16, expected: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let main_file = root.path().join("httpd.conf");
        let evaluation = evaluate(Input {
            main_file: main_file.clone(),
            server_root: root.path().into(),
            ..Input::default()
        });
        let places = places(&evaluation, &main_file, find(setting).unwrap(), Mpm::Prefork, port);
        let shown: Vec<String> = match places {
            Ok(places) => places.iter().map(|place| describe(place, root.path())).collect(),
            Err(error) => vec![error.message],
        };
        assert_eq!(shown, expected, "{files:?}");
    }

    fn describe(place: &Place, root: &Path) -> String {
        let name = place.file().strip_prefix(root).unwrap().display();
        match place {
            Place::DropIn(_) => format!("drop-in {name}"),
            Place::Line { line, .. } => format!("{name}:{line}"),
            Place::Append(_) => format!("append {name}"),
        }
    }

    const LOAD: &str = "LoadModule mpm_prefork_module m/mod_mpm_prefork.so\n";

    #[test]
    fn a_debian_tree_gets_a_drop_in_in_conf_enabled() {
        let main = "IncludeOptional mods-enabled/*.load\nIncludeOptional mods-enabled/*.conf\n\
                    IncludeOptional conf-enabled/*.conf\nIncludeOptional sites-enabled/*.conf\n";
        let mpm = "<IfModule mpm_prefork_module>\nMaxRequestWorkers 150\n</IfModule>\n";
        let files = [
            ("httpd.conf", main),
            ("mods-enabled/mpm_prefork.load", LOAD),
            ("mods-enabled/mpm_prefork.conf", mpm),
            ("conf-enabled/charset.conf", ""),
            ("sites-enabled/000-default.conf", "<VirtualHost *:80>\n</VirtualHost>\n"),
        ];
        check(&files, "MaxRequestWorkers", 80, &["drop-in conf-enabled/zzz-webdyno.conf"]);
        check(&files, "Timeout", 80, &["drop-in conf-enabled/zzz-webdyno.conf"]);
    }

    #[test]
    fn a_red_hat_tree_gets_a_drop_in_in_conf_d() {
        let main = "Include conf.modules.d/*.conf\nTimeout 60\nIncludeOptional conf.d/*.conf\n";
        let files =
            [("httpd.conf", main), ("conf.modules.d/00-mpm.conf", LOAD), ("conf.d/ssl.conf", "Timeout 5\n")];
        check(&files, "Timeout", 80, &["drop-in conf.d/zzz-webdyno.conf"]);
        check(&files, "MaxRequestWorkers", 80, &["drop-in conf.d/zzz-webdyno.conf"]);
    }

    #[test]
    fn what_comes_after_the_includes_is_edited_in_place() {
        let main = "IncludeOptional conf.d/*.conf\nTimeout 60\nMaxClients \\\n 5\n";
        let files = [("httpd.conf", main), ("conf.d/a.conf", "KeepAlive On\n")];
        check(&files, "Timeout", 80, &["httpd.conf:2"]);
        check(&files, "MaxRequestWorkers", 80, &["httpd.conf:4"]);
        check(&files, "KeepAlive", 80, &["drop-in conf.d/zzz-webdyno.conf"]);
        let late = [("httpd.conf", "Include conf.d/*.conf\n"), ("conf.d/zzzz.conf", "Timeout 5\n")];
        check(&late, "Timeout", 80, &["conf.d/zzzz.conf:1"]);
    }

    #[test]
    fn without_an_include_the_main_file_is_appended_to() {
        check(&[("httpd.conf", LOAD)], "MaxRequestWorkers", 80, &["append httpd.conf"]);
        let other = [("httpd.conf", "Include x/*.load\n"), ("x/a.load", LOAD)];
        check(&other, "MaxRequestWorkers", 80, &["append httpd.conf"]);
        let inside = [
            ("httpd.conf", "<VirtualHost *:80>\nIncludeOptional c/*.conf\n</VirtualHost>\n"),
            ("c/a.conf", ""),
        ];
        check(&inside, "Timeout", 80, &["append httpd.conf"]);
    }

    #[test]
    fn our_own_file_is_used_again() {
        let files = [
            ("httpd.conf", "Include a.d/*.conf\nInclude b.d/*.conf\n"),
            ("a.d/zzz-webdyno.conf", "Timeout 9\n"),
            ("b.d/x.conf", ""),
        ];
        check(&files, "Timeout", 80, &["drop-in a.d/zzz-webdyno.conf"]);
    }

    #[test]
    fn values_of_virtual_hosts_of_the_port_are_edited_too() {
        let main = "IncludeOptional conf.d/*.conf\n<VirtualHost *:80>\nKeepAlive Off\n</VirtualHost>\n\
                    <VirtualHost *:443>\nKeepAlive Off\n</VirtualHost>\n";
        let files = [("httpd.conf", main), ("conf.d/a.conf", "")];
        check(&files, "KeepAlive", 80, &["drop-in conf.d/zzz-webdyno.conf", "httpd.conf:3"]);
        check(&files, "KeepAlive", 443, &["drop-in conf.d/zzz-webdyno.conf", "httpd.conf:6"]);
        check(&files, "KeepAlive", 8080, &["drop-in conf.d/zzz-webdyno.conf"]);
    }

    #[test]
    fn addresses_of_virtual_hosts_match_ports() {
        for (address, expected) in [
            ("*:80", true),
            ("*:81", false),
            ("*", true),
            ("10.0.0.1", true),
            ("10.0.0.1:*", true),
            ("_default_:80", true),
            ("[::1]:80", true),
            ("[::1]:81", false),
            ("[::1]", true),
        ] {
            assert_eq!(serves(address, 80), expected, "{address}");
        }
    }
}
