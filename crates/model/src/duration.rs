//! Times as users write them, with their unit: `10s`, `200ms`, `1.5m`.

/// Reads a time such as `10s`, `200ms`, `1.5m`, `250us`, `1h`; a number without a unit is not a time.
pub fn parse_duration_us(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let scale = match unit.trim() {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    let us = number.parse::<f64>().ok()? * scale;
    (us.is_finite() && us <= 1e15).then_some(us.round() as u64)
}

/// A time as [`parse_duration_us`] reads it, exactly, in the largest unit of which it is a whole number.
pub fn duration_text(us: u64) -> String {
    let units = [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1000, "ms")];
    let (scale, unit) =
        units.into_iter().find(|(scale, _)| us > 0 && us.is_multiple_of(*scale)).unwrap_or((1, "us"));
    format!("{}{unit}", us / scale)
}

/// A time in hours, minutes and the rest: `16m 30s`.
pub fn duration_in_parts(us: u64) -> String {
    const MINUTE_US: u64 = 60_000_000;
    let (minutes, rest_us) = (us / MINUTE_US, us % MINUTE_US);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let part = |us: u64| (us > 0).then(|| duration_text(us));
    let parts = [part(hours * 60 * MINUTE_US), part(minutes * MINUTE_US), part(rest_us)];
    let described: Vec<String> = parts.into_iter().flatten().collect();
    if described.is_empty() { duration_text(0) } else { described.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        for (text, us) in [
            ("10s", Some(10_000_000)),
            ("1.5ms", Some(1500)),
            ("2m", Some(120_000_000)),
            ("10", None),
            ("s", None),
            ("", None),
            ("-1s", None),
            ("1d", None),
        ] {
            assert_eq!(parse_duration_us(text), us, "{text}");
        }
    }

    #[test]
    fn times_are_formatted_for_people() {
        for (us, expected) in [
            (990_000_000, "16m 30s"),
            (120_000_000, "2m"),
            (3_660_000_000, "1h 1m"),
            (10_000_000, "10s"),
            (500_000, "500ms"),
        ] {
            assert_eq!(duration_in_parts(us), expected);
        }
    }
}
