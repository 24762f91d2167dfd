//! Where a limit is kept: what a service is started with decides at its next start.
//!
//! Facts: systemd.unit(5) (of all that is added to a unit the file whose name sorts last wins), systemd.exec(5) (`LimitNOFILE=` takes
//! `SOFT:HARD`), systemd.resource-control(5). apachectl of Debian runs `ulimit -n` whatever its unit grants, with the number of
//! `APACHE_ULIMIT_MAX_FILES` in the file `envvars` beside its configuration.

use crate::services::common::edit::{DROP_IN, DROP_IN_HEAD, Document};
use crate::services::common::kept_values::{Lines, ValueFile};
use crate::services::common::unit;
use std::path::{Path, PathBuf};
use webdyno_model::service::ServiceSnapshot;

/// What an administrator adds to units, below their names.
const UNITS: &str = "/etc/systemd/system";

/// What exists for one run of the machine only.
const RUNTIME: &str = "/run";

/// The shell variable of Debian's apachectl.
const MAX_FILES: &str = "APACHE_ULIMIT_MAX_FILES";

/// Where apachectl reads it.
const VARIABLES: &str = "envvars";

/// What keeps a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keeper {
    /// A file that is written.
    File(PathBuf),
    /// A person, who is told this.
    Person(String),
}

impl Keeper {
    /// What a person does instead, where nothing may be written.
    pub fn manual_step(&self, name: &str, wanted: u64) -> String {
        match self {
            Self::Person(by_hand) => by_hand.clone(),
            Self::File(path) if unit::is_drop_in(path) => {
                format!(
                    "{name}={wanted} below [Service] in {}, and `systemctl daemon-reload`",
                    path.display()
                )
            }
            Self::File(path) => format!("{MAX_FILES}='ulimit -n {wanted}' in {}", path.display()),
        }
    }
}

/// What systemd says of a unit that decides where a limit of what it starts is kept.
const PROPERTIES: [&str; 4] = ["DropInPaths", "ExecStart", "FragmentPath", "LimitNOFILE"];

/// What keeps a limit of a service, whose open files are bounded by `hard`.
pub fn keeper(service: &ServiceSnapshot, unit: Option<&str>, name: &str, value: &str, hard: u64) -> Keeper {
    let is_of_files = name == super::OPEN_FILES;
    let variables = service.config_file.as_ref().map(|path| Path::new(path).with_file_name(VARIABLES));
    let has_variables =
        |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.contains(MAX_FILES));
    let variables =
        variables.filter(|path| is_of_files && service.service == "apache" && has_variables(path));
    let by_hand =
        |unit: &str| Keeper::Person(format!("`systemctl edit {unit}` with {name}={value} below [Service]"));
    let Some(unit) = unit else {
        return match variables {
            Some(path) => Keeper::File(path),
            None if is_of_files => Keeper::Person(format!("`ulimit -n {value}` where it is started")),
            None => Keeper::Person(format!("{name} {value} where it is started")),
        };
    };
    let known = unit::properties(unit, &PROPERTIES);
    let property = |name: &str| known.get(name).map_or("", String::as_str);
    let granted = match property("LimitNOFILE") {
        "infinity" => Some(u64::MAX),
        number => number.parse().ok(),
    };
    let starts_by_script =
        ["apachectl", "apache2ctl"].iter().any(|name| property("ExecStart").contains(name));
    if let Some(path) = variables.filter(|_| starts_by_script) {
        return Keeper::File(path);
    }
    // What it starts may take less than the unit grants: then more of the unit changes nothing.
    if is_of_files && granted.is_some_and(|granted| hard < granted) {
        return Keeper::Person(format!("`ulimit -n {value}` where it is started"));
    }
    if property("FragmentPath").is_empty() || property("FragmentPath").starts_with(RUNTIME) {
        return by_hand(unit);
    }
    place(unit, property("DropInPaths"), name).map_or_else(|| by_hand(unit), Keeper::File)
}

/// The file that adds a limit to a unit so that it wins: our own, or the one after it that sets it already. `None` where
/// that one is not an administrator's.
fn place(unit: &str, drop_ins: &str, name: &str) -> Option<PathBuf> {
    let own = Path::new(UNITS).join(format!("{unit}.d")).join(DROP_IN);
    let wins = |path: &&Path| {
        path.file_name() > own.file_name()
            && std::fs::read_to_string(path)
                .is_ok_and(|text| text.lines().any(|line| key(line) == Some(name)))
    };
    // In the order in which they are read.
    let later = drop_ins.split_whitespace().map(Path::new).rfind(wins);
    match later {
        None => Some(own),
        Some(later) => later.starts_with(UNITS).then(|| later.to_owned()),
    }
}

/// The name that a line of a unit sets.
fn key(line: &str) -> Option<&str> {
    let line = line.trim();
    let (key, _) = line.split_once('=')?;
    (!line.starts_with(['#', ';'])).then(|| key.trim())
}

/// What is added to a unit.
#[derive(Debug, Default)]
pub struct UnitFile(Lines);

impl ValueFile for UnitFile {
    const OWN: &'static str = DROP_IN;

    fn lines(&mut self) -> &mut Lines {
        &mut self.0
    }

    fn set(&mut self, name: &str, value: &str) {
        const SECTION: &str = "[Service]\n";
        let (mut is_of_service, mut known) = (false, None);
        for (at, line) in self.0.iter().enumerate() {
            if line.trim_start().starts_with('[') {
                is_of_service = line.trim_start().starts_with(SECTION.trim());
            } else if is_of_service && key(line) == Some(name) {
                known = Some(at);
            }
        }
        self.0.put(known, if is_of_service { "" } else { SECTION }, format!("{name}={value}\n"));
    }

    /// With the unit: what units have of ours is never the same, so that none is taken for that of another one.
    fn head(path: &Path) -> String {
        let unit = path.parent().and_then(Path::file_stem).unwrap_or_default();
        format!("{DROP_IN_HEAD}# What it adds to: {}\n", unit.to_string_lossy())
    }
}

impl Document for UnitFile {
    fn parse(text: &str) -> Self {
        Self(Lines::parse(text))
    }

    fn render(&self) -> String {
        self.0.render()
    }
}

/// The variables that apachectl reads.
#[derive(Debug, Default)]
pub struct VariablesFile(Lines);

impl ValueFile for VariablesFile {
    /// It is always the package's.
    const OWN: &'static str = "";

    fn lines(&mut self) -> &mut Lines {
        &mut self.0
    }

    fn set(&mut self, _: &str, value: &str) {
        let sets = |line: &String| {
            let line = line.trim_start();
            line.strip_prefix("export ")
                .unwrap_or(line)
                .trim_start()
                .split_once('=')
                .is_some_and(|(name, _)| name == MAX_FILES)
        };
        let known = self.0.iter().rposition(sets);
        self.0.put(known, "", format!("{MAX_FILES}='ulimit -n {value}'\n"));
    }
}

impl Document for VariablesFile {
    fn parse(text: &str) -> Self {
        Self(Lines::parse(text))
    }

    fn render(&self) -> String {
        self.0.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::common::kept_values::with_values;

    #[test]
    fn a_value_is_added_to_a_unit_once() {
        let own = Path::new("/etc/systemd/system/apache2.service.d/zzz-webdyno.conf");
        let first = with_values::<UnitFile>(own, "", [("LimitNOFILE", "9000:20000"), ("TasksMax", "400")]);
        assert_eq!(
            first,
            format!(
                "{DROP_IN_HEAD}# What it adds to: apache2.service\n[Service]\nLimitNOFILE=9000:20000\nTasksMax=400\n"
            )
        );
        assert_eq!(
            with_values::<UnitFile>(own, &first, [("TasksMax", "500")]),
            first.replace("TasksMax=400", "TasksMax=500")
        );
        let theirs = "[Service]\n#TasksMax=1\nTasksMax = 9\n[Unit]\nTasksMax=2";
        assert_eq!(
            with_values::<UnitFile>(Path::new("/x"), theirs, [("TasksMax", "400"), ("LimitNPROC", "7")]),
            "[Service]\n#TasksMax=1\nTasksMax=400\n[Unit]\nTasksMax=2\n[Service]\nLimitNPROC=7\n"
        );
    }

    #[test]
    fn the_number_of_apachectl_is_set_in_its_place() {
        let path = Path::new("/etc/apache2/envvars");
        for (text, expected) in [
            (
                "A=1\n#APACHE_ULIMIT_MAX_FILES='ulimit -n 65536'\n",
                "A=1\n#APACHE_ULIMIT_MAX_FILES='ulimit -n 65536'\nAPACHE_ULIMIT_MAX_FILES='ulimit -n 9000'\n",
            ),
            ("export APACHE_ULIMIT_MAX_FILES=true\nB=2\n", "APACHE_ULIMIT_MAX_FILES='ulimit -n 9000'\nB=2\n"),
        ] {
            assert_eq!(with_values::<VariablesFile>(path, text, [("LimitNOFILE", "9000")]), expected);
        }
    }

    #[test]
    fn a_limit_goes_where_it_wins() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (early, late) = (
            file("override.conf", "[Service]\nTasksMax=9\n"),
            file("zzzz.conf", "[Service]\n TasksMax = 8\n"),
        );
        let own = Some(PathBuf::from("/etc/systemd/system/a.service.d/zzz-webdyno.conf"));
        for (drop_ins, name, expected) in [
            (String::new(), "TasksMax", own.clone()),
            (early.clone(), "TasksMax", own.clone()),
            (format!("{early} {late}"), "LimitNOFILE", own),
            // It wins, and is where no administrator has put it.
            (format!("{early} {late}"), "TasksMax", None),
        ] {
            assert_eq!(place("a.service", &drop_ins, name), expected, "{drop_ins} {name}");
        }
    }

    #[test]
    fn without_a_unit_debians_script_keeps_files_and_a_person_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let config_file = Some(folder.path().join("apache2.conf").display().to_string());
        let apache = ServiceSnapshot { service: "apache".into(), config_file, ..Default::default() };
        let of = |service: &ServiceSnapshot, name| keeper(service, None, name, "9000", 100);
        let by_hand = Keeper::Person("`ulimit -n 9000` where it is started".into());
        assert_eq!(of(&apache, "LimitNOFILE"), by_hand);
        let variables = folder.path().join("envvars");
        std::fs::write(&variables, "#APACHE_ULIMIT_MAX_FILES='ulimit -n 65536'\n").unwrap();
        assert_eq!(of(&apache, "LimitNOFILE"), Keeper::File(variables));
        assert_eq!(of(&apache, "LimitNPROC"), Keeper::Person("LimitNPROC 9000 where it is started".into()));
        let nginx = ServiceSnapshot { service: "nginx".into(), ..apache };
        assert_eq!(of(&nginx, "LimitNOFILE"), by_hand);
    }
}
