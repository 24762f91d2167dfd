//! What tables are made of: columns, each with its type and with the unit at the end of its name, and rows, which come one
//! at a time, so that an observation of a day is never held twice. CSV and Parquet are two ways to write the same cells.

use webdyno_model::Result;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Below 2^63.
    Integer,
    Real,
}

/// A column.
#[derive(Debug)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
}

/// A value, of the type of its column, or that it is not known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    Unknown,
    Text(&'a str),
    Integer(u64),
    Real(f64),
}

/// What takes the rows.
pub type RowSink<'a> = &'a mut dyn FnMut(&[Cell<'_>]) -> Result<()>;

impl Cell<'_> {
    /// To the millisecond, as far as seconds are cut.
    pub fn rounded(value: f64) -> Self {
        Self::Real((value * 1e3).round() / 1e3)
    }

    pub fn integer(value: Option<u64>) -> Self {
        value.map_or(Self::Unknown, Self::Integer)
    }

    pub fn real(value: Option<f64>) -> Self {
        value.map_or(Self::Unknown, Self::Real)
    }
}
