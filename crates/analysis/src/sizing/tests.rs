//! A server by hand, whose sizes are known: two cores, 4 ms of them for a request, 10 kB on the wire, workers of 20 MB.

use super::*;
use crate::facts::testing::{facts, of_pool, set, with_changes};
use crate::facts::{FactId, Facts};
use proptest::prelude::*;
use webdyno_model::sizing::{RateSpread, SizeChoice};

const MEASURED: [(FactId, f64); 16] = [
    (FactId::workers_limit, 100.0),
    (FactId::workers_busy_mean, 2.0),
    (FactId::workers_writing_mean, 2.0),
    (FactId::offered_rate, 250.0),
    (FactId::connections_cap, 50.0),
    (FactId::rate, 250.0),
    (FactId::ended_per_s, 250.0),
    (FactId::in_flight_mean, 2.0),
    (FactId::response_time_mean_us, 8000.0),
    (FactId::rate_ci95_fraction, 0.01),
    (FactId::cores, 2.0),
    (FactId::cpu_busy_fraction, 0.5),
    (FactId::service_cpu_cores, 1.0),
    (FactId::worker_private_mean_bytes, 20e6),
    (FactId::worker_memory_mean_bytes, 20e6),
    (FactId::worker_count_mean, 10.0),
];

fn measured(changes: &[(FactId, f64)]) -> Facts {
    let mut facts = facts(&with_changes(&MEASURED, changes), &[]);
    set(&mut facts, FactId::worker_memory_sum_bytes, 300e6);
    set(&mut facts, FactId::received_bytes_per_request, 10_000.0);
    facts
}

/// The same with a database on the machine that takes a quarter of the processors.
fn with_database() -> Facts {
    let mut facts = measured(&[(FactId::service_cpu_cores, 0.75)]);
    of_pool(&mut facts, "mariadb", &[(FactId::ahead_backend_cpu_cores, 0.25)]);
    set(&mut facts, FactId::database_resident_max_bytes, 1e9);
    facts
}

fn request(goal: SizeGoal) -> SizeRequest {
    SizeRequest {
        goal,
        users: None,
        think_s: None,
        page_bytes: None,
        growth: 0.0,
        years: 0.0,
        headroom: 0.3,
        spare: 0,
        mix: vec![],
        misses: None,
    }
}

fn machine(name: &str, cores: f64, memory_bytes: f64, price: Option<f64>) -> Machine {
    let memory_bytes = Some(memory_bytes);
    Machine { name: name.into(), cores, memory_bytes, nic_bit_s: Some(1e9), price, ..Machine::default() }
}

fn catalogue(is_priced: bool) -> MachineCatalogue {
    let sizes = [("tiny", 1.0, 7.0), ("small", 2.0, 10.0), ("medium", 4.0, 17.0), ("large", 8.0, 40.0)];
    let machines =
        sizes.map(|(name, cores, price)| machine(name, cores, 4e9 * cores, is_priced.then_some(price)));
    MachineCatalogue { source: "the test".into(), currency: None, machines: machines.to_vec() }
}

fn sized_of(facts: Vec<Facts>, request: &SizeRequest, catalogue: &MachineCatalogue) -> Result<SizeReport> {
    let loads: Result<Vec<MeasuredLoad>> =
        facts.into_iter().map(|facts| MeasuredLoad::of_facts(facts, 60.0)).collect();
    sized(&loads?, vec![], request, catalogue)
}

fn of(goal: f64, headroom: f64, is_priced: bool) -> SizeReport {
    let request = SizeRequest { headroom, ..request(SizeGoal::Rate(goal)) };
    sized_of(vec![measured(&[])], &request, &catalogue(is_priced)).unwrap()
}

fn best(report: &SizeReport) -> &SizeChoice {
    report.choices.first().unwrap_or_else(|| panic!("nothing is recommended: {report:#?}"))
}

fn demand(report: &SizeReport, name: &str) -> f64 {
    report.demands.iter().find(|one| one.resource == name).unwrap().per_request
}

#[test]
fn a_server_whose_demands_are_known_gives_the_known_answer() {
    let report = of(500.0, 0.3, true);
    assert_eq!(
        (demand(&report, "cpu"), demand(&report, "link"), demand(&report, "worker memory")),
        (4000.0, 10_500.0, 20e6)
    );
    // 500/s of 4 ms are two cores; by 0.95 of them usable and 30% free three.
    let needs = report.needs.as_ref().unwrap();
    assert_eq!((needs.cores, needs.link_bit_s), (3.01, Some(67e6)));
    let best = best(&report);
    assert_eq!(
        (best.name.as_str(), best.count, best.cost, best.cpu_fraction),
        ("medium", 1, Some(17.0), 0.5)
    );
    // 3.8 usable cores of 4 ms are 950/s, of which the pools let hardly any wait.
    assert!((best.rate.p50 / 950.0 - 1.0).abs() < 0.05, "{best:?}");
    assert_eq!(best.first_limit.as_deref(), Some("cpu-saturated"));
    // Half busy, a request waits next to nothing: 4 ms of the processors and what was measured beside them.
    assert!((7000.0..9000.0).contains(&report.response_time_mean_us.unwrap()), "{report:#?}");
    let workers = report.settings.iter().find(|one| one.setting == "MaxRequestWorkers").unwrap();
    assert!((6..16).contains(&workers.value), "{workers:?}");
}

#[test]
fn the_sized_server_put_through_the_model_meets_the_goal() {
    let request = request(SizeGoal::Rate(900.0));
    let load = MeasuredLoad::of_facts(measured(&[]), 60.0).unwrap();
    let catalogue = catalogue(false);
    let report = sized(std::slice::from_ref(&load), vec![], &request, &catalogue).unwrap();
    let best = best(&report);
    let range = range(std::slice::from_ref(&load));
    let machine = catalogue.machines.iter().find(|machine| machine.name == best.name).unwrap();
    let sized = server(&load.demands, machine, &range, &request);
    let each = 900.0 / best.count as f64;
    let (_, memory, response_us) = sized.at(each);
    assert!(sized.rate(server::Draw::default()) * 0.7 >= each && response_us.is_some());
    assert!(memory.unwrap() <= machine.memory_bytes.unwrap());
}

#[test]
fn memory_and_the_link_limit_where_they_are_small() {
    let with = |memory_bytes: f64, nic: f64| {
        let small = Machine { nic_bit_s: Some(nic), ..machine("one", 2.0, memory_bytes, None) };
        let catalogue = MachineCatalogue { machines: vec![small], ..catalogue(false) };
        sized_of(vec![measured(&[])], &request(SizeGoal::Rate(100.0)), &catalogue).unwrap()
    };
    let limit = |report: &SizeReport| report.choices.first().and_then(|one| one.first_limit.clone());
    assert_eq!(limit(&with(8e9, 1e9)).as_deref(), Some("cpu-saturated"));
    assert_eq!(limit(&with(8e9, 10e6)).as_deref(), Some("network-saturated"));
    // 256 MB of the system, 100 of what workers share, four workers of 20 MB: no more fit into 500 MB.
    assert_eq!(limit(&with(0.5e9, 1e9)).as_deref(), Some("memory-exhausted"));
    let none = with(0.3e9, 1e9);
    assert!(none.choices.is_empty() && none.refused.unwrap().contains("memory does not hold"));
}

#[test]
fn spare_servers_and_a_database_need_machines_of_their_own() {
    let with = |spare: u64, goal: f64| {
        let request = SizeRequest { spare, ..request(SizeGoal::Rate(goal)) };
        let report = sized_of(vec![with_database()], &request, &catalogue(true)).unwrap();
        let best = best(&report).clone();
        (best.count, best.spare, best.database.map(|database| database.count))
    };
    assert_eq!(with(0, 300.0), (1, 0, None));
    assert_eq!(with(1, 300.0).2, Some(2));
    // Without a database n + 1 is one more.
    let alone = |spare| {
        let request = SizeRequest { spare, ..request(SizeGoal::Rate(500.0)) };
        best(&sized_of(vec![measured(&[])], &request, &catalogue(false)).unwrap()).clone()
    };
    let (without, with) = (alone(0), alone(1));
    assert_eq!((without.spare, with.spare), (0, 1));
    assert!(with.count > 1 && with.rate.p50 * 0.7 >= 500.0, "the spare one carries nothing: {with:?}");
}

#[test]
fn users_and_pages_are_rates() {
    let users = |think_s| SizeRequest { think_s, ..request(SizeGoal::Users(1000.0)) };
    let report = sized_of(vec![measured(&[])], &users(Some(2.0)), &catalogue(false)).unwrap();
    // 1000 users every 2 s and the response.
    assert!((report.goal_rate.unwrap() - 498.0).abs() < 1.0, "{:?}", report.goal_rate);
    let no_think = sized_of(vec![measured(&[])], &users(None), &catalogue(false)).unwrap_err();
    assert_eq!(
        (no_think.exit_code(), no_think.hint.as_deref()),
        (2, Some("give it: --think 3s; or the goal as a rate: --goal 500/s"))
    );
    let no_pages =
        sized_of(vec![measured(&[])], &request(SizeGoal::Pages(10.0)), &catalogue(false)).unwrap_err();
    assert_eq!(no_pages.exit_code(), 2);
    let grown = SizeRequest { growth: 0.2, years: 3.0, ..request(SizeGoal::Rate(500.0)) };
    let report = sized_of(vec![measured(&[])], &grown, &catalogue(false)).unwrap();
    assert_eq!(report.goal_rate, Some(864.0));
}

#[test]
fn what_nobody_measured_is_refused_with_what_to_measure() {
    let far = of(1001.0, 0.3, false);
    assert!(far.choices.is_empty() && far.recommended.is_none());
    let why = far.refused.unwrap();
    assert!(
        why.contains("more than four times what was measured (250)") && why.contains("--rate 251"),
        "{why}"
    );
    let large = MachineCatalogue { machines: vec![machine("huge", 16.0, 64e9, None)], ..catalogue(false) };
    let report = sized_of(vec![measured(&[])], &request(SizeGoal::Rate(500.0)), &large).unwrap();
    assert!(report.refused.unwrap().contains("four times the 2 cores"));
    assert!(of(500.0, 0.3, false).notes.iter().any(|note| note.starts_with("One load only")));
}

#[test]
fn the_networks_part_of_the_processors_is_not_that_of_the_neighbours() {
    for (cores, expected) in [(2.0, 0.1), (64.0, 1.0)] {
        let facts = measured(&[(FactId::cpu_softirq_fraction, 0.05), (FactId::cores, cores)]);
        assert_eq!(demands::softirq_cores(&facts), expected, "{cores}");
    }
}

#[test]
fn pages_are_to_be_recorded_by_users_as_a_rate_of_them_tells_nothing() {
    let range = MeasuredRange { rate: 250.0, users: Some(50.0), ..MeasuredRange::default() };
    for (has_pages, how) in [(true, " --page --users 100 URL"), (false, " --rate 500 URL")] {
        let why = beyond_range(&range, 2000.0, 0.0, has_pages).unwrap();
        assert!(why.contains(how), "{why}");
    }
    for (changes, how) in [
        (vec![(FactId::page_time_mean_us, 80_000.0)], " --page --users N URL"),
        (vec![(FactId::in_flight_mean, f64::NAN)], " --rate R URL"),
    ] {
        let error = MeasuredLoad::of_facts(measured(&changes), 60.0).unwrap_err();
        assert!(error.hint.as_ref().is_some_and(|hint| hint.ends_with(how)), "{error:?}");
    }
}

#[test]
fn what_lies_between_loads_widens_the_interval_and_classes_are_mixed() {
    let other = || measured(&[(FactId::service_cpu_cores, 0.5), (FactId::cpu_busy_fraction, 0.3)]);
    let cpu = |mix: Vec<f64>, facts: Vec<Facts>| {
        let request = SizeRequest { mix, ..request(SizeGoal::Rate(500.0)) };
        let report = sized_of(facts, &request, &catalogue(false)).unwrap();
        let cpu = report.demands.iter().find(|one| one.resource == "cpu").unwrap().clone();
        let [low, high] = cpu.ci95.unwrap();
        (cpu.per_request, (high - low) / 2.0 / cpu.per_request)
    };
    let (alone, sure) = cpu(vec![], vec![measured(&[])]);
    let (both, unsure) = cpu(vec![], vec![measured(&[]), other()]);
    assert!((alone, both) == (4000.0, 3000.0) && sure < 0.04 && unsure > 0.33, "{sure} {unsure}");
    let (mixed, sure) = cpu(vec![30.0, 10.0], vec![measured(&[]), other()]);
    assert!(mixed == 3500.0 && sure < 0.04, "{mixed} {sure}");
}

#[test]
fn files_that_memory_does_not_hold_come_from_the_disk() {
    let disk = |misses| {
        let slow = Machine { disk_read_bytes_per_s: Some(1e6), ..machine("one", 2.0, 4e9, None) };
        let catalogue = MachineCatalogue { machines: vec![slow], ..catalogue(false) };
        let request = SizeRequest { misses, ..request(SizeGoal::Rate(100.0)) };
        best(&sized_of(vec![measured(&[])], &request, &catalogue).unwrap()).first_limit.clone().unwrap()
    };
    assert_eq!(disk(None), "cpu-saturated");
    assert_eq!(disk(Some(MissRatioCurve(vec![[1e9, 0.0]]))), "cpu-saturated");
    assert_eq!(disk(Some(MissRatioCurve(vec![[1e9, 0.9], [50e9, 0.3]]))), "working-set-exceeds-memory");
}

/// What it takes of hardware: the price, or the points that stand for it.
fn hardware(report: &SizeReport) -> f64 {
    let best = best(report);
    best.cost.unwrap_or(best.count as f64 * (best.cores + best.memory_bytes.unwrap() / 4e9 + 1.0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    // More goal or headroom never gives less hardware, and never fewer cores; the percentiles are in order; the cheapest is first.
    #[test]
    fn more_is_never_less(goal in 20.0..800.0f64, more in 1.0..1.2f64, headroom in 0.0..0.5f64, is_priced: bool) {
        let base = of(goal, headroom, is_priced);
        let (more_goal, more_room) = (of(goal * more, headroom, is_priced), of(goal, headroom + 0.1, is_priced));
        prop_assert!(hardware(&more_goal) >= hardware(&base), "{base:#?} {more_goal:#?}");
        prop_assert!(hardware(&more_room) >= hardware(&base));
        let cores = |report: &SizeReport| best(report).count as f64 * best(report).cores;
        prop_assert!(is_priced || cores(&more_room) >= cores(&base), "{base:#?} {more_room:#?}");
        for choice in base.choices.iter() {
            let RateSpread { p10, p50, p90 } = choice.rate;
            prop_assert!(p10 <= p50 && p50 <= p90 && p10 >= goal * 0.99 && p50 * (1.0 - headroom) >= goal * 0.99);
        }
        let costs: Vec<f64> = base.choices.iter().filter_map(|choice| choice.cost).collect();
        prop_assert!(costs.windows(2).all(|two| two[0] <= two[1]) && (costs.is_empty() || is_priced));
    }
}

/// A store of 256 MB of which all is asked for alike, on a disk that reads a tenth of what the processors serve: until a ninth of it is
/// missed the disk limits. 50 MB are held beside.
#[test]
fn the_memory_of_a_store_is_predicted_from_a_load_with_plenty() {
    let (full_rate, sent_bytes, store_bytes, held_bytes) = (250.0f64, 10_500.0, 256e6, 50e6);
    let disk = 0.1 * full_rate * sent_bytes;
    let load = |memory_bytes: f64| {
        let missed = (1.0 - (memory_bytes - held_bytes) / store_bytes).max(0.0);
        let rate = if missed > 0.0 { full_rate.min(disk / (missed * sent_bytes)) } else { full_rate };
        let mut facts = measured(&[(FactId::rate, rate)]);
        for (fact, value) in [
            (FactId::group_memory_limit_bytes, memory_bytes),
            (FactId::memory_total_bytes, 64e9),
            (FactId::memory_used_in_limit_max_bytes, held_bytes),
            (FactId::disk_read_bytes_per_s, missed * rate * sent_bytes),
        ] {
            set(&mut facts, fact, value);
        }
        (memory_bytes, rate, MeasuredLoad::of_facts(facts, 60.0).unwrap())
    };
    let loads: Vec<(f64, f64, MeasuredLoad)> = (6..20).map(|step| load(f64::from(step) * 20e6)).collect();
    let store = |count: usize| knee::Store {
        what: "/store",
        loads: loads[loads.len() - count..].iter().map(|(bytes, rate, load)| (*bytes, *rate, load)).collect(),
    };
    let curve = webdyno_model::sizing::MissRatioCurve(vec![[0.0, 1.0], [store_bytes, 0.0]]);
    let check = store(loads.len()).check(&curve).unwrap();
    assert!((check.predicted_bytes / 277.6e6 - 1.0).abs() < 0.01 && check.error.abs() < 0.03, "{check:?}");
    // Plenty everywhere: there is no knee to be seen.
    assert_eq!(store(4).check(&curve), None);
}
