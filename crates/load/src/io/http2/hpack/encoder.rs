//! Encoding header blocks: RFC 7541, sections 4.2 and 6.
//!
//! A field that comes with every request is put into the table once and is one octet from then on. The table is filled
//! and then left as it is: it never loses an entry, so that the block of a request stays valid until another request
//! adds one.

use super::table::{Found, Table};
use super::{TABLE_BYTES, write_integer, write_string};
use crate::io::multiplexed::fields::{FieldEncoder, Indexing};

/// Encodes the header blocks of one connection, in their order.
#[derive(Debug)]
pub(crate) struct Encoder {
    table: Table,
    /// Changes with the table.
    version: u64,
    /// The size that the next block begins with, after an empty table.
    announced_bytes: Option<usize>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { table: Table::new(TABLE_BYTES), version: 0, announced_bytes: None }
    }
}

impl Encoder {
    /// The peer accepts a table of this size.
    pub(crate) fn limit_table(&mut self, bytes: usize) {
        let bytes = bytes.min(TABLE_BYTES);
        self.table.resize(0);
        self.table.resize(bytes);
        self.announced_bytes = Some(bytes);
        self.version += 1;
    }
}

impl FieldEncoder for Encoder {
    fn version(&self) -> u64 {
        self.version
    }

    fn begin(&mut self, into: &mut Vec<u8>) {
        if let Some(bytes) = self.announced_bytes.take() {
            write_integer(0, 0x20, 5, into);
            write_integer(bytes, 0x20, 5, into);
            self.version += 1;
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, into: &mut Vec<u8>) {
        let found = self.table.find(name, value);
        if let (Some(Found::Field(index)), false) = (found, indexing == Indexing::Never) {
            return write_integer(index, 0x80, 7, into);
        }
        let inserts = indexing == Indexing::Yes && Table::field_bytes(name, value) <= self.table.room_bytes();
        let (flags, prefix_bits) = match indexing {
            _ if inserts => (0x40, 6),
            Indexing::Never => (0x10, 4),
            _ => (0, 4),
        };
        match found {
            Some(Found::Name(index) | Found::Field(index)) => write_integer(index, flags, prefix_bits, into),
            None => {
                into.push(flags);
                write_string(name, 0, 7, into);
            }
        }
        write_string(value, 0, 7, into);
        if inserts {
            self.table.insert(name, value);
            self.version += 1;
        }
    }
}
