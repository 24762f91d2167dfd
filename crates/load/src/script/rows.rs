//! Rows of tables, handed to sessions.

use super::variables::{Names, VariableId, Variables};
use crate::random::SplitMix;
use std::sync::Arc;
use webdyno_model::visit::{RowOrder, Table};
use webdyno_model::{Result, UserError};

/// A table whose columns are variables. Copies share the rows.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    columns: Vec<VariableId>,
    order: RowOrder,
    rows: Arc<Vec<Vec<String>>>,
}

impl Rows {
    /// Declares the columns. A usage error for a table without rows, and for a column that cannot be a variable.
    pub(crate) fn of(table: &Table, names: &mut Names) -> Result<Self> {
        if table.rows.is_empty() {
            return Err(UserError::usage(format!("{} holds no rows", table.file))
                .hint("its first line names the columns; each further line is a row"));
        }
        let declare = |column: &String| {
            names.declare(column).map_err(|error| UserError {
                message: format!("{}: column {}", table.file, error.message),
                ..error
            })
        };
        let columns = table.columns.iter().map(declare).collect::<Result<_>>()?;
        Ok(Self { columns, order: table.order, rows: Arc::clone(&table.rows) })
    }

    /// Gives the row of a session: in turn by the number of the session, else drawn. A row that is too short leaves the
    /// columns that it lacks without a value.
    pub(crate) fn hand_out(&self, session: u64, random: &mut SplitMix, variables: &mut Variables) {
        let count = self.rows.len() as u64;
        let place = match self.order {
            RowOrder::InTurn => session % count,
            RowOrder::Random => ((u128::from(random.next()) * u128::from(count)) >> 64) as u64,
        };
        let row = self.rows.get(place as usize).map_or(&[][..], Vec::as_slice);
        for (place, &column) in self.columns.iter().enumerate() {
            match row.get(place) {
                Some(value) => variables.set(column, value.as_bytes()),
                None => variables.unset(column),
            }
        }
    }
}
