//! HPACK, the compression of header fields in HTTP/2: RFC 7541.
//!
//! A codec of our own, as both directions lie on the hot path: a request is encoded once and its block kept, a response
//! is decoded where it lies, and neither allocates while the tables do not change.

mod decoder;
mod encoder;
mod huffman;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::Encoder;

/// Why a header block cannot be decoded: each ends the connection, as the tables of both ends may differ from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HpackError {
    /// It ends within a field.
    Incomplete,
    /// A number is larger than anything that it could count.
    Integer,
    /// There is no such entry in the tables.
    Index,
    /// The table would be larger than was agreed, or is resized after the first field.
    TableSize,
    /// The Huffman code of a string is wrong.
    Huffman,
    /// The fields are larger than was agreed.
    ListSize,
}

/// The size of the table at the beginning of a connection, in bytes as [`table`] counts them. SETTINGS of ours leave it.
pub(crate) const TABLE_BYTES: usize = 4096;
/// Most octets of a number after its first: 2^28, more than any length that is accepted.
const CONTINUATION_MAX: u32 = 4;

/// Reads a number whose first octet has this many bits of it (section 5.1). Returns it and the rest.
pub(crate) fn read_integer(bytes: &[u8], prefix_bits: u32) -> Result<(usize, &[u8]), HpackError> {
    let (&first, mut rest) = bytes.split_first().ok_or(HpackError::Incomplete)?;
    let most = (1_usize << prefix_bits) - 1;
    let mut value = usize::from(first) & most;
    if value < most {
        return Ok((value, rest));
    }
    for shift in 0..CONTINUATION_MAX {
        let (&octet, after) = rest.split_first().ok_or(HpackError::Incomplete)?;
        rest = after;
        value += usize::from(octet & 0x7f) << (7 * shift);
        if octet & 0x80 == 0 {
            return Ok((value, rest));
        }
    }
    Err(HpackError::Integer)
}

/// Appends a number below the flags of its first octet.
pub(crate) fn write_integer(value: usize, flags: u8, prefix_bits: u32, into: &mut Vec<u8>) {
    let most = (1_usize << prefix_bits) - 1;
    if value < most {
        return into.push(flags | value as u8);
    }
    into.push(flags | most as u8);
    let mut left = value - most;
    while left >= 0x80 {
        into.push(left as u8 | 0x80);
        left >>= 7;
    }
    into.push(left as u8);
}

/// Appends a string (section 5.2), by the Huffman code where that is shorter: its mark is the bit above the length, which
/// has this many bits of the first octet.
pub(crate) fn write_string(text: &[u8], flags: u8, prefix_bits: u32, into: &mut Vec<u8>) {
    let coded_bytes = huffman::encoded_bytes(text);
    if coded_bytes < text.len() {
        write_integer(coded_bytes, flags | 1 << prefix_bits, prefix_bits, into);
        return huffman::encode(text, into);
    }
    write_integer(text.len(), flags, prefix_bits, into);
    into.extend_from_slice(text);
}

/// Reads such a string into `into`. Returns the rest.
pub(crate) fn read_string<'a>(
    bytes: &'a [u8],
    prefix_bits: u32,
    into: &mut Vec<u8>,
) -> Result<&'a [u8], HpackError> {
    let coded = bytes.first().is_some_and(|first| first & 1 << prefix_bits != 0);
    let (length, rest) = read_integer(bytes, prefix_bits)?;
    let (text, rest) = rest.split_at_checked(length).ok_or(HpackError::Incomplete)?;
    into.clear();
    match coded {
        true => huffman::decode(text, into)?,
        false => into.extend_from_slice(text),
    }
    Ok(rest)
}
