//! Rows of tables, handed to sessions.

use super::variables::{Names, VariableId, Variables};
use crate::random::SplitMix;
use std::sync::Arc;
use webdyno_model::workload::visit::{RowOrder, Table};
use webdyno_model::{Result, UserError};

/// A table whose columns are variables. Copies share the rows.
#[derive(Debug, Clone)]
pub(crate) struct TableRows {
    columns: Vec<VariableId>,
    order: RowOrder,
    rows: Arc<Vec<Vec<String>>>,
}

impl TableRows {
    /// Declares the columns. A usage error for a table without rows, and for a column that cannot be a variable.
    pub(crate) fn from_table(table: &Table, names: &mut Names) -> Result<Self> {
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

    /// Assigns a session its row: in turn by the number of the session, else drawn. A row that is too short leaves the
    /// columns that it lacks without a value.
    pub(crate) fn assign_row(&self, session: u64, random: &mut SplitMix, variables: &mut Variables) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(order: RowOrder, rows: &[&[&str]]) -> Table {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|&field| field.to_owned()).collect()).collect();
        Table {
            file: "users.csv".into(),
            columns: vec!["name".into(), "password".into()],
            order,
            row_count: rows.len() as u64,
            rows: Arc::new(rows),
        }
    }

    /// The names that so many sessions get.
    fn handed_out(table: &Table, sessions: u64) -> Vec<String> {
        let mut names = Names::default();
        let rows = TableRows::from_table(table, &mut names).unwrap();
        let name = names.find("name").unwrap();
        let mut variables = Variables::default();
        let mut random = SplitMix::new(1);
        let mut one = |session| {
            rows.assign_row(session, &mut random, &mut variables);
            String::from_utf8(variables.get(name).unwrap().to_vec()).unwrap()
        };
        (0..sessions).map(&mut one).collect()
    }

    #[test]
    fn rows_are_handed_out_in_turn_or_drawn() {
        let rows: &[&[&str]] = &[&["ann", "1"], &["bob", "2"], &["cleo", "3"]];
        assert_eq!(handed_out(&table(RowOrder::InTurn, rows), 4), ["ann", "bob", "cleo", "ann"]);
        let drawn = handed_out(&table(RowOrder::Random, rows), 3000);
        for name in ["ann", "bob", "cleo"] {
            let count = drawn.iter().filter(|drawn| *drawn == name).count();
            assert!((900..1100).contains(&count), "{name}: {count}");
        }
    }

    #[test]
    fn a_short_row_leaves_no_value_of_another_session() {
        let mut names = Names::default();
        let short = table(RowOrder::InTurn, &[&["ann", "1"], &["bob"]]);
        let rows = TableRows::from_table(&short, &mut names).unwrap();
        let password = names.find("password").unwrap();
        let (mut variables, mut random) = (Variables::default(), SplitMix::new(1));
        rows.assign_row(0, &mut random, &mut variables);
        assert_eq!(variables.get(password), Some(&b"1"[..]));
        rows.assign_row(1, &mut random, &mut variables);
        assert_eq!(variables.get(password), None);
    }

    #[test]
    fn a_table_that_cannot_be_handed_out_is_refused() {
        let names = &mut Names::default();
        let error = TableRows::from_table(&table(RowOrder::InTurn, &[]), names).unwrap_err();
        assert_eq!(error.message, "users.csv holds no rows");
        let mut odd = table(RowOrder::InTurn, &[&["x"]]);
        odd.columns[1] = "pass word".into();
        let error = TableRows::from_table(&odd, names).unwrap_err();
        assert_eq!(error.message, "users.csv: column `pass word` cannot be the name of a variable");
        assert_eq!(error.exit_code(), 2);
    }
}
