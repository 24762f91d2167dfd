//! The scenarios of the lab: each is built with its services and removed again, and some of each kind are loaded for a few
//! seconds, so that what limits them must be seen. That all of them bind, and what the fixes bring, is what `make lab`
//! measures, on a machine that has nothing else to do: it takes half an hour.
//!
//! `make test` builds those whose folder changed since they were built here last, and one of each kind.

use crate::extent::{leave_out, runs_all};
use crate::skip::needs;
use crate::support::{Place, can_mount, run, turn};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use webdyno_lab::scenario::{Catalogue, FINDINGS, Group, ScenarioFolder};

/// So many are up at once: they wait most of their time.
const AT_ONCE: usize = 3;

/// One of each kind that no busy machine hides: workers, kernel, backends, control groups, links, logs, nothing. The first
/// ones always, the others when all are wanted or their folder changed.
const LOADED: [&str; 9] = [
    "workers-exhausted-prefork",
    "conntrack-full",
    "db-connections-exhausted",
    "ports-exhausted",
    "fpm-workers-exhausted",
    "cpu-throttled",
    "upstream-bandwidth",
    "log-piped",
    "healthy-event",
];

/// How many of them.
const ALWAYS_LOADED: usize = 2;

fn folders() -> Vec<ScenarioFolder> {
    let catalogue = Catalogue::BuiltIn;
    catalogue.names().unwrap().iter().map(|name| catalogue.open(name).unwrap()).collect()
}

/// The hashes of scenarios' folders, by name, as they were when a test did its work on them last; of those that it left out
/// as they were at first.
struct Known {
    file: PathBuf,
    hashes: BTreeMap<String, String>,
}

impl Known {
    /// Of one test.
    fn of(test: &str) -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scenarios-{test}.json"));
        let hashes = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let is_first = hashes.is_none();
        let mut known = Self { file, hashes: hashes.unwrap_or_default() };
        if is_first {
            known.note(&folders());
        }
        known
    }

    fn changed(&self, folder: &ScenarioFolder) -> bool {
        self.hashes.get(&folder.name) != Some(&hash(folder))
    }

    fn note(&mut self, folders: &[ScenarioFolder]) {
        self.hashes.extend(folders.iter().map(|folder| (folder.name.clone(), hash(folder))));
        std::fs::write(&self.file, serde_json::to_vec_pretty(&self.hashes).unwrap()).unwrap();
    }

    /// Those that are wanted, and those whose folder changed; the others are left out.
    fn choose(
        &self,
        folders: Vec<ScenarioFolder>,
        is_wanted: impl Fn(&ScenarioFolder) -> bool,
        kind: &str,
    ) -> Vec<ScenarioFolder> {
        let is_chosen = |folder: &ScenarioFolder| runs_all() || is_wanted(folder) || self.changed(folder);
        let (chosen, left): (Vec<_>, Vec<_>) = folders.into_iter().partition(is_chosen);
        leave_out(left.len(), kind);
        chosen
    }
}

/// Of all files of a scenario.
fn hash(folder: &ScenarioFolder) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(&folder.name);
    let mut hash = Sha256::new();
    for entry in walkdir::WalkDir::new(&root).sort_by_file_name() {
        let entry = entry.unwrap();
        hash.update(entry.path().strip_prefix(&root).unwrap().as_os_str().as_encoded_bytes());
        if entry.file_type().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        }
    }
    format!("{:x}", hash.finalize())
}

/// Names of scenarios that have together all that a lab can have: programs, multi-processing modules, limits of hosts,
/// links, disks, settings of the machine.
fn one_of_each_kind(folders: &[ScenarioFolder]) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut names = BTreeSet::new();
    for folder in folders {
        let has: Vec<_> = kinds(folder).into_iter().filter(|kind| !seen.contains(kind)).collect();
        if !has.is_empty() {
            names.insert(folder.name.clone());
            seen.extend(has);
        }
    }
    names
}

fn kinds(folder: &ScenarioFolder) -> Vec<String> {
    let scenario = &folder.scenario;
    let mut kinds = vec![format!("{:?}", scenario.group)];
    for service in &scenario.services {
        kinds.push(format!("{:?} {:?}", service.program, service.mpm));
        kinds.extend(service.sql.is_some().then(|| "sql".to_owned()));
        kinds.extend(service.processes.is_some().then(|| "processes".to_owned()));
        kinds.extend(service.memory.is_some().then(|| "memory".to_owned()));
    }
    let hosts = scenario.hosts.values();
    let has_any = [
        ("memory of a host", hosts.clone().any(|host| host.memory.is_some())),
        ("cpus", hosts.clone().any(|host| host.cpus.is_some())),
        ("cores", hosts.clone().any(|host| host.cores.is_some())),
        ("sysctl of a host", hosts.clone().any(|host| !host.sysctl.is_empty())),
        ("firewall", hosts.clone().any(|host| host.firewall)),
        ("rules", hosts.clone().any(|host| host.nft.is_some())),
        ("disks", hosts.clone().any(|host| !host.disks.is_empty())),
        (
            "shaped link",
            scenario.links.iter().any(|link| link.rate_there.is_some() || link.rate_back.is_some()),
        ),
        ("sysctl of the machine", !scenario.machine.sysctl.is_empty()),
        ("swap", scenario.machine.swap.is_some()),
    ];
    kinds.extend(has_any.into_iter().filter(|(_, has)| *has).map(|(kind, _)| kind.to_owned()));
    kinds
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
    needs!(can_mount(), "needs root and mount(8)");
    // Databases are made, and memories of hosts filled: others would be measured with it.
    let _turn = turn();
    let folders = folders();
    assert!(folders.len() > 50, "only {} scenarios", folders.len());
    let (mut known, each_kind) = (Known::of("built"), one_of_each_kind(&folders));
    let folders = known.choose(
        folders,
        |folder| each_kind.contains(&folder.name),
        "scenarios that are built and removed",
    );
    let found = scenario_errors(folders.clone(), |folder| {
        let place = Place::new();
        let lab =
            |words: [&str; 2]| run(place.webdyno().arg("lab").args(words).timeout(Duration::from_secs(60)));
        let up = lab(["up", &folder.name]);
        let down = lab(["down", &folder.name]);
        let is_well = up.code == 0 && down.code == 0;
        (!is_well).then(|| format!("{}: {}{}", folder.name, up.stderr, down.stderr))
    });
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    known.note(&folders);
}

#[test]
fn faults_bind() {
    needs!(can_mount(), "needs root and mount(8)");
    let _turn = turn();
    let folders: Vec<_> =
        folders().into_iter().filter(|folder| LOADED.contains(&folder.name.as_str())).collect();
    assert_eq!(folders.len(), LOADED.len(), "a scenario has another name now");
    let mut known = Known::of("loaded");
    let always = |folder: &ScenarioFolder| LOADED[..ALWAYS_LOADED].contains(&folder.name.as_str());
    let folders = known.choose(folders, always, "scenarios that are loaded");
    let found = scenario_errors(folders.clone(), unseen);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
    known.note(&folders);
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
