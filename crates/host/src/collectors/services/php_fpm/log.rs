//! What php-fpm writes to its error log about its pools, counted from the start of the observation.
//!
//! Facts: the messages in sapi/fpm/fpm/fpm_process_ctl.c, fpm_children.c and fpm_request.c of PHP 7.0 to 8.4. All of them are
//! warnings: a higher `log_level` hides them.

use crate::logs::tail::Tail;
use crate::visibility::process_view::Root;
use std::collections::BTreeMap;
use std::path::Path;
use webdyno_model::service::{LogKind, ServiceSnapshot};

/// What is counted, in the order of the metrics.
pub const EVENTS: [(&str, &str); 4] = [
    ("log_max_children_count", "server reached pm.max_children"),
    ("log_seems_busy_count", "seems busy"),
    ("log_signal_exits_count", "exited on signal"),
    ("log_timeouts_count", "execution timed out"),
];

/// So many pools are counted.
const POOLS_MAX: usize = 64;

/// The pool that a line is about, and which of [`EVENTS`] it tells.
pub fn event(line: &[u8]) -> Option<(String, usize)> {
    let line = String::from_utf8_lossy(line);
    let (pool, text) = line.split_once("[pool ")?.1.split_once(']')?;
    // What a script writes (`catch_workers_output`) is no word of FPM's, and clients choose much of it (fpm_stdio.c).
    let text = text.split(" said into std").next()?;
    // The name of a script may hold anything: what FPM says itself comes before it, or at the end.
    let position = EVENTS.iter().position(|(_, words)| text.contains(words))?;
    Some((pool.to_owned(), position))
}

/// The error log of one FPM, followed.
#[derive(Debug, Default)]
pub struct Log {
    path: Option<String>,
    tail: Option<Tail>,
    counts: BTreeMap<String, [u64; EVENTS.len()]>,
}

impl Log {
    /// Reads what was added. An error says why it cannot be followed, and what helps.
    pub fn read(&mut self, snapshot: &ServiceSnapshot, root: &Root) -> Result<(), (String, String)> {
        if hides_warnings(snapshot) {
            let why = "log_level leaves out the warnings of php-fpm";
            return Err((why.into(), "set `log_level = warning` or notice in [global]".into()));
        }
        let path = path(snapshot)?;
        if self.path.as_ref() != Some(&path) {
            (self.path, self.tail) = (Some(path.clone()), None);
        }
        if self.tail.is_none() {
            let tail = Tail::of(Path::new(&root.path(&path)));
            let tail = tail.map_err(|error| {
                let text = webdyno_model::error::io_error("follow", &path, &error);
                (text.message, "set error_log in [global] to a file that may be read".to_owned())
            })?;
            self.tail = Some(tail);
        }
        let counts = &mut self.counts;
        if let Some(tail) = &mut self.tail {
            tail.read(|line| {
                let Some((pool, event)) = event(line) else { return };
                if counts.len() < POOLS_MAX || counts.contains_key(&pool) {
                    counts.entry(pool).or_default()[event] += 1;
                }
            });
        }
        Ok(())
    }

    /// What was counted for a pool; `None` when the log is not followed.
    pub fn counts(&self, pool: &str) -> Option<[u64; EVENTS.len()]> {
        self.tail.as_ref()?;
        Some(self.counts.get(pool).copied().unwrap_or_default())
    }
}

fn hides_warnings(snapshot: &ServiceSnapshot) -> bool {
    let level = snapshot.settings.get("log_level").and_then(|level| level.configured.as_ref());
    level.is_some_and(|level| matches!(level.to_string().as_str(), "error" | "alert"))
}

/// The file of the error log: that of the standard error where it is set to `/proc/self/fd/2`, as in containers.
fn path(snapshot: &ServiceSnapshot) -> Result<String, (String, String)> {
    const HOW: &str = "set error_log in [global] to a file";
    let log = snapshot.logs.iter().find(|log| log.kind == LogKind::Error && log.scope.is_none());
    let Some(log) = log else {
        return Err(("php-fpm logs to syslog, or where it was compiled to".into(), HOW.into()));
    };
    if !["/proc/self/fd/2", "/dev/stderr"].contains(&log.path.as_str()) {
        return Ok(log.path.clone());
    }
    let link = std::fs::read_link(format!("/proc/{}/fd/2", snapshot.pid)).unwrap_or_default();
    let target = link.to_string_lossy().into_owned();
    let is_file = target.starts_with('/') && !target.starts_with("/dev/");
    if is_file {
        Ok(target)
    } else {
        Err(("php-fpm logs to its standard error, which is no file".into(), HOW.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use webdyno_model::service::LogFile;

    #[test]
    fn the_messages_of_fpm_are_known() {
        for (line, expected) in [
            (
                "[22-Nov-2026 09:12:37] WARNING: [pool www] server reached pm.max_children setting (5), consider raising it",
                Some(("www", 0)),
            ),
            (
                "[22-Nov-2026 09:12:37] WARNING: [pool www] seems busy (you may need to increase pm.start_servers, or pm.min/max_spare_servers), spawning 8 children, there are 0 idle, and 5 total children",
                Some(("www", 1)),
            ),
            (
                "[22-Nov-2026 09:12:37] WARNING: [pool a.b] child 7 exited on signal 9 (SIGKILL) after 3.2 seconds from start",
                Some(("a.b", 2)),
            ),
            (
                "[22-Nov-2026 09:12:37] WARNING: [pool www] child 7, script '/x.php' (request: \"GET /x.php\") execution timed out (10.1 sec), terminating",
                Some(("www", 3)),
            ),
            (
                "[22-Nov-2026 09:12:37] WARNING: [pool www] child 7 said into stderr: \"NOTICE: PHP message: a job exited on signal 9\"",
                None,
            ),
            ("[22-Nov-2026 09:12:37] NOTICE: [pool www] child 7 started", None),
            ("[22-Nov-2026 09:12:37] NOTICE: ready to handle connections", None),
            ("[pool www", None),
        ] {
            let found = event(line.as_bytes());
            assert_eq!(found.as_ref().map(|(pool, at)| (pool.as_str(), *at)), expected, "{line}");
        }
    }

    #[test]
    fn a_log_is_counted_from_now_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let line = "x [pool www] server reached pm.max_children\n";
        std::fs::write(&path, line).unwrap();
        let file = LogFile { path: path.to_string_lossy().into_owned(), ..LogFile::default() };
        let mut snapshot = ServiceSnapshot { logs: vec![file], ..ServiceSnapshot::default() };
        let mut log = Log::default();
        log.read(&snapshot, &Root::ours()).unwrap();
        assert_eq!(log.counts("www"), Some([0; 4]));
        std::fs::File::options().append(true).open(&path).unwrap().write_all(line.as_bytes()).unwrap();
        log.read(&snapshot, &Root::ours()).unwrap();
        assert_eq!((log.counts("www"), log.counts("other")), (Some([1, 0, 0, 0]), Some([0; 4])));
        snapshot.logs[0].path = "/no/such/log".into();
        let (why, _) = log.read(&snapshot, &Root::ours()).unwrap_err();
        assert_eq!(
            (why.as_str(), log.counts("www")),
            ("cannot follow /no/such/log: no such file or directory", None)
        );
        snapshot.logs.clear();
        assert!(log.read(&snapshot, &Root::ours()).unwrap_err().0.contains("syslog"));
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in prop::collection::vec(any::<u8>(), 0..200)) {
            event(&line);
            event(&[b"[pool ", line.as_slice()].concat());
        }
    }
}
