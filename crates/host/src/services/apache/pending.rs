//! What waits for the next reload and is not ours: files that are newer than the generation of Apache that runs.
//!
//! Apache writes its pid file at every start and at every reload, before it starts the first worker of a generation
//! (`ap_log_pid` is the first call of `prefork_run`, `worker_run` and `event_run`; seen with 2.4.71). The time of that
//! file is therefore when the running generation had read its configuration, by the same clock that stamps the files
//! themselves, so it needs no slack; what was changed while Apache read, and set up its modules, is missed. Workers tell
//! it worse: those of an old generation may go on for hours, and a prefork Apache whose workers are all busy starts the
//! first new one only when an old one ends. They are asked only where there is no believable pid file: the configuration
//! was read no later than the start of the oldest. Their start is known up to a clock tick; a file that is newer by less
//! than [`START_SLACK`] counts as read then.
//!
//! A file is newer by its mtime or its ctime, whichever is later: dpkg, rsync and `cp -p` keep old mtimes, and nothing
//! keeps an old ctime (inode(7)). An mtime that lies in the future is nobody's time of change and does not count.
//! Symbolic links on the way count by themselves, as `a2ensite` changes nothing else. What was removed leaves no newer
//! file, but a newer directory.
//!
//! Not seen: a file that a plain `IncludeOptional` (without wildcard) read and that is gone, php.ini, and what only a
//! restart by systemd reads (unit files, envvars).

use super::config::{Evaluation, Placed};
use crate::os::process::ProcessName;
use crate::os::procfs;
use crate::services::PendingChange;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How much newer than the start of a worker a file must be.
const START_SLACK: Duration = Duration::from_millis(20);

/// How far the time of a pid file may lie outside of the life of its process and still be believed.
const PID_FILE_SLACK: Duration = Duration::from_secs(1);

/// Symbolic links that are followed on the way to one file, as the kernel does (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Directives of mod_ssl whose argument is a file that is read when Apache starts or reloads.
const TLS_FILES: [&str; 11] = [
    "SSLCertificateFile",
    "SSLCertificateKeyFile",
    "SSLCertificateChainFile",
    "SSLCACertificateFile",
    "SSLCADNRequestFile",
    "SSLCARevocationFile",
    "SSLSessionTicketKeyFile",
    "SSLProxyMachineCertificateFile",
    "SSLProxyMachineCertificateChainFile",
    "SSLProxyCACertificateFile",
    "SSLProxyCARevocationFile",
];

/// The same, of directories.
const TLS_DIRECTORIES: [&str; 6] = [
    "SSLCACertificatePath",
    "SSLCADNRequestPath",
    "SSLCARevocationPath",
    "SSLProxyMachineCertificatePath",
    "SSLProxyCACertificatePath",
    "SSLProxyCARevocationPath",
];

/// What a reload would put in force although it is not ours, first what matters most. `own` are files and directories
/// as this session left them.
pub fn pending(
    evaluation: &Evaluation,
    main: ProcessName,
    pid_file: Option<&Path>,
    own: &[PathBuf],
) -> Vec<PendingChange> {
    let mut found = replaced(main.pid);
    let Some(read_at) = read_at(main, pid_file) else { return found };
    let sources = Sources::of(evaluation);
    let newer = sources.newer(read_at, SystemTime::now(), own);
    let is_known = |change: &PendingChange| found.iter().any(|known| known.path == real(&change.path));
    let newer: Vec<_> = newer.into_iter().filter(|change| !is_known(change)).collect();
    found.extend(newer);
    found
}

/// The program and the libraries that run although their files are gone. Empty where we may not look.
fn replaced(pid: u32) -> Vec<PendingChange> {
    let executable = procfs::executable(pid).ok().filter(|(_, replaced)| *replaced).map(|(path, _)| {
        let why = "was replaced since Apache started it, and a reload would load modules into the old one";
        PendingChange { path: path.into(), why: why.into() }
    });
    let libraries =
        procfs::replaced_libraries(pid).unwrap_or_default().into_iter().map(|path| PendingChange {
            path: path.into(),
            why: "was replaced since Apache loaded it: only a restart is sure to take the new one".into(),
        });
    executable.into_iter().chain(libraries).collect()
}

/// When the running generation had read its configuration: no file that is newer is in force.
fn read_at(main: ProcessName, pid_file: Option<&Path>) -> Option<SystemTime> {
    let started = procfs::started_at(main.start_ticks)?;
    time_of_pid_file(main, started, pid_file).or_else(|| {
        let oldest = main.children().into_iter().map(|child| child.start_ticks).min();
        Some(procfs::started_at(oldest.unwrap_or(main.start_ticks))? + START_SLACK)
    })
}

/// Whether the configuration may have been read since a time. Only a pid file tells that: workers tell no more than that
/// it was read before they began. A reload that has read its files and not yet written its pid file is not seen.
pub fn read_since(main: ProcessName, pid_file: Option<&Path>, time: SystemTime) -> Option<bool> {
    // A clock that was set back since tells nothing.
    if !main.is_alive() || time > SystemTime::now() {
        return None;
    }
    let started = procfs::started_at(main.start_ticks)?;
    // Files are stamped in ticks of the kernel's clock: the stamp may be older than what it stands for.
    time_of_pid_file(main, started, pid_file).map(|read_at| read_at + START_SLACK >= time)
}

/// When the configuration was read, by a pid file that is believable.
fn time_of_pid_file(main: ProcessName, started: SystemTime, pid_file: Option<&Path>) -> Option<SystemTime> {
    let lives =
        |time: &SystemTime| *time + PID_FILE_SLACK >= started && *time <= SystemTime::now() + PID_FILE_SLACK;
    pid_file.and_then(|path| written_for(path, main.pid)).filter(lives)
}

/// When a pid file was written, if it is that of this process.
fn written_for(path: &Path, pid: u32) -> Option<SystemTime> {
    let message: u32 = procfs::read_text(path).ok()?.trim().parse().ok()?;
    fs::metadata(path).ok()?.modified().ok().filter(|_| message == pid)
}

/// What Apache reads when it reloads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sources {
    files: BTreeSet<PathBuf>,
    /// Their entries decide which files are read.
    directories: BTreeSet<PathBuf>,
}

impl Sources {
    fn of(evaluation: &Evaluation) -> Self {
        let mut sources =
            Self { files: evaluation.files.iter().cloned().collect(), directories: BTreeSet::new() };
        sources.directories.extend(evaluation.directories.iter().cloned());
        sources.files.extend(evaluation.modules.iter().filter_map(|module| module.file.clone()));
        let path = |word: &String| evaluation.path(word);
        let words = |names| evaluation.all(names).flat_map(Placed::words).collect::<Vec<_>>();
        sources.files.extend(words(&["LoadFile"]).iter().map(path));
        if evaluation.has_module("ssl_module") {
            // What is no path, such as a key in a token (`pkcs11:...`), names no file that exists.
            sources.files.extend(words(&TLS_FILES).iter().map(path));
            sources.files.extend(commands(evaluation).iter().map(path));
            sources.directories.extend(words(&TLS_DIRECTORIES).iter().map(path));
        }
        if evaluation.has_module("md_module") {
            sources.files.extend(words(&["MDCertificateFile", "MDCertificateKeyFile"]).iter().map(path));
        }
        sources
    }

    /// Those that were changed after a time.
    fn newer(&self, read_at: SystemTime, now: SystemTime, own: &[PathBuf]) -> Vec<PendingChange> {
        let look = FileTimes { read_at, now, own };
        let files = self.files.iter().filter_map(|path| look.file(path));
        let mut found: Vec<PendingChange> = files.collect();
        for path in &self.directories {
            // A file that was written by way of a temporary one touched its directory, too: one of them says it.
            let message = found.iter().any(|change| change.path.parent() == Some(path));
            found.extend(look.directory(path).filter(|_| !message));
        }
        found
    }
}

/// The files that OpenSSL's own commands name.
fn commands(evaluation: &Evaluation) -> Vec<String> {
    let names =
        ["DHParameters", "Certificate", "PrivateKey", "ChainCAFile", "VerifyCAFile", "ServerInfoFile"];
    let file = |placed: &Placed| match placed.words().as_slice() {
        [name, file] if names.iter().any(|known| known.eq_ignore_ascii_case(name)) => Some(file.clone()),
        _ => None,
    };
    evaluation.all(&["SSLOpenSSLConfCmd"]).filter_map(file).collect()
}

struct FileTimes<'a> {
    read_at: SystemTime,
    now: SystemTime,
    own: &'a [PathBuf],
}

impl FileTimes<'_> {
    /// What about a file is newer: the file, or a link on the way to it.
    fn file(&self, path: &Path) -> Option<PendingChange> {
        let (links, end) = links_of_path(path);
        let link = |link: &PathBuf| {
            let found = fs::symlink_metadata(link).ok().filter(|_| !self.is_own(link))?;
            self.after(ctime(&found)?).map(|after| format!("was linked to another file {after}"))
        };
        let of_file = || {
            // Devices such as /dev/null are no configuration that somebody changes.
            let found = fs::metadata(&end).ok().filter(|found| found.is_file() && !self.is_own(&end))?;
            let changed = found.modified().ok().and_then(|time| self.after(time));
            changed.map(|after| format!("was changed {after}")).or_else(|| {
                let after = self.after(ctime(&found)?)?;
                Some(format!("was replaced, or its owner or mode was changed, {after}"))
            })
        };
        let why = of_file().or_else(|| links.iter().find_map(link))?;
        Some(PendingChange { path: path.to_owned(), why })
    }

    fn directory(&self, path: &Path) -> Option<PendingChange> {
        let found = fs::metadata(path).ok().filter(|found| found.is_dir() && !self.is_own(&real(path)))?;
        let times = [found.modified().ok(), ctime(&found)];
        let after = times.into_iter().flatten().max().and_then(|time| self.after(time))?;
        Some(PendingChange { path: path.to_owned(), why: format!("got or lost files {after}") })
    }

    /// How long after the reading a time was, in words; `None` when it was before, or never.
    fn after(&self, time: SystemTime) -> Option<String> {
        let since = time.duration_since(self.read_at).ok().filter(|since| !since.is_zero())?;
        (time <= self.now).then(|| format!("{} after Apache last read its configuration", age_text(since)))
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| own == path)
    }
}

/// When the inode was changed last. That of a file is never older than its content.
fn ctime(found: &Metadata) -> Option<SystemTime> {
    let since = Duration::new(found.ctime().try_into().ok()?, found.ctime_nsec().try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// The symbolic links on the way to a file, and the file behind them.
fn links_of_path(path: &Path) -> (Vec<PathBuf>, PathBuf) {
    let mut links = vec![];
    let mut at = PathBuf::new();
    let mut left: Vec<_> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::RootDir) => at = PathBuf::from("/"),
            _ => at.push(&part),
        }
        if let Ok(target) = fs::read_link(&at)
            && links.len() < LINKS_MAX
        {
            links.push(at.clone());
            at.pop();
            left.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
        }
    }
    (links, at)
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    links_of_path(path).1
}

/// A time in the unit in which people would tell it.
fn age_text(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "days"), (3_600, "h"), (60, "min"), (1, "s")];
    let seconds = time.as_secs();
    // From twice a unit on it is told in that unit: 90 min are no `1 h`.
    let unit = UNITS.into_iter().find(|(length, _)| seconds >= 2 * length);
    match unit {
        Some((length, name)) => format!("{} {name}", seconds / length),
        None if seconds == 1 => "1 s".into(),
        None => "less than 1 s".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Input, evaluate};
    use super::*;
    use std::os::unix::fs::symlink;

    /// A tree in a directory of its own, and what is newer in it than a time, in words.
    struct Tree {
        root: tempfile::TempDir,
    }

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self { root: tempfile::tempdir().unwrap() };
            for (name, text) in files {
                tree.write(name, text);
            }
            tree
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().canonicalize().unwrap().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), text).unwrap();
        }

        /// Makes all that is there older than what comes.
        fn settle(&self) -> SystemTime {
            // A file system stamps in ticks of up to 10 ms: what is written in one tick has one time.
            let stamp = || {
                self.write("stamp", "");
                ctime(&fs::metadata(self.path("stamp")).unwrap()).unwrap()
            };
            let before = stamp();
            loop {
                std::thread::sleep(Duration::from_millis(2));
                if stamp() > before {
                    return before;
                }
            }
        }

        fn newer(&self, read_at: SystemTime, own: &[&str]) -> Vec<(String, String)> {
            let main_file = self.path("httpd.conf");
            let evaluation = evaluate(Input { main_file, server_root: self.path(""), ..Input::default() });
            let own: Vec<_> = own.iter().map(|name| self.path(name)).collect();
            let later = SystemTime::now() + Duration::from_millis(20);
            let message = |change: PendingChange| {
                let name = change.path.strip_prefix(self.path("")).unwrap().display().to_string();
                (name, change.why.split(" less than").next().unwrap().to_owned())
            };
            Sources::of(&evaluation).newer(read_at, later, &own).into_iter().map(message).collect()
        }

        fn check(&self, read_at: SystemTime, own: &[&str], expected: &[(&str, &str)]) {
            let expected: Vec<_> =
                expected.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned())).collect();
            assert_eq!(self.newer(read_at, own), expected);
        }
    }

    const MAIN: &str = "LoadModule ssl_module m/mod_ssl.so\nLoadFile m/libx.so\nIncludeOptional sites/*.conf\n\
                        Include extra\n<VirtualHost *:443>\nSSLCertificateFile tls/cert.pem\n\
                        SSLCertificateKeyFile \"pkcs11:object=key\"\nSSLCACertificatePath tls/ca\n\
                        SSLOpenSSLConfCmd DHParameters tls/dh.pem\n</VirtualHost>\n";

    fn tree() -> (Tree, SystemTime) {
        let tree = Tree::new(&[
            ("httpd.conf", MAIN),
            ("m/mod_ssl.so", ""),
            ("m/libx.so", ""),
            ("available/a.conf", "A 1\n"),
            ("sites/b.conf", "B 1\n"),
            ("sites/c.conf", "C 1\n"),
            ("extra/d.conf", "D 1\n"),
            ("releases/1/e.conf", "E 1\n"),
            ("releases/2/e.conf", "E 2\n"),
            ("tls/cert.pem", ""),
            ("tls/dh.pem", ""),
            ("tls/ca/ca.pem", ""),
        ]);
        symlink("../available/a.conf", tree.path("sites/a.conf")).unwrap();
        symlink("releases/1", tree.path("current")).unwrap();
        symlink(tree.path("current/e.conf"), tree.path("sites/e.conf")).unwrap();
        let read_at = tree.settle();
        (tree, read_at)
    }

    const LINKED: &str = "was linked to another file";
    const ENTRIES: &str = "got or lost files";
    const REPLACED: &str = "was replaced, or its owner or mode was changed,";

    #[test]
    fn nothing_waits_in_a_tree_that_was_read() {
        let (tree, read_at) = tree();
        tree.check(read_at, &[], &[]);
        // What is not read does not count.
        tree.write("available/new.conf", "");
        tree.write("releases/2/e.conf", "E 3\n");
        tree.check(read_at, &[], &[]);
    }

    #[test]
    fn contents_are_told_wherever_they_come_from() {
        for name in ["httpd.conf", "m/mod_ssl.so", "m/libx.so", "extra/d.conf", "tls/cert.pem", "tls/dh.pem"]
        {
            let (tree, read_at) = tree();
            fs::write(tree.path(name), MAIN).unwrap();
            tree.check(read_at, &[], &[(name, "was changed")]);
            tree.check(read_at, &[name], &[]);
        }
        let (tree, read_at) = tree();
        tree.write("available/a.conf", "A 2\n");
        tree.check(read_at, &[], &[("sites/a.conf", "was changed")]);
        tree.check(read_at, &["available/a.conf"], &[]);
    }

    #[test]
    fn an_old_time_does_not_hide_a_replaced_file() {
        let (tree, read_at) = tree();
        let old = fs::metadata(tree.path("m/mod_ssl.so")).unwrap().modified().unwrap();
        tree.write("new", "other");
        fs::File::options().append(true).open(tree.path("new")).unwrap().set_modified(old).unwrap();
        fs::rename(tree.path("new"), tree.path("m/mod_ssl.so")).unwrap();
        tree.check(read_at, &[], &[("m/mod_ssl.so", REPLACED)]);
    }

    #[test]
    fn links_and_directories_count_by_themselves() {
        let (tree, read_at) = tree();
        fs::remove_file(tree.path("sites/b.conf")).unwrap();
        tree.write("tls/ca/new.pem", "");
        tree.check(read_at, &[], &[("sites", ENTRIES), ("tls/ca", ENTRIES)]);
        tree.check(read_at, &["sites", "tls/ca"], &[]);

        let (tree, read_at) = super::tests::tree();
        fs::remove_file(tree.path("sites/a.conf")).unwrap();
        symlink("../sites/b.conf", tree.path("sites/a.conf")).unwrap();
        tree.check(read_at, &[], &[("sites/a.conf", LINKED)]);

        // A link in the middle of a path: the files behind it are old.
        let (tree, read_at) = super::tests::tree();
        fs::remove_file(tree.path("current")).unwrap();
        symlink("releases/2", tree.path("current")).unwrap();
        tree.check(read_at, &[], &[("sites/e.conf", LINKED)]);
    }

    #[test]
    fn a_time_in_the_future_is_no_change() {
        let (tree, _) = tree();
        let future = SystemTime::now() + Duration::from_secs(86_400 * 365);
        fs::File::options()
            .append(true)
            .open(tree.path("sites/b.conf"))
            .unwrap()
            .set_modified(future)
            .unwrap();
        let read_at = tree.settle();
        tree.check(read_at, &[], &[]);
    }

    #[test]
    fn certificates_count_only_where_they_are_read() {
        let (tree, read_at) = tree();
        let without = MAIN.replace("LoadModule ssl_module m/mod_ssl.so\n", "");
        tree.write("httpd.conf", &without);
        tree.write("tls/cert.pem", "new");
        tree.check(read_at, &["httpd.conf"], &[]);
    }

    #[test]
    fn a_ring_of_links_ends() {
        let tree = Tree::new(&[]);
        symlink("b", tree.path("a")).unwrap();
        symlink("a", tree.path("b")).unwrap();
        assert_eq!(links_of_path(&tree.path("a")).0.len(), LINKS_MAX);
    }

    #[test]
    fn times_are_told_as_people_do() {
        for (seconds, expected) in [
            (0, "less than 1 s"),
            (1, "1 s"),
            (59, "59 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_199, "119 min"),
            (7_200, "2 h"),
            (86_400 * 2 - 1, "47 h"),
            (86_400 * 9, "9 days"),
        ] {
            assert_eq!(age_text(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_pid_file_is_believed_only_within_the_life_of_its_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let main = ProcessName::of(child.id()).unwrap();
        let started = procfs::started_at(main.start_ticks).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let check = |text: String, time: SystemTime| {
            fs::write(&path, text).unwrap();
            fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
            read_at(main, Some(&path)).unwrap() == time
        };
        let now = SystemTime::now();
        let verdicts = [
            check(format!("{}\n", main.pid), now),
            check(format!("{}\n", main.pid + 1), now),
            check(String::new(), now),
            check(format!("{}\n", main.pid), started - Duration::from_secs(60)),
            check(format!("{}\n", main.pid), now + Duration::from_secs(3600)),
        ];
        let without = read_at(main, None).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(verdicts, [true, false, false, false, false]);
        assert!(without.duration_since(started).unwrap() < Duration::from_secs(1));
    }
}
