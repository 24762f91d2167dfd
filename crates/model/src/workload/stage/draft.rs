//! How a stage is written on the command line: `30s@100/s`, `4m@0..100/s`, `1m@100..500..100/s`,
//! `10m@100..500/s,period=2m`, `5m@50users,measured=no`. No character of it means anything to a shell.

use super::Shape;
use crate::duration::parse_duration_us;
use crate::error::{Result, UserError};

/// Highest rate of a stage, per second.
const RATE_MAX: f64 = 1e7;
/// Most users of a stage.
const USERS_MAX: f64 = 1e6;
/// The shortest wave: shorter ones are no change of the load, but its noise.
const PERIOD_US_MIN: u64 = 100_000;

/// What was read, or what is wrong with it.
type ParseResult<T> = std::result::Result<T, String>;

/// What the levels of a stage count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Starts per second: open arrival.
    PerSecond,
    /// Visitors at once: closed arrival.
    Users,
    /// Requests at once, of users who do nothing but that: closed arrival.
    Connections,
}

impl Unit {
    /// As it is written behind levels.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Users => "users",
            Self::Connections => "connections",
        }
    }
}

/// A stage as somebody wrote it. Whether it is measured may be left to its place among the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageDraft {
    /// Its length.
    pub duration_us: u64,
    /// Its levels.
    pub shape: Shape,
    /// What they count.
    pub unit: Unit,
    /// Whether it is measured; `None` for what follows from its place.
    pub measured: Option<bool>,
}

impl StageDraft {
    /// Refuses levels and lengths that cannot be meant; says what is wrong, without the name of the stage.
    pub fn check(&self) -> std::result::Result<(), String> {
        if self.duration_us == 0 {
            return Err("it must last longer than nothing".into());
        }
        let levels = match self.shape {
            Shape::Hold { level } => [level, level],
            Shape::Ramp { from, to } => [from, to],
            Shape::Spike { from, peak } => [from, peak],
            Shape::Sine { low, high, .. } => [low, high],
        };
        for level in levels {
            check_level(level, self.unit)?;
        }
        match self.shape {
            Shape::Spike { from, peak } if peak <= from => {
                Err(format!("the peak of a spike, {peak}, lies above its beginning, {from}"))
            }
            Shape::Sine { low, high, .. } if high <= low => {
                Err(format!("the highest level of a wave, {high}, lies above its lowest, {low}"))
            }
            Shape::Sine { period_us, .. } if period_us < PERIOD_US_MIN => {
                Err("the period of a wave is at least 100ms".into())
            }
            _ => Ok(()),
        }
    }
}

fn check_level(level: f64, unit: Unit) -> ParseResult<()> {
    let max = match unit {
        Unit::PerSecond => RATE_MAX,
        Unit::Users | Unit::Connections => USERS_MAX,
    };
    if !level.is_finite() || level < 0.0 || level > max {
        return Err(format!("{level} is not between 0 and {max}"));
    }
    if unit != Unit::PerSecond && level.fract() != 0.0 {
        return Err(format!("{level} is no whole number of {}", unit.name()));
    }
    Ok(())
}

/// Reads a stage. The error names the part that is wrong.
pub fn parse(text: &str) -> Result<StageDraft> {
    read(text).map_err(|why| {
        UserError::usage(format!("`{text}` is not a stage: {why}")).hint(
            "write TIME@LEVELS, as in --stage 4m@0..100/s --stage 5m@100/s, or in users or connections, as in --stage 5m@50users",
        )
    })
}

fn read(text: &str) -> ParseResult<StageDraft> {
    let (time, rest) = text.split_once('@').ok_or("there is no `@` between its time and its levels")?;
    let duration_us = parse_duration_us(time.trim())
        .ok_or_else(|| format!("`{}` is not a time with its unit, as 30s or 4m", time.trim()))?;
    let mut parts = rest.split(',').map(str::trim);
    let levels = parts.next().unwrap_or_default();
    let (mut period_us, mut measured) = (None, None);
    for option in parts {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let is_new = match name {
            "period" => period_us.replace(read_period(value)?).is_none(),
            "measured" => measured.replace(read_measured(value)?).is_none(),
            _ => return Err(format!("`{option}` is neither period=TIME nor measured=yes or measured=no")),
        };
        if !is_new {
            return Err(format!("`{name}` is given twice"));
        }
    }
    let (levels, unit) = split_unit(levels)?;
    let shape = read_shape(levels, period_us)?;
    let written = StageDraft { duration_us, shape, unit, measured };
    written.check().map(|()| written)
}

fn read_period(text: &str) -> ParseResult<u64> {
    parse_duration_us(text).ok_or_else(|| format!("the period `{text}` is not a time with its unit, as 2m"))
}

fn read_measured(text: &str) -> ParseResult<bool> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`measured={text}` is neither measured=yes nor measured=no")),
    }
}

fn split_unit(levels: &str) -> ParseResult<(&str, Unit)> {
    let units = [
        ("/s", Unit::PerSecond),
        ("users", Unit::Users),
        ("user", Unit::Users),
        ("connections", Unit::Connections),
        ("connection", Unit::Connections),
    ];
    let found = units.iter().find_map(|(name, unit)| Some((levels.strip_suffix(name)?.trim(), *unit)));
    let (levels, unit) = found.ok_or_else(|| {
        format!("`{levels}` does not end in its unit: /s (starts a second), users or connections")
    })?;
    match levels {
        "" => Err(format!("there is no level before `{}`", unit.name())),
        _ => Ok((levels, unit)),
    }
}

fn read_shape(levels: &str, period_us: Option<u64>) -> ParseResult<Shape> {
    let numbers: Vec<f64> = levels.split("..").map(read_level).collect::<ParseResult<_>>()?;
    match (&numbers[..], period_us) {
        ([low, high], Some(period_us)) => Ok(Shape::Sine { low: *low, high: *high, period_us }),
        (_, Some(_)) => Err("with a period, write the lowest and the highest level, as 100..500/s".into()),
        ([level], None) => Ok(Shape::Hold { level: *level }),
        ([from, to], None) => Ok(Shape::Ramp { from: *from, to: *to }),
        ([from, peak, end], None) if (from - end).abs() < f64::EPSILON => {
            Ok(Shape::Spike { from: *from, peak: *peak })
        }
        ([from, _, end], None) => Err(format!(
            "a spike ends at the level at which it begins, not at {from} and {end}: write two ramps"
        )),
        _ => Err(format!("`{levels}` has more than three levels: write several stages")),
    }
}

fn read_level(text: &str) -> ParseResult<f64> {
    let text = text.trim();
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let ends = is_digit(text.as_bytes().first()) && is_digit(text.as_bytes().last());
    let plain = ends && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = plain.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| match text {
        "" => "a level is missing beside `..`".into(),
        _ => format!("`{text}` is not a level, as 100 or 2.5"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stages_are_read() {
        let s = 1_000_000;
        for (text, duration_us, shape, unit, measured) in [
            ("30s@100/s", 30 * s, Shape::Hold { level: 100.0 }, Unit::PerSecond, None),
            ("4m@0..100/s", 240 * s, Shape::Ramp { from: 0.0, to: 100.0 }, Unit::PerSecond, None),
            ("500ms@2.5/s", s / 2, Shape::Hold { level: 2.5 }, Unit::PerSecond, None),
            ("1m@100..500..100/s", 60 * s, Shape::Spike { from: 100.0, peak: 500.0 }, Unit::PerSecond, None),
            (
                "10m@100..500/s,period=2m",
                600 * s,
                Shape::Sine { low: 100.0, high: 500.0, period_us: 120 * s },
                Unit::PerSecond,
                None,
            ),
            ("5s@50users", 5 * s, Shape::Hold { level: 50.0 }, Unit::Users, None),
            ("5s@1user", 5 * s, Shape::Hold { level: 1.0 }, Unit::Users, None),
            ("5s@0..9connections", 5 * s, Shape::Ramp { from: 0.0, to: 9.0 }, Unit::Connections, None),
            (
                " 5s @ 50 .. 0 users , measured=no",
                5 * s,
                Shape::Ramp { from: 50.0, to: 0.0 },
                Unit::Users,
                Some(false),
            ),
            (
                "5s@0..9/s,measured=yes",
                5 * s,
                Shape::Ramp { from: 0.0, to: 9.0 },
                Unit::PerSecond,
                Some(true),
            ),
        ] {
            let expected = StageDraft { duration_us, shape, unit, measured };
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
    }

    proptest! {
        // Invariant: whatever is typed is a stage that keeps to the bounds, or an error with a hint.
        #[test]
        fn nothing_that_is_typed_breaks_it(text in "[0-9]{0,4}[smh@]{0,2}[0-9./suerconti,=pdym]{0,24}", any in ".{0,24}") {
            for text in [text, any] {
                match parse(&text) {
                    Ok(written) => prop_assert!(written.check().is_ok() && written.shape.highest() <= RATE_MAX),
                    Err(error) => prop_assert!(error.exit_code() == 2 && error.hint.is_some()),
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, part) in [
            ("", "no `@`"),
            ("30s", "no `@`"),
            ("100/s@30s", "`100/s` is not a time"),
            ("30@100/s", "`30` is not a time"),
            ("0s@100/s", "longer than nothing"),
            ("30s@100", "`100` does not end in its unit"),
            ("30s@/s", "no level before `/s`"),
            ("30s@100/m", "`100/m` does not end in its unit"),
            ("30s@x/s", "`x` is not a level"),
            ("30s@-5/s", "`-5` is not a level"),
            ("30s@1e3/s", "`1e3` is not a level"),
            ("30s@..100/s", "a level is missing"),
            ("30s@0...100/s", "`.100` is not a level"),
            ("30s@10..50..20/s", "a spike ends at the level at which it begins, not at 10 and 20"),
            ("30s@10..50..20..10/s", "more than three levels"),
            ("30s@50..10..50/s", "the peak of a spike, 10, lies above its beginning, 50"),
            ("30s@100/s,period=1m", "with a period, write the lowest and the highest level"),
            ("30s@50..10/s,period=1m", "the highest level of a wave, 10, lies above its lowest, 50"),
            ("30s@10..50/s,period=1", "the period `1` is not a time"),
            ("30s@10..50/s,period=1ms", "at least 100ms"),
            ("30s@10/s,measured", "neither measured=yes nor"),
            ("30s@10/s,measured=no,measured=no", "`measured` is given twice"),
            ("30s@10/s,warm", "`warm` is neither period=TIME nor"),
            ("30s@2.5users", "2.5 is no whole number of users"),
            ("30s@2000000users", "not between 0 and 1000000"),
            ("30s@20000000/s", "not between 0 and 10000000"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {}", error.message);
            assert_eq!(error.exit_code(), 2);
        }
    }
}
