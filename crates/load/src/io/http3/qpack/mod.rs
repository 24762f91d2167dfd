//! QPACK, the compression of header fields in HTTP/3, without a dynamic table: RFC 9204.
//!
//! We announce none (a capacity of 0 is what holds without a word of it, section 5) and use none of the peer's, so that
//! blocks depend on nothing that came before, and neither an encoder nor a decoder stream is needed (section 4.2). Numbers,
//! strings and the Huffman code are those of HPACK (section 4.1).

mod table;
#[cfg(test)]
mod tests;

use crate::io::http2::hpack::{read_integer, read_string, write_integer, write_string};
use crate::io::multiplexed::fields::{FieldDecoder, FieldEncoder, Indexing};
use table::{Found, STATIC};

/// What a field counts besides its name and value, as in HPACK: RFC 9114, section 4.2.2.
const FIELD_OVERHEAD_BYTES: usize = 32;

/// Why a header block cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpackError {
    /// It is none: an error of the connection.
    Wrong,
    /// Its fields are more than we take: an error of its stream alone, as no other block depends on it.
    TooLong,
}

/// Encodes header blocks.
#[derive(Debug, Default)]
pub(crate) struct Encoder;

impl FieldEncoder for Encoder {
    fn version(&self) -> u64 {
        0
    }

    /// Section 4.5.1: nothing of the dynamic table is needed.
    fn begin(&mut self, into: &mut Vec<u8>) {
        into.extend_from_slice(&[0, 0]);
    }

    /// Sections 4.5.2, 4.5.4 and 4.5.6.
    fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, into: &mut Vec<u8>) {
        let is_secret = indexing == Indexing::Never;
        match table::find(name, value) {
            Some(Found::Field(index)) if !is_secret => return write_integer(index, 0xc0, 6, into),
            Some(Found::Field(index) | Found::Name(index)) => {
                write_integer(index, if is_secret { 0x70 } else { 0x50 }, 4, into);
            }
            None => write_string(name, if is_secret { 0x30 } else { 0x20 }, 3, into),
        }
        write_string(value, 0, 7, into);
    }
}

/// Decodes header blocks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl FieldDecoder for Decoder {
    type Error = QpackError;

    fn version(&self) -> u64 {
        0
    }

    fn decode(
        &mut self,
        block: &[u8],
        list_bytes_max: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), QpackError> {
        let wrong = |_| QpackError::Wrong;
        let (required, rest) = read_integer(block, 8).map_err(wrong)?;
        let (_, mut rest) = read_integer(rest, 7).map_err(wrong)?;
        if required != 0 {
            return Err(QpackError::Wrong);
        }
        let mut left_bytes = list_bytes_max;
        while let Some(&first) = rest.first() {
            let (index, name, value): (usize, &[u8], &[u8]);
            match first {
                // A field of the static table.
                0xc0.. => {
                    (index, rest) = read_integer(rest, 6).map_err(wrong)?;
                    let entry = STATIC.get(index).ok_or(QpackError::Wrong)?;
                    (name, value) = (entry.0.as_bytes(), entry.1.as_bytes());
                }
                // A name of the static table.
                0x50..0x60 | 0x70..0x80 => {
                    (index, rest) = read_integer(rest, 4).map_err(wrong)?;
                    name = STATIC.get(index).ok_or(QpackError::Wrong)?.0.as_bytes();
                    rest = read_string(rest, 7, &mut self.value).map_err(wrong)?;
                    value = &self.value;
                }
                0x20..0x40 => {
                    rest = read_string(rest, 3, &mut self.name).map_err(wrong)?;
                    rest = read_string(rest, 7, &mut self.value).map_err(wrong)?;
                    (name, value) = (&self.name, &self.value);
                }
                // All others are of the dynamic table.
                _ => return Err(QpackError::Wrong),
            }
            let field_bytes = name.len() + value.len() + FIELD_OVERHEAD_BYTES;
            left_bytes = left_bytes.checked_sub(field_bytes).ok_or(QpackError::TooLong)?;
            visit(name, value);
        }
        Ok(())
    }
}
