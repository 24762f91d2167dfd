//! What the files of a process in `/proc` say, read from their text: numbers, limits, strings, ids, libraries.
//!
//! Facts: `proc_pid_stat(5)`, `proc_pid_status(5)`, `proc_pid_cmdline(5)`, `proc_pid_environ(5)`, `proc_pid_fd(5)`,
//! `proc_pid_limits(5)`, `proc_pid_maps(5)`. A text that is not of their format gives nothing, never a panic.

use std::collections::BTreeMap;

/// What the kernel adds to the path of a file that has no name any more.
pub(super) const DELETED: &str = " (deleted)";

/// The numbers of `/proc/PID/stat` that we use. Anyone may read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Name of the executable as the kernel keeps it: at most 15 bytes.
    pub name: String,
    /// `R`, `S`, `D`, `Z`, ...
    pub state: char,
    /// Its parent.
    pub ppid: u32,
    /// Its process group; 0 for kernel threads.
    pub group: u32,
    /// User and system time of the process itself, in clock ticks.
    pub cpu_ticks: u64,
    /// User and system time of its children that ended and were waited for, and of theirs, in clock ticks.
    pub reaped_cpu_ticks: u64,
    /// Its threads.
    pub threads_count: u64,
    /// When it started, in clock ticks since boot. With the pid it names one process for ever.
    pub start_ticks: u64,
}

impl Stat {
    /// Whether it has ended, and only waits for its parent to take note.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// The variables in bytes as `/proc/PID/environ` has them.
pub fn parse_environment(bytes: &[u8]) -> BTreeMap<String, String> {
    let pair = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    parse_strings(bytes).iter().filter_map(pair).collect()
}

/// Parses `/proc/PID/stat`; `None` when it is not one. The name stands in parentheses and may hold any byte, so it
/// ends at the last `)`.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (pid, rest) = text.split_once(" (")?;
    let (name, fields) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // Field n of proc_pid_stat(5) is fields[n - 3]. Children's times are signed and may be shown below zero.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let signed = |field: usize| Some(u64::try_from(fields.get(field - 3)?.parse::<i64>().ok()?).unwrap_or(0));
    Some(Stat {
        pid: pid.trim().parse().ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        ppid: u32::try_from(number(4)?).ok()?,
        // Shown as -1 where the reader's pid namespace does not know it.
        group: u32::try_from(signed(5)?).ok()?,
        cpu_ticks: number(14)?.checked_add(number(15)?)?,
        reaped_cpu_ticks: signed(16)?.checked_add(signed(17)?)?,
        threads_count: number(20)?,
        start_ticks: number(22)?,
    })
}

/// Splits `/proc/PID/cmdline` or `/proc/PID/environ`: strings end in a zero byte. A process that wrote a title of its
/// own over them (`nginx: master process`) gives that title, padding left out.
pub(super) fn parse_strings(bytes: &[u8]) -> Vec<String> {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let message = bytes.get(..end).unwrap_or_default();
    if message.is_empty() {
        return vec![];
    }
    message.split(|&byte| byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

/// The real user id of `/proc/PID/status`.
pub(super) fn parse_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The effective id of a line of `/proc/PID/status`: real, effective, saved, file system.
pub(super) fn parse_effective(status: &str, label: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// How many pids a process has by `/proc/PID/status`: one in each pid namespace from ours down to its own.
pub(super) fn parse_depth(status: &str) -> usize {
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    pids.split_ascii_whitespace().count()
}

/// The shared objects of `/proc/PID/maps` with executable code and no name any more, each once, in order.
pub(super) fn parse_replaced_libraries(maps: &str) -> Vec<String> {
    let mut found: Vec<String> = vec![];
    for line in maps.lines() {
        // Address, permissions, offset, device, inode, then the path, which may hold blanks.
        let mut fields = line.split_ascii_whitespace();
        let is_code = fields.nth(1) == Some("r-xp");
        let path = line.find('/').and_then(|at| line[at..].strip_suffix(DELETED));
        let is_library = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.contains(".so"));
        if let Some(path) = path.filter(is_library)
            && is_code
            && !found.iter().any(|known| known == path)
        {
            found.push(path.to_owned());
        }
    }
    found
}

/// `socket:[1234]` gives 1234.
pub(super) fn parse_socket_link(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The soft limit in the line `Max open files  1024  524288  files` of `/proc/PID/limits`; `None` for `unlimited`.
pub(super) fn parse_limit(limits: &str, label: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

pub(super) fn parse_pids(text: &str) -> Vec<u32> {
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Linux 6.18: a worker of Apache that has waited for children.
    const STAT: &str = "19994 (apache2) S 19992 19992 19992 0 -1 4194368 92 310 0 0 12 34 5 6 20 0 27 0 41519 \
        6901760 1203 18446744073709551615 1 1 0 0 0 0 0 16781320 134235881 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn stat_parses() {
        let stat = parse_stat(STAT).unwrap();
        let numbers = (stat.pid, stat.ppid, stat.cpu_ticks, stat.reaped_cpu_ticks, stat.threads_count);
        assert_eq!(numbers, (19_994, 19_992, 46, 11, 27));
        assert_eq!((stat.name.as_str(), stat.state, stat.start_ticks), ("apache2", 'S', 41_519));
    }

    // A process may call itself anything.
    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let odd = parse_stat(&STAT.replace("(apache2)", "(a) R 1 (b c)")).unwrap();
        assert_eq!((odd.name.as_str(), odd.ppid, odd.start_ticks), ("a) R 1 (b c", 19_992, 41_519));
        for torn in ["", "1 (x", "1 (x) S 1", "x (x) S 1 1"] {
            assert_eq!(parse_stat(torn), None, "{torn}");
        }
    }

    #[test]
    fn small_files_parse() {
        for (bytes, expected) in [
            (&b"/usr/sbin/apache2\0-k\0start\0"[..], vec!["/usr/sbin/apache2", "-k", "start"]),
            (b"a\0\0b\0", vec!["a", "", "b"]),
            (b"nginx: master process /usr/sbin/nginx\0\0\0\0", vec!["nginx: master process /usr/sbin/nginx"]),
            (b"", vec![]),
        ] {
            assert_eq!(parse_strings(bytes), expected);
        }
        assert_eq!(parse_uid("Name:\tx\nUid:\t33\t0\t33\t33\n"), Some(33));
        assert_eq!([parse_depth("Pid:\t9\nNSpid:\t9\t1\n"), parse_depth("NSpid:\t9\n")], [2, 1]);
        assert_eq!(parse_socket_link("socket:[1583]"), Some(1583));
        assert_eq!(parse_socket_link("pipe:[1583]"), None);
        let limits =
            "Limit                     Soft Limit  Hard Limit  Units\nMax open files  1024  524288  files\n";
        assert_eq!(parse_limit(limits, "Max open files"), Some(1024));
        assert_eq!(parse_limit("Max open files unlimited unlimited files\n", "Max open files"), None);
    }

    #[test]
    fn libraries_without_a_name_are_told() {
        let maps = "\
            7f10-7f11 r--p 00000000 fd:01 7 /usr/lib/apache2/modules/mod_ssl.so (deleted)\n\
            7f11-7f12 r-xp 00001000 fd:01 7 /usr/lib/apache2/modules/mod_ssl.so (deleted)\n\
            7f12-7f13 r-xp 00001000 fd:01 8 /usr/lib/x86_64-linux-gnu/libc.so.6\n\
            7f13-7f14 r-xp 00001000 fd:01 9 /opt/a b/libssl.so.3 (deleted)\n\
            7f14-7f15 r-xp 00001000 fd:01 9 /opt/a b/libssl.so.3 (deleted)\n\
            7f15-7f16 rw-s 00000000 00:01 5 /dev/zero (deleted)\n\
            7f16-7f17 r-xp 00000000 00:01 6 /memfd:jit (deleted)\n\
            7f17-7f18 r-xp 00000000 00:00 0 [vdso]\ntorn";
        assert_eq!(
            parse_replaced_libraries(maps),
            ["/usr/lib/apache2/modules/mod_ssl.so", "/opt/a b/libssl.so.3"]
        );
    }

    proptest! {
        // A torn or strange file gives nothing or what it says, never a panic.
        #[test]
        fn any_text_is_survived(cut in 0..STAT.len(), noise in "[0-9 ()a-z:-]{0,60}") {
            parse_stat(&format!("{}{noise}", &STAT[..cut]));
            parse_stat(&format!("1 (x) S {noise}"));
            parse_strings(noise.as_bytes());
            parse_uid(&format!("Uid:{noise}"));
            parse_limit(&format!("Max open files{noise}"), "Max open files");
            parse_socket_link(&noise);
            parse_replaced_libraries(&format!("{noise}/x.so (deleted)"));
        }
    }
}
