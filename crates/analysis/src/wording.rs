//! Numbers, times and sizes in sentences.

/// Formats a figure for a sentence: `24,840,500`, `750`, `12.3`, `0.045`.
pub(crate) fn format_number(value: f64) -> String {
    let rounded = webdyno_model::number::significant(value, 3);
    if rounded.abs() < 1000.0 {
        return format!("{rounded}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + 4);
    for (at, digit) in digits.chars().enumerate() {
        let follows = text.ends_with(|last: char| last.is_ascii_digit());
        // Four digits are read at a glance.
        if follows && value.abs() >= 1e4 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats microseconds for a sentence.
pub(crate) fn format_time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", format_number(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", format_number(us / 1e3)),
        us => format!("{} us", format_number(us)),
    }
}

/// Formats bytes for a sentence.
pub(crate) fn format_bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{} GB", format_number(bytes / 1e9)),
        bytes if bytes >= 1e6 => format!("{} MB", format_number(bytes / 1e6)),
        bytes => format!("{} kB", format_number(bytes / 1e3)),
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
}
