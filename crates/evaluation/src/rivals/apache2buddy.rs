//! apache2buddy's advice by its published rules, in our words: Debian has no package of it.
//!
//! Facts: README.md and apache2buddy.pl of <https://github.com/richardforth/apache2buddy> (commit ad2e384). It divides the
//! memory that other services leave by the private writable memory of the largest worker (pmap(1)), and wants
//! MaxRequestWorkers between nine tenths of that and all of it: of prefork only. Of other MPMs it says that it calculates
//! nothing. It reads the error log for lines of limits that were reached, counts processes, and stops at a parent of more
//! than 50 MB. It knows other services by the names mysqld, php-fpm and some more: not Debian's mariadbd and php-fpm8.2.

use super::advice::{Advice, Direction};
use serde::{Deserialize, Serialize};
use webdyno_model::service::ServiceSnapshot;

/// The setting that it is about.
const WORKERS: &str = "MaxRequestWorkers";
/// From this share of what memory holds on, a value is right.
const TOLERANCE: f64 = 0.9;
/// A larger parent makes it stop.
const PARENT_KIB_MAX: f64 = 50_000.0;

/// What it looks at.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptInput {
    /// `prefork`, `worker`, `event`.
    pub mpm: String,
    /// As configured.
    pub max_request_workers: f64,
    /// As configured.
    pub server_limit: f64,
    /// The host's memory, whole MiB.
    pub memory_mib: f64,
    /// Memory of other services that it knows.
    pub services_mib: f64,
    /// Private writable memory of the parent.
    pub parent_kib: f64,
    /// That of the largest worker, rounded as it does.
    pub largest_mib: f64,
    /// The mean of all workers.
    pub average_mib: f64,
    /// Apache's processes, the parent with them.
    pub processes: f64,
    /// How long the parent runs.
    pub uptime_s: f64,
    /// Lines of the error log that tell of a limit that was reached.
    pub reached_lines: f64,
    /// Lines of its logs with fatal errors of PHP.
    pub php_fatal_lines: f64,
}

impl ScriptInput {
    /// Of what the script said and the running service. What is missing, in words, where something is.
    pub fn of(output: &str, service: &ServiceSnapshot, memory_bytes: u64) -> Result<Self, String> {
        let values = |wanted: &str| -> Vec<f64> {
            let words = output.lines().filter_map(|line| line.split_once(' '));
            words
                .filter(|(name, _)| *name == wanted)
                .filter_map(|(_, value)| value.trim().parse().ok())
                .collect()
        };
        let one = |name: &str| values(name).first().copied().ok_or(format!("no {name}"));
        let setting = |name: &str| {
            let known = service.settings.get(name);
            let value = known.and_then(|known| known.configured.as_ref().or(known.default.as_ref()));
            value.and_then(|value| value.number()).ok_or(format!("no {name}"))
        };
        let workers = values("worker_kib");
        let largest = workers.iter().copied().reduce(f64::max).ok_or("no worker_kib")?;
        Ok(Self {
            mpm: service.mode.clone().ok_or("no MPM")?,
            max_request_workers: setting(WORKERS)?,
            server_limit: setting("ServerLimit")?,
            memory_mib: (memory_bytes >> 20) as f64,
            services_mib: values("service_kib").iter().fold(0.0, |sum, kib| sum + kib) / 1024.0,
            parent_kib: one("parent_kib")?,
            largest_mib: rounded(largest / 1024.0),
            average_mib: rounded(workers.iter().sum::<f64>() / workers.len() as f64 / 1024.0),
            processes: one("processes")?,
            uptime_s: one("uptime_s")?,
            reached_lines: one("reached_lines")?,
            php_fatal_lines: one("php_fatal_lines")?,
        })
    }

    /// What it advises. That an Apache of less than a day may mislead it, it says each time.
    pub fn advice(&self) -> Vec<Advice> {
        let mut advice = vec![];
        if self.parent_kib > PARENT_KIB_MAX {
            return advice;
        }
        if self.mpm == "prefork" && self.max_request_workers > self.server_limit {
            let text =
                format!("{WORKERS} {} is above ServerLimit {}", self.max_request_workers, self.server_limit);
            advice.push(Advice::new("ServerLimit", Direction::Look, text));
        }
        if self.processes >= self.workers() {
            let text = format!("{} processes run, of {WORKERS} {}", self.processes, self.workers());
            advice.push(Advice::new(WORKERS, Direction::Look, text));
        }
        if self.reached_lines > 0.0 {
            advice.push(Advice::new(WORKERS, Direction::Look, format!("{WORKERS} was reached")));
        }
        if self.php_fatal_lines > 0.0 {
            let text = format!("{} fatal errors of PHP are in the logs", self.php_fatal_lines);
            advice.push(Advice::new("php", Direction::Look, text));
        }
        advice.extend(self.by_memory());
        advice
    }

    /// The value that it calculates with.
    fn workers(&self) -> f64 {
        let clips = self.mpm == "prefork";
        if clips { self.max_request_workers.min(self.server_limit) } else { self.max_request_workers }
    }

    /// The smallest and the largest value that it finds right.
    fn recommended_range(&self) -> Option<(f64, f64)> {
        let remaining = self.memory_mib - self.services_mib;
        if self.mpm != "prefork" || remaining < 0.0 || self.largest_mib <= 0.0 {
            return None;
        }
        let most = (remaining / self.largest_mib).floor();
        Some(((most * TOLERANCE).floor(), most))
    }

    fn by_memory(&self) -> Option<Advice> {
        let (least, most) = self.recommended_range()?;
        let workers = self.workers();
        let (way, word) = match () {
            () if workers < least => (Direction::Raise, "low"),
            () if workers > most => (Direction::Lower, "high"),
            () => return None,
        };
        let text = format!("{WORKERS} {workers} is too {word}: {least} to {most}");
        Some(Advice { to: Some(most), ..Advice::new(WORKERS, way, text) })
    }

    /// What it says where it advises nothing.
    pub fn no_advice_text(&self) -> String {
        match self.recommended_range() {
            _ if self.parent_kib > PARENT_KIB_MAX => {
                format!("stops: the parent uses {:.0} MB", self.parent_kib / 1000.0)
            }
            Some((least, most)) => format!("{WORKERS} {} is right: {least} to {most}", self.workers()),
            None if self.mpm == "prefork" => "stops: other services use more than there is".into(),
            None => "no advice: it calculates for prefork only".into(),
        }
    }
}

/// To a hundredth as it does: half a hundredth is added first, so that 6.492 becomes 6.50.
fn rounded(value: f64) -> f64 {
    format!("{:.2}", value + 0.005).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::service::{SettingInForce, SettingValue};

    fn prefork(workers: f64, memory_mib: f64, largest_mib: f64) -> ScriptInput {
        ScriptInput {
            mpm: "prefork".into(),
            max_request_workers: workers,
            server_limit: 256.0,
            memory_mib,
            largest_mib,
            processes: 6.0,
            ..ScriptInput::default()
        }
    }

    #[test]
    fn the_rules_as_a_table() {
        let right = prefork(150.0, 1600.0, 10.0);
        for (observed, reported) in [
            (prefork(150.0, 2000.0, 10.0), vec!["MaxRequestWorkers 150 is too low: 180 to 200"]),
            (prefork(150.0, 1000.0, 10.0), vec!["MaxRequestWorkers 150 is too high: 90 to 100"]),
            (right.clone(), vec![]),
            // Exactly the bounds are right: 0.9 of 166 is 149.4.
            (prefork(149.0, 1660.0, 10.0), vec![]),
            (prefork(148.0, 1660.0, 10.0), vec!["MaxRequestWorkers 148 is too low: 149 to 166"]),
            // What others use is not there.
            (
                ScriptInput { services_mib: 600.0, ..prefork(150.0, 1600.0, 10.0) },
                vec!["MaxRequestWorkers 150 is too high: 90 to 100"],
            ),
            // ServerLimit counts where it is smaller.
            (prefork(400.0, 2560.0, 10.0), vec!["MaxRequestWorkers 400 is above ServerLimit 256"]),
            (ScriptInput { parent_kib: 50_001.0, ..prefork(150.0, 1000.0, 10.0) }, vec![]),
            (ScriptInput { services_mib: 1601.0, ..right.clone() }, vec![]),
            (ScriptInput { mpm: "event".into(), ..prefork(150.0, 1000.0, 10.0) }, vec![]),
            (
                ScriptInput { mpm: "event".into(), reached_lines: 1.0, ..prefork(150.0, 1000.0, 10.0) },
                vec!["MaxRequestWorkers was reached"],
            ),
            (
                ScriptInput { processes: 151.0, php_fatal_lines: 3.0, ..right.clone() },
                vec!["151 processes run, of MaxRequestWorkers 150", "3 fatal errors of PHP are in the logs"],
            ),
        ] {
            let advice = observed.advice();
            assert_eq!(
                advice.iter().map(|one| one.text.as_str()).collect::<Vec<_>>(),
                reported,
                "{observed:?}"
            );
        }
        let high = prefork(150.0, 1000.0, 10.0).advice();
        assert_eq!((high[0].way, high[0].to), (Direction::Lower, Some(100.0)));
    }

    #[test]
    fn it_comes_to_the_same_as_the_script() {
        // What the script said of two prefork servers of 24105 MB: workers, the largest one's memory, and its words.
        for (workers, largest_kib, largest_mib, reported) in [
            (150.0, 6648.0, 6.5, "MaxRequestWorkers 150 is too low: 3337 to 3708"),
            (4000.0, 8712.0, 8.51, "MaxRequestWorkers 4000 is too high: 2548 to 2832"),
        ] {
            assert_eq!(rounded(largest_kib / 1024.0), largest_mib);
            let observed = ScriptInput { server_limit: 4000.0, ..prefork(workers, 24_105.0, largest_mib) };
            assert_eq!(observed.advice()[0].text, reported);
        }
    }

    #[test]
    fn where_it_advises_nothing_it_says_why() {
        let right = prefork(150.0, 1600.0, 10.0);
        for (observed, reported) in [
            (right.clone(), "MaxRequestWorkers 150 is right: 144 to 160"),
            (ScriptInput { parent_kib: 82_000.0, ..right.clone() }, "stops: the parent uses 82 MB"),
            (
                ScriptInput { services_mib: 1601.0, ..right.clone() },
                "stops: other services use more than there is",
            ),
            (ScriptInput { mpm: "worker".into(), ..right }, "no advice: it calculates for prefork only"),
        ] {
            assert_eq!(observed.no_advice_text(), reported);
        }
    }

    #[test]
    fn what_the_script_says_is_read() {
        let setting = |value| SettingInForce {
            configured: value,
            default: Some(SettingValue::Integer(256)),
            running: None,
            file: None,
            line: None,
        };
        let settings = [(WORKERS, Some(SettingValue::Integer(20))), ("ServerLimit", None)];
        let service = ServiceSnapshot {
            mode: Some("prefork".into()),
            settings: settings.map(|(name, value)| (name.to_owned(), setting(value))).into(),
            ..ServiceSnapshot::default()
        };
        let output = "parent_kib 1468\nworker_kib 2048\nworker_kib 4096\nprocesses 3\nuptime_s       9\n\
                    service_kib 1024\nservice_kib 512\nreached_lines 1\nphp_fatal_lines 0\n";
        let observed = ScriptInput::of(output, &service, 192 << 20).unwrap();
        let expected = ScriptInput {
            server_limit: 256.0,
            services_mib: 1.5,
            parent_kib: 1468.0,
            average_mib: 3.0,
            processes: 3.0,
            uptime_s: 9.0,
            reached_lines: 1.0,
            ..prefork(20.0, 192.0, 4.0)
        };
        assert_eq!(observed, expected);
        let none = ScriptInput::of(&output.replace("worker_kib", "x"), &service, 192 << 20);
        assert_eq!(none.unwrap_err(), "no worker_kib");
    }
}
