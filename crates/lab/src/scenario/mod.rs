//! A scenario: a faulty server, described by one folder: `scenario.toml`, the files of its hosts, and the files of its
//! load. One description serves the lab, the tests and the user guide.
//!
//! What the folder holds:
//! - `scenario.toml`: this structure;
//! - `HOST/...`: files that are laid over the host's own /etc, /srv and /var before its services start (`server/etc/
//!   apache2/mods-available/mpm_prefork.conf`); what is not given is as the distribution has it;
//! - anything else: files of the load, named from `load.flags` relative to the folder.

mod catalogue;
mod check;
mod read;
mod value_path;

pub use catalogue::{Catalogue, ScenarioFolder};
pub use check::FINDINGS;
pub use read::parse;
pub use value_path::did_you_mean;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use webdyno_model::{Result, UserError};

/// The host that the users are on.
pub const CLIENT: &str = "client";
/// The host that is tuned.
pub const SERVER: &str = "server";

/// A faulty server, and its story.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line, as a heading.
    pub title: String,
    /// Where it belongs in the list and in the guide.
    pub group: Group,
    /// What somebody runs into, in Markdown: the symptom first, then how it comes about.
    pub story: String,
    /// Machines besides `client` and `server`, which are always there, and what all of them have.
    #[serde(default)]
    pub hosts: BTreeMap<String, ScenarioHost>,
    /// Cables. Without any there is one between `client` and `server`, as fast as the machine.
    #[serde(default)]
    pub links: Vec<Link>,
    /// What has to change on the whole machine while the scenario is up: journaled, and put back by `down`.
    #[serde(default)]
    pub machine: MachineSettings,
    /// What runs on the hosts, in the order in which it starts.
    #[serde(default)]
    pub services: Vec<ScenarioService>,
    /// What the users ask for.
    pub load: ScenarioLoad,
    /// The story's turns: the first is the server as it was found, each later one a fix by hand and the same load again.
    pub rounds: Vec<ScenarioRound>,
}

/// The parts of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// A whole story with several rounds.
    Story,
    /// One fault.
    Fault,
    /// Several faults, of which one hides the next.
    Stacked,
    /// Nothing is wrong.
    Healthy,
    /// Drawn at random.
    Drawn,
}

/// A machine: namespaces and a control group of its own.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioHost {
    /// Memory that all its processes may use together, as `256M`.
    pub memory: Option<String>,
    /// Memory and swap together are `memory` + `swap`. Needs `machine.swap`. Without it there is no swap.
    pub swap: Option<String>,
    /// Processors' time: `0.5` is half of one.
    pub cpus: Option<f64>,
    /// Processors it may run on, as `0` or `0-1`.
    pub cores: Option<String>,
    /// Most processes.
    pub processes: Option<u32>,
    /// Kernel settings of its network namespace, as `"net.core.somaxconn" = 128`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, toml::Value>,
    /// Whether its firewall tracks connections.
    #[serde(default)]
    pub firewall: bool,
    /// Rules of nft(8) that are loaded besides, as a file in the host's folder.
    pub nft: Option<String>,
    /// File systems of its own, on files.
    #[serde(default)]
    pub disks: Vec<Disk>,
}

/// A disk: an ext4 file system in a file, mounted in the host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Where it is mounted in the host.
    pub path: String,
    /// How large it is, as `64M`.
    pub size: String,
    /// Whether every write waits for the disk (`mount -o sync`).
    #[serde(default)]
    pub sync: bool,
    /// Most reads a second.
    pub reads_per_s: Option<u64>,
    /// Most writes a second.
    pub writes_per_s: Option<u64>,
    /// Most bytes read a second, as `4M`.
    pub read_bytes_per_s: Option<String>,
    /// Most bytes written a second.
    pub write_bytes_per_s: Option<String>,
}

/// A cable between two hosts: a veth pair with the addresses 10.80.N.1 (first end) and 10.80.N.2, N counting the links
/// from 0. Each host knows the others by their names in /etc/hosts; of several addresses the one on a common link.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The hosts. The second one forwards for the first if a third is behind it.
    pub ends: [String; 2],
    /// Rate of what the first end sends, as `120mbit`, shaped by tbf on its interface.
    pub rate_there: Option<String>,
    /// Rate of what the second end sends.
    pub rate_back: Option<String>,
    /// Longest wait in the shaper's queue [default: 50ms].
    pub queue: Option<String>,
}

/// What has to change on the whole machine.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSettings {
    /// Kernel settings of the initial namespace.
    #[serde(default)]
    pub sysctl: BTreeMap<String, toml::Value>,
    /// A swap file of this size, as `512M`. Only control groups that may swap use it.
    pub swap: Option<String>,
}

/// Programs that the lab can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabProgram {
    /// Debian's Apache.
    Apache,
    /// Debian's PHP-FPM.
    PhpFpm,
    /// Debian's MariaDB.
    Mariadb,
    /// Debian's nginx.
    Nginx,
    /// A command line of the scenario's own.
    Command,
}

/// A program on a host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioService {
    /// Which.
    pub program: LabProgram,
    /// Where [default: server].
    #[serde(default = "server")]
    pub host: String,
    /// Apache: its multi-processing module: prefork, worker or event [default: event, as Debian has it].
    pub mpm: Option<String>,
    /// Apache: modules enabled besides Debian's usual ones; `-NAME` is one that is not.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Apache: sites enabled [default: 000-default].
    pub sites: Option<Vec<String>>,
    /// Apache: conf-available files enabled.
    #[serde(default)]
    pub confs: Vec<String>,
    /// `command`: the command line for sh(1), in the foreground. Its output is in /var/log/command.log of the host, that
    /// of the host's second one in command-2.log.
    pub command: Option<String>,
    /// When it is ready: a port that takes connections or the path of a socket or a file that must be there. The
    /// programs that the lab knows need none.
    pub ready: Option<String>,
    /// MariaDB: a file of SQL in the host's folder that is run once it answers.
    pub sql: Option<String>,
    /// A control group of its own below the host's: most processes.
    pub processes: Option<u32>,
    /// The same: memory.
    pub memory: Option<String>,
    /// The same: processors' time, as 0.25.
    pub cpus: Option<f64>,
    /// Most open files of each process (RLIMIT_NOFILE) [default: as Debian starts it: Apache 8192, MariaDB 32768, PHP-FPM
    /// and nginx 1024 that they may raise themselves; of `command` 8192].
    pub open_files: Option<u64>,
}

fn server() -> String {
    "server".into()
}

/// What the users ask for: arguments of `webdyno diagnose`, made from the host `client`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioLoad {
    /// What is asked for, as `http://server/`.
    #[serde(default)]
    pub urls: Vec<String>,
    /// The other flags, as somebody would type them: `-c 200 --no-keepalive -d 8s --warmup 2s`.
    pub flags: String,
}

/// One turn of the story.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioRound {
    /// A few words: `out of the box`, `225 workers`.
    pub name: String,
    /// What is learnt, in Markdown.
    #[serde(default)]
    pub text: String,
    /// What is typed on the server before the load, in sh(1): the fix.
    #[serde(default)]
    pub by_hand: Vec<String>,
    /// The same on other hosts, by their names; it comes before `by_hand`.
    #[serde(default)]
    pub by_hand_on: BTreeMap<String, Vec<String>>,
    /// New limits of hosts: what is given replaces what was. Of a host only `memory`, `swap`, `cpus`, `cores`,
    /// `processes` can change.
    #[serde(default)]
    pub hosts: BTreeMap<String, ScenarioHost>,
    /// New rates: the links with the same ends.
    #[serde(default)]
    pub links: Vec<Link>,
    /// New settings of the whole machine.
    #[serde(default)]
    pub machine: MachineSettings,
    /// Another load from here on.
    pub load: Option<ScenarioLoad>,
    /// The id of the finding that is the answer in this round; `healthy` where nothing limits.
    pub finding: String,
    /// Ids that may stand beside it.
    #[serde(default)]
    pub beside: Vec<String>,
    /// The id of what binds once the answer is mended.
    pub next_limit: Option<String>,
    /// What the right remedy sets, if one setting is the remedy.
    pub remedy: Option<ExpectedRemedy>,
    /// What must be seen, so that the fault is there: all of them.
    #[serde(default)]
    pub binds: Vec<Sign>,
    /// What must have come of the fix.
    #[serde(default)]
    pub gains: Vec<Gain>,
}

/// The setting that is the remedy of a round's finding, and the values that are acceptable.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRemedy {
    /// As findings name it: `apache`, `sysctl`, `php_fpm`, `mariadb`.
    pub service: String,
    /// Its name.
    pub setting: String,
    /// Smallest acceptable value.
    pub at_least: Option<f64>,
    /// Largest acceptable value.
    pub at_most: Option<f64>,
    /// The value, where it is a word.
    pub is: Option<String>,
}

/// Something that must be seen during a load: a statistic of a metric within bounds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sign {
    /// A metric of the server's samples (`conntrack.entries_count`) or of the load (`load.rate`, see `figures`).
    pub metric: String,
    /// What of it [default: max].
    #[serde(default)]
    pub take: SignStatistic,
    /// Divided by this metric's value at the same time, or by this number.
    pub of: Option<toml::Value>,
    /// Lower bound.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
}

/// A statistic over the seconds of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignStatistic {
    /// The largest.
    #[default]
    Max,
    /// The smallest.
    Min,
    /// The mean.
    Mean,
    /// Last minus first: of counters.
    Rise,
    /// The last.
    Last,
}

/// What must have come of a fix: this round's figure divided by an earlier one's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// A figure of the load [default: `load.rate`, good answers a second], or a metric of the samples.
    #[serde(default = "rate")]
    pub metric: String,
    /// What of a metric of the samples [default: mean].
    pub take: Option<SignStatistic>,
    /// The name of the round it is compared with [default: the one before].
    pub over: Option<String>,
    /// The ratio must be at least so large; of a rate, the lower end of its 95% interval.
    pub at_least: Option<f64>,
    /// At most so large; of a rate, the upper end.
    pub at_most: Option<f64>,
}

fn rate() -> String {
    "load.rate".into()
}

impl Scenario {
    /// The names of all hosts, `client` and `server` first.
    pub fn host_names(&self) -> Vec<String> {
        let others = self.hosts.keys().filter(|name| ![CLIENT, SERVER].contains(&name.as_str()));
        [CLIENT, SERVER].into_iter().map(str::to_owned).chain(others.cloned()).collect()
    }

    /// Whether there is a host of this name: `client` and `server` always are.
    pub fn has_host(&self, name: &str) -> bool {
        [CLIENT, SERVER].contains(&name) || self.hosts.contains_key(name)
    }
}

/// Flags as a shell splits them.
pub fn split_flags(flags: &str) -> Result<Vec<String>> {
    shlex::split(flags).ok_or_else(|| {
        UserError::usage(format!("the flags `{flags}` have a quote that is not closed"))
            .hint("write them as you would type them, as in -c 200 --no-keepalive -d 8s")
    })
}

/// A name as part of a path: `225 workers` becomes `225-workers`.
pub fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let mapped: String = name.chars().map(plain).collect();
    let words: Vec<&str> = mapped.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-").chars().take(60).collect()
}
