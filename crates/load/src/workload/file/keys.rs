//! Tables of a workload file, key by key: each knows where it stands, so that what is wrong with it can be shown.

use super::source_span::{FileError, FileResult, SourceSpan};
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use webdyno_model::duration::parse_duration_us;

/// A table whose keys are all known.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableKeys<'t> {
    /// Its place in the file.
    pub(super) at: SourceSpan,
    /// What it is, as in "a request".
    pub(super) what: &'static str,
    table: &'t DeTable<'t>,
}

/// What a key is set to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'t> {
    /// Its place in the file.
    pub(super) at: SourceSpan,
    pub(super) key: &'t str,
    value: &'t DeValue<'t>,
}

impl<'t> TableKeys<'t> {
    /// A table, all of whose keys must be among the known ones.
    pub(super) fn new(
        at: SourceSpan,
        table: &'t DeTable<'t>,
        what: &'static str,
        known: &'static [&'static str],
    ) -> FileResult<Self> {
        let keys = Self { at, what, table };
        match keys.all().into_iter().find(|(name, _, _)| !known.contains(name)) {
            None => Ok(keys),
            Some((name, at, _)) => Err(FileError::new(at, format!("`{name}` is not a key of {what}"))
                .did_you_mean(name, known.iter().copied())),
        }
    }

    /// All keys with their places and values, in the order in which they were written.
    pub(super) fn all(&self) -> Vec<(&'t str, SourceSpan, Value<'t>)> {
        let mut all: Vec<_> = self.table.iter().map(|(key, value)| self.entry(key, value)).collect();
        all.sort_by_key(|(_, at, _)| at.start());
        all
    }

    fn entry(
        &self,
        key: &'t Spanned<toml::de::DeString<'t>>,
        value: &'t Spanned<DeValue<'t>>,
    ) -> (&'t str, SourceSpan, Value<'t>) {
        let name = key.get_ref().as_ref();
        let place = |span| SourceSpan::new(self.at.file, span);
        (name, place(key.span()), Value { at: place(value.span()), key: name, value: value.get_ref() })
    }

    /// What a key is set to.
    pub(super) fn get(&self, name: &str) -> Option<Value<'t>> {
        self.table.get_key_value(name).map(|(key, value)| self.entry(key, value).2)
    }

    /// What a key is set to that must be there.
    pub(super) fn required(&self, name: &'static str, example: &str) -> FileResult<Value<'t>> {
        self.get(name).ok_or_else(|| {
            FileError::new(self.at, format!("{} needs `{name}`", self.what)).hint(format!("as in {example}"))
        })
    }

    /// Reads a key with `how`, if it is there.
    pub(super) fn read<T>(
        &self,
        name: &str,
        how: impl FnOnce(&Value<'t>) -> FileResult<T>,
    ) -> FileResult<Option<T>> {
        self.get(name).as_ref().map(how).transpose()
    }

    /// Which of these keys is there; an error for two of them.
    pub(super) fn one_of(&self, names: &[&'static str]) -> FileResult<Option<Value<'t>>> {
        let mut there = self.all().into_iter().filter(|(name, _, _)| names.contains(name));
        let first = there.next();
        match (&first, there.next()) {
            (Some((one, _, _)), Some((other, at, _))) => Err(FileError::new(
                at,
                format!("{} has both `{one}` and `{other}`, and it can have one of them", self.what),
            )
            .hint(format!("leave one of them out: {}", names.join(", ")))),
            _ => Ok(first.map(|(_, _, value)| value)),
        }
    }
}

impl<'t> Value<'t> {
    /// What it is, in words.
    fn kind(&self) -> String {
        match self.value {
            DeValue::String(text) if text.len() <= 24 => format!("the text \"{}\"", text.escape_debug()),
            DeValue::String(_) => "a text".into(),
            DeValue::Integer(number) => format!("the number {number}"),
            DeValue::Float(number) => format!("the number {number}"),
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Datetime(_) => "a date".into(),
            DeValue::Array(_) => "a list".into(),
            DeValue::Table(_) => "a table".into(),
        }
    }

    /// It is not what is wanted; `example` is.
    pub(super) fn type_error(&self, wanted: &str, example: &str) -> Box<FileError> {
        FileError::new(self.at, format!("`{}` is {}, and {wanted} is wanted", self.key, self.kind()))
            .hint(format!("write it as in {} = {example}", self.key))
    }

    pub(super) fn text(&self) -> FileResult<&'t str> {
        self.as_text().ok_or_else(|| self.type_error("a text", "\"words\""))
    }

    pub(super) fn as_text(&self) -> Option<&'t str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// A text that is not empty.
    pub(super) fn non_empty_text(&self) -> FileResult<&'t str> {
        match self.text()? {
            "" => Err(self.type_error("one that is not empty", "\"words\"")),
            text => Ok(text),
        }
    }

    /// A text, or a number or truth value as it is written.
    pub(super) fn plain(&self) -> FileResult<String> {
        Ok(match self.value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(_) => self.integer()?.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            _ => return Err(self.type_error("a text, a number, true or false", "\"words\"")),
        })
    }

    /// True or false.
    pub(super) fn flag(&self) -> FileResult<bool> {
        match self.value {
            DeValue::Boolean(flag) => Ok(*flag),
            _ => Err(self.type_error("true or false", "true")),
        }
    }

    fn integer(&self) -> FileResult<i64> {
        match self.value {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        }
        .ok_or_else(|| self.type_error("a whole number of at most 63 bits", "1"))
    }

    /// A whole number within bounds.
    pub(super) fn integer_in(&self, range: RangeInclusive<u64>) -> FileResult<u64> {
        let example = (*range.start()).max(1).to_string();
        let wanted = || {
            self.type_error(&format!("a whole number from {} to {}", range.start(), range.end()), &example)
        };
        match self.value {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        }
        .filter(|number| range.contains(number))
        .ok_or_else(wanted)
    }

    /// The same of 32 bits.
    pub(super) fn u32_in(&self, range: RangeInclusive<u32>) -> FileResult<u32> {
        let number = self.integer_in(u64::from(*range.start())..=u64::from(*range.end()))?;
        u32::try_from(number).map_err(|_| self.type_error("a smaller number", "1"))
    }

    /// A number that is finite, if it is one.
    pub(super) fn as_number(&self) -> Option<f64> {
        match self.value {
            DeValue::Integer(_) => self.integer().ok().map(|number| number as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        }
        .filter(|number: &f64| number.is_finite())
    }

    /// A number above 0 and at most `most`.
    pub(super) fn above_zero(&self, most: f64) -> FileResult<f64> {
        self.as_number()
            .filter(|number| *number > 0.0 && *number <= most)
            .ok_or_else(|| self.type_error(&format!("a number above 0 and at most {most}"), "1"))
    }

    /// A number from `least` to `most`.
    pub(super) fn between(&self, least: f64, most: f64) -> FileResult<f64> {
        self.as_number().filter(|number| (least..=most).contains(number)).ok_or_else(|| {
            self.type_error(
                &format!("a number from {least} to {most}"),
                &least.max(0.5).min(most).to_string(),
            )
        })
    }

    /// A time with its unit, longer than nothing, in microseconds.
    pub(super) fn time_us(&self) -> FileResult<u64> {
        self.as_text()
            .and_then(parse_duration_us)
            .filter(|us| *us > 0)
            .ok_or_else(|| self.type_error("a time with its unit", "\"500ms\", \"10s\" or \"2m\""))
    }

    /// The tables of a list of them, which is what follows `[[name]]`.
    pub(super) fn tables(&self, name: &str) -> FileResult<Vec<Value<'t>>> {
        self.as_list().ok_or_else(|| {
            let error = self.type_error("a list of tables", "");
            error.hint(format!("write [[{name}]], in two pairs of brackets, before each"))
        })
    }

    /// The elements of a list, if it is one.
    pub(super) fn as_list(&self) -> Option<Vec<Value<'t>>> {
        let DeValue::Array(list) = self.value else { return None };
        let element = |value: &'t Spanned<DeValue<'t>>| Value {
            at: SourceSpan::new(self.at.file, value.span()),
            key: self.key,
            value: value.get_ref(),
        };
        Some(list.iter().map(element).collect())
    }

    /// A list of texts.
    pub(super) fn texts(&self) -> FileResult<Vec<(SourceSpan, &'t str)>> {
        self.as_list()
            .ok_or_else(|| self.type_error("a list of texts", "[\"words\"]"))?
            .iter()
            .map(|value| Ok((value.at, value.text()?)))
            .collect()
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    /// A table with known keys.
    pub(super) fn keys(
        &self,
        what: &'static str,
        known: &'static [&'static str],
    ) -> FileResult<TableKeys<'t>> {
        match self.value {
            DeValue::Table(table) => TableKeys::new(self.at, table, what, known),
            _ => Err(self.type_error("a table", "{ .. }")),
        }
    }

    /// A table with keys of the user's own, in their order.
    pub(super) fn entries(&self, what: &'static str) -> FileResult<Vec<(&'t str, SourceSpan, Value<'t>)>> {
        match self.value {
            DeValue::Table(table) => Ok(TableKeys { at: self.at, what, table }.all()),
            _ => Err(self.type_error("a table", "{ .. }")),
        }
    }

    /// As a JSON text; objects keep the order in which they were written. `string` writes the texts.
    pub(super) fn json(&self, into: &mut String, string: &dyn Fn(&str) -> String) -> FileResult<()> {
        match self.value {
            DeValue::String(text) => into.push_str(&string(text)),
            DeValue::Integer(_) => into.push_str(&self.integer()?.to_string()),
            DeValue::Float(_) => match self.as_number() {
                Some(number) => into.push_str(&number.to_string()),
                None => return Err(self.type_error("a number that JSON has", "1")),
            },
            DeValue::Boolean(flag) => into.push_str(&flag.to_string()),
            DeValue::Datetime(date) => into.push_str(&string(&date.to_string())),
            DeValue::Array(_) => {
                into.push('[');
                for (index, element) in self.as_list().unwrap_or_default().iter().enumerate() {
                    into.push_str(if index > 0 { "," } else { "" });
                    element.json(into, string)?;
                }
                into.push(']');
            }
            DeValue::Table(_) => {
                into.push('{');
                for (index, (name, _, value)) in self.entries("a JSON object")?.iter().enumerate() {
                    into.push_str(if index > 0 { "," } else { "" });
                    into.push_str(&string(name));
                    into.push(':');
                    value.json(into, string)?;
                }
                into.push('}');
            }
        }
        Ok(())
    }
}
