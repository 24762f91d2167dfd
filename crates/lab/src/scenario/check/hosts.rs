//! Hosts, links between them, and what changes on the machine: sizes, rates and names that can be made.
//!
//! Facts: cpuset (cgroups(7), lists as `0-1,3`), tc-tbf(8) (times), sysctl(8) (names), interface names of hosts
//! (hostname(7)).

use super::{Check, below};
use crate::scenario::value_path::PathStep;
use crate::scenario::{Disk, Link, MachineSettings, ScenarioHost};
use crate::units;
use std::collections::{BTreeMap, BTreeSet};
use webdyno_model::{Result, UserError};

/// Folders of a host's own that it has from its start: a disk in one of them takes over what the host has there.
const OWN: [&str; 4] = ["/etc", "/root", "/srv", "/var"];

/// A shell alone needs two; with less it is a slip of the pen, such as a size without its unit.
const MEMORY_BYTES_MIN: u64 = 4 << 20;

impl Check<'_> {
    pub(super) fn hosts(&self) -> Result<()> {
        for (name, host) in &self.folder.scenario.hosts {
            let at = ["hosts".into(), PathStep::Key(name)];
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.len() > 15
                || !name.chars().all(plain)
                || !name.starts_with(|c: char| c.is_ascii_lowercase())
            {
                let reported = self.wrong(&at, format!("`{name}` is no name of a host"));
                return Err(
                    reported.hint("small letters, digits and hyphens, a letter first, at most 15 of them")
                );
            }
            self.limits(&at, host)?;
            self.kernel_settings(&at, &host.sysctl, Some("net."))?;
            for (index, disk) in host.disks.iter().enumerate() {
                self.disk(&below(&at, &["disks".into(), index.into()]), disk)?;
            }
            if let Some(nft) = &host.nft {
                self.file(&below(&at, &["nft".into()]), &format!("{name}/"), nft)?;
            }
        }
        Ok(())
    }

    /// What of a host can change from round to round.
    pub(super) fn limits(&self, at: &[PathStep<'_>], host: &ScenarioHost) -> Result<()> {
        let memory = below(at, &["memory".into()]);
        self.size(&memory, host.memory.as_deref())?;
        let bytes = host.memory.as_deref().and_then(|size| units::bytes(size).ok());
        if let Some(bytes) = bytes.filter(|bytes| *bytes < MEMORY_BYTES_MIN) {
            let text = format!("with {bytes} bytes of memory nothing can be started");
            return Err(self.wrong(&memory, text).hint("as in: memory = \"256M\""));
        }
        self.size(&below(at, &["swap".into()]), host.swap.as_deref())?;
        let swap = below(at, &["swap".into()]);
        if host.swap.is_some() && self.folder.scenario.machine.swap.is_none() {
            let reported = self.wrong(&swap, "a host can swap only where the machine has swap for it");
            return Err(reported.hint("as in: [machine] swap = \"512M\""));
        }
        if host.swap.is_some() && host.memory.is_none() && !self.has_memory(at) {
            return Err(self
                .wrong(&swap, "swap counts beyond a limit of memory, and there is none")
                .hint("as in: memory = \"256M\""));
        }
        self.cpus(&below(at, &["cpus".into()]), host.cpus)?;
        if let Some(cores) = host.cores.as_deref().filter(|cores| !is_list(cores)) {
            let reported = self.wrong(&below(at, &["cores".into()]), format!("`{cores}` names no cores"));
            return Err(reported.hint("as in: cores = \"0\", or \"0-1\""));
        }
        if host.processes.is_some_and(|processes| processes < 8) {
            let reported = self.wrong(
                &below(at, &["processes".into()]),
                "with fewer than 8 processes nothing can be started",
            );
            return Err(reported.hint("a limit for one service alone belongs to that service"));
        }
        Ok(())
    }

    /// Of a host or of a service.
    pub(super) fn cpus(&self, at: &[PathStep<'_>], cpus: Option<f64>) -> Result<()> {
        match cpus.is_none_or(|cpus| (0.01..=1024.0).contains(&cpus)) {
            true => Ok(()),
            false => Err(self.wrong(at, "processors are a number, as 0.5 or 2.0")),
        }
    }

    /// Whether a host that is changed has a limit of memory from the start.
    fn has_memory(&self, at: &[PathStep<'_>]) -> bool {
        let Some(PathStep::Key(name)) = at.last() else { return false };
        self.folder.scenario.hosts.get(*name).is_some_and(|host| host.memory.is_some())
    }

    fn size(&self, at: &[PathStep<'_>], size: Option<&str>) -> Result<()> {
        size.map_or(Ok(0), units::bytes).map(|_| ()).map_err(|error| self.error_with_cause(at, error))
    }

    pub(super) fn kernel_settings(
        &self,
        at: &[PathStep<'_>],
        settings: &BTreeMap<String, toml::Value>,
        within: Option<&str>,
    ) -> Result<()> {
        for (name, value) in settings {
            let at = below(at, &["sysctl".into(), PathStep::Key(name)]);
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            if !name.contains('.') || !name.chars().all(plain) || name.contains("..") {
                let reported = self.wrong(&at, format!("`{name}` is no name of a kernel setting"));
                return Err(reported.hint("in quotes, as in: \"net.core.somaxconn\" = 128"));
            }
            if within.is_some_and(|within| !name.starts_with(within)) {
                let reported = self.wrong(&at, format!("`{name}` is no setting of a network namespace"));
                return Err(reported.hint("what the whole machine has belongs to [machine.sysctl]"));
            }
            if !(value.is_integer() || value.is_str()) {
                return Err(self.wrong(&at, "the value of a kernel setting is a whole number or a text"));
            }
        }
        Ok(())
    }

    fn disk(&self, at: &[PathStep<'_>], disk: &Disk) -> Result<()> {
        let is_below = |own: &&str| {
            disk.path.strip_prefix(*own).is_some_and(|rest| rest.starts_with('/') && rest.len() > 1)
        };
        if disk.path.contains("..") || !OWN.iter().any(is_below) {
            let reported = self
                .wrong(&below(at, &["path".into()]), format!("nothing can be mounted at `{}`", disk.path));
            return Err(reported.hint(format!("a path below one of {}", OWN.join(", "))));
        }
        self.size(&below(at, &["size".into()]), Some(&disk.size))?;
        self.size(&below(at, &["read_bytes_per_s".into()]), disk.read_bytes_per_s.as_deref())?;
        self.size(&below(at, &["write_bytes_per_s".into()]), disk.write_bytes_per_s.as_deref())?;
        for (key, rate) in [("reads_per_s", disk.reads_per_s), ("writes_per_s", disk.writes_per_s)] {
            if rate == Some(0) {
                return Err(self.wrong(&below(at, &[key.into()]), "with 0 a second nothing would ever end"));
            }
        }
        Ok(())
    }

    pub(super) fn links(&self) -> Result<()> {
        let scenario = &self.folder.scenario;
        let mut known: BTreeSet<[&str; 2]> = BTreeSet::new();
        for (index, link) in scenario.links.iter().enumerate() {
            let at: [PathStep<'_>; 2] = ["links".into(), index.into()];
            self.link(&at, link)?;
            let mut ends = link.ends.each_ref().map(String::as_str);
            ends.sort_unstable();
            if !known.insert(ends) {
                return Err(self.wrong(&at, format!("{} and {} are linked twice", ends[0], ends[1])));
            }
        }
        if known.is_empty() {
            known.insert(["client", "server"]);
        }
        let mut reached = BTreeSet::from(["client"]);
        // Each pass reaches the next ones, so that as many passes as there are links reach all.
        for _ in 0..known.len() {
            let more: Vec<&str> = known
                .iter()
                .filter(|ends| ends.iter().any(|end| reached.contains(end)))
                .flatten()
                .copied()
                .collect();
            reached.extend(more);
        }
        let names = scenario.host_names();
        match names.iter().find(|name| !reached.contains(name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let at = if scenario.links.is_empty() {
                    vec!["hosts".into(), PathStep::Key(name)]
                } else {
                    vec!["links".into()]
                };
                let reported = self.wrong(&at, format!("no cable leads to the host `{name}`"));
                Err(reported.hint(format!("as in: [[links]] ends = [\"server\", \"{name}\"]; with one, that from client to server must be given too")))
            }
        }
    }

    fn link(&self, at: &[PathStep<'_>], link: &Link) -> Result<()> {
        let ends = below(at, &["ends".into()]);
        link.ends.iter().try_for_each(|end| self.host(&ends, end))?;
        if link.ends[0] == link.ends[1] {
            return Err(self.wrong(&ends, "a cable has two different ends"));
        }
        for (key, rate) in [("rate_there", &link.rate_there), ("rate_back", &link.rate_back)] {
            let read = rate.as_deref().map_or(Ok(0), units::bits_per_s);
            read.map_err(|error| self.error_with_cause(&below(at, &[key.into()]), error))?;
        }
        match link.queue.as_deref() {
            Some(queue) if !is_time(queue) => {
                let reported = self.wrong(&below(at, &["queue".into()]), format!("`{queue}` is no time"));
                Err(reported.hint("as in: queue = \"50ms\""))
            }
            _ => Ok(()),
        }
    }

    /// A link whose rates change must be there.
    pub(super) fn changed_link(&self, at: &[PathStep<'_>], link: &Link) -> Result<()> {
        self.link(at, link)?;
        let links = &self.folder.scenario.links;
        let standard = ["client".to_owned(), "server".to_owned()];
        let is_there =
            links.iter().any(|known| known.ends == link.ends) || (links.is_empty() && link.ends == standard);
        if is_there {
            return Ok(());
        }
        let reported = self.wrong(
            &below(at, &["ends".into()]),
            format!("there is no link from {} to {}", link.ends[0], link.ends[1]),
        );
        Err(reported.hint("the ends in the order of the link that changes"))
    }

    pub(super) fn machine(&self) -> Result<()> {
        self.machine_of(&["machine".into()], &self.folder.scenario.machine)
    }

    pub(super) fn machine_of(&self, at: &[PathStep<'_>], machine: &MachineSettings) -> Result<()> {
        self.size(&below(at, &["swap".into()]), machine.swap.as_deref())?;
        self.kernel_settings(at, &machine.sysctl, None)
    }

    /// A limit of a round: only some of a host's can change.
    pub(super) fn changed_host(&self, at: &[PathStep<'_>], name: &str, host: &ScenarioHost) -> Result<()> {
        self.host(at, name)?;
        self.limits(at, host)?;
        let ScenarioHost { sysctl, firewall, nft, disks, .. } = host;
        let fixed: [(&str, bool); 4] = [
            ("sysctl", !sysctl.is_empty()),
            ("firewall", *firewall),
            ("nft", nft.is_some()),
            ("disks", !disks.is_empty()),
        ];
        match fixed.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((key, _)) => Err(self.cannot_change(at, key)),
        }
    }

    fn cannot_change(&self, at: &[PathStep<'_>], key: &str) -> UserError {
        let reported = self
            .wrong(&below(at, &[PathStep::Key(key)]), format!("`{key}` of a host cannot change in a round"));
        reported
            .hint("memory, swap, cpus, cores and processes can; for the others type the command in by_hand")
    }
}

/// A list of cores, as `0-1,3`.
fn is_list(text: &str) -> bool {
    let number =
        |text: &str| text.parse::<u16>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let is_range = |range: &str| match range.split_once('-') {
        None => number(range).is_some(),
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
    };
    text.split(',').all(is_range)
}

/// A time as tc(8) reads it.
fn is_time(text: &str) -> bool {
    let number = ["us", "ms", "s"].iter().find_map(|unit| text.strip_suffix(unit));
    number.is_some_and(|number| {
        number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            && number.parse::<f64>().is_ok_and(|number| number > 0.0)
    })
}
