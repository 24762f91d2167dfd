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

/// A setting of the kernel to a number.
pub(crate) fn sysctl(setting: &str, from: Option<f64>, to: f64, risk: &str, why: String) -> Remedy {
    let number = |value: f64| SettingValue::Integer(value as i64);
    Remedy { from: from.map(number), to: Some(number(to)), ..manual(SettingId::sysctl(setting), risk, why) }
}
