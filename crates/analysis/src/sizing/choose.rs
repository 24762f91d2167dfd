//! Which machines, and how many: the cheapest of the catalogue that carry the goal, with and without a database of its own.

use super::server::{Draw, MEMORY_USABLE, PROCESSORS_USABLE, RANGE, SYSTEM_BYTES, Server};
use webdyno_model::number::{human, significant};
use webdyno_model::sizing::{DatabaseChoice, Machine, MachineCatalogue, RateSpread, SizeChoice};

/// So many choices are shown.
const CHOICES_MAX: usize = 5;
/// More servers than these are no answer.
const SERVERS_MAX: f64 = 100.0;
/// What a machine without a price costs: a core counts 1, as do 4 GB, and being one more machine.
const POINT_BYTES: f64 = 4e9;

/// The goal.
pub(super) struct Wanted {
    /// Requests per second, growth included.
    pub rate: f64,
    pub headroom: f64,
    pub spare: u64,
}

/// A machine as a server.
pub(super) type ServerOf<'a> = dyn Fn(&'a Machine) -> Server<'a> + 'a;

/// All that carry it, the cheapest first.
pub(super) fn choices<'a>(
    of: &ServerOf<'a>,
    wanted: &Wanted,
    catalogue: &'a MachineCatalogue,
    draws: &[Draw],
) -> Vec<SizeChoice> {
    let is_priced = catalogue.machines.iter().all(|one| one.price.is_some());
    let known = catalogue.machines.iter().filter(|machine| is_measured(&of(machine)));
    let mut found: Vec<(f64, SizeChoice)> = vec![];
    for machine in known {
        let database =
            of(machine).demands.database_cpu.and_then(|_| database(of, wanted, catalogue, is_priced));
        let apart = database.and_then(|of_database| {
            let server = Server { has_database: false, ..of(machine) };
            choice(&server, wanted, draws, Some(of_database), is_priced)
        });
        let has_database = of(machine).demands.database_cpu.is_some();
        let together = choice(&of(machine), wanted, draws, None, is_priced)
            // What is stored is in one place: several web servers need it elsewhere.
            .filter(|(_, one)| !has_database || one.count == 1);
        let cheapest = together.into_iter().chain(apart).min_by(|a, b| a.0.total_cmp(&b.0));
        found.extend(cheapest);
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.count.cmp(&b.1.count)));
    found.into_iter().take(CHOICES_MAX).map(|(_, one)| one).collect()
}

/// Whether its cores are not so many, or so few, that nobody knows what a request takes there.
fn is_measured(server: &Server<'_>) -> bool {
    let ratio = server.cores() / server.range.cores;
    (1.0 / RANGE..=RANGE).contains(&ratio)
}

/// What it costs, by price where all have one.
fn points(machine: &Machine, is_priced: bool) -> f64 {
    let price = machine.price.filter(|_| is_priced);
    price.unwrap_or_else(|| {
        machine.cores + machine.memory_bytes.unwrap_or(POINT_BYTES * machine.cores) / POINT_BYTES + 1.0
    })
}

fn choice(
    server: &Server<'_>,
    wanted: &Wanted,
    draws: &[Draw],
    database: Option<(&Machine, u64)>,
    is_priced: bool,
) -> Option<(f64, SizeChoice)> {
    let machine = server.machine;
    let spread = server.spread(draws);
    // At the goal the headroom is free by the middle of the predictions, and nine of ten carry the goal at all.
    let each = (spread.p50 * (1.0 - wanted.headroom)).min(spread.p10);
    let needed = (wanted.rate / each).ceil().max(1.0);
    (each > 0.0 && needed <= SERVERS_MAX).then_some(())?;
    let count = needed as u64 + wanted.spare;
    let limits = server.limits(Draw::default());
    let limit = |index: usize| limits.get(index).map(|(id, _)| id.as_str().to_owned());
    let all = |rate: f64| significant(rate * needed, 3);
    let price = |of: fn(&Machine, bool) -> f64| {
        let own = count as f64 * of(machine, is_priced);
        own + database.map_or(0.0, |(machine, count)| count as f64 * of(machine, is_priced))
    };
    let choice = SizeChoice {
        name: machine.name.clone(),
        cores: machine.cores,
        memory_bytes: machine.memory_bytes,
        nic_bit_s: machine.nic_bit_s,
        count,
        spare: wanted.spare,
        first_limit: limit(0),
        second_limit: limit(1),
        rate: RateSpread { p10: all(spread.p10), p50: all(spread.p50), p90: all(spread.p90) },
        cpu_fraction: significant(
            wanted.rate / needed * server.cpu_us(Draw::default()) / 1e6 / server.cores(),
            2,
        ),
        database: database.map(|(machine, count)| DatabaseChoice {
            name: machine.name.clone(),
            cores: machine.cores,
            memory_bytes: machine.memory_bytes,
            count,
        }),
        cost: is_priced.then(|| significant(price(points), 6)),
    };
    Some((price(points), choice))
}

/// The cheapest machine that carries the database alone; each further one is a copy of it.
fn database<'a>(
    of: &ServerOf<'a>,
    wanted: &Wanted,
    catalogue: &'a MachineCatalogue,
    is_priced: bool,
) -> Option<(&'a Machine, u64)> {
    let carries = |machine: &&'a Machine| {
        let server = of(machine);
        let us = server.demands.database_cpu.map_or(0.0, |one| one.value * (1.0 + one.error));
        let cores = wanted.rate * us / 1e6 / PROCESSORS_USABLE / (1.0 - wanted.headroom);
        let bytes = (SYSTEM_BYTES + server.demands.database_bytes) / MEMORY_USABLE;
        is_measured(&server)
            && cores <= server.cores()
            && machine.memory_bytes.is_none_or(|memory| bytes <= memory)
    };
    let cheapest = catalogue
        .machines
        .iter()
        .filter(carries)
        .min_by(|a, b| points(a, is_priced).total_cmp(&points(b, is_priced)));
    cheapest.map(|machine| (machine, 1 + wanted.spare))
}

/// Why none of the catalogue will do, and what to do.
pub(super) fn refusal<'a>(of: &ServerOf<'a>, wanted: &Wanted, catalogue: &'a MachineCatalogue) -> String {
    let Some(first) = catalogue.machines.first() else {
        return format!("{} has no machine.", catalogue.source);
    };
    let (measured, goal) = (human::number(of(first).range.cores), human::number(wanted.rate));
    if !catalogue.machines.iter().any(|machine| is_measured(&of(machine))) {
        return format!(
            "No machine of {} has between a quarter of and four times the {measured} cores that were measured: what a request takes \
             on others nobody saw. Record a load on a machine nearer to them, or give others with --catalogue FILE.",
            catalogue.source
        );
    }
    format!(
        "No number of servers up to {SERVERS_MAX} of {} carries {goal} req/s: memory does not hold the processes of one, the database \
         fits on none, or its processors are too few. Give larger machines with --catalogue FILE, within four times the {measured} \
         cores that were measured.",
        catalogue.source
    )
}
