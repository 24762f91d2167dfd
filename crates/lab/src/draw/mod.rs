//! Servers drawn at random: a seed in, a scenario with its truth out, as files. The same seed gives the same server in every
//! version that has the same tables. Pure: nothing is built here.
//!
//! A row of `faults` or `decoys` is one more of these. What is drawn: `shape`; how it becomes files: `render`; how a state is
//! changed into another one: `rounds`.

mod decoys;
mod faults;
mod random;
mod render;
mod rounds;
mod server;
mod shape;

use decoys::DECOYS;
use faults::Fault;
use random::Random;
use render::Rendered;
use server::{Arrival, Server};
use std::collections::BTreeMap;

/// What names of drawn scenarios begin with.
pub const PREFIX: &str = "draw-";
/// How often a server is drawn until its faults apply to it.
const SERVERS_MAX: u32 = 200;
/// How often faults are drawn.
const FAULTS_MAX: u32 = 40;
/// The share of pools of PHP-FPM whose processes are started when requests come, and the stream of random numbers that it is drawn
/// from: one of its own, so that nothing else of a seed depends on it.
const ON_DEMAND_FRACTION: f64 = 0.25;
const POOL_STREAM: u64 = 1 << 33;

/// Which server: the seed, and how often it was drawn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed {
    /// The seed.
    pub seed: u64,
    /// 0 for the first draw; each next one takes the place of a draw whose truth could not be proven.
    pub attempt: u32,
}

/// A server that was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnServer {
    /// Which.
    pub seed: Seed,
    /// What it is, in a few words: `Apache (event), PHP-FPM by TCP, TLS`.
    pub words: String,
    /// The web server and what makes its pages, as figures are told apart by them: `nginx`, `PHP-FPM by TCP`.
    pub services: [String; 2],
    /// The load, as one would type it.
    pub load: String,
    /// What is wrong with it.
    pub faults: Vec<DrawnFault>,
    /// What only looks wrong, in words.
    pub decoys: Vec<&'static str>,
    /// Whether the processors always have work when nothing is wrong.
    pub is_full: bool,
    /// How long a page takes alone when nothing is wrong, by a guess, milliseconds.
    pub alone_ms: f64,
    /// Requests per second that come however slow the responses are; `None` in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Whether clients keep no connections of TLS.
    pub greets: bool,
    /// The files of its scenario, relative to the scenario's folder.
    pub files: BTreeMap<String, String>,
}

/// A fault of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnFault {
    /// Its name.
    pub id: &'static str,
    /// How severe it is, in words.
    pub severity: String,
    /// Ids of findings that are right.
    pub findings: &'static [&'static str],
}

impl Seed {
    /// The one that a scenario's name tells: `draw-17`, or `draw-17-2` when it was drawn again twice.
    pub fn of_name(name: &str) -> Option<Self> {
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok());
        let rest = name.strip_prefix(PREFIX)?;
        let (seed, attempt) = rest.split_once('-').unwrap_or((rest, "0"));
        let seed = Self { seed: number(seed)??, attempt: u32::try_from(number(attempt)??).ok()? };
        (seed.name() == name).then_some(seed)
    }

    /// The name of its scenario.
    pub fn name(self) -> String {
        match self.attempt {
            0 => format!("{PREFIX}{}", self.seed),
            attempt => format!("{PREFIX}{}-{attempt}", self.seed),
        }
    }
}

/// Whether a setting lifts a fault that may be changed without asking anybody.
pub fn is_of_a_setting(fault: &str) -> bool {
    faults::OF_SETTINGS.contains(&fault)
}

/// The file of a drawn scenario, by its path from the scenario's name on.
pub fn file(path: &str) -> Option<String> {
    let (name, path) = path.split_once('/')?;
    draw(Seed::of_name(name)?).files.remove(path)
}

/// The paths of the files in a folder of a drawn scenario, which begins with the scenario's name; none where there is none.
pub fn paths(folder: &str) -> Vec<String> {
    let name = folder.split('/').next().unwrap_or_default();
    let Some(seed) = Seed::of_name(name) else { return vec![] };
    let paths = draw(seed).files.into_keys().map(|path| format!("{name}/{path}"));
    paths.filter(|path| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))).collect()
}

/// Draws the server of a seed.
pub fn draw(seed: Seed) -> DrawnServer {
    // How many faults there are hangs on the seed alone: those that are drawn again would else become rarer.
    let count = match Random::of(seed.seed, 0).whole(0, 99) {
        0..25 => 0,
        25..82 => 1,
        _ => 2,
    };
    let mut random = Random::of(seed.seed, 1 + u64::from(seed.attempt));
    let (mut server, faults) = choose(&mut random, count);
    server.settings.on_demand = Random::of(seed.seed, POOL_STREAM).chance(ON_DEMAND_FRACTION);
    for fault in &faults {
        (fault.prepare)(&mut server);
    }
    let mut decoys: Vec<&str> = vec![];
    for _ in 0..random.whole(0, 2) {
        let decoy = &DECOYS[random.whole(0, DECOYS.len() as u64 - 1) as usize];
        if (decoy.applies)(&server) && !decoys.contains(&decoy.words) {
            (decoy.set)(&mut server);
            decoys.push(decoy.words);
        }
    }
    let state = |present: &[usize]| state(seed, &server, &faults, present);
    let states: Vec<State> = present(faults.len()).iter().map(|present| state(present)).collect();
    let (urls, flags) = (render::urls(&server), render::flags(&server));
    DrawnServer {
        seed,
        words: server.words(),
        services: [server.front.words().into(), server.pages.words().into()],
        load: format!("{} {flags}", urls.join(" ")),
        decoys,
        is_full: server.is_full(),
        alone_ms: f64::from(server.wait_ms) + server.work_ms,
        offered_per_s: match server.arrival {
            Arrival::Open(rate) => Some(rate),
            _ => None,
        },
        greets: server.tls && !server.kept,
        files: rounds::files(seed, &server, &states, &urls, &flags),
        faults: states.into_iter().next().map(|state| state.faults).unwrap_or_default(),
    }
}

/// A server with some of its faults.
#[derive(Debug)]
struct State {
    faults: Vec<DrawnFault>,
    rendered: Rendered,
}

/// Which faults are there in each state: all, all but each one, none.
fn present(faults: usize) -> &'static [&'static [usize]] {
    match faults {
        0 => &[&[]],
        1 => &[&[0], &[]],
        _ => &[&[0, 1], &[1], &[0], &[]],
    }
}

/// Sets faults, each as severe as in every other state.
fn state(seed: Seed, server: &Server, faults: &[&Fault], present: &[usize]) -> State {
    let mut server = server.clone();
    let mut drawn = vec![];
    for index in present {
        let fault = faults[*index];
        let mut random = Random::of(seed.seed, (1 << 32) + (u64::from(seed.attempt) << 8) + *index as u64);
        let severity = (fault.set)(&mut server, &mut random);
        drawn.push(DrawnFault { id: fault.id, severity, findings: fault.findings });
    }
    State { faults: drawn, rendered: render::render(&server) }
}

/// Draws so many faults, and a server that can have all of them.
fn choose(random: &mut Random, count: usize) -> (Server, Vec<&'static Fault>) {
    let all: Vec<&Fault> = faults::all().collect();
    for _ in 0..FAULTS_MAX {
        let mut faults: Vec<&Fault> = vec![];
        while faults.len() < count {
            let fault = all[random.whole(0, all.len() as u64 - 1) as usize];
            if !faults.iter().any(|known| known.id == fault.id) {
                faults.push(fault);
            }
        }
        for _ in 0..SERVERS_MAX {
            let server = shape::server(random);
            if faults.iter().all(|fault| (fault.applies)(&server)) {
                return (server, faults);
            }
        }
    }
    // Never seen: then nothing is wrong with it.
    (shape::server(random), vec![])
}

#[cfg(test)]
mod tests;
