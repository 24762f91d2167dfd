//! What the codecs of header fields, HPACK and QPACK, have in common for those who use them.

/// Whether a field goes into a table that the peer keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Indexing {
    /// It is the same in many requests.
    Yes,
    /// It differs from request to request.
    No,
    /// It is a secret that no intermediary may keep: RFC 7541, section 7.1.3; RFC 9204, section 7.1.3.
    Never,
}

/// Encodes the header blocks of one connection, in their order.
pub(crate) trait FieldEncoder: Default {
    /// Changes with the table: a block is valid while this is the same.
    fn version(&self) -> u64;
    /// Begins a block.
    fn begin(&mut self, into: &mut Vec<u8>);
    /// Appends a field; its name is in lower case.
    fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, into: &mut Vec<u8>);
}

/// Decodes the header blocks of one connection, in their order.
pub(crate) trait FieldDecoder: Default {
    /// Why a block cannot be decoded.
    type Error;
    /// Changes with the table.
    fn version(&self) -> u64;
    /// Decodes a block and calls `visit` with the name and value of each field. The fields may count `list_bytes_max`
    /// together, each as an entry of a table does: a few octets can name very long fields very often.
    fn decode(
        &mut self,
        block: &[u8],
        list_bytes_max: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Self::Error>;
}
