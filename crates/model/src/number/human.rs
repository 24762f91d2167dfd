//! Numbers as people read them: always with a unit, three significant digits, thousands grouped; what is not known is
//! `unknown`, never 0. Sizes are decimal (1 kB = 1000 bytes), as networks and disks count.

use super::significant;

/// What stands for a number that is not known.
pub const UNKNOWN: &str = "unknown";

/// Below this a figure says nothing but "none": nothing that is measured here resolves a millionth.
const SMALLEST: f64 = 1e-6;
/// From here on digits say less than the exponent.
const LARGEST: f64 = 1e15;

/// A number without unit: whole numbers exactly, others with three significant digits.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.into();
    }
    if value.abs() < SMALLEST {
        return "0".into();
    }
    if value.abs() >= LARGEST {
        return format!("{:e}", significant(value, 3));
    }
    if value.abs() >= 1000.0 || value.fract() == 0.0 {
        return grouped(value.round());
    }
    grouped(three_digits(value))
}

/// A whole number with thousands grouped.
pub fn count(value: u64) -> String {
    group_digits(&value.to_string())
}

/// Three digits or so, of a number that was written and not measured: `1,235`, `123`, `12.3`, `0.1`.
pub fn approximate(value: f64) -> String {
    if value >= 1000.0 {
        return count(value.round() as u64);
    }
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// `1 request`, `2,190 requests`.
pub fn plural(value: u64, noun: &str) -> String {
    let ending = if value == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(value))
}

/// A time given in microseconds: `850 µs`, `1.23 ms`, `4.5 s`, `2 min 5 s`, `3 h 20 min`.
pub fn time_us(us: f64) -> String {
    if !us.is_finite() {
        return UNKNOWN.into();
    }
    // Rounded before the unit is chosen, so that 999.96 ms becomes 1 s and not 1,000 ms.
    let rounded = three_digits(us);
    let size = rounded.abs();
    if size < 1e3 {
        return format!("{} µs", number(rounded));
    }
    if size < 1e6 {
        return format!("{} ms", number(rounded / 1e3));
    }
    if size < 120e6 {
        return format!("{} s", number(rounded / 1e6));
    }
    let sign = if us < 0.0 { "-" } else { "" };
    let seconds = (us.abs() / 1e6).round();
    let (large, small, units) = if seconds < 7200.0 {
        ((seconds / 60.0).floor(), seconds % 60.0, ("min", "s"))
    } else {
        let minutes = (seconds / 60.0).round();
        ((minutes / 60.0).floor(), minutes % 60.0, ("h", "min"))
    };
    if small == 0.0 {
        return format!("{sign}{} {}", number(large), units.0);
    }
    format!("{sign}{} {} {} {}", number(large), units.0, number(small), units.1)
}

/// A time given in seconds.
pub fn time_s(seconds: f64) -> String {
    // The beginning is a second like the others, not a number of microseconds.
    if seconds == 0.0 {
        return "0 s".into();
    }
    time_us(seconds * 1e6)
}

/// A time in microseconds that may not be known.
pub fn time(us: Option<u64>) -> String {
    us.map_or_else(|| UNKNOWN.into(), |us| time_us(us as f64))
}

/// A size: `812 B`, `12.3 kB`, `4 GB`.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    if !bytes.is_finite() {
        return UNKNOWN.into();
    }
    let mut value = three_digits(bytes);
    let mut unit = 0;
    while value.abs() >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", number(three_digits(value)), UNITS[unit])
}

/// Events per second: `1,234/s`.
pub fn rate(per_second: f64) -> String {
    let digits = number(per_second);
    if digits == UNKNOWN { digits } else { digits + "/s" }
}

/// A rate that may not be known.
pub fn rate_or_unknown(per_second: Option<f64>) -> String {
    per_second.map_or_else(|| UNKNOWN.into(), rate)
}

/// A share of one as a percentage: `0.55%`, `97%`.
pub fn percent(fraction: f64) -> String {
    let value = three_digits(fraction * 100.0);
    // Below one percent the third digit is noise.
    let digits = number(if value.abs() < 1.0 && value != 0.0 { significant(value, 2) } else { value });
    if digits == UNKNOWN { digits } else { digits + "%" }
}

/// A part of a picture: whole percents, and `<1%` for what is nearly nothing.
pub fn percent_coarse(fraction: f64) -> String {
    let whole = (fraction * 100.0).round();
    if fraction > 0.0 && whole < 1.0 { "<1%".into() } else { percent(whole / 100.0) }
}

/// A part of a whole as a percentage that never says 0% of something or 100% of not everything.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return UNKNOWN.into();
    }
    let fraction = part as f64 / whole as f64;
    if part > 0 && fraction < 0.0001 {
        "<0.01%".into()
    } else if part < whole && fraction > 0.999 {
        ">99.9%".into()
    } else {
        percent(fraction)
    }
}

/// How many times as much, with as many decimals as such a comparison is good for: `1.04 times`, `2.9 times`.
pub fn times(ratio: f64) -> String {
    if !ratio.is_finite() {
        return UNKNOWN.into();
    }
    format!("{} times", factor(ratio, decimals(ratio)))
}

/// The interval of a ratio, with the decimals of the ratio itself: `2.8 to 3.0`.
pub fn times_interval(ratio: f64, ci95: [f64; 2]) -> String {
    if ci95.iter().any(|bound| !bound.is_finite()) {
        return UNKNOWN.into();
    }
    let decimals = decimals(ratio);
    format!("{} to {}", factor(ci95[0], decimals), factor(ci95[1], decimals))
}

/// The interval of a rate: `2,000/s to 2,400/s`.
pub fn rate_interval(ci95: [f64; 2]) -> String {
    format!("{} to {}", rate(ci95[0]), rate(ci95[1]))
}

/// A value in a unit as facts name it.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "ns" => time_us(value / 1e3),
        "us" | "µs" => time_us(value),
        "ms" => time_us(value * 1e3),
        "s" | "seconds" => time_s(value),
        "bytes" | "B" => bytes(value),
        "bytes/s" | "B/s" => per_second(bytes(value)),
        "bit/s" => per_second(bytes(value).replace('B', "bit")),
        "fraction" | "share" => percent(value),
        "percent" | "%" => percent(value / 100.0),
        "/s" | "1/s" | "per_s" | "req/s" | "requests/s" | "rate" => rate(value),
        "ratio" | "times" => times(value),
        // What is counted is in the name of the fact.
        "" | "count" | "number" => number(value),
        _ if !value.is_finite() => UNKNOWN.into(),
        _ => match unit.strip_suffix("/s") {
            Some(counted) => format!("{} {counted}/s", number(value)),
            None => format!("{} {}", number(value), singular_or_plural(value, unit)),
        },
    }
}

/// Three significant digits; what is too small to mean anything (and would overflow the rounding) is 0.
fn three_digits(value: f64) -> f64 {
    if value.abs() < SMALLEST { 0.0 } else { significant(value, 3) }
}

fn per_second(amount: String) -> String {
    if amount == UNKNOWN { amount } else { amount + "/s" }
}

/// `1 connections` reads wrong.
fn singular_or_plural(value: f64, unit: &str) -> &str {
    if value == 1.0 { unit.strip_suffix('s').unwrap_or(unit) } else { unit }
}

fn decimals(ratio: f64) -> usize {
    match ratio.abs() {
        size if size < 2.0 => 2,
        size if size < 20.0 => 1,
        _ => 0,
    }
}

fn factor(value: f64, decimals: usize) -> String {
    let scale = 10f64.powi(decimals as i32);
    // Adding zero turns -0 into 0.
    let rounded = (value * scale).round() / scale + 0.0;
    if rounded.abs() >= LARGEST {
        return number(rounded);
    }
    group_digits(&format!("{rounded:.decimals$}"))
}

fn grouped(value: f64) -> String {
    group_digits(&format!("{value}"))
}

/// Puts a comma between groups of three digits before the decimal point.
pub(super) fn group_digits(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let (whole, decimals) =
        digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(decimals) = decimals {
        out.push('.');
        out.push_str(decimals);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_groups() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (-1e-9, "0"),
            (1.234, "1.23"),
            (12.0, "12"),
            (999.96, "1,000"),
            (1234.4, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-4321.0, "-4,321"),
            (3.2e18, "3.2e18"),
            (f64::NAN, "unknown"),
            (f64::INFINITY, "unknown"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn times_change_their_unit() {
        for (us, expected) in [
            (0.0, "0 µs"),
            (850.0, "850 µs"),
            (999.96, "1 ms"),
            (1234.0, "1.23 ms"),
            (999_960.0, "1 s"),
            (4_500_000.0, "4.5 s"),
            (125_000_000.0, "2 min 5 s"),
            (3_600_000_000.0, "60 min"),
            (12_000_000_000.0, "3 h 20 min"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(time_us(us), expected);
        }
        assert_eq!(time(None), "unknown");
    }

    #[test]
    fn every_unit_of_a_fact_is_written_for_people() {
        for (value, unit, expected) in [
            (12_345.0, "bytes", "12.3 kB"),
            (999_999.0, "bytes", "1 MB"),
            (1.25e8, "bytes/s", "125 MB/s"),
            (1e9, "bit/s", "1 Gbit/s"),
            (0.0055, "fraction", "0.55%"),
            (2190.4, "req/s", "2,190/s"),
            (23.44, "connections", "23.4 connections"),
            (1.0, "workers", "1 worker"),
            (120.0, "forks/s", "120 forks/s"),
            (7.0, "count", "7"),
            (2.93, "ratio", "2.9 times"),
            (f64::NAN, "workers", "unknown"),
            (f64::NAN, "bytes/s", "unknown"),
        ] {
            assert_eq!(quantity(value, unit), expected);
        }
    }

    #[test]
    fn a_share_is_neither_nothing_nor_everything_by_rounding() {
        assert_eq!(share(1, 10_000_000), "<0.01%");
        assert_eq!(share(9_999_999, 10_000_000), ">99.9%");
        assert_eq!(share(0, 10), "0%");
        assert_eq!(share(10, 10), "100%");
        assert_eq!(share(0, 0), "unknown");
    }

    #[test]
    fn an_interval_has_the_decimals_of_its_ratio() {
        assert_eq!(times(2.92), "2.9 times");
        assert_eq!(times_interval(2.92, [2.81, 3.0]), "2.8 to 3.0");
        assert_eq!(times_interval(1.04, [0.984, 1.09]), "0.98 to 1.09");
        assert_eq!(times_interval(1.0, [-0.001, 1.1]), "0.00 to 1.10");
    }
}
