//! Predictions across sizes against what was measured: loads of one site at other processors, memory, link or users predict each other,
//! with the pools, the load and the machine of the one that is predicted.

use super::demands::{MeasuredLoad, softirq_cores, usable_cores};
use super::knee::Store;
use crate::diagnosis::prediction::{ERROR_PROCESSORS, Supposition, observed, outcome, sizes::KNOWN};
use crate::facts::{FactId, Facts};
use crate::limits::ceiling::Resource;
use crate::limits::resource_ceilings;
use crate::measurement::Measurement;
use crate::resources::memory_pressure;
use crate::resources::processors::services_cores;
use webdyno_model::change::SettingChange;
use webdyno_model::number::{human, significant};
use webdyno_model::prediction::Estimate;
use webdyno_model::sizing::{KneeCheck, MeasuredRange, MissRatioCurve, SCHEMA, SizeCheck, SizeReport};
use webdyno_model::{Result, UserError};

/// Processors are used up to this share before they are full, unless they were seen to be used further.
const PROCESSORS_USABLE: f64 = 0.95;
/// A link that is used less limits nobody.
const LINK_USED_MIN: f64 = 0.05;

const NO_KNEE: &str = "No memory that the files need can be checked: it takes three loads of one site at sizes of memory of which the \
                       smaller ones wait for the disk.";

/// What a load ran on.
#[derive(Debug, Clone, PartialEq)]
struct Sizes {
    cores: f64,
    memory_bytes: Option<f64>,
    link_bits: Option<f64>,
    /// Of the pools: workers, children, connections.
    pools: Vec<(Resource, f64)>,
    users: Option<f64>,
    offered: Option<f64>,
}

struct Point {
    what: String,
    sizes: Sizes,
    rate: f64,
    facts: Facts,
    load: std::result::Result<MeasuredLoad, String>,
}

/// Predicts each load from each other one of the same site, and says by how much it is off; with a miss-ratio curve also the memory that a
/// store of files needs, where loads differ in it.
///
/// # Errors
/// No two loads that differ in size.
pub fn validate(recordings: &[Measurement], misses: Option<&MissRatioCurve>) -> Result<SizeReport> {
    let mut points: Vec<Point> = vec![];
    for recording in recordings {
        points.extend(Point::of(recording)?);
    }
    let points = medians(points);
    let pairs = points.iter().flat_map(|from| points.iter().map(move |of| (from, of)));
    let differ = pairs.filter(|(from, of)| from.what == of.what && from.sizes != of.sizes);
    let validation: Vec<SizeCheck> = differ.map(|(from, of)| check(from, of)).collect();
    if validation.is_empty() {
        return Err(UserError::usage("no two loads of one site at other sizes are in these recordings")
            .hint(
                "record them: webdyno sweep --knob cpus=1,2 URL, or the same load on machines of other sizes",
            ));
    }
    let measured = MeasuredRange { loads: recordings.len() as u64, ..MeasuredRange::default() };
    let knees = misses.map_or(vec![], |misses| knees(&points, misses));
    let notes = match misses {
        Some(_) if knees.is_empty() => vec![NO_KNEE.into()],
        _ => vec![],
    };
    Ok(SizeReport { schema: SCHEMA.into(), validation, knees, measured, notes, ..SizeReport::default() })
}

/// The memory that each site needs, of loads that differ in nothing else.
fn knees(points: &[Point], misses: &MissRatioCurve) -> Vec<KneeCheck> {
    let mut groups: Vec<Vec<&Point>> = vec![];
    for point in points {
        let apart = |sizes: &Sizes| Sizes { memory_bytes: None, ..sizes.clone() };
        let is_same =
            |one: &&Point| one.what == point.what && is_same_size(&apart(&one.sizes), &apart(&point.sizes));
        match groups.iter_mut().find(|group| group.iter().all(is_same)) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    let knee = |group: Vec<&Point>| {
        let mut loads: Vec<(f64, f64, &MeasuredLoad)> =
            group.iter().copied().filter_map(Point::memory).collect();
        loads.sort_by(|a, b| a.0.total_cmp(&b.0));
        Store { what: &group.first()?.what, loads }.check(misses)
    };
    groups.into_iter().filter_map(knee).collect()
}

impl Point {
    /// `None` of a load without a successful request.
    fn of(recording: &Measurement) -> Result<Option<Self>> {
        let facts = observed(recording)?;
        let Some((rate, cores)) = facts.value(FactId::rate).zip(usable_cores(&facts)) else {
            return Ok(None);
        };
        let ceilings = resource_ceilings(&facts);
        let max =
            |resource| ceilings.iter().find(|one| one.resource == resource).and_then(|one| one.ceiling.max);
        let pools = [Resource::Workers, Resource::PhpChildren, Resource::DatabaseConnections];
        let targets = facts.request_targets.iter().map(|target| target.path.as_str());
        let used = ceilings.iter().find(|one| one.resource == Resource::Link).and_then(|one| one.ceiling.now);
        // Which of several idle links is the busiest says nothing.
        let is_link_used = used.zip(max(Resource::Link)).is_some_and(|(now, max)| now >= LINK_USED_MIN * max);
        let offered = facts.value(FactId::offered_rate);
        let users = facts.value(FactId::users).or(facts.value(FactId::in_flight_mean).map(f64::round));
        let users = users.filter(|_| offered.is_none());
        let sizes = Sizes {
            cores,
            memory_bytes: memory_pressure::limit_bytes(&facts),
            link_bits: max(Resource::Link).filter(|_| is_link_used),
            pools: pools.into_iter().filter_map(|resource| Some((resource, max(resource)?))).collect(),
            users,
            offered,
        };
        let load = MeasuredLoad::of(recording).map_err(|error| error.message);
        Ok(Some(Self { what: targets.collect::<Vec<_>>().join(" "), sizes, rate, load, facts }))
    }
}

impl Point {
    /// Its memory, its rate, and what was measured.
    fn memory(&self) -> Option<(f64, f64, &MeasuredLoad)> {
        Some((self.sizes.memory_bytes?, self.rate, self.load.as_ref().ok()?))
    }
}

/// Of loads at the same sizes the one with the median rate.
fn medians(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let mut medians: Vec<Vec<Point>> = vec![];
    for point in points {
        let is_same = |group: &&mut Vec<Point>| {
            group[0].what == point.what && is_same_size(&group[0].sizes, &point.sizes)
        };
        match medians.iter_mut().find(is_same) {
            Some(group) => group.push(point),
            None => medians.push(vec![point]),
        }
    }
    let median = |mut group: Vec<Point>| group.swap_remove((group.len() - 1) / 2);
    let mut found: Vec<Point> = medians.into_iter().map(median).collect();
    found.sort_by(|a, b| a.what.cmp(&b.what).then(a.sizes.cores.total_cmp(&b.sizes.cores)));
    found
}

/// Requests at once of a load without users are read, and differ a little.
fn is_same_size(one: &Sizes, other: &Sizes) -> bool {
    let rough = |sizes: &Sizes| Sizes { users: None, ..sizes.clone() };
    let near = match (one.users, other.users) {
        (Some(a), Some(b)) => (a - b).abs() <= 1.0 + 0.02 * a,
        (a, b) => a == b,
    };
    near && rough(one) == rough(other)
}

fn check(from: &Point, of: &Point) -> SizeCheck {
    let predicted = predicted(from, of);
    let error = predicted.as_ref().ok().map(|found| significant(found.value / of.rate - 1.0, 3));
    let (from_text, to) = texts(&from.sizes, &of.sizes);
    let why = predicted.as_ref().err().cloned();
    let (what, measured) = (of.what.clone(), significant(of.rate, 4));
    SizeCheck { what, from: from_text, to, predicted: predicted.ok(), measured, error, why }
}

/// What differs, in words.
fn texts(from: &Sizes, of: &Sizes) -> (String, String) {
    let mut rows: Vec<[String; 2]> = vec![];
    let mut row = |a: Option<f64>, b: Option<f64>, text: &dyn Fn(f64) -> String| {
        if a != b {
            rows.push([a, b].map(|value| value.map_or("unknown".to_owned(), text)));
        }
    };
    let amount = |unit: &'static str| move |value: f64| format!("{} {unit}", human::number(value));
    row(Some(from.cores), Some(of.cores), &|cores| {
        format!("{} core{}", human::number(cores), if cores == 1.0 { "" } else { "s" })
    });
    row(from.link_bits, of.link_bits, &|bits| format!("{} Mbit/s", human::number(bits / 1e6)));
    row(from.memory_bytes, of.memory_bytes, &human::bytes);
    let place = |sizes: &Sizes, index: usize| sizes.pools.get(index).map(|(_, places)| *places);
    for index in 0..from.pools.len().max(of.pools.len()) {
        row(place(from, index), place(of, index), &amount("places"));
    }
    row(from.users, of.users, &amount("users"));
    row(from.offered, of.offered, &amount("req/s offered"));
    let side = |index: usize| rows.iter().map(|row| row[index].clone()).collect::<Vec<_>>().join(", ");
    (side(0), side(1))
}

/// The rate of one at the sizes of the other.
fn predicted(from: &Point, of: &Point) -> std::result::Result<Estimate, String> {
    let load = from.load.as_ref().map_err(Clone::clone)?;
    let mut now = load.model.clone();
    let pools = of.sizes.pools.iter().filter(|(resource, places)| {
        from.sizes.pools.iter().any(|(other, before)| other == resource && before != places)
    });
    let known = |resource: Resource| KNOWN.into_iter().find(|one| one.resource == resource);
    let mut changes: Vec<SettingChange> =
        pools.filter_map(|(resource, places)| Some(known(*resource)?.to(*places, None))).collect();
    if let Some(bits) = of.sizes.link_bits.filter(|bits| from.sizes.link_bits != Some(*bits)) {
        changes.extend(known(Resource::Link).map(|link| link.to(bits, None)));
    }
    if from.sizes.cores != of.sizes.cores {
        let (servers, demand_us) = processors(load, &of.facts, of.sizes.cores)?;
        now.network.processors = Some((servers, demand_us));
    }
    let users = of.sizes.users.filter(|users| of.sizes.offered.is_none() && from.sizes.users != Some(*users));
    let rate = of.sizes.offered.filter(|rate| from.sizes.offered != Some(*rate));
    let found = outcome(&load.facts, &now, &Supposition { changes, users, rate })?;
    let error = found.error.max(ERROR_PROCESSORS);
    let ends = [-1.0, 1.0].map(|sign| significant((found.rate * (1.0 + sign * error)).max(0.0), 3));
    Ok(Estimate { value: significant(found.rate, 3), ci95: Some(ends) })
}

/// Processors for it on so many cores, and what a request takes of them: of those that the service may use, or, where a generator on the
/// same machine leaves less, of the machine's with the generator's part in it.
fn processors(load: &MeasuredLoad, of: &Facts, cores: f64) -> std::result::Result<(f64, f64), String> {
    let facts = &load.facts;
    let ended = facts.ended_per_s().ok_or("no request ended")?;
    let own = services_cores(facts).ok_or("what the service uses of the processors was not read")?;
    let busy = facts.value(FactId::cpu_busy_fraction).unwrap_or(0.0);
    let usable = (own / load.cores).max(busy).clamp(PROCESSORS_USABLE, 1.0);
    let group = (usable * cores, own / ended * 1e6);
    let machine = of.value(FactId::cores).zip(facts.value(FactId::client_cpu_cores)).map(|(all, client)| {
        // Other programs are no part of it: a machine that is sized has none.
        (usable * all, (own + client + softirq_cores(facts)) / ended * 1e6)
    });
    let rate = |(servers, us): (f64, f64)| servers / us;
    Ok(machine.filter(|machine| rate(*machine) < rate(group)).unwrap_or(group))
}
