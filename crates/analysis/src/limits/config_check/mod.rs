//! Settings that contradict each other, or what there is of memory and tables: told without any traffic, the worst first.
//!
//! A rule is a pure function of facts and settings, a few of one kind in a file, and a line in [`ALL`]. Its finding has the
//! id of what the contradiction leads to under load, names file and line, and says how sure it is that it will.

use crate::facts::Facts;
use crate::limits::LimitId;
use crate::limits::manual_remedy::manual;
use webdyno_model::change::{ApplyClass, SettingChange};
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::fact::Fact;
use webdyno_model::service::{ServiceSnapshot, SettingScope, SettingValue};
use webdyno_model::setting::SettingId;

/// How bad it is when it comes to it: what is worse comes first, among equals what is surer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A setting that does nothing.
    Vain,
    /// It costs time or throughput.
    Slow,
    /// Responses fail or wait for seconds.
    Fails,
    /// The machine swaps, or the kernel ends processes.
    Breaks,
}

/// A contradiction.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigFinding {
    /// How bad it is.
    pub severity: Severity,
    /// What it says.
    pub finding: Finding,
}

/// A contradiction that leads to this finding.
pub(crate) fn config_finding(
    (severity, confidence): (Severity, f64),
    id: LimitId,
    summary: String,
    facts: Vec<Fact>,
    remedy: Remedy,
) -> ConfigFinding {
    let finding = Finding {
        id: id.into(),
        summary,
        confidence,
        explains_fraction: None,
        facts,
        remedies: vec![remedy],
    };
    ConfigFinding { severity, finding }
}

/// A setting of a service to a value.
pub(crate) fn remedy(
    setting: SettingId,
    (from, to): (Option<SettingValue>, SettingValue),
    class: ApplyClass,
    (why, risk): (String, &str),
) -> Remedy {
    Remedy { from, to: Some(to), class, ..manual(setting, risk, why) }
}

pub(crate) fn change(service: &str, setting: &str, to: i64) -> SettingChange {
    SettingChange { setting: SettingId::of_service(service, setting), to: SettingValue::Integer(to) }
}

/// A whole number as a setting has it.
pub(crate) fn whole_number(value: f64) -> SettingValue {
    SettingValue::Integer(value as i64)
}

/// A setting of a service as it stands somewhere.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LocatedSetting {
    pub(crate) value: SettingValue,
    /// `/etc/apache2/apache2.conf:19`, `the default`, `the running program`.
    place: String,
    repro_command: String,
}

impl LocatedSetting {
    pub(crate) fn number(&self) -> Option<f64> {
        self.value.number()
    }

    /// `150 (/etc/apache2/mods-enabled/mpm_event.conf:14)`.
    pub(crate) fn with_location(&self) -> String {
        format!("{} ({})", self.value, self.place)
    }
}

/// The value that holds for a setting of the whole service: of the files, which is what the next start gives, else of the
/// running program, else the default.
pub(crate) fn located(service: &ServiceSnapshot, setting: &str) -> Option<LocatedSetting> {
    let found = service.settings.get(setting)?;
    let value = found.configured.as_ref().or(found.running.as_ref()).or(found.default.as_ref())?;
    let place = match (&found.configured, &found.running) {
        (Some(_), _) => location_text(found.file.as_deref(), found.line),
        (None, Some(_)) => "the running program".into(),
        (None, None) => "the default".into(),
    };
    Some(LocatedSetting {
        value: value.clone(),
        place,
        repro_command: repro_command(found.file.as_deref(), found.line, setting),
    })
}

/// The same in one part of the site, where some `of` the scopes says so.
pub(crate) fn located_in(
    service: &ServiceSnapshot,
    setting: &str,
    of: impl Fn(&[SettingScope]) -> bool,
) -> Vec<LocatedSetting> {
    let here = service.scoped.iter().filter(|one| one.setting == setting && of(&one.scope));
    here.map(|one| LocatedSetting {
        value: SettingValue::parse(&one.value),
        place: location_text(one.file.as_deref(), one.line),
        repro_command: repro_command(one.file.as_deref(), one.line, setting),
    })
    .collect()
}

/// Values of a setting wherever it stands, the whole server first.
pub(crate) fn all_located_settings(service: &ServiceSnapshot, setting: &str) -> Vec<LocatedSetting> {
    located(service, setting).into_iter().chain(located_in(service, setting, |_| true)).collect()
}

fn location_text(file: Option<&str>, line: Option<u32>) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.into(),
        (None, _) => "not set in a file".into(),
    }
}

fn repro_command(file: Option<&str>, line: Option<u32>, setting: &str) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("sed -n {line}p {file}"),
        (Some(file), None) => format!("grep -n '{setting}' {file}"),
        (None, _) => format!("grep -rn '{setting}' /etc"),
    }
}

/// A number of a setting as a fact.
pub(crate) fn fact(setting: &str, unit: &str, located: &LocatedSetting) -> Option<Fact> {
    Some(Fact {
        name: setting.into(),
        value: located.number()?,
        unit: unit.into(),
        from_s: 0.0,
        to_s: 0.0,
        source: located.place.clone(),
        reproduce: located.repro_command.clone(),
    })
}

/// The service, if it is Apache.
pub(crate) fn apache(facts: &Facts) -> Option<&ServiceSnapshot> {
    facts.service.as_ref().filter(|service| service.service == "apache")
}

/// The pools of PHP-FPM with the most children of each.
pub(crate) fn pools(facts: &Facts) -> Vec<(String, LocatedSetting)> {
    let scoped = facts.backends("php_fpm").flat_map(|service| &service.scoped);
    let of = scoped.filter(|one| one.setting == "pm.max_children").filter_map(|one| {
        let pool = one.scope.iter().find_map(|scope| match scope {
            SettingScope::Pool(name) => Some(name),
            _ => None,
        })?;
        let located = LocatedSetting {
            value: SettingValue::parse(&one.value),
            place: location_text(one.file.as_deref(), one.line),
            repro_command: repro_command(one.file.as_deref(), one.line, "pm.max_children"),
        };
        Some((pool.to_owned(), located))
    });
    of.collect()
}

/// The program that each of Apache's workers holds within itself: `php_module`.
pub(crate) fn embedded(service: &ServiceSnapshot) -> Option<&str> {
    const LANGUAGES: [&str; 7] = [
        "php_module",
        "php7_module",
        "php5_module",
        "perl_module",
        "wsgi_module",
        "python_module",
        "passenger_module",
    ];
    service.modules.iter().map(String::as_str).find(|module| LANGUAGES.contains(module))
}

#[cfg(test)]
mod tests;
