//! The scenario of a server: its description, whose rounds are its states, each typed by hand from the one before, and the files
//! of its hosts.

use super::render::{LIGHTTPD, LIGHTTPD_RESTART, PARTNER, PARTNER_PROGRAM, Program, Rendered};
use super::server::{Extra, Front, Query, Server};
use super::shape::{CPUS_FREE, MEMORY_FREE_MB};
use super::{Seed, State};
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};
use webdyno_analysis::limits;

/// The name server of one of the lab's own scenarios.
const RESOLVER: &str = include_str!("../../../../scenarios/hostname-lookups/resolver/srv/resolver.pl");
const RESOLVER_ADDRESS: &str = "10.80.1.2";
/// Clients on a slow line, and the host between them and the server.
const TRAVELLERS: &str = "travellers";
const PROVIDER: &str = "provider";
/// What they send together, and what they are sent.
const SLOW_MBIT: [u32; 2] = [4, 6];
/// Rules of the packet filter, beside the host's files.
const RULES: &str = "rules.nft";
/// Swap of a host that has some.
const SWAP: &str = "256M";
/// The first round's name.
const FOUND: &str = "as found";
/// What a removal must bring to count in a run of the scenario alone.
const RATE_GAIN_MIN: f64 = 1.08;
const TIME_GAIN_MAX: f64 = 0.8;

/// All files, relative to the scenario's folder.
pub fn files(
    seed: Seed,
    server: &Server,
    states: &[State],
    urls: &[String],
    flags: &str,
) -> BTreeMap<String, String> {
    let Some(first) = states.first().map(|state| &state.rendered) else { return BTreeMap::new() };
    let mut files: BTreeMap<String, String> =
        first.files.iter().map(|(path, text)| (format!("server{path}"), text.clone())).collect();
    if let Some(sql) = &first.sql {
        files.insert("server/fill.sql".into(), sql.clone());
    }
    if server.extras.contains(&Extra::Resolver) {
        files.insert(
            "server/etc/hosts".into(),
            "127.0.0.1\tlocalhost\n127.0.1.1\tserver.test server\n".into(),
        );
        files.insert("server/etc/resolv.conf".into(), format!("nameserver {RESOLVER_ADDRESS}\n"));
        files.insert("resolver/srv/resolver.pl".into(), RESOLVER.into());
    }
    if let Some(rules) = &first.firewall {
        files.insert(format!("server/{RULES}"), rules.clone());
    }
    if first.partner.is_some() {
        files.insert(format!("partner{PARTNER}"), PARTNER_PROGRAM.into());
    }
    let load = table([("urls", strings(urls)), ("flags", flags.into())]);
    let mut description = table([
        ("title", format!("A server drawn at random, seed {}", seed.seed).into()),
        ("group", "drawn".into()),
        ("story", format!("{}. The load: {flags}", server.words()).into()),
        ("load", load.into()),
        ("hosts", hosts(server, first).into()),
        ("services", Value::Array(services(server, first))),
    ]);
    let machine = machine(server, first);
    if !machine.is_empty() {
        description.insert("machine".into(), machine.into());
    }
    let links = links(server, first);
    if !links.is_empty() {
        description.insert("links".into(), Value::Array(links));
    }
    let rounds = states.iter().enumerate().map(|(index, _)| round(server, states, index).into()).collect();
    description.insert("rounds".into(), Value::Array(rounds));
    files.insert("scenario.toml".into(), description.to_string());
    files
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn strings(of: &[String]) -> Value {
    Value::Array(of.iter().map(|text| text.as_str().into()).collect())
}

fn machine(server: &Server, first: &Rendered) -> Table {
    let mut machine = Table::new();
    if server.extras.contains(&Extra::Swapped) {
        machine.insert("swap".into(), SWAP.into());
    }
    if let Some(tracked) = first.tracked {
        // Entries whose time is over are found by chance where the hash is much larger than the table.
        let sysctl = table([
            ("net.netfilter.nf_conntrack_max", tracked.into()),
            ("net.netfilter.nf_conntrack_buckets", 16_384.into()),
        ]);
        machine.insert("sysctl".into(), sysctl.into());
    }
    machine
}

fn hosts(server: &Server, first: &Rendered) -> Table {
    let mut host = Table::new();
    if first.cpus < CPUS_FREE {
        host.insert("cpus".into(), first.cpus.into());
    }
    if first.memory_mb < MEMORY_FREE_MB {
        host.insert("memory".into(), format!("{}M", first.memory_mb).into());
    }
    if server.extras.contains(&Extra::Swapped) {
        host.insert("swap".into(), SWAP.into());
    }
    if first.firewall.is_some() {
        host.insert("nft".into(), RULES.into());
    }
    if first.tracked.is_some() {
        host.insert("firewall".into(), true.into());
    }
    if !first.sysctl.is_empty() {
        let sysctl =
            first.sysctl.iter().map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())));
        host.insert("sysctl".into(), sysctl.collect::<Table>().into());
    }
    let disks = disks(server);
    if !disks.is_empty() {
        host.insert("disks".into(), Value::Array(disks));
    }
    let mut hosts = Table::new();
    if server.pinned {
        host.insert("cores".into(), "0".into());
        hosts.insert("client".into(), table([("cores", "1".into())]).into());
    }
    hosts.insert("server".into(), host.into());
    if server.extras.contains(&Extra::Resolver) {
        hosts.insert("resolver".into(), Table::new().into());
    }
    if first.upstream_mbit.is_some() {
        hosts.insert("router".into(), Table::new().into());
    }
    if server.extras.contains(&Extra::SlowLine) {
        hosts.extend([PROVIDER, TRAVELLERS].map(|host| (host.to_owned(), Value::Table(Table::new()))));
    }
    if first.partner.is_some() {
        hosts.insert("partner".into(), Table::new().into());
    }
    hosts
}

fn disks(server: &Server) -> Vec<Value> {
    let mut disks = vec![];
    if server.extras.contains(&Extra::SlowDisk) {
        let disk = table([
            ("path", format!("/var/log/{}", server.names.site).into()),
            ("size", "64M".into()),
            ("sync", true.into()),
            ("writes_per_s", 60.into()),
        ]);
        disks.push(disk.into());
    }
    if server.extras.contains(&Extra::DataDisk) {
        // What pages of each kind do there.
        let rate = match server.query {
            Some(Query::Number) => ("writes_per_s", 60.into()),
            _ => ("reads_per_s", 400.into()),
        };
        disks.push(table([("path", "/var/lib/mysql".into()), ("size", "512M".into()), rate]).into());
    }
    disks
}

fn links(server: &Server, rendered: &Rendered) -> Vec<Value> {
    // In this order they have their addresses.
    let others = [
        server.extras.contains(&Extra::Resolver).then_some("resolver"),
        rendered.partner.is_some().then_some("partner"),
    ];
    let others: Vec<&str> = others.into_iter().flatten().collect();
    let mut all = front_links(rendered);
    let is_slow = server.extras.contains(&Extra::SlowLine);
    if others.is_empty() && all.len() == 1 && rendered.mbit.is_none() && !is_slow {
        return vec![];
    }
    // The others are numbered from one on, whether there is a router or not.
    let behind_router = all.split_off(1);
    all.extend(others.into_iter().map(|host| link(["server", host], [None; 2])));
    all.extend(behind_router);
    if is_slow {
        // What the server sends is slow only from the provider on.
        let slow = SLOW_MBIT.map(Some);
        all.extend([link(["server", PROVIDER], [None; 2]), link([TRAVELLERS, PROVIDER], slow)]);
    }
    all
}

/// The links between the clients and the server.
fn front_links(rendered: &Rendered) -> Vec<Value> {
    match rendered.upstream_mbit {
        None => vec![link(["client", "server"], [None, rendered.mbit])],
        upstream => vec![
            link(["client", "router"], [None, upstream]),
            link(["router", "server"], [None, rendered.mbit]),
        ],
    }
}

/// A link, with what its ends may send, Mbit/s.
fn link(ends: [&str; 2], rates_mbit: [Option<u32>; 2]) -> Value {
    let mut link = table([("ends", Value::Array(ends.map(Value::from).into()))]);
    for (key, mbit) in ["rate_there", "rate_back"].into_iter().zip(rates_mbit) {
        if let Some(mbit) = mbit {
            link.insert(key.into(), format!("{mbit}mbit").into());
        }
    }
    link.into()
}

fn services(server: &Server, first: &Rendered) -> Vec<Value> {
    let mut services = vec![];
    if server.extras.contains(&Extra::Resolver) {
        let command = ("command", "exec perl /srv/resolver.pl".into());
        let resolver =
            [("program", "command".into()), ("host", "resolver".into()), command, ("ready", "53".into())];
        services.push(table(resolver).into());
    }
    services.extend(first.partner.iter().map(|partner| program_on("partner", partner)));
    services.extend(first.programs.iter().map(|one| program(one).into()));
    if first.sql.is_some() {
        services.push(table([("program", "mariadb".into()), ("sql", "fill.sql".into())]).into());
    }
    if server.has_fpm() {
        services.push(table([("program", "php-fpm".into())]).into());
    }
    services.push(match server.front {
        Front::Nginx => table([("program", "nginx".into())]).into(),
        Front::Lighttpd => table([
            ("program", "command".into()),
            ("command", LIGHTTPD.into()),
            ("ready", server.names.port.to_string().into()),
        ])
        .into(),
        _ => apache(server),
    });
    services.extend(first.travellers.iter().map(|travellers| program_on(TRAVELLERS, travellers)));
    services
}

fn apache(server: &Server) -> Value {
    let modules: Vec<String> = super::render::modules(server).into_iter().map(str::to_owned).collect();
    table([
        ("program", "apache".into()),
        ("mpm", super::render::mpm(server).into()),
        ("modules", strings(&modules)),
        ("sites", strings(&[server.names.site.to_owned()])),
    ])
    .into()
}

fn program(program: &Program) -> Table {
    let mut one = table([("program", "command".into()), ("command", command(program).into())]);
    if !program.ready.is_empty() {
        one.insert("ready".into(), program.ready.as_str().into());
    }
    one
}

/// The same on another host.
fn program_on(host: &str, one: &Program) -> Value {
    let mut one = program(one);
    one.insert("host".into(), host.into());
    one.into()
}

/// Its command line, which leaves its process id.
fn command(program: &Program) -> String {
    format!("echo $$ > /run/{}.pid; {}", program.name, program.command)
}

/// A state: how it comes of the one before, and what is right there.
fn round(server: &Server, states: &[State], index: usize) -> Table {
    let name = match (index, states.len()) {
        (0, _) => FOUND,
        (_, 2) | (3, _) => "mended",
        (1, _) => "the first one mended",
        _ => "the other one mended",
    };
    let here = &states[index];
    let known: BTreeSet<&str> = here.faults.iter().filter_map(known_finding).collect();
    let nothing = if server.is_full() { "cpu-saturated" } else { "healthy" };
    let finding = here.faults.first().map_or(nothing, |fault| known_finding(fault).unwrap_or("unknown"));
    let beside = known.into_iter().filter(|id| *id != finding).map(Value::from).collect();
    let mut round =
        table([("name", name.into()), ("finding", finding.into()), ("beside", Value::Array(beside))]);
    let proof = match (index, server.arrival) {
        (0, _) => ("binds", table([("metric", "load.completed_count".into()), ("at_least", 1.0.into())])),
        (_, super::Arrival::Open(_)) => (
            "gains",
            table([
                ("metric", "load.p50_us".into()),
                ("at_most", TIME_GAIN_MAX.into()),
                ("over", FOUND.into()),
            ]),
        ),
        _ => ("gains", table([("at_least", RATE_GAIN_MIN.into()), ("over", FOUND.into())])),
    };
    round.insert(proof.0.into(), Value::Array(vec![proof.1.into()]));
    if let Some(before) = index.checked_sub(1).and_then(|before| states.get(before)) {
        changes(server, &before.rendered, &here.rendered, &mut round);
    }
    round
}

/// How a round comes of the one before.
fn changes(server: &Server, before: &Rendered, after: &Rendered, round: &mut Table) {
    round.insert("by_hand".into(), strings(&transition(server, before, after)));
    let beside =
        [("partner", &before.partner, &after.partner), (TRAVELLERS, &before.travellers, &after.travellers)];
    let mut by_hand_on = Table::new();
    for (host, before, after) in beside {
        let lines: Vec<String> = programs(before.as_slice(), after.as_slice()).collect();
        if !lines.is_empty() {
            by_hand_on.insert(host.into(), strings(&lines));
        }
    }
    if !by_hand_on.is_empty() {
        round.insert("by_hand_on".into(), by_hand_on.into());
    }
    let mut limits = Table::new();
    if before.cpus.to_bits() != after.cpus.to_bits() {
        limits.insert("cpus".into(), after.cpus.into());
    }
    if before.memory_mb != after.memory_mb {
        limits.insert("memory".into(), format!("{}M", after.memory_mb).into());
    }
    if !limits.is_empty() {
        round.insert("hosts".into(), table([("server", limits.into())]).into());
    }
    if (before.mbit, before.upstream_mbit) != (after.mbit, after.upstream_mbit) {
        round.insert("links".into(), Value::Array(front_links(after)));
    }
    if let Some(tracked) = after.tracked.filter(|tracked| before.tracked != Some(*tracked)) {
        let sysctl = table([("net.netfilter.nf_conntrack_max", tracked.into())]);
        round.insert("machine".into(), table([("sysctl", sysctl.into())]).into());
    }
}

/// The best of a fault's findings that this version knows.
fn known_finding(fault: &super::DrawnFault) -> Option<&'static str> {
    fault.findings.iter().copied().find(|id| limits::by_id(id).is_some())
}

/// Lines for a shell that make one state of another.
fn transition(server: &Server, before: &Rendered, after: &Rendered) -> Vec<String> {
    let mut lines = vec![];
    let mut changed: Vec<&str> = vec![];
    for (path, text) in &after.files {
        if before.files.get(path) != Some(text) {
            lines.push(format!("cat > {path} <<'END'\n{}\nEND", text.trim_end()));
            changed.push(path);
        }
    }
    for path in before.files.keys().filter(|path| !after.files.contains_key(*path)) {
        lines.push(format!("rm {path}"));
        changed.push(path);
    }
    for (name, value) in after.sysctl.iter().filter(|(name, value)| before.sysctl.get(*name) != Some(value)) {
        lines.push(format!("sysctl -qw {name}='{value}'"));
    }
    if let Some(rules) = after.firewall.as_ref().filter(|rules| before.firewall.as_ref() != Some(rules)) {
        lines.push(format!("nft -f - <<'END'\n{rules}END"));
    }
    lines.extend(programs(&before.programs, &after.programs));
    if let Some(sql) = after.sql_state.as_ref().filter(|sql| before.sql_state.as_ref() != Some(sql)) {
        lines.push(format!("mariadb -e '{sql}'"));
    }
    lines.extend(restarts(server, &changed));
    lines
}

/// Ends the programs that are no longer there as they were, and starts those that are new.
fn programs(before: &[Program], after: &[Program]) -> impl Iterator<Item = String> {
    let ended = before.iter().filter(|program| !after.contains(program));
    let started = after.iter().filter(|program| !before.contains(program));
    let end = |program: &Program| format!("kill -TERM -$(cat /run/{}.pid); sleep 0.5", program.name);
    let start = |program: &Program| {
        let command = command(program).replace('\'', "'\\''");
        format!("setsid sh -c '{command}' </dev/null >>/var/log/command.log 2>&1 & sleep 1")
    };
    ended.map(end).chain(started.map(start))
}

/// Restarts of the services whose files changed: a reload would leave some settings as they were.
fn restarts(server: &Server, changed: &[&str]) -> Vec<String> {
    let is_changed = |beginning: &str| changed.iter().any(|path| path.starts_with(beginning));
    let is_page_changed = changed.iter().any(|path| path.ends_with(".php"));
    // What a load before has started must not be there.
    let is_sudden = server.extras.contains(&Extra::Sudden);
    let mut lines = vec![];
    if is_changed("/etc/mysql") {
        lines.push(
            "mariadb-admin shutdown; setsid mariadbd --user=mysql </dev/null >>/var/log/mysql/error.log 2>&1 & \
             sleep 0.5; until mariadb -e 'do 1' >/dev/null 2>&1; do sleep 0.1; done"
                .to_owned(),
        );
    }
    if server.has_fpm() && (is_changed("/etc/php") || is_page_changed || is_sudden) {
        lines.push(
            "kill -TERM $(cat /run/php/php8.2-fpm.pid); while [ -e /run/php/php8.2-fpm.pid ]; do sleep 0.1; done; \
             php-fpm8.2 --daemonize --fpm-config /etc/php/8.2/fpm/php-fpm.conf"
                .to_owned(),
        );
    }
    let is_inner =
        server.pages == super::server::Pages::ModPhp && (is_changed("/etc/php") || is_page_changed);
    if server.is_apache() && (is_changed("/etc/apache2") || is_inner || is_sudden) {
        lines.push(
            "apache2 -k stop; while [ -e /run/apache2/apache2.pid ]; do sleep 0.1; done; sleep 0.5; ulimit -n 8192; \
             apache2 -k start"
                .to_owned(),
        );
    }
    if is_changed("/etc/lighttpd") {
        lines.push(LIGHTTPD_RESTART.to_owned());
    }
    if is_changed("/etc/nginx") {
        lines.push("nginx -s stop; while [ -e /run/nginx.pid ]; do sleep 0.1; done; nginx".to_owned());
    }
    lines.push("sleep 1".to_owned());
    lines
}
