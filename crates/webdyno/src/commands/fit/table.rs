//! Points from a CSV (RFC 4180): value and rate, by a header or in this order. Whatever is wrong is reported with its line and column.

use csv::{ReaderBuilder, StringRecord, Trim};
use std::fmt::Display;
use webdyno_analysis::measurement::statistics::{describe, t_95};
use webdyno_model::sweep::{SweepLoad, SweepPoint};
use webdyno_model::{Result, UserError};

/// Columns by name.
const NAMES: [&str; 5] = ["value", "rate", "ci_low", "ci_high", "p99_us"];
const HINT: &str =
    "a row is value,rate, as 150,791; a header may name the columns value, rate, ci_low, ci_high, p99_us";

/// A row: a value, its rate, and what else is known.
struct Row {
    value: f64,
    rate: f64,
    ci95: Option<[f64; 2]>,
    p99_us: Option<u64>,
}

/// The points, one for each value, in order. `name` is what errors call it.
pub fn points(name: &str, bytes: &[u8]) -> Result<Vec<SweepPoint>> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(text);
    let mut rows: Vec<Row> = Vec::new();
    let mut columns: Option<Columns> = None;
    for record in reader.records() {
        let record = record.map_err(|error| {
            Place { name, line: line(text, error.position()) }.wrong(1, unreadable(&error))
        })?;
        let place = Place { name, line: line(text, record.position()) };
        match &columns {
            Some(columns) => rows.extend(columns.row(&place, &record)?),
            None => {
                let (found, is_header) = Columns::of(&place, &record)?;
                if !is_header {
                    rows.extend(found.row(&place, &record)?);
                }
                columns = Some(found);
            }
        }
    }
    if rows.is_empty() {
        return Err(UserError::usage(format!("{name} holds no points")).hint(HINT));
    }
    rows.sort_by(|a, b| a.value.total_cmp(&b.value));
    Ok(rows.chunk_by(|a, b| a.value == b.value).map(point).collect())
}

/// A point of all its repeats: their mean with Student's interval; of a single row what it says of itself.
fn point(rows: &[Row]) -> SweepPoint {
    let rates: Vec<f64> = rows.iter().map(|row| row.rate).collect();
    let spread = describe(&rates).map(|series| {
        let count = rates.len() as f64;
        let half = t_95(count - 1.0) * (series.variance / count).sqrt();
        [series.mean - half, series.mean + half]
    });
    let mut p99_us: Vec<u64> = rows.iter().filter_map(|row| row.p99_us).collect();
    p99_us.sort_unstable();
    let load = |row: &Row| SweepLoad { rate: Some(row.rate), p99_us: row.p99_us, ..SweepLoad::default() };
    SweepPoint {
        value: Some(rows[0].value),
        rate: Some(rates.iter().sum::<f64>() / rates.len() as f64),
        ci95: spread.or(rows[0].ci95),
        p99_us: p99_us.get(p99_us.len() / 2).copied(),
        loads: if rows.len() > 1 { rows.iter().map(load).collect() } else { vec![] },
        ..SweepPoint::default()
    }
}

/// The line of a file that an error is about.
struct Place<'a> {
    name: &'a str,
    line: u64,
}

impl Place<'_> {
    fn wrong(&self, column: usize, message: impl Display) -> UserError {
        UserError::usage(format!("{}:{}: column {column}: {message}", self.name, self.line)).hint(HINT)
    }
}

/// Where the columns are.
struct Columns {
    /// Those of [`NAMES`].
    named: [Option<usize>; 5],
    /// What the points of `webdyno export` have besides: the value of a second setting, and why nothing was measured.
    second: Option<usize>,
    failed: Option<usize>,
}

impl Columns {
    /// From the first row: a header if its first field is no number.
    fn of(place: &Place, record: &StringRecord) -> Result<(Self, bool)> {
        let is_number = |field: &str| field.parse::<f64>().is_ok();
        if record.get(0).is_some_and(is_number) {
            let named = [Some(0), Some(1), None, None, None];
            return Ok((Self { named, second: None, failed: None }, false));
        }
        let position = |wanted: &str| record.iter().position(|field| field.eq_ignore_ascii_case(wanted));
        let columns = NAMES.map(position);
        match NAMES.iter().zip(columns).take(2).find(|(_, position)| position.is_none()) {
            Some((missing, _)) => {
                let found: Vec<&str> = record.iter().collect();
                Err(place.wrong(1, format!("no column `{missing}`; there are `{}`", found.join("`, `"))))
            }
            None => {
                let (second, failed) = (position("value_2"), position("failed"));
                Ok((Self { named: columns, second, failed }, true))
            }
        }
    }

    /// `None` of a point of which it is known that nothing was measured.
    fn row(&self, place: &Place, record: &StringRecord) -> Result<Option<Row>> {
        let column = |at: usize| self.named[at].unwrap_or(at) + 1;
        let filled = |at: Option<usize>| record.get(at?).filter(|field| !field.is_empty());
        if let Some(second) = self.second.filter(|_| filled(self.second).is_some()) {
            return Err(place.wrong(second + 1, "it is of a second setting, and a curve is of one"));
        }
        if self.failed.is_some() && filled(self.named[1]).is_none() {
            return Ok(None);
        }
        let number = |at: usize| -> Result<Option<f64>> {
            let Some(field) = filled(self.named[at]) else { return Ok(None) };
            match field.parse::<f64>() {
                Ok(value) if value.is_finite() && value >= 0.0 => Ok(Some(value)),
                Ok(_) => Err(place.wrong(column(at), format!("`{field}` is no {} of 0 or more", NAMES[at]))),
                Err(_) => Err(place.wrong(column(at), format!("`{field}` is no number"))),
            }
        };
        let needed = |at: usize| {
            number(at)?.ok_or_else(|| place.wrong(column(at), format!("the {} is missing", NAMES[at])))
        };
        let ci95 = number(2)?.zip(number(3)?).map(|(low, high)| [low, high]);
        if let Some([low, high]) = ci95.filter(|[low, high]| low > high) {
            return Err(place.wrong(column(3), format!("ci_high {high} is below ci_low {low}")));
        }
        let p99_us = number(4)?.map(|us| us.round() as u64);
        Ok(Some(Row { value: needed(0)?, rate: needed(1)?, ci95, p99_us }))
    }
}

/// The line of a record. Its position is where the record before it ended: empty lines and comments may lie between.
fn line(text: &[u8], position: Option<&csv::Position>) -> u64 {
    let Some(position) = position else { return 1 };
    let rest = text.get(position.byte() as usize..).unwrap_or_default();
    let is_skipped = |line: &&[u8]| line.trim_ascii().is_empty() || line.starts_with(b"#");
    position.line() + rest.split(|byte| *byte == b'\n').take_while(is_skipped).count() as u64
}

fn unreadable(error: &csv::Error) -> &'static str {
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "it is no text (UTF-8)",
        _ => "it is no CSV",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(f64, f64)> {
        let points = points("points.csv", text.as_bytes()).unwrap();
        points.iter().map(|point| (point.value.unwrap(), point.rate.unwrap())).collect()
    }

    #[test]
    fn columns_are_found_with_and_without_a_header() {
        let expected = [(100.0, 755.0), (125.0, 780.0)];
        for text in [
            "100,755\n125,780\n",
            "125, 780\r\n100, 755",
            "value,rate\n100,755\n125,780\n",
            "\u{feff}p99_us,rate,Value\n5,755,100\n,780,125\n",
            "# of 2001\nvalue,rate\n\n100,755.0\n125,7.8e2\n",
            // As `webdyno export --table points` has them.
            "value,value_2,rate,failed\n100,,755,\n110,,,the server was gone\n125,,780,\n",
        ] {
            assert_eq!(pairs(text), expected, "{text}");
        }
    }

    #[test]
    fn rows_of_one_value_are_its_repeats() {
        let found = points("-", b"4,100\n8,200\n4,110\n4,120\n").unwrap();
        assert_eq!((found.len(), found[0].rate, found[0].loads.len()), (2, Some(110.0), 3));
        let [low, high] = found[0].ci95.unwrap();
        assert!((low - 85.16).abs() < 0.1 && (high - 134.84).abs() < 0.1, "{low} {high}");
        assert_eq!((found[1].ci95, found[1].loads.len()), (None, 0));
        let told = points("-", b"value,rate,ci_low,ci_high,p99_us\n4,100,90,110,1500\n").unwrap();
        assert_eq!((told[0].ci95, told[0].p99_us), (Some([90.0, 110.0]), Some(1500)));
    }

    #[test]
    fn rubbish_has_its_line_and_column() {
        for (text, expected) in [
            ("", "p.csv holds no points"),
            ("value,rate\n", "p.csv holds no points"),
            ("100,755\n125,many\n", "p.csv:2: column 2: `many` is no number"),
            ("100,755\n\n-5,780\n", "p.csv:3: column 1: `-5` is no value of 0 or more"),
            ("# of 2001\nvalue,rate\n\n# slow\n100,many\n", "p.csv:5: column 2: `many` is no number"),
            ("100,755\n125,inf\n", "p.csv:2: column 2: `inf` is no rate of 0 or more"),
            ("100,755\n125\n", "p.csv:2: column 2: the rate is missing"),
            (
                "value,value_2,rate\n1,8,2\n",
                "p.csv:2: column 2: it is of a second setting, and a curve is of one",
            ),
            ("users,rps\n1,2\n", "p.csv:1: column 1: no column `value`; there are `users`, `rps`"),
            ("value,req\n1,2\n", "p.csv:1: column 1: no column `rate`; there are `value`, `req`"),
            ("value,rate,ci_low,ci_high\n1,2,3,1\n", "p.csv:2: column 4: ci_high 1 is below ci_low 3"),
        ] {
            let error = points("p.csv", text.as_bytes()).unwrap_err();
            assert_eq!((error.message.as_str(), error.exit_code()), (expected, 2));
            assert!(error.hint.is_some());
        }
        let error = points("p.csv", b"1,2\n\xff,3\n").unwrap_err();
        assert!(error.message.contains(":2: ") && error.message.contains("UTF-8"), "{}", error.message);
    }
}
