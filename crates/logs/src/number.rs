//! Numbers as logs write them, from bytes; and where a short text ends.

/// Where a byte is first, of texts that end soon: eight bytes at a time, without a call.
#[inline]
pub(crate) fn position(text: &[u8], byte: u8) -> Option<usize> {
    const LOW: u64 = u64::MAX / 255;
    let (words, rest) = text.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        // A byte that is the one sought is 0; what borrows from it is behind it.
        let differs = u64::from_le_bytes(*word) ^ (LOW * u64::from(byte));
        let found = differs.wrapping_sub(LOW) & !differs & (LOW << 7);
        if found != 0 {
            return Some(number * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|one| *one == byte).map(|at| words.len() * 8 + at)
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_one_is_found(text in proptest::collection::vec(0x1e..0x23u8, 0..40), byte in 0x1e..0x23u8) {
            prop_assert_eq!(position(&text, byte), text.iter().position(|one| *one == byte));
        }
    }
}
