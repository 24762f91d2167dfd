//! The scenarios of the lab: each is built with its services and removed again, and some of each kind are loaded for a few
//! seconds, so that what limits them must be seen. That all of them bind, and what the fixes bring, is what `make lab`
//! measures, on a machine that has nothing else to do: it takes half an hour.

use crate::support::{Place, can_mount, run, skip, turn};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use webdyno_lab::scenario::{Catalogue, FINDINGS, Group, ScenarioFolder};

/// So many are up at once: they wait most of their time.
const AT_ONCE: usize = 3;

/// One of each kind that no busy machine hides: workers, kernel, backends, control groups, links, logs, nothing.
const LOADED: [&str; 9] = [
    "workers-exhausted-prefork",
    "ports-exhausted",
    "conntrack-full",
    "fpm-workers-exhausted",
    "db-connections-exhausted",
    "cpu-throttled",
    "upstream-bandwidth",
    "log-piped",
    "healthy-event",
];

fn folders() -> Vec<ScenarioFolder> {
    let catalogue = Catalogue::BuiltIn;
    catalogue.names().unwrap().iter().map(|name| catalogue.open(name).unwrap()).collect()
}

/// Does something with each of these scenarios, some at once; those that set something of the whole machine exclude each
/// other. All complaints together.
fn scenario_errors(
    folders: Vec<ScenarioFolder>,
    about: impl Fn(&ScenarioFolder) -> Option<String> + Sync,
) -> Vec<String> {
    let sets_machine = |folder: &ScenarioFolder| {
        let rounds = folder.scenario.rounds.iter().map(|round| &round.machine);
        rounds.chain([&folder.scenario.machine]).any(|machine| !machine.sysctl.is_empty())
    };
    let (together, mut queue): (Vec<_>, Vec<_>) = folders.into_iter().partition(sets_machine);
    let mut queue: Vec<_> = queue.drain(..).map(|folder| vec![folder]).collect();
    queue.push(together);
    let queue = Mutex::new(queue);
    let complaints = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || queue.lock().unwrap().pop();
                while let Some(folders) = next() {
                    for folder in folders {
                        complaints.lock().unwrap().extend(about(&folder));
                    }
                }
            });
        }
    });
    complaints.into_inner().unwrap()
}

#[test]
fn every_scenario_is_built_and_removed() {
    if !can_mount() {
        return skip("needs root and mount(8)");
    }
    // Databases are made, and memories of hosts filled: others would be measured with it.
    let _turn = turn();
    let folders = folders();
    assert!(folders.len() > 50, "only {} scenarios", folders.len());
    let found = scenario_errors(folders, |folder| {
        let place = Place::new();
        let lab =
            |words: [&str; 2]| run(place.webdyno().arg("lab").args(words).timeout(Duration::from_secs(60)));
        let up = lab(["up", &folder.name]);
        let down = lab(["down", &folder.name]);
        let is_well = up.code == 0 && down.code == 0;
        (!is_well).then(|| format!("{}: {}{}", folder.name, up.stderr, down.stderr))
    });
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn faults_bind() {
    if !can_mount() {
        return skip("needs root and mount(8)");
    }
    let _turn = turn();
    let folders: Vec<_> =
        folders().into_iter().filter(|folder| LOADED.contains(&folder.name.as_str())).collect();
    assert_eq!(folders.len(), LOADED.len(), "a scenario has another name now");
    let found = scenario_errors(folders, unseen);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// What of a scenario's first round was not seen.
fn unseen(folder: &ScenarioFolder) -> Option<String> {
    let (place, name) = (Place::new(), &folder.name);
    let mut command = place.webdyno();
    command.args(["lab", "run", name, "--rounds", "1", "--json", "-", "--out", "run"]);
    let ended = run(command.timeout(Duration::from_secs(90)));
    if ended.code == 0 {
        return None;
    }
    if ended.code != 3 {
        return Some(format!("{name}: exit code {}: {}", ended.code, ended.stderr));
    }
    let json = ended.json();
    let signs = json["rounds"][0]["signs"].as_array().cloned().unwrap_or_default();
    let missing: Vec<Value> = signs.into_iter().filter(|sign| sign["seen"] != true).collect();
    Some(format!("{name}: not seen: {}", Value::from(missing)))
}

/// Ids of the catalogue that no server here can show, because the hardware is another: recordings stand for them
/// (crates/analysis/fixtures/recorded).
const OF_OTHER_HARDWARE: [&str; 2] = ["cpu-stolen", "nic-negotiated-low"];

#[test]
fn every_fault_of_the_catalogue_has_a_scenario() {
    let folders = folders();
    let rounds = folders.iter().flat_map(|folder| &folder.scenario.rounds);
    let displayed: BTreeSet<&str> = rounds
        .flat_map(|round| std::iter::once(&round.finding).chain(&round.beside))
        .map(String::as_str)
        .collect();
    let is_missing = |id: &&&str| !displayed.contains(**id) && !OF_OTHER_HARDWARE.contains(id);
    let missing: Vec<_> = FINDINGS.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no scenario shows {missing:?}");
    let of_group = |group: Group| folders.iter().filter(|folder| folder.scenario.group == group).count();
    assert!(of_group(Group::Story) >= 5 && of_group(Group::Stacked) >= 3 && of_group(Group::Healthy) >= 3);
}
