//! Numbers as logs write them, from bytes.

/// A whole number; `None` of anything else.
#[inline]
pub(crate) fn whole(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| number * 10 + u64::from(digit))
    })
}

/// A decimal number of a unit of so many microseconds, in microseconds; `None` of `-` and the like.
pub(crate) fn time_us(text: &[u8], unit_us: f64) -> Option<u64> {
    if let Some(number) = whole(text) {
        return Some((number as f64 * unit_us) as u64);
    }
    let number: f64 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| (number * unit_us).round() as u64)
}
