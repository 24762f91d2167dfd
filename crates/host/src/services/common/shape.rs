//! What the values of a setting may be: a column of every table of settings.

use webdyno_model::change::{Obstacle, SettingChange};
use webdyno_model::service::SettingValue;

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A whole number within bounds.
    Integer(i64, i64),
    /// A positive number, with or without decimals.
    Factor,
    /// One of these words, in any case.
    Word(&'static [&'static str]),
    /// A time: seconds, or a number with `ms`.
    Time,
    /// Two ports, the lower one first.
    Ports,
    /// Read, and never written.
    Opaque,
}

/// A setting that webdyno changes.
#[derive(Debug, Clone, Copy)]
pub struct Setting<P> {
    /// As the configuration names it; of a parameter, behind its directive.
    pub name: &'static str,
    /// Where it stands.
    pub place: P,
    /// Its values.
    pub shape: Shape,
}

/// The setting of a table that a change is of, if it takes the value; else why not. `program` has the settings.
pub fn understood<'a, P>(
    table: &'a [Setting<P>],
    program: &str,
    change: &SettingChange,
) -> Result<&'a Setting<P>, Obstacle> {
    let name = &change.setting.name;
    let Some(setting) = table.iter().find(|setting| setting.name == name) else {
        let names: Vec<_> = table.iter().map(|setting| setting.name).collect();
        let why = format!("`{name}` is not a setting of {program} that webdyno changes");
        return Err((why, Some(format!("it changes {}", names.join(", ")))));
    };
    setting.shape.check(name, &change.to).map(|()| setting)
}

/// That the setting of this name does not take a value, and what it takes.
pub fn refusal(name: &str, value: &SettingValue, expected: &str) -> Obstacle {
    let why = format!("{name} cannot be `{}`", value.to_string().replace(['\r', '\n'], " "));
    (why, Some(format!("it takes {expected}")))
}

impl Shape {
    /// Whether a value may be that of the setting of this name; else why not.
    pub fn check(&self, name: &str, value: &SettingValue) -> Result<(), Obstacle> {
        if self.accepts(value) { Ok(()) } else { Err(refusal(name, value, &self.expects())) }
    }

    /// Whether a value has the right shape.
    pub fn accepts(&self, value: &SettingValue) -> bool {
        match (self, value) {
            (Shape::Integer(min, max), SettingValue::Integer(value)) => (*min..=*max).contains(value),
            (Shape::Factor, value) => value.number().is_some_and(|value| value > 0.0 && value <= 1000.0),
            (Shape::Word(words), SettingValue::Text(text)) => {
                words.iter().any(|word| word.eq_ignore_ascii_case(text))
            }
            (Shape::Time, SettingValue::Integer(value)) => (0..=1_000_000).contains(value),
            (Shape::Time, SettingValue::Text(text)) => {
                let number = text.strip_suffix("ms").and_then(|number| number.parse::<u32>().ok());
                number.is_some_and(|number| number > 0)
            }
            (Shape::Ports, SettingValue::Text(text)) => {
                let ports = text
                    .split_once(' ')
                    .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
                ports.is_some_and(|(low, high): (u16, u16)| low > 0 && low < high)
            }
            _ => false,
        }
    }

    /// Says in words which values it takes.
    pub fn expects(&self) -> String {
        match self {
            Shape::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Shape::Factor => "a number above 0".into(),
            Shape::Word(words) => format!("one of {}", words.join(", ")),
            Shape::Time => "seconds, or milliseconds as in 500ms".into(),
            Shape::Ports => "two ports, the lower one first".into(),
            Shape::Opaque => "nothing: webdyno reads it and does not change it".into(),
        }
    }
}
