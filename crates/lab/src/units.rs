//! Sizes and rates as scenarios write them: `256M`, `120mbit`.
//!
//! Sizes are powers of 1024, as everywhere in this program; rates are those of tc(8): powers of 1000, in bits.

use webdyno_model::{Result, UserError};

/// Bytes of a size: `512`, `64k`, `256M`, `1.5G`. A usage error for anything else.
pub fn bytes(text: &str) -> Result<u64> {
    let units = [("k", 1u64 << 10), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1));
    scaled(number, factor as f64)
        .ok_or_else(|| UserError::usage(format!("`{text}` is no size")).hint("write it as 64k, 256M or 1.5G"))
}

/// Bits a second of a rate: `1500kbit`, `120mbit`, `1gbit`. A usage error for anything else.
pub fn bits_per_s(text: &str) -> Result<u64> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    units.iter().find_map(|(unit, factor)| scaled(text.strip_suffix(unit)?, *factor)).ok_or_else(|| {
        UserError::usage(format!("`{text}` is no rate")).hint("write it as 1500kbit or 120mbit")
    })
}

/// A number of at least 1 in the end.
fn scaled(number: &str, factor: f64) -> Option<u64> {
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = number.parse::<f64>().ok().filter(|_| is_plain)? * factor;
    (1.0..1e18).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_read() {
        for (text, expected) in
            [("512", 512), ("64k", 65_536), ("256M", 268_435_456), ("1.5G", 1_610_612_736), ("1K", 1024)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for wrong in ["", "M", "-1M", "1e3", "256MB", "inf", "0", "9999999T", "1 M"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for (text, expected) in [
            ("1500kbit", 1_500_000),
            ("120mbit", 120_000_000),
            ("1gbit", 1_000_000_000),
            ("1.5mbit", 1_500_000),
        ] {
            assert_eq!(bits_per_s(text), Ok(expected), "{text}");
        }
        for wrong in ["120", "mbit", "1mbps", "-1mbit", "0bit"] {
            assert!(bits_per_s(wrong).is_err(), "{wrong}");
        }
    }
}
