//! Decoding header blocks: RFC 7541, sections 3 and 6.

use super::table::Table;
use super::{HpackError, TABLE_BYTES, read_integer, read_string};
use crate::io::multiplexed::fields::FieldDecoder;

/// Decodes the header blocks of one connection, in their order.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
    /// Changes with the table: a block that did not change it means the same again while this is the same.
    version: u64,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_BYTES), version: 0, name: vec![], value: vec![] }
    }
}

impl FieldDecoder for Decoder {
    type Error = HpackError;

    fn version(&self) -> u64 {
        self.version
    }

    fn decode(
        &mut self,
        block: &[u8],
        list_bytes_max: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let (mut rest, mut left_bytes, mut resizable) = (block, list_bytes_max, true);
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                rest = self.resize(rest, resizable)?;
                continue;
            }
            resizable = false;
            let (index, name, value, inserts);
            if first & 0x80 != 0 {
                (index, rest) = read_integer(rest, 7)?;
                inserts = false;
                (name, value) = self.table.get(index).ok_or(HpackError::Index)?;
            } else {
                inserts = first & 0x40 != 0;
                (index, rest) = read_integer(rest, if inserts { 6 } else { 4 })?;
                name = match index {
                    0 => {
                        rest = read_string(rest, 7, &mut self.name)?;
                        &self.name
                    }
                    _ => self.table.get(index).ok_or(HpackError::Index)?.0,
                };
                rest = read_string(rest, 7, &mut self.value)?;
                value = &self.value;
            }
            left_bytes =
                left_bytes.checked_sub(Table::field_bytes(name, value)).ok_or(HpackError::ListSize)?;
            visit(name, value);
            if inserts {
                // The name may lie in an entry that makes room.
                let name = (index != 0).then(|| name.to_vec());
                self.table.insert(name.as_deref().unwrap_or(&self.name), &self.value);
                self.version += 1;
            }
        }
        Ok(())
    }
}

impl Decoder {
    fn resize<'a>(&mut self, bytes: &'a [u8], allowed: bool) -> Result<&'a [u8], HpackError> {
        let (size_bytes, rest) = read_integer(bytes, 5)?;
        if !allowed || size_bytes > TABLE_BYTES {
            return Err(HpackError::TableSize);
        }
        self.table.resize(size_bytes);
        self.version += 1;
        Ok(rest)
    }

    #[cfg(test)]
    pub(super) fn table_bytes(&self) -> usize {
        self.table.size_bytes()
    }
}
