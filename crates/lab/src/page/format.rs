//! Parts of a scenario in words: machines, cables, limits, programs, signs and gains.

use crate::evidence::Bounds;
use crate::figures;
use crate::scenario::{
    Disk, Gain, LabProgram, Link, MachineSettings, Scenario, ScenarioHost, ScenarioRound, ScenarioService,
    Sign,
};

/// The machines, their limits and the cables between them, a line each.
pub fn topology(scenario: &Scenario) -> Vec<String> {
    let mut lines = vec!["The users are on `client`, the site is on `server`.".to_owned()];
    if scenario.links.is_empty() {
        lines.push("Between `client` and `server` there is a cable as fast as the machine.".into());
    }
    lines.extend(scenario.links.iter().map(link));
    for (name, host) in &scenario.hosts {
        let limits = host_changes(host);
        if limits.is_empty() {
            lines.push(format!("`{name}` is another machine, without limits."));
        } else {
            lines.push(format!("`{name}` has {}.", limits.join("; ")));
        }
    }
    lines.extend(machine(&scenario.machine));
    lines
}

/// What runs, a line each.
pub fn services(scenario: &Scenario) -> Vec<String> {
    scenario
        .services
        .iter()
        .map(|service| format!("{} on `{}`{}.", program(service), service.host, service_extras(service)))
        .collect()
}

/// What a round changes of machines and cables, a line each.
pub fn changes(round: &ScenarioRound) -> Vec<String> {
    let host =
        |(name, host): (&String, &ScenarioHost)| format!("`{name}` has {}.", host_changes(host).join("; "));
    let mut lines: Vec<String> = round.hosts.iter().map(host).collect();
    lines.extend(round.links.iter().map(link));
    lines.extend(machine(&round.machine));
    if let Some(load) = &round.load {
        lines.push(format!(
            "The load is another one: `{}`.",
            [load.urls.join(" "), load.flags.clone()].join(" ").trim()
        ));
    }
    lines
}

fn link(link: &Link) -> String {
    let [one, other] = &link.ends;
    let rate = |rate: &Option<String>, from: &str, to: &str| {
        rate.as_ref().map(|rate| format!("{rate} from `{from}` to `{to}`"))
    };
    let rates: Vec<String> = [rate(&link.rate_there, one, other), rate(&link.rate_back, other, one)]
        .into_iter()
        .flatten()
        .collect();
    if rates.is_empty() {
        return format!("Between `{one}` and `{other}` there is a cable as fast as the machine.");
    }
    let queue = link.queue.as_ref().map(|queue| format!(", waiting {queue} at most")).unwrap_or_default();
    format!("The cable between `{one}` and `{other}` carries {}{queue}.", rates.join(" and "))
}

fn machine(machine: &MachineSettings) -> Vec<String> {
    let setting = |(name, value): (&String, &toml::Value)| {
        format!("The whole machine has `{name}` = `{}`, until the scenario is removed.", plain_value(value))
    };
    let mut lines: Vec<String> = machine.sysctl.iter().map(setting).collect();
    lines.extend(
        machine
            .swap
            .as_ref()
            .map(|size| format!("The machine has {size} more swap, which only machines with `swap` use.")),
    );
    lines
}

fn host_changes(host: &ScenarioHost) -> Vec<String> {
    let mut words = vec![];
    words.extend(host.memory.as_ref().map(|size| format!("{size} memory")));
    words.extend(host.swap.as_ref().map(|size| format!("{size} swap")));
    words.extend(host.cpus.map(|cpus| format!("the time of {cpus} processors")));
    words.extend(host.cores.as_ref().map(|cores| format!("the cores {cores}")));
    words.extend(host.processes.map(|count| format!("at most {count} processes")));
    words.extend(host.sysctl.iter().map(|(name, value)| format!("`{name}` = `{}`", plain_value(value))));
    words.extend(host.firewall.then(|| "a firewall that tracks connections".to_owned()));
    words.extend(host.nft.as_ref().map(|path| format!("the firewall rules of `{path}`")));
    words.extend(host.disks.iter().map(disk));
    words
}

fn disk(disk: &Disk) -> String {
    let mut words = vec![format!("a disk of {} at `{}`", disk.size, disk.path)];
    words.extend(disk.sync.then(|| "where every write waits for the disk".to_owned()));
    words.extend(disk.reads_per_s.map(|rate| format!("with at most {rate} reads a second")));
    words.extend(disk.writes_per_s.map(|rate| format!("with at most {rate} writes a second")));
    words.extend(disk.read_bytes_per_s.as_ref().map(|rate| format!("that reads at most {rate} a second")));
    words.extend(disk.write_bytes_per_s.as_ref().map(|rate| format!("that writes at most {rate} a second")));
    words.join(", ")
}

fn program(service: &ScenarioService) -> String {
    match (service.program, &service.mpm, &service.command) {
        (LabProgram::Apache, mpm, _) => format!("Apache ({})", mpm.as_deref().unwrap_or("event")),
        (LabProgram::PhpFpm, ..) => "PHP-FPM".into(),
        (LabProgram::Mariadb, ..) => "MariaDB".into(),
        (LabProgram::Nginx, ..) => "nginx".into(),
        (LabProgram::Command, _, command) => format!("`{}`", command.as_deref().unwrap_or_default().trim()),
    }
}

fn service_extras(service: &ScenarioService) -> String {
    let named = |what: &str, names: &[String]| {
        (!names.is_empty()).then(|| {
            format!("{what} {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
        })
    };
    let (without, with): (Vec<String>, Vec<String>) =
        service.modules.iter().cloned().partition(|name| name.starts_with('-'));
    let without: Vec<String> = without.iter().map(|name| name.trim_start_matches('-').to_owned()).collect();
    let parts = [
        named("with the modules", &with),
        named("without the modules", &without),
        named("with the sites", service.sites.as_deref().unwrap_or_default()),
        named("with the configuration", &service.confs),
        service.sql.as_ref().map(|path| format!("filled by `{path}`")),
        service.processes.map(|count| format!("at most {count} processes")),
        service.memory.as_ref().map(|size| format!("at most {size} memory")),
        service.cpus.map(|cpus| format!("the time of {cpus} processors")),
        service.open_files.map(|count| format!("at most {count} open files in a process")),
    ];
    parts.into_iter().flatten().map(|part| format!(", {part}")).collect()
}

fn plain_value(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A sign: the metric, what is taken of it, and its bounds.
pub fn sign(sign: &Sign) -> String {
    let of = sign.of.as_ref().map(|of| format!(" divided by `{}`", plain_value(of))).unwrap_or_default();
    let take = if sign.metric.starts_with(figures::PREFIX) {
        String::new()
    } else {
        format!(" ({})", sign.take.name())
    };
    let bounds = Bounds { at_least: sign.at_least, at_most: sign.at_most };
    format!("`{}`{of}{take}: {}", sign.metric, bounds.to_text())
}

/// A gain: the figure, what it is compared with, and the bounds of the ratio.
pub fn gain(gain: &Gain, before: &str) -> String {
    let over = gain.over.as_deref().unwrap_or(before);
    let take = gain.take.map(|take| format!(" ({})", take.name())).unwrap_or_default();
    let times = match (gain.at_least, gain.at_most) {
        (Some(least), Some(most)) => format!("{least} to {most} times"),
        (Some(least), None) => format!("at least {least} times"),
        (None, Some(most)) => format!("at most {most} times"),
        (None, None) => "any number of times".into(),
    };
    let interval = match figures::is_rate(&gain.metric) {
        true => ", with the whole 95% interval of the ratio",
        false => "",
    };
    format!("`{}`{take}: {times} that of the round `{over}`{interval}", gain.metric)
}
