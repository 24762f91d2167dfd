//! The values of a knob: a list, or a range of which some are chosen.

use webdyno_model::number::{quantity, significant};
use webdyno_model::sweep::KnobValue;

/// More points are no sweep that anybody waits for.
pub const POINTS_MAX: usize = 400;
/// Values of the first look at a range.
const COARSE: usize = 6;
/// Of a range that spans so many times its lower end the values lie in equal ratios, else in equal steps.
const RATIO_GEOMETRIC: f64 = 3.0;
/// Values of a range without a step keep so many digits.
const DIGITS: i32 = 3;

/// The values of a knob.
#[derive(Debug, Clone, PartialEq)]
pub enum AxisValues {
    /// All of these.
    List(Vec<KnobValue>),
    /// Some of these.
    Range(NumberRange),
}

/// Numbers from one to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberRange {
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// Every value but the ends is a multiple of it; 0 where any number will do.
    pub step: f64,
}

impl AxisValues {
    /// Reads `1,2,4`, `on,off`, `256M,1G`, `16..256`, `10..160/10`, with whether they are bytes. The error says what is expected.
    pub fn parse(text: &str) -> Result<(Self, bool), String> {
        match text.split_once("..") {
            Some((low, rest)) => range(low, rest),
            None => list(text),
        }
    }

    /// The values that are measured first, or all of a list.
    pub fn first_values(&self) -> Vec<KnobValue> {
        match self {
            Self::List(values) => values.clone(),
            Self::Range(range) => range.coarse().into_iter().map(KnobValue::Number).collect(),
        }
    }

    /// Its ends, or all of a list: what has to be possible before anything begins.
    pub fn to_check(&self) -> Vec<KnobValue> {
        match self {
            Self::List(values) => values.clone(),
            Self::Range(range) => [range.low, range.high].map(KnobValue::Number).into(),
        }
    }

    /// The same with values that are multiples of a step, where the user named none.
    #[must_use]
    pub fn in_steps_of(self, step: f64) -> Self {
        match self {
            Self::Range(range) if range.step <= 1.0 && step > 1.0 => {
                let multiple = |value: f64, round: fn(f64) -> f64| round(value / step) * step;
                let (low, high) =
                    (multiple(range.low, f64::ceil).max(step), multiple(range.high, f64::floor));
                Self::Range(NumberRange { low, high: high.max(low), step })
            }
            other => other,
        }
    }
}

impl NumberRange {
    /// The nearest value that may be measured.
    pub fn nearest(&self, value: f64) -> f64 {
        let rounded = if self.step > 0.0 {
            (value / self.step).round() * self.step
        } else {
            significant(value, DIGITS)
        };
        rounded.clamp(self.low, self.high)
    }

    /// The first look.
    fn coarse(&self) -> Vec<f64> {
        let Self { low, high, step } = *self;
        if step > 0.0 && (high - low) / step < COARSE as f64 {
            let count = ((high - low) / step).floor() as usize;
            let mut all: Vec<f64> = (0..=count).map(|at| self.nearest(low + at as f64 * step)).collect();
            all.push(high);
            all.dedup();
            return all;
        }
        let at = |place: usize| {
            let share = place as f64 / (COARSE - 1) as f64;
            let geometric = low > 0.0 && high / low >= RATIO_GEOMETRIC;
            self.nearest(if geometric { low * (high / low).powf(share) } else { low + (high - low) * share })
        };
        let mut all: Vec<f64> = (0..COARSE).map(at).collect();
        all.dedup();
        all
    }
}

fn list(text: &str) -> Result<(AxisValues, bool), String> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    if words.iter().any(|word| word.is_empty()) {
        return Err("values with commas between them, as 16,32,64, or a range, as 16..256".into());
    }
    let numbers: Vec<Option<(f64, bool)>> = words.iter().map(|word| quantity(word)).collect();
    let is_numeric = numbers.iter().all(Option::is_some);
    let is_bytes = is_numeric && numbers.iter().flatten().any(|(_, is_bytes)| *is_bytes);
    let mut values: Vec<KnobValue> = vec![];
    for (word, number) in words.iter().zip(numbers) {
        let value = match number.filter(|_| is_numeric) {
            Some((number, _)) => KnobValue::Number(number),
            None => KnobValue::Word((*word).to_owned()),
        };
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok((AxisValues::List(values), is_bytes))
}

fn range(low: &str, rest: &str) -> Result<(AxisValues, bool), String> {
    const EXPECTED: &str = "a range of two numbers, the lower one first, as 16..256 or 10..160/10";
    let (high, step) = rest.split_once('/').map_or((rest, None), |(high, step)| (high, Some(step)));
    let read = |text: &str| quantity(text.trim()).ok_or(EXPECTED);
    let ((low, low_is_bytes), (high, high_is_bytes)) = (read(low)?, read(high)?);
    let step = step.map(read).transpose()?.map(|(step, _)| step);
    let is_bytes = low_is_bytes || high_is_bytes;
    if low > high || low < 0.0 || step.is_some_and(|step| step <= 0.0) {
        return Err(EXPECTED.into());
    }
    let is_whole = low.fract() == 0.0 && high.fract() == 0.0;
    let usual = match (is_bytes, is_whole) {
        // A sixteenth of the smallest, as a power of two.
        (true, _) => (low / 16.0).max(1.0).log2().floor().exp2(),
        (false, true) => 1.0,
        (false, false) => 0.0,
    };
    Ok((AxisValues::Range(NumberRange { low, high, step: step.unwrap_or(usual) }), is_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(text: &str) -> String {
        let (values, is_bytes) = match AxisValues::parse(text) {
            Ok(parsed) => parsed,
            Err(expected) => return expected,
        };
        let one = |value: &KnobValue| match value {
            KnobValue::Number(number) => number.to_string(),
            KnobValue::Word(word) => format!("'{word}'"),
        };
        let first: Vec<String> = values.first_values().iter().map(one).collect();
        format!("{}{}", first.join(" "), if is_bytes { " bytes" } else { "" })
    }

    #[test]
    fn values_are_read_as_people_write_them() {
        for (text, expected) in [
            ("8,16,16,32", "8 16 32"),
            ("on,off", "'on' 'off'"),
            ("500ms,1", "'500ms' '1'"),
            ("256M,1GiB", "268435456 1073741824 bytes"),
            ("0.5,1", "0.5 1"),
            ("1..4", "1 2 3 4"),
            ("16..512", "16 32 64 128 256 512"),
            ("100..250", "100 130 160 190 220 250"),
            ("10..160/10", "10 20 30 50 90 160"),
            ("0.5..2", "0.5 0.66 0.871 1.15 1.52 2"),
            ("1G..1G", "1073741824 bytes"),
            ("1..2,3", "a range of two numbers, the lower one first, as 16..256 or 10..160/10"),
            ("9..3", "a range of two numbers, the lower one first, as 16..256 or 10..160/10"),
            ("1,,2", "values with commas between them, as 16,32,64, or a range, as 16..256"),
            ("", "values with commas between them, as 16,32,64, or a range, as 16..256"),
        ] {
            assert_eq!(text_of(text), expected, "{text}");
        }
    }

    #[test]
    fn a_range_keeps_to_the_steps_that_a_setting_needs() {
        let (values, _) = AxisValues::parse("16..410").unwrap();
        let AxisValues::Range(range) = values.in_steps_of(25.0) else { panic!() };
        assert_eq!((range.low, range.high, range.nearest(180.0)), (25.0, 400.0, 175.0));
        assert!(range.coarse().iter().all(|value| value % 25.0 == 0.0), "{:?}", range.coarse());
        let (own, _) = AxisValues::parse("10..400/10").unwrap();
        assert_eq!(own.clone().in_steps_of(25.0), own);
    }
}
