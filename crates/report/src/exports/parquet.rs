//! A table as Apache Parquet (<https://parquet.apache.org/docs/file-format/>): typed columns, null for unknown, and what it is
//! of as key-value metadata of the file. Written without Arrow, by the column writers of the crate.

use super::Table;
use super::table::{Cell, Column, Kind};
use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use std::sync::Arc;
use webdyno_model::{Result, UserError};
use webdyno_session::recording::Recording;

/// Rows that are held until they are written: a row group.
const GROUP_ROWS: usize = 1 << 16;

/// The table, compressed with Snappy. An error when the recording has nothing for it, or when a histogram is damaged.
pub fn parquet(recording: &Recording, table: Table) -> Result<Vec<u8>> {
    let columns = table.columns(recording);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(origin(recording, table)))
        .build();
    let schema = schema(&columns).map_err(wrong)?;
    let mut writer = SerializedFileWriter::new(vec![], schema, Arc::new(properties)).map_err(wrong)?;
    let mut group = RowGroup::of(&columns);
    table.rows(recording, "Parquet", &mut |row| {
        group.add(row)?;
        if group.rows == GROUP_ROWS { group.write(&mut writer).map_err(wrong) } else { Ok(()) }
    })?;
    group.write(&mut writer).and_then(|()| writer.into_inner()).map_err(wrong)
}

fn wrong(error: ParquetError) -> UserError {
    UserError::cannot_run(format!("cannot write the results as parquet: {error}"))
}

/// What the file is of.
fn origin(recording: &Recording, table: Table) -> Vec<KeyValue> {
    let first_request = recording.loads.first().and_then(|load| load.workload.requests.first());
    let target = first_request.map(|request| request.url.clone());
    let host = recording.server.as_ref().and_then(|server| server.hostname.clone());
    let facts = [
        ("webdyno.version", Some(recording.client.webdyno.clone())),
        ("webdyno.command", Some(recording.command.clone())),
        ("webdyno.started_at", Some(recording.started_at.clone())),
        ("webdyno.target", target.or(host)),
        ("webdyno.table", Some(table.name().to_owned())),
    ];
    facts.into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value)).collect()
}

fn schema(columns: &[Column]) -> std::result::Result<TypePtr, ParquetError> {
    let field = |column: &Column| {
        let (physical, logical) = match column.kind {
            Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Integer => (PhysicalType::INT64, None),
            Kind::Real => (PhysicalType::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(&column.name, physical);
        field.with_logical_type(logical).with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<std::result::Result<_, _>>()?;
    Type::group_type_builder("webdyno").with_fields(fields).build().map(Arc::new)
}

/// The values of a column, without those that are unknown.
enum Values {
    Text(Vec<ByteArray>),
    Integer(Vec<i64>),
    Real(Vec<f64>),
}

/// Rows that are not written yet, by column: the values, and for each row whether it has one (a definition level).
struct RowGroup {
    columns: Vec<(Values, Vec<i16>)>,
    rows: usize,
}

impl RowGroup {
    fn of(columns: &[Column]) -> Self {
        let empty = |column: &Column| match column.kind {
            Kind::Text => (Values::Text(vec![]), vec![]),
            Kind::Integer => (Values::Integer(vec![]), vec![]),
            Kind::Real => (Values::Real(vec![]), vec![]),
        };
        Self { columns: columns.iter().map(empty).collect(), rows: 0 }
    }

    /// Adds a row. An error when a cell is not of the type of its column.
    fn add(&mut self, row: &[Cell<'_>]) -> Result<()> {
        for ((values, known), cell) in self.columns.iter_mut().zip(row) {
            match (values, *cell) {
                (_, Cell::Unknown) => {}
                (Values::Text(values), Cell::Text(text)) => values.push(text.into()),
                (Values::Integer(values), Cell::Integer(count)) => {
                    values.push(i64::try_from(count).unwrap_or(i64::MAX));
                }
                (Values::Real(values), Cell::Real(value)) => values.push(value),
                _ => return Err(wrong(ParquetError::General(format!("{cell:?} is of another type")))),
            }
            known.push(i16::from(*cell != Cell::Unknown));
        }
        self.rows += 1;
        Ok(())
    }

    /// Writes the rows, and forgets them.
    fn write(&mut self, writer: &mut SerializedFileWriter<Vec<u8>>) -> std::result::Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = writer.next_row_group()?;
        for (values, known) in &mut self.columns {
            let Some(mut column) = group.next_column()? else { break };
            match values {
                Values::Text(values) => {
                    column.typed::<ByteArrayType>().write_batch(values, Some(known.as_slice()), None)?;
                    values.clear();
                }
                Values::Integer(values) => {
                    column.typed::<Int64Type>().write_batch(values, Some(known.as_slice()), None)?;
                    values.clear();
                }
                Values::Real(values) => {
                    column.typed::<DoubleType>().write_batch(values, Some(known.as_slice()), None)?;
                    values.clear();
                }
            }
            known.clear();
            column.close()?;
        }
        self.rows = 0;
        group.close().map(|_| ())
    }
}
