//! Every scenario of the lab as it was found: built, loaded for some seconds, and what limits it must be seen. A fault
//! that does not bind fails here; what the fixes bring is measured by `make lab`, on a machine that has nothing else to do.
//!
//! Stories take minutes and are left to `make lab`, but for their descriptions.

use crate::support::{Place, can_mount, run, skip, turn};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use webdyno_lab::scenario::{Catalogue, Folder, Group};

/// So many are up at once: most of them wait most of their time.
const AT_ONCE: usize = 3;

fn folders() -> Vec<Folder> {
    let catalogue = Catalogue::BuiltIn;
    catalogue.names().unwrap().iter().map(|name| catalogue.open(name).unwrap()).collect()
}

#[test]
fn every_scenario_binds() {
    if !can_mount() {
        return skip("needs root and mount(8)");
    }
    let _turn = turn();
    let (of_the_machine, others): (Vec<_>, Vec<_>) = folders()
        .into_iter()
        .filter(|folder| folder.scenario.group != Group::Story)
        .partition(|folder| !folder.scenario.machine.sysctl.is_empty());
    assert!(others.len() > 30, "only {} scenarios", others.len());
    // Those that set something of the whole machine exclude each other: one worker has them all.
    let queue = Mutex::new(others.into_iter().map(|folder| vec![folder]).collect::<Vec<_>>());
    queue.lock().unwrap().push(of_the_machine);
    let complaints = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || queue.lock().unwrap().pop();
                while let Some(folders) = next() {
                    for folder in folders {
                        complaints.lock().unwrap().extend(unseen(&folder));
                    }
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// What of a scenario's first round was not seen.
fn unseen(folder: &Folder) -> Option<String> {
    let (place, name) = (Place::new(), &folder.name);
    let mut command = place.webdyno();
    command.args(["lab", "run", name, "--rounds", "1", "--json", "-", "--out", "run"]);
    let ended = run(command.timeout(Duration::from_secs(120)));
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
    let shown: BTreeSet<String> = folders()
        .iter()
        .flat_map(|folder| {
            folder.scenario.rounds.iter().flat_map(|round| {
                std::iter::once(&round.finding).chain(&round.beside).cloned().collect::<Vec<_>>()
            })
        })
        .collect();
    let missing: Vec<_> = webdyno_lab::scenario::FINDINGS
        .iter()
        .filter(|id| !shown.contains(**id) && !OF_OTHER_HARDWARE.contains(id))
        .collect();
    assert!(missing.is_empty(), "no scenario shows {missing:?}");
}
