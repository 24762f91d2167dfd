//! Numbers, times and sizes in sentences: ASCII units, and four digits are not grouped.

use super::human::group_digits;
use super::significant;

/// Formats a figure for a sentence: `24,840,500`, `750`, `12.3`, `0.045`.
pub fn format_number(value: f64) -> String {
    let rounded = significant(value, 3);
    if rounded.abs() < 1000.0 {
        return format!("{rounded}");
    }
    let digits = format!("{value:.0}");
    // Four digits are read at a glance.
    if value.abs() >= 1e4 { group_digits(&digits) } else { digits }
}

/// Formats a figure with its measured digits only, not grouped, for the columns of the lab: `12300`, `0.045`.
pub fn format_figure(value: f64) -> String {
    let digits = significant(value, 3);
    if digits.abs() >= 1e6 { format!("{digits:.0}") } else { digits.to_string() }
}

/// Formats a share of one as a percentage of two digits.
pub fn format_percent(fraction: f64) -> String {
    format!("{}%", significant(fraction * 100.0, 2))
}

/// Formats microseconds for a sentence.
pub fn format_time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", format_number(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", format_number(us / 1e3)),
        us => format!("{} µs", format_number(us)),
    }
}

/// Formats bytes for a sentence.
pub fn format_bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{} GB", format_number(bytes / 1e9)),
        bytes if bytes >= 1e6 => format!("{} MB", format_number(bytes / 1e6)),
        bytes => format!("{} kB", format_number(bytes / 1e3)),
    }
}

/// Formats bytes in powers of 1024, as sizes of files are written in a workload: `812 B`, `64.0 MiB`.
pub fn format_binary_bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = units.iter().enumerate().rev().find(|(power, _)| bytes >= 1024f64.powi(*power as i32));
    match unit {
        Some((power, unit)) if power > 0 => format!("{:.1} {unit}", bytes / 1024f64.powi(power as i32)),
        _ => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_at_a_glance() {
        for (value, text) in [
            (0.0451, "0.0451"),
            (12.34, "12.3"),
            (1234.0, "1234"),
            (24_840_500.0, "24,840,500"),
            (-123_456.0, "-123,456"),
        ] {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn sizes_are_readable() {
        for (bytes, text) in
            [(0.0, "0 B"), (1023.0, "1023 B"), (6144.0, "6.0 KiB"), (67_108_864.0, "64.0 MiB")]
        {
            assert_eq!(format_binary_bytes(bytes), text);
        }
    }
}
