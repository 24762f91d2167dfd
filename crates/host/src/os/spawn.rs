//! Starting programs so that they have nothing of us: every program that this crate starts is started here.
//!
//! A program has more from whoever starts it than arguments, environment and directory (execve(2)): umask, nice value,
//! resource limits, the OOM score. A service that is started again must have them as it had them before, not those of
//! the shell that somebody typed `webdyno` into; and the guardian's own low OOM score must never go to anybody. There is
//! no room for code of ours between fork and exec, so they are lent: this process takes them on, starts the program,
//! and takes its own back. The nice value belongs to a thread (sched(7)), which therefore is one of its own.
//!
//! Facts: proc_pid_status(5), proc_pid_limits(5), proc_pid_oom_score_adj(5) (raising is always allowed; lowering below
//! the lowest value that a process with CAP_SYS_RESOURCE has set needs that capability), setrlimit(2), setpriority(2).

use crate::os::process_location;
use crate::os::process_location::HeldLocation;
use crate::os::procfs;
use rustix::fs::Mode;
use rustix::process::{
    Pid, Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit,
};
use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use webdyno_model::service::Inherited;

/// The limits that shells, init scripts and units set for servers, by their names in proc_pid_limits(5).
const LIMITS: [(&str, Resource); 4] = [
    ("Max open files", Resource::Nofile),
    ("Max processes", Resource::Nproc),
    ("Max core file size", Resource::Core),
    ("Max stack size", Resource::Stack),
];

/// Our own OOM score.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// One program at a time is started: what is lent belongs to the whole process. Holds the OOM score that we were started
/// with, once ours was lowered.
static TURN: Mutex<Option<i32>> = Mutex::new(None);

/// Starts a program. It gets what is given, as far as we may give it; else what we were started with ourselves.
pub fn spawn(command: &mut Command, inherited: Option<&Inherited>) -> io::Result<Child> {
    spawn_in(command, inherited, &HeldLocation::default())
}

/// The same in other namespaces and control groups than ours. An error when these cannot be entered: it is started there
/// or nowhere.
pub fn spawn_in(
    command: &mut Command,
    inherited: Option<&Inherited>,
    place: &HeldLocation,
) -> io::Result<Child> {
    let nothing = Inherited::default();
    let wanted = inherited.unwrap_or(&nothing);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || lend(command, wanted, place))?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it failed")))
    })
}

/// Starts a program on a thread that ends with it. What we may not have ourselves cannot be lent: then the program gets
/// ours.
fn lend(command: &mut Command, wanted: &Inherited, place: &HeldLocation) -> io::Result<Child> {
    let started_with = turn();
    if let Some(nice) = wanted.nice {
        let _ = setpriority_process(None, nice);
    }
    let limits = LIMITS.into_iter().filter_map(|(name, resource)| {
        let own = getrlimit(resource);
        let lent = with_soft(own, *wanted.limits.get(name)?);
        (lent != own && setrlimit(resource, lent).is_ok()).then_some((resource, own))
    });
    let limits: Vec<_> = limits.collect();
    let score = own_oom_score();
    if let Some(lent) = wanted.oom_score_adj.or(*started_with).filter(|lent| Some(*lent) != score)
        && set_oom_score(lent).is_err()
        && let Some(first) = *started_with
    {
        // Raising is always allowed.
        let _ = set_oom_score(first);
    }
    // Last: what this process creates has modes of its own.
    let umask = wanted.umask.map(|mask| rustix::process::umask(Mode::from_raw_mode(mask)));
    let child = place.run(|| command.spawn());
    if let Some(umask) = umask {
        rustix::process::umask(umask);
    }
    if let Some(score) = score.filter(|score| own_oom_score() != Some(*score)) {
        let _ = set_oom_score(score);
    }
    for (resource, own) in limits {
        let _ = setrlimit(resource, own);
    }
    child
}

/// Lowers the OOM score of this process to the first of these values that is allowed and lower than what it is. Programs
/// that are started from now on get what it was before. What it is now; `None` when nothing was changed.
pub fn lower_oom_score(to: &[i32]) -> Option<i32> {
    let mut started_with = turn();
    let before = own_oom_score()?;
    for lower in to.iter().copied().filter(|lower| *lower < before) {
        // There and back and there again: a score that could not be lent would stay with every program.
        let moves = [lower, before, lower];
        if moves.iter().all(|score| set_oom_score(*score).is_ok()) {
            started_with.get_or_insert(before);
            return Some(lower);
        }
        let _ = set_oom_score(before);
    }
    None
}

/// What a process has inherited; `None` when nothing of it can be read.
pub fn inherited(pid: u32) -> Option<Inherited> {
    let read = |name: &str| procfs::read_text(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let process = Pid::from_raw(i32::try_from(pid).ok()?)?;
    let found = Inherited {
        umask: parse_umask(&read("status")),
        nice: getpriority_process(Some(process)).ok(),
        oom_score_adj: read("oom_score_adj").trim().parse().ok(),
        limits: parse_limits(&read("limits")),
        location: process_location::read(pid),
    };
    (found != Inherited::default()).then_some(found)
}

fn turn() -> MutexGuard<'static, Option<i32>> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The OOM score of this process.
pub fn own_oom_score() -> Option<i32> {
    procfs::read_text(OOM_SCORE).ok()?.trim().parse().ok()
}

fn set_oom_score(score: i32) -> io::Result<()> {
    std::fs::write(OOM_SCORE, score.to_string())
}

/// A limit with another soft value; the hard one rises with it, and is never lowered, as it could not be raised again.
fn with_soft(own: Rlimit, soft: Option<u64>) -> Rlimit {
    let above = match (soft, own.maximum) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(soft), Some(hard)) => soft > hard,
    };
    let may_rise = crate::os::process::has_capability(rustix::thread::CapabilitySet::SYS_RESOURCE);
    match above {
        false => Rlimit { current: soft, maximum: own.maximum },
        true if may_rise => Rlimit { current: soft, maximum: soft },
        true => Rlimit { current: own.maximum, maximum: own.maximum },
    }
}

/// The octal number behind `Umask:` of `/proc/PID/status` (since Linux 4.7).
fn parse_umask(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// The soft limits in lines as `Max open files  1024  524288  files` of `/proc/PID/limits`.
fn parse_limits(text: &str) -> BTreeMap<String, Option<u64>> {
    let soft = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_ascii_whitespace().next()? {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        }
    };
    LIMITS.iter().filter_map(|(name, _)| Some(((*name).to_owned(), soft(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    const STATUS: &str = "Name:\tapache2\nUmask:\t0027\nState:\tS (sleeping)\n";
    const TEXT: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max stack size            8388608              unlimited            bytes     \n\
        Max core file size        0                    unlimited            bytes     \n\
        Max processes             95973                95973                processes \n\
        Max open files            8192                 524288               files     \n\
        Max locked memory         8388608              8388608              bytes     \n";

    #[test]
    fn what_was_inherited_parses() {
        assert_eq!(
            [parse_umask(STATUS), parse_umask("Umask:\tx"), parse_umask("")],
            [Some(0o27), None, None]
        );
        let limits = parse_limits(TEXT);
        let shown: Vec<_> = limits.iter().map(|(name, soft)| (name.as_str(), *soft)).collect();
        let expected = [
            ("Max core file size", Some(0)),
            ("Max open files", Some(8192)),
            ("Max processes", Some(95_973)),
            ("Max stack size", Some(8_388_608)),
        ];
        assert_eq!(shown, expected);
        assert_eq!(parse_limits("Max stack size  unlimited unlimited bytes\n")["Max stack size"], None);
        assert_eq!(parse_limits("Max open files\nnonsense"), BTreeMap::new());
    }

    #[test]
    fn a_soft_limit_moves_and_a_hard_one_is_never_lowered() {
        let own = |current, maximum| Rlimit { current, maximum };
        assert_eq!(with_soft(own(Some(10), Some(100)), Some(50)), own(Some(50), Some(100)));
        assert_eq!(with_soft(own(Some(50), None), Some(10)), own(Some(10), None));
        assert_eq!(with_soft(own(Some(50), None), None), own(None, None));
        let above = with_soft(own(Some(10), Some(100)), Some(200));
        assert!([own(Some(100), Some(100)), own(Some(200), Some(200))].contains(&above), "{above:?}");
    }

    /// The environment variable that makes the test below the process that lends: other tests run beside it, and what is
    /// lent belongs to the whole process.
    const LENDER: &str = "WEBDYNO_TEST_LENDER";

    /// As a test: runs itself in a process of its own. With [`LENDER`]: in there.
    #[test]
    fn a_program_gets_what_is_lent_and_we_have_our_own_again() {
        if std::env::var_os(LENDER).is_some() {
            return lent_and_taken_back();
        }
        let test = "spawn::tests::a_program_gets_what_is_lent_and_we_have_our_own_again";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", test, "--nocapture"]).env(LENDER, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn lent_and_taken_back() {
        let own = inherited(std::process::id()).unwrap();
        let raised = |value: Option<i32>, by: i32| value.map(|value| value + by);
        let wanted = Inherited {
            umask: Some(0o137),
            nice: raised(own.nice, 3),
            oom_score_adj: raised(own.oom_score_adj, 17),
            limits: BTreeMap::from([("Max open files".to_owned(), Some(111))]),
            location: None,
        };
        for (given, expected) in [(Some(&wanted), &wanted), (None, &own)] {
            let mut command = Command::new("cat");
            let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()), given).unwrap();
            let found = inherited(child.id()).unwrap();
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!((found.umask, found.nice), (expected.umask, expected.nice));
            assert_eq!(found.oom_score_adj, expected.oom_score_adj);
            let open_files = |inherited: &Inherited| inherited.limits["Max open files"];
            assert_eq!(open_files(&found), open_files(expected));
            assert_eq!(inherited(std::process::id()).unwrap(), own);
        }
        assert!(spawn(&mut Command::new("/no/such/program"), Some(&wanted)).is_err());
        assert_eq!(inherited(std::process::id()).unwrap(), own);
    }

    /// Who starts a program by himself hands the guardian's OOM score on.
    #[test]
    fn every_program_is_started_here() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let mut starting = vec![];
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                let starts = [".spawn()", ".output()", ".status()"].iter().any(|call| code.contains(call));
                if starts && code.contains("Command") && !name.ends_with("tests.rs") {
                    starting.push(name);
                }
            }
        }
        starting.sort();
        // The tool starts the agent there, and is no guardian.
        assert_eq!(starting, ["connect.rs", "spawn.rs"]);
    }
}
