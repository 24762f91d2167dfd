//! Numbers as JSON shows them: whole numbers without a decimal point, so that logs stay small and readable. [`human`]
//! formats them for tables and pages, [`prose`] for sentences of findings; there is no other formatter of numbers.

pub mod human;
pub mod prose;

use serde::{Deserialize, Serialize, Serializer};

/// The largest whole number that an `f64` holds exactly (2^53).
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A finite measurement. Serialised as an integer when it is whole, else as a decimal; not finite becomes `null`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Deserialize)]
#[serde(transparent)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

/// For `#[serde(serialize_with = "number::serialize")]` on plain `f64` fields.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if !value.is_finite() {
        serializer.serialize_none()
    } else if value.fract() == 0.0 && value.abs() < EXACT_MAX {
        #[allow(clippy::cast_possible_truncation)]
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

/// Reads a number, with whether it is one of bytes (powers of 1024): `64`, `0.5`, `256M`, `2GiB`.
pub fn quantity(text: &str) -> Option<(f64, bool)> {
    let plain = |text: &str| {
        let is_plain = text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_digit() || c == '.');
        is_plain.then(|| text.parse().ok()).flatten()
    };
    if let Some(number) = plain(text) {
        return Some((number, false));
    }
    let size = text.strip_suffix("iB").or(text.strip_suffix('B')).unwrap_or(text);
    let unit = size.chars().last()?;
    let times = match unit.to_ascii_uppercase() {
        'K' => 1u64 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        'T' => 1 << 40,
        _ => return None,
    };
    Some((plain(&size[..size.len() - 1])? * times as f64, true))
}

/// Rounds to `digits` significant digits: reports say as much as was measured, and no more.
pub fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let magnitude = digits - 1 - value.abs().log10().floor() as i32;
    // Dividing by a power of ten rounds once; multiplying by its inverse would round twice (0.30000000000000004).
    if magnitude >= 0 {
        let scale = 10f64.powi(magnitude);
        (value * scale).round() / scale
    } else {
        let scale = 10f64.powi(-magnitude);
        (value / scale).round() * scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_decimal_point() {
        for (value, json) in [(150.0, "150"), (0.5, "0.5"), (-3.0, "-3"), (f64::NAN, "null"), (1e17, "1e+17")]
        {
            assert_eq!(serde_json_like(value), json);
        }
    }

    fn serde_json_like(value: f64) -> String {
        serde_json::to_string(&Number(value)).unwrap()
    }

    #[test]
    fn significant_digits_round_without_dust() {
        for (value, digits, expected) in [
            (0.300_000_000_1, 4, 0.3),
            (1234.567, 4, 1235.0),
            (98_765.4, 3, 98_800.0),
            (0.0, 4, 0.0),
            (-2.345_6, 3, -2.35),
        ] {
            assert_eq!(significant(value, digits), expected);
        }
    }
}
