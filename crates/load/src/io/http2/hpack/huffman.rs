//! The Huffman code of HPACK: RFC 7541, section 5.2 and appendix B.
//!
//! The code is canonical: the lengths of the codes alone determine them, shorter ones first and, of one length, in the
//! order of the symbols. Only the lengths are a table here.

use super::HpackError;

/// Octets, and the symbol that ends a string (which never may appear).
const SYMBOLS: usize = 257;
const END: usize = 256;
const BITS_MAX: usize = 30;

/// Bits of the code of each octet, then of the end.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6,
    6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6,
    6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22,
    20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23,
    22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22,
    23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22,
    25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The code, for both directions.
struct Code {
    /// By symbol.
    codes: [u32; SYMBOLS],
    /// Symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// By length: one more than the last code of that length or a shorter one, aligned to 32 bits.
    limit: [u64; BITS_MAX + 1],
    /// By length: its first code, and where that stands among `symbols`.
    first: [u32; BITS_MAX + 1],
    offset: [u16; BITS_MAX + 1],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut made = Code {
        codes: [0; SYMBOLS],
        symbols: [0; SYMBOLS],
        limit: [0; BITS_MAX + 1],
        first: [0; BITS_MAX + 1],
        offset: [0; BITS_MAX + 1],
    };
    let (mut next, mut count, mut bits) = (0_u32, 0, 1);
    while bits <= BITS_MAX {
        next <<= 1;
        (made.first[bits], made.offset[bits]) = (next, count as u16);
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == bits {
                made.codes[symbol] = next;
                made.symbols[count] = symbol as u16;
                next += 1;
                count += 1;
            }
            symbol += 1;
        }
        made.limit[bits] = (next as u64) << (32 - bits);
        bits += 1;
    }
    made
}

/// Bytes that the code of a string takes.
pub(super) fn encoded_bytes(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&octet| usize::from(LENGTHS[usize::from(octet)])).sum();
    bits.div_ceil(8)
}

/// Appends the code of a string.
pub(super) fn encode(text: &[u8], into: &mut Vec<u8>) {
    let (mut held, mut count) = (0_u64, 0_u32);
    for &octet in text {
        let bits = u32::from(LENGTHS[usize::from(octet)]);
        held = held << bits | u64::from(CODE.codes[usize::from(octet)]);
        count += bits;
        while count >= 8 {
            count -= 8;
            into.push((held >> count) as u8);
        }
    }
    if count > 0 {
        // Padded with the beginning of the code of the end: ones.
        into.push(((held << (8 - count)) as u8) | (0xff >> count));
    }
}

/// Appends the string of a code. An error when that is none, or padded wrongly.
pub(super) fn decode(code: &[u8], into: &mut Vec<u8>) -> Result<(), HpackError> {
    // The bits at hand stand at the top of 64.
    let (mut held, mut count, mut rest) = (0_u64, 0_u32, code.iter());
    loop {
        while count <= 32 {
            let Some(&octet) = rest.next() else { break };
            held |= u64::from(octet) << (56 - count);
            count += 8;
        }
        let top = held >> 32;
        let bits = (5..=BITS_MAX).find(|&bits| top < CODE.limit[bits]);
        let Some(bits) = bits.filter(|&bits| bits as u32 <= count) else {
            // What is left must be padding: less than an octet, all ones.
            let is_padding = count < 8 && (count == 0 || held >> (64 - count) == (1 << count) - 1);
            return is_padding.then_some(()).ok_or(HpackError::Huffman);
        };
        let index = (top >> (32 - bits)) as u32 - CODE.first[bits] + u32::from(CODE.offset[bits]);
        let symbol = CODE.symbols[index as usize];
        if usize::from(symbol) == END {
            return Err(HpackError::Huffman);
        }
        into.push(symbol as u8);
        held <<= bits;
        count -= bits as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_code_is_that_of_the_rfc() {
        // Appendix B, symbols of several lengths.
        for (symbol, code) in [
            (usize::from(b'0'), 0x0),
            (usize::from(b' '), 0x14),
            (usize::from(b'z'), 0x7b),
            (usize::from(b'<'), 0x7ffc),
            (0, 0x1ff8),
            (9, 0xff_ffea),
            (161, 0x1f_ffdd),
            (199, 0x1ff_ffec),
            (254, 0x7ff_fff0),
            (END, 0x3fff_ffff),
        ] {
            assert_eq!(CODE.codes[symbol], code, "symbol {symbol}");
        }
        assert_eq!(CODE.limit[BITS_MAX], 1 << 32, "the code is complete");
    }

    #[test]
    fn wrong_padding_and_the_end_are_errors() {
        let is_error = |code: &[u8]| decode(code, &mut vec![]).is_err();
        // `0` and three bits of padding: ones are right, zeros are not.
        assert!(!is_error(&[0b0000_0111]) && is_error(&[0b0000_0000]));
        assert!(is_error(&[0b0000_0111, 0xff]), "a whole octet of padding");
        assert!(is_error(&[0xff, 0xff, 0xff, 0xff]), "the end");
    }

    proptest! {
        // What is encoded is decoded to the same string.
        #[test]
        fn decoding_undoes_encoding(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut code, mut back) = (vec![], vec![]);
            encode(&text, &mut code);
            prop_assert_eq!(code.len(), encoded_bytes(&text));
            decode(&code, &mut back).unwrap();
            prop_assert_eq!(back, text);
        }

        // A code is the only one of its string.
        #[test]
        fn what_is_decoded_encodes_to_the_same(code in prop::collection::vec(any::<u8>(), 0..40)) {
            let (mut text, mut again) = (vec![], vec![]);
            if decode(&code, &mut text).is_ok() {
                encode(&text, &mut again);
                prop_assert_eq!(again, code);
            }
        }
    }
}
