//! Catalogues of machines: a TOML file, a CSV by its header, or the generic sizes of the program. What is wrong is reported with its
//! line; what a machine does not name is unknown, but for its name and its cores.

use crate::cli::size::amount;
use csv::{ReaderBuilder, Trim};
use serde::{Deserialize, Deserializer};
use std::path::Path;
use webdyno_model::error::io_error;
use webdyno_model::sizing::{Machine, MachineCatalogue};
use webdyno_model::{Result, UserError};

const GENERIC: &str = include_str!("generic.toml");
const HINT: &str = "a machine has name and cores, and where known memory, network, disk_read, price, speed: name = \"small\", cores = 2, \
                    memory = \"4G\", network = \"1G\"";
/// No list of machines is larger.
const BYTES_MAX: u64 = 16 << 20;
/// No machine has more.
const CORES_MAX: f64 = 10_000.0;

/// The catalogue of a file, or the generic one.
pub fn read(path: Option<&Path>) -> Result<MachineCatalogue> {
    let Some(path) = path else { return of_toml("the generic sizes", GENERIC) };
    let name = path.display().to_string();
    let wrong = |error: std::io::Error| io_error("read", &name, &error).hint(HINT);
    let length = std::fs::metadata(path).map_err(wrong)?.len();
    if length > BYTES_MAX {
        return Err(UserError::usage(format!("{name} is larger than 16 MiB, which no list of machines is"))
            .hint(HINT));
    }
    let text = std::fs::read_to_string(path).map_err(wrong)?;
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")) {
        true => of_csv(&name, &text),
        false => of_toml(&name, &text),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    currency: Option<String>,
    #[serde(default)]
    machine: Vec<toml::Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    cores: f64,
    #[serde(default, deserialize_with = "quantity")]
    memory: Option<f64>,
    #[serde(default, deserialize_with = "quantity")]
    network: Option<f64>,
    #[serde(default, deserialize_with = "quantity")]
    disk_read: Option<f64>,
    price: Option<f64>,
    speed: Option<f64>,
}

/// `4000000000` or `"4G"`.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<f64>, D::Error> {
    let text = match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => text,
        other => other.to_string(),
    };
    amount(&text).map(Some).map_err(|wanted| serde::de::Error::custom(format!("`{text}` is not {wanted}")))
}

fn of_toml(name: &str, text: &str) -> Result<MachineCatalogue> {
    let line = |at: usize| text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
    let wrong =
        |at: usize, message: &str| UserError::usage(format!("{name}:{}: {message}", line(at))).hint(HINT);
    let file: File = toml::from_str(text)
        .map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
    let machines = file.machine.into_iter().map(|entry| {
        let at = entry.span().start;
        let entry = entry.into_inner();
        let machine = Machine {
            name: entry.name,
            cores: entry.cores,
            memory_bytes: entry.memory,
            nic_bit_s: entry.network,
            disk_read_bytes_per_s: entry.disk_read,
            price: entry.price,
            speed: entry.speed,
        };
        checked(machine).map_err(|message| wrong(at, &message))
    });
    finished(name, file.currency, machines.collect::<Result<_>>()?)
}

const COLUMNS: [&str; 7] = ["name", "cores", "memory", "network", "disk_read", "price", "speed"];

fn of_csv(name: &str, text: &str) -> Result<MachineCatalogue> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader =
        ReaderBuilder::new().flexible(true).trim(Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let wrong = |line: u64, message: &str| UserError::usage(format!("{name}:{line}: {message}")).hint(HINT);
    let header = reader.headers().map_err(|_| wrong(1, "it is no CSV"))?.clone();
    let places = COLUMNS.map(|wanted| header.iter().position(|column| column.eq_ignore_ascii_case(wanted)));
    if let Some((lacking, _)) = COLUMNS.iter().zip(places).take(2).find(|(_, place)| place.is_none()) {
        let there: Vec<&str> = header.iter().collect();
        return Err(wrong(1, &format!("no column `{lacking}`; there are `{}`", there.join("`, `"))));
    }
    let mut machines = vec![];
    for record in reader.records() {
        let record =
            record.map_err(|error| wrong(error.position().map_or(1, csv::Position::line), "it is no CSV"))?;
        let line = record.position().map_or(1, csv::Position::line);
        let field =
            |at: usize| places[at].and_then(|place| record.get(place)).filter(|field| !field.is_empty());
        let number = |at: usize| -> Result<Option<f64>> {
            let value = field(at).map(|text| {
                amount(text).map_err(|wanted| format!("{} `{text}` is not {wanted}", COLUMNS[at]))
            });
            value.transpose().map_err(|message| wrong(line, &message))
        };
        let machine = Machine {
            name: field(0).unwrap_or_default().to_owned(),
            cores: number(1)?.ok_or_else(|| wrong(line, "the cores are missing"))?,
            memory_bytes: number(2)?,
            nic_bit_s: number(3)?,
            disk_read_bytes_per_s: number(4)?,
            price: number(5)?,
            speed: number(6)?,
        };
        machines.push(checked(machine).map_err(|message| wrong(line, &message))?);
    }
    finished(name, None, machines)
}

fn checked(machine: Machine) -> std::result::Result<Machine, String> {
    let Machine { name, cores, .. } = &machine;
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    if name.trim().is_empty() {
        return Err("the name of a machine is missing".into());
    }
    if !is_positive(*cores) || *cores > CORES_MAX {
        return Err(format!("`{name}` has {cores} cores, which is no number above 0 up to {CORES_MAX}"));
    }
    let others = [("price", machine.price), ("speed", machine.speed)];
    match others.into_iter().find(|(_, value)| value.is_some_and(|value| !is_positive(value))) {
        Some((what, value)) => {
            Err(format!("the {what} of `{name}`, {}, is no number above 0", value.unwrap_or(0.0)))
        }
        None => Ok(machine),
    }
}

fn finished(source: &str, currency: Option<String>, machines: Vec<Machine>) -> Result<MachineCatalogue> {
    let names: Vec<&str> = machines.iter().map(|one| one.name.as_str()).collect();
    if let Some(twice) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
        return Err(UserError::usage(format!("{source} has two machines `{}`", twice.1))
            .hint("give each a name of its own"));
    }
    if machines.is_empty() {
        return Err(UserError::usage(format!("{source} holds no machine")).hint(HINT));
    }
    Ok(MachineCatalogue { source: source.into(), currency, machines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_say_the_same_and_what_is_not_named_is_unknown() {
        let toml = "currency = \"EUR\"\n[[machine]]\nname = \"a\"\ncores = 2\nmemory = \"4G\"\nnetwork = 1000000000\nprice = 9.5\n\
                    [[machine]]\nname = \"b\"\ncores = 4\n";
        let csv = "\u{feff}Cores,name,memory,network,price\n2,a,4 GB,1G,9.5\n# a comment\n4,b,,,\n";
        let (of_toml, of_csv) = (of_toml("x", toml).unwrap(), of_csv("x", csv).unwrap());
        assert_eq!(of_toml.machines, of_csv.machines);
        assert_eq!((of_toml.currency.as_deref(), of_csv.currency), (Some("EUR"), None));
        assert_eq!(of_toml.machines[0].memory_bytes, Some(4e9));
        assert_eq!(of_toml.machines[1], Machine { name: "b".into(), cores: 4.0, ..Machine::default() });
        assert_eq!(read(None).unwrap().machines.len(), 21);
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        for (text, expected) in [
            ("[[machine]]\nname = \"a\"\n", "c:1: missing field `cores`"),
            ("\n[[machine]]\ncores = 2\n", "missing field `name`"),
            ("[[machine]]\nname = \"a\"\ncores = \"two\"\n", "c:3: "),
            ("[[machine]]\nname = \"a\"\ncores = 2\nmemory = \"much\"\n", "`much` is not a number above 0"),
            ("[[machine]]\nname = \"a\"\ncores = 2\nram = 4\n", "c:4: unknown field `ram`"),
            ("[[machine]]\nname = \"a\"\ncores = -1\n", "c:1: `a` has -1 cores"),
            (
                "[[machine]]\nname = \"a\"\ncores = 1\n[[machine]]\nname = \"a\"\ncores = 2\n",
                "two machines `a`",
            ),
            (
                "[[machine]]\nname = \"a\"\ncores = 2\nprice = 0\n",
                "the price of `a`, 0, is no number above 0",
            ),
            ("", "c holds no machine"),
            ("machine", "c:1: "),
        ] {
            let error = of_toml("c", text).unwrap_err();
            assert!(error.message.contains(expected), "{text}: {}", error.message);
            assert_eq!((error.exit_code(), error.hint.is_some()), (2, true), "{text}");
        }
        for (text, expected) in [
            ("name,memory\na,2\n", "c:1: no column `cores`; there are `name`, `memory`"),
            ("name,cores\na,2\nb,\n", "c:3: the cores are missing"),
            ("name,cores,price\na,2,free\n", "c:2: price `free` is not a number"),
            ("name,cores\n,2\n", "c:2: the name of a machine is missing"),
            ("name,cores\n", "c holds no machine"),
        ] {
            let error = of_csv("c", text).unwrap_err();
            assert!(error.message.contains(expected) && error.exit_code() == 2, "{text}: {}", error.message);
        }
    }

    #[test]
    fn whatever_a_file_holds_is_read_or_refused() {
        let csv = "name,cores,memory,network,price\na,2,4 GB,1G,9.5\n\"b\",4,,,\n";
        for text in [GENERIC, csv] {
            let cuts = (0..text.len()).step_by(7).filter(|cut| text.is_char_boundary(*cut));
            for cut in cuts {
                for (begin, end) in [(0, cut), (cut, text.len())] {
                    for rubbish in ["", "\u{0}", "=", "\"", "[[", "\u{feff}é,"] {
                        let broken = format!("{}{rubbish}{}", &text[begin..cut], &text[cut..end]);
                        let results = [of_toml("c", &broken), of_csv("c", &broken)];
                        assert!(
                            results.into_iter().flatten().all(|one| !one.machines.is_empty()),
                            "{broken}"
                        );
                    }
                }
            }
        }
    }
}
