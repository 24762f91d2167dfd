//! Remedies that a person carries out: settings of the kernel, lines, ways through the network.

use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// A remedy without a value.
pub(crate) fn manual(setting: SettingId, risk: &str, why: impl Into<String>) -> Remedy {
    Remedy {
        setting,
        from: None,
        to: None,
        class: ApplyClass::Manual,
        risk: risk.into(),
        why: why.into(),
        predicted: None,
        together_with: vec![],
    }
}

/// Of a database that does not let webdyno in: how it would, and what it then tells.
pub(crate) fn database_account(setting: &str, risk: &str, then: &str) -> Remedy {
    let why = format!("let webdyno into the database (as root, or by --db-option-file): it then {then}");
    manual(SettingId::of_service("mariadb", setting), risk, why)
}

/// A setting of the kernel to a number.
pub(crate) fn sysctl(setting: &str, from: Option<f64>, to: f64, risk: &str, why: String) -> Remedy {
    let number = |value: f64| SettingValue::Integer(value as i64);
    Remedy { from: from.map(number), to: Some(number(to)), ..manual(SettingId::sysctl(setting), risk, why) }
}

/// A size of the kernel's that is too small, to a larger one; without a value where today's is not known, as that may be the larger one.
pub(crate) fn raised_sysctl(setting: &str, from: Option<f64>, to: f64, risk: &str, why: &str) -> Remedy {
    match from {
        Some(_) => sysctl(setting, from, to, risk, why.into()),
        None => {
            manual(SettingId::sysctl(setting), risk, format!("at least {to:.0}, where it is less: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_not_known_is_not_lowered() {
        let raised = |from| raised_sysctl("net.x", from, 10_000.0, "memory", "it is full");
        let known = raised(Some(1000.0));
        assert_eq!(
            (known.from, known.to),
            (Some(SettingValue::Integer(1000)), Some(SettingValue::Integer(10_000)))
        );
        let unknown = raised(None);
        assert_eq!(
            (&unknown.to, unknown.why.as_str()),
            (&None, "at least 10000, where it is less: it is full")
        );
        assert!(unknown.setting_changes().is_empty());
    }
}
