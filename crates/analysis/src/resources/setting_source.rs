//! Where a setting of a program stands: its value in force, and the file and line that give it, so that a remedy can be
//! carried out without a search.
//!
//! Source: the service as it was discovered, and what stands behind it. Recordings of before these were logged know
//! neither: then nothing is said.

use crate::facts::Facts;
use crate::settings::backends::leads_to;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::{ScopedSetting, ServiceSnapshot, SettingInForce, SettingScope, SettingValue};

/// A setting as it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SettingSource {
    /// The value in force.
    pub value: SettingValue,
    /// What the files say, where that is another value.
    pub in_files: Option<SettingValue>,
    /// The file and its line; `None` when no file sets it.
    pub at: Option<String>,
}

impl SettingSource {
    fn of(setting: &SettingInForce) -> Option<Self> {
        let in_files = setting.configured.as_ref().or(setting.default.as_ref());
        let value = setting.running.as_ref().or(in_files)?.clone();
        let other = setting.configured.clone().filter(|configured| *configured != value);
        Some(Self { value, in_files: other, at: location(setting.file.as_deref(), setting.line) })
    }

    fn of_scoped(setting: &ScopedSetting) -> Self {
        let at = location(setting.file.as_deref(), setting.line);
        Self { value: SettingValue::parse(&setting.value), in_files: None, at }
    }

    /// Its number.
    pub fn number(&self) -> Option<f64> {
        self.value.number()
    }

    /// Whether it is a way to say no.
    pub fn is_off(&self) -> bool {
        ["0", "off", "no", "false", "none", ""].contains(&self.value.to_string().to_lowercase().as_str())
    }

    /// Where it is written, as a part of a sentence.
    pub fn to_text(&self) -> String {
        match (&self.at, &self.in_files) {
            (Some(at), Some(other)) => format!("{at} sets it to {other}, which is not in force"),
            (Some(at), None) => format!("it is set in {at}"),
            (None, _) => "no file sets it: it is the program's own value".into(),
        }
    }
}

fn location(file: Option<&str>, line: Option<u32>) -> Option<String> {
    Some(format!("{}{}", file?, line.map_or(String::new(), |line| format!(":{line}"))))
}

/// A setting of the service in front, or of a program behind it.
pub(crate) fn of(facts: &Facts, program: &str, setting: &str) -> Option<SettingSource> {
    let front = facts.service.iter().filter(|service| service.service == program);
    let mut all = front.chain(facts.backends(program));
    all.find_map(|service| service.settings.get(setting).and_then(SettingSource::of))
}

/// A setting of a pool of PHP-FPM: its own, else that of all pools.
pub(crate) fn pool_setting_source(facts: &Facts, pool: &str, setting: &str) -> Option<SettingSource> {
    let service = facts.backends("php_fpm").find(|service| pool_settings(service, pool).next().is_some())?;
    let own = pool_settings(service, pool).find(|one| one.setting == setting).map(SettingSource::of_scoped);
    own.or_else(|| service.settings.get(setting).and_then(SettingSource::of))
}

fn pool_settings<'a>(service: &'a ServiceSnapshot, pool: &str) -> impl Iterator<Item = &'a ScopedSetting> {
    let scope = SettingScope::Pool(pool.to_owned());
    service.scoped.iter().filter(move |one| one.scope.first() == Some(&scope))
}

/// All pools of PHP-FPM whose settings are known.
pub(crate) fn pools(facts: &Facts) -> Vec<String> {
    let scoped = facts.backends("php_fpm").flat_map(|service| &service.scoped);
    let names = scoped.filter_map(|one| match one.scope.first()? {
        SettingScope::Pool(name) => Some(name.clone()),
        _ => None,
    });
    let mut all: Vec<String> = names.collect();
    all.sort();
    all.dedup();
    all
}

/// The pool of PHP-FPM that listens at an address, as its files say.
pub(crate) fn pool_at(facts: &Facts, address: &str) -> Option<String> {
    let endpoints = facts.backends("php_fpm").flat_map(|service| &service.endpoints);
    let is_it = |own: &str| leads_to(own, address) || leads_to(address, own);
    let mut at = endpoints.filter(|endpoint| is_it(&endpoint.address));
    at.next().map(|endpoint| endpoint.name.clone())
}

/// Says of each remedy where its setting stands, and what it is now, where the rule did not.
pub(crate) fn add_sources(facts: &Facts, findings: &mut [Finding]) {
    for remedy in findings.iter_mut().flat_map(|finding| &mut finding.remedies) {
        let Some(source) = of(facts, remedy.setting.target.name(), &remedy.setting.name) else { continue };
        // Another value than the rule speaks of holds elsewhere: in a virtual host, a folder.
        if remedy.from.as_ref().is_none_or(|from| is_same(from, &source.value)) {
            add_source(remedy, &source);
        }
    }
}

/// A size that a database told, of which the fact has six digits: such variables come in whole kibibytes.
pub(crate) fn kibibytes(bytes: f64) -> SettingValue {
    SettingValue::Integer(((bytes / 1024.0).round() * 1024.0) as i64)
}

/// Facts are rounded to six digits.
fn is_same(observed: &SettingValue, set: &SettingValue) -> bool {
    match (observed.number(), set.number()) {
        (Some(observed), Some(set)) => (observed - set).abs() <= 1e-5 * set.abs(),
        _ => observed.to_string().eq_ignore_ascii_case(&set.to_string()),
    }
}

/// A remedy that tells where its setting stands.
pub(crate) fn add_source(remedy: &mut Remedy, source: &SettingSource) {
    if remedy.from.as_ref().is_none_or(|from| is_same(from, &source.value)) {
        remedy.from = Some(source.value.clone());
    }
    if remedy.why.contains(&source.to_text()) {
        return;
    }
    remedy.why = format!("{}; {}", remedy.why, source.to_text());
    // What is set in the running program lasts until its next start.
    if remedy.class == ApplyClass::Live && remedy.setting.target.name() == "mariadb" {
        let file = if source.at.is_some() { "there" } else { "under [mysqld] in a file of its own" };
        remedy.why = format!("{}. Also write it {file}, or it is lost at the next start", remedy.why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;
    use crate::limits::manual_remedy::manual;
    use webdyno_model::setting::SettingId;
    use webdyno_model::topology::Topology;

    fn setting(configured: Option<i64>, running: Option<i64>, default: Option<i64>) -> SettingInForce {
        let value = |number: Option<i64>| number.map(SettingValue::Integer);
        let file = configured.map(|_| "/etc/x.cnf".to_owned());
        SettingInForce {
            configured: value(configured),
            running: value(running),
            default: value(default),
            line: file.as_ref().map(|_| 3),
            file,
        }
    }

    #[test]
    fn it_is_told_where_a_value_comes_from() {
        for (configured, running, default, value, words) in [
            (Some(12), Some(12), None, 12, "it is set in /etc/x.cnf:3"),
            (Some(12), Some(80), None, 80, "/etc/x.cnf:3 sets it to 12, which is not in force"),
            (None, Some(151), None, 151, "no file sets it: it is the program's own value"),
            (None, None, Some(5), 5, "no file sets it: it is the program's own value"),
        ] {
            let source = SettingSource::of(&setting(configured, running, default)).unwrap();
            assert_eq!((source.number(), source.to_text().as_str()), (Some(f64::from(value)), words));
        }
        assert_eq!(SettingSource::of(&setting(None, None, None)), None);
    }

    #[test]
    fn the_place_of_another_value_is_not_told() {
        let mut known = facts(&[], &[("LogLevel", 4)]);
        let setting = known.service.as_mut().unwrap().settings.get_mut("LogLevel").unwrap();
        setting.file = Some("/etc/apache2.conf".into());
        let why = |from: i64| {
            let from = Some(SettingValue::Integer(from));
            let remedy =
                Remedy { from, ..manual(SettingId::of_service("apache", "LogLevel"), "none", "why") };
            let mut findings = vec![finding(remedy)];
            add_sources(&known, &mut findings);
            findings.remove(0).remedies.remove(0).why
        };
        assert_eq!((why(4).as_str(), why(9).as_str()), ("why; it is set in /etc/apache2.conf", "why"));
    }

    fn finding(remedy: Remedy) -> Finding {
        Finding { id: "x".into(), confidence: 0.9, remedies: vec![remedy], ..Finding::default() }
    }

    #[test]
    fn a_remedy_says_it_once_and_what_is_live_is_written_too() {
        let mut known = facts(&[], &[]);
        let database = ServiceSnapshot {
            service: "mariadb".into(),
            settings: [("max_connections".to_owned(), setting(Some(12), Some(12), None))].into(),
            ..ServiceSnapshot::default()
        };
        known.topology = Some(Topology { backends: vec![database], ..Topology::default() });
        let remedy = Remedy {
            class: ApplyClass::Live,
            ..manual(SettingId::of_service("mariadb", "max_connections"), "memory", "more are wanted")
        };
        let mut findings = vec![
            finding(remedy),
            finding(manual(SettingId::of_service("mariadb", "unknown"), "none", "why")),
        ];
        for _ in 0..2 {
            add_sources(&known, &mut findings);
        }
        let reported = &findings[0].remedies[0];
        assert_eq!(reported.from, Some(SettingValue::Integer(12)));
        assert_eq!(
            reported.why,
            "more are wanted; it is set in /etc/x.cnf:3. Also write it there, or it is lost at the next start"
        );
        assert_eq!(findings[1].remedies[0].why, "why");
    }
}
