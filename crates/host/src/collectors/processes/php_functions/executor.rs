//! Where the executor of a program is, and which processes have it: looked for again now and then, as a reload of PHP-FPM executes it
//! anew in the same process, and one of Apache maps its library elsewhere.

use super::memory;
use crate::collectors::processes::profile::maps::Region;
use crate::os::procfs;
use std::io;

/// What lets memory be read.
pub(super) const RIGHTS: &str = "run as root, or with CAP_SYS_PTRACE";

/// Where the executor's globals are in the processes of a program.
#[derive(Debug, Default)]
pub(super) struct Executor {
    /// The code of PHP, as it was mapped then; none where there is no PHP.
    pub(super) php: Vec<Region>,
    pub(super) globals: Option<u64>,
    /// Of the frame in them; the same for all processes once one has had a request.
    pub(super) offset: Option<u64>,
    /// Why there are none though it is PHP, and what helps.
    pub(super) lacks: Option<(String, &'static str)>,
    /// The processes that were forked from the main one.
    pub(super) children: Vec<u32>,
}

impl Executor {
    /// Looks for it, unless PHP is mapped as it was.
    pub(super) fn find(&mut self, main: u32, is_known_as_php: bool) {
        let php = match memory::php_regions(main) {
            Ok(php) if php == self.php && !php.is_empty() => return,
            Ok(php) => php,
            Err(error) => {
                let lacks = why_unread(main, &error).filter(|_| is_known_as_php);
                *self = Self { lacks, ..Self::default() };
                return;
            }
        };
        let found = memory::executor_globals(main, &php);
        let lacks = match &found {
            Ok(None) if !php.is_empty() => Some((
                format!("process {main}: this PHP does not tell where its executor_globals is"),
                "a 64-bit PHP that is not built for threads: `php -v` shows NTS",
            )),
            Ok(_) => None,
            Err(error) => Some((
                format!("process {main}: PHP's program or library cannot be read: {error}"),
                "run as root; if PHP was updated meanwhile, restart it",
            )),
        };
        *self = Self { php, globals: found.ok().flatten(), lacks, ..Self::default() };
    }

    /// Lists the processes that have it.
    pub(super) fn list(&mut self, main: u32) {
        self.children = self.globals.map_or(vec![], |_| procfs::children_of(main));
    }
}

/// Why the memory map of a process cannot be read, and what helps; `None` where it has ended.
fn why_unread(main: u32, error: &io::Error) -> Option<(String, &'static str)> {
    let why = || format!("process {main}: the memory map of PHP cannot be read: {error}");
    (!memory::has_ended(error)).then(|| (why(), RIGHTS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::process::{Command, Stdio};

    #[test]
    fn what_ended_is_not_missing() {
        for (errno, is_told) in
            [(Errno::ACCESS, true), (Errno::PERM, true), (Errno::NOENT, false), (Errno::SRCH, false)]
        {
            assert_eq!(why_unread(7, &errno.into()).is_some(), is_told, "{errno}");
        }
        let mut executor = Executor::default();
        executor.find(4_000_001, true);
        assert!(executor.lacks.is_none(), "{executor:?}");
    }

    // A program of that name that is no PHP; what was known of the process before is no longer true of it.
    #[test]
    fn a_php_that_does_not_tell_where_it_keeps_functions_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("php-fpm");
        std::fs::copy("/bin/sh", &program).unwrap();
        // Another test that starts a process at this moment has the copy open for writing until that executes its program.
        let start = |_| Command::new(&program).args(["-c", "read line"]).stdin(Stdio::piped()).spawn().ok();
        let mut child = (0..1000).find_map(start).unwrap();
        let mut executor =
            Executor { globals: Some(0x1000), offset: Some(8), children: vec![1], ..Executor::default() };
        // Whoever starts a process goes on before its program is mapped (exec_mmap of the kernel).
        let is_mapped = |_| memory::php_regions(child.id()).is_ok_and(|php| !php.is_empty());
        assert!((0..1_000_000).any(is_mapped));
        executor.find(child.id(), false);
        // It reads until its input ends.
        child.wait().unwrap();
        let (why, _) = executor.lacks.as_ref().unwrap();
        assert!(why.contains("executor_globals"), "{why}");
        assert!(executor.globals.is_none() && executor.offset.is_none() && executor.children.is_empty());
        assert_eq!(executor.php.len(), 1, "{executor:?}");
    }
}
