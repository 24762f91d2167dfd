//! The values of flags. A parser's error says what the flag wants, with an example; `usage` puts the flag before it and the
//! wrong value behind it. Errors of the model, which have a hint of their own, are passed on as they are.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use webdyno_model::duration::parse_duration_us;

/// What reading the value of a flag gives; the error is what is wanted: "a time with its unit, as 10s".
pub type ParseResult<T> = Result<T, String>;

/// A whole number within a range; an end of `u64::MAX` is none.
pub fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
    example: &'static str,
) -> impl Fn(&str) -> ParseResult<T> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match range.end() {
            &u64::MAX => format!("a whole number not below {}, as {example}", range.start()),
            end => format!("a whole number from {} to {end}, as {example}", range.start()),
        })
    }
}

/// A port.
pub fn port(text: &str) -> ParseResult<u16> {
    whole(1..=65535, "8080")(text)
}

/// An address with its port.
pub fn address(text: &str) -> ParseResult<SocketAddr> {
    text.parse().map_err(|_| "an IP address with its port, as 127.0.0.1:8080 or [::1]:8080".into())
}

/// An address of this machine that no other reaches, with its port.
pub fn loopback_address(text: &str) -> ParseResult<SocketAddr> {
    let loopback = address(text).ok().filter(|address| address.ip().is_loopback());
    loopback.ok_or_else(|| "a loopback address with its port, as 127.0.0.1:8080".into())
}

/// A time with its unit, in microseconds.
pub fn duration_us(text: &str) -> ParseResult<u64> {
    match time_us(text, "500ms, 10s or 2m")? {
        0 => Err("a time above 0, as 500ms, 10s or 2m".into()),
        us => Ok(us),
    }
}

/// A time with its unit, 0 as well; `such_as` are examples.
pub fn time_us(text: &str, such_as: &str) -> ParseResult<u64> {
    if let Some(us) = parse_duration_us(text) {
        return Ok(us);
    }
    let (negative, size) = match text.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, text),
    };
    let unit = size.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let has_both = unit.len() < size.len() && parse_duration_us(&format!("1{unit}")).is_some();
    Err(match (has_both, negative) {
        (true, true) => format!("a time not below 0, as {such_as}"),
        (true, false) if size[..size.len() - unit.len()].parse::<f64>().is_ok() => {
            "a time of at most 277777h".into()
        }
        _ => format!("a time with its unit, as {such_as}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_its_unit() {
        assert_eq!(duration_us("10s"), Ok(10_000_000));
        assert!(duration_us("10").unwrap_err().contains("unit"));
        assert!(duration_us("0s").is_err());
        for (text, part) in [
            ("99999999999h", "at most"),
            ("-1s", "not below 0"),
            ("-d", "unit"),
            ("1.2.3s", "unit"),
            ("1 parsec", "unit"),
            ("s", "unit"),
        ] {
            assert!(duration_us(text).unwrap_err().contains(part), "{text}: {:?}", duration_us(text));
        }
        assert_eq!(duration_us("277777h").map(|us| us / 3_600_000_000), Ok(277_777));
    }

    #[test]
    fn a_whole_number_lies_in_its_range() {
        assert_eq!(whole::<u32>(1..=9, "5")("9"), Ok(9));
        for wrong in ["0", "10", "-1", "ten", "", "1.5"] {
            assert_eq!(whole::<u32>(1..=9, "5")(wrong).unwrap_err(), "a whole number from 1 to 9, as 5");
        }
        assert_eq!(whole::<u64>(1..=u64::MAX, "5")("0").unwrap_err(), "a whole number not below 1, as 5");
        assert!(port("0").is_err() && port("80") == Ok(80));
    }
}
