//! The flags of `webdyno predict`.

use super::usage::nearest;
use super::values::ParseResult;
use clap::Args;
use std::path::PathBuf;
use webdyno_analysis::diagnosis::prediction::{KNOWN, KnownSetting};
use webdyno_model::change::SettingChange;

/// `webdyno predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Run directory of a load with an observed server
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Suppose a setting: MaxRequestWorkers, pm.max_children, max_connections, cores, link_bits_per_s, memory_bytes
    ///
    /// Repeatable. The last three are the server's hardware; link_bits_per_s=250M, memory_bytes=2G. Of one of several pools of PHP-FPM:
    /// www.pm.max_children=40
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = supposed)]
    pub set: Vec<SettingChange>,
    /// Suppose so many users, or connections of a load without users
    #[arg(long, value_name = "N", value_parser = positive)]
    pub users: Option<f64>,
    /// Suppose so many arrivals per second, of a load that came at a rate
    #[arg(short, long, value_name = "R", value_parser = positive, conflicts_with = "users")]
    pub rate: Option<f64>,
    /// Write it as JSON to FILE (- for stdout)
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// More of anything is a slip of the finger.
const VALUE_MAX: f64 = 1e15;
/// A pool of more places than these is not reckoned with.
const PLACES_MAX: f64 = 100_000.0;

fn positive(text: &str) -> ParseResult<f64> {
    let value = text.parse::<f64>().ok().filter(|value| *value >= 1e-3 && *value <= VALUE_MAX);
    value.ok_or_else(|| "a number above 0".into())
}

/// `NAME=VALUE`, with the program in front of the name or without it.
fn supposed(text: &str) -> ParseResult<SettingChange> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE, as MaxRequestWorkers=200")?;
    let (known, pool) = find(name.trim()).ok_or_else(|| unknown(name.trim()))?;
    let number = amount(value.trim(), known.is_amount).filter(|number| *number > 0.0 && *number <= VALUE_MAX);
    let example = if known.is_amount { "a number above 0, as 250M," } else { "a number above 0" };
    let number = number.ok_or_else(|| format!("{example} for {}", known.name))?;
    let is_whole = known.is_amount || known.name == "cores" || number.fract() == 0.0;
    if !is_whole || (!known.is_amount && number > PLACES_MAX) {
        return Err(format!("a whole number up to {PLACES_MAX} for {}", known.name));
    }
    Ok(known.to(number, pool))
}

/// The setting of a name: `MaxRequestWorkers`, `apache.MaxRequestWorkers`, `www.pm.max_children`.
fn find(name: &str) -> Option<(KnownSetting, Option<&str>)> {
    let is = |one: &KnownSetting, name: &str| {
        one.name.eq_ignore_ascii_case(name)
            || (one.name == "MaxRequestWorkers" && name.eq_ignore_ascii_case("MaxClients"))
    };
    KNOWN.into_iter().find_map(|one| {
        if is(&one, name) {
            return Some((one, None));
        }
        let cut = name.len().checked_sub(one.name.len() + 1).filter(|cut| name.is_char_boundary(*cut))?;
        let (front, own) = name.split_at(cut);
        own.strip_prefix(['.', ' ']).filter(|own| is(&one, own))?;
        match front {
            _ if front == one.target => Some((one, None)),
            pool if one.target == "php_fpm" && !pool.is_empty() => Some((one, Some(pool))),
            _ => None,
        }
    })
}

fn unknown(name: &str) -> String {
    let meant = nearest(name, KNOWN.iter().map(|one| one.name));
    let meant = meant.map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)"));
    let names: Vec<&str> = KNOWN.iter().map(|one| one.name).collect();
    format!("a setting that the model knows, {}{meant}", names.join(", "))
}

/// A number, with a decimal multiple behind it where one may be there.
fn amount(text: &str, may_have_multiple: bool) -> Option<f64> {
    let multiple = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 1e3,
        'M' => 1e6,
        'G' => 1e9,
        _ => return text.parse().ok(),
    };
    may_have_multiple.then(|| text[..text.len() - 1].parse::<f64>().ok().map(|number| number * multiple))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_with_their_program_or_without() {
        for (text, name, to) in [
            ("MaxRequestWorkers=200", "apache MaxRequestWorkers", "200"),
            ("maxclients=200", "apache MaxRequestWorkers", "200"),
            ("apache.MaxRequestWorkers=200", "apache MaxRequestWorkers", "200"),
            ("pm.max_children=40", "php_fpm pm.max_children", "40"),
            ("www.pm.max_children=40", "php_fpm pm.max_children of pool www", "40"),
            ("php_fpm.pm.max_children = 40", "php_fpm pm.max_children", "40"),
            ("link_bits_per_s=250M", "hardware link_bits_per_s", "250000000"),
            ("cores=1.5", "hardware cores", "1.5"),
        ] {
            let change = supposed(text).unwrap();
            assert_eq!(
                (change.setting.full_name().as_str(), change.to.to_string().as_str()),
                (name, to),
                "{text}"
            );
        }
    }

    #[test]
    fn what_the_model_does_not_know_is_refused_with_what_it_does() {
        for (text, part) in [
            ("MaxRequestWorker=9", "memory_bytes (did you mean `MaxRequestWorkers`?)"),
            ("KeepAliveTimeout=5", "a setting that the model knows, MaxRequestWorkers, pm.max_children"),
            ("MaxRequestWorkers", "NAME=VALUE"),
            ("MaxRequestWorkers=0", "a number above 0 for MaxRequestWorkers"),
            ("MaxRequestWorkers=many", "a number above 0"),
            ("MaxRequestWorkers=2.5", "a whole number"),
            ("MaxRequestWorkers=2k", "a number above 0"),
            ("MaxRequestWorkers=1000000", "up to 100000"),
            ("cores=NaN", "a number above 0"),
        ] {
            let error = supposed(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
