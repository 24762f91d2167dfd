//! A line of Apache's error log: its level, its code, and what it tells without a code. Nothing of its text is kept.
//!
//! Facts: the documentation of ErrorLogFormat (<https://httpd.apache.org/docs/2.4/mod/core.html#errorlogformat>) and
//! `do_errorlog_default` in server/log.c. By default a line is `[time] [module:level] [pid P:tid T]`, at debug levels
//! `file.c(123):`, an error of the system as `(24)Too many open files:`, `[client address]`, and the message, which begins
//! with its code: `AH00161: server reached ..`. Before 2.4 a level stood alone: `[error]`.
//!
//! Clients choose much of a message (paths, headers): a code counts only where Apache writes one, at the begin of the
//! message, and an error of the system only before it. In a format of the operator's own a code may stand anywhere in the
//! first part of the line; only there a client could invent one.

/// Where a code may begin in a line of a format of the operator's own.
const CODE_WITHIN_BYTES: usize = 512;

/// How much of a message is looked at.
const MESSAGE_BYTES_MAX: usize = 4096;

/// The levels of the documentation of LogLevel; traces are one.
pub const LEVELS: [&str; 9] = ["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug", "trace"];

/// What is told without a code: its name, and what says it. Those of the system stand before the message as
/// `(number)text:`; those of programs in the message of PHP, or of a CGI or FastCGI program (AH01215, AH01071).
pub const KNOWN: [(&str, Sign); 16] = [
    ("too_many_open_files", Sign::System(24)),
    ("too_many_open_files_in_system", Sign::System(23)),
    ("cannot_assign_address", Sign::System(99)),
    ("cannot_allocate_memory", Sign::System(12)),
    ("no_processes_left", Sign::System(11)),
    ("no_space_left", Sign::System(28)),
    ("connection_refused", Sign::System(111)),
    ("connection_timed_out", Sign::System(110)),
    ("connection_reset", Sign::System(104)),
    ("timeout_expired", Sign::System(70007)),
    ("php_fatal", Sign::Program("PHP Fatal error")),
    ("php_memory_limit", Sign::Program("Allowed memory size of")),
    ("php_time_limit", Sign::Program("Maximum execution time of")),
    ("too_many_open_files_in_program", Sign::Program("Too many open files")),
    ("database_refuses", Sign::Either("Too many connections", "max_user_connections")),
    ("cannot_assign_address_in_program", Sign::Program("Cannot assign requested address")),
];

/// What says that something known happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// An error of the system, by its number on Linux, or of APR.
    System(u32),
    /// A text of a program.
    Program(&'static str),
    /// One of two texts of a program, which mean the same.
    Either(&'static str, &'static str),
}

/// What a line tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParsedLine {
    /// Index in [`LEVELS`]; `None` for what a program wrote to its standard error, and in unknown formats.
    pub level: Option<usize>,
    /// The number of the code: 161 for AH00161.
    pub code: Option<u32>,
    /// Indices in [`KNOWN`], one bit each.
    pub known: u32,
    /// The process that wrote it.
    pub pid: Option<u32>,
}

/// Reads a line. `is_custom` says that the operator chose the format.
pub fn read(line: &[u8], is_custom: bool) -> ParsedLine {
    let (mut message, mut rest) = (ParsedLine::default(), line);
    groups(&mut rest, &mut message);
    if message.level.is_some() {
        if let Some(after) = source_file(rest) {
            rest = after;
        }
        if let Some((number, after)) = system_error(rest) {
            message.known |= by_number(number);
            rest = after;
        }
        rest = client(rest).unwrap_or(rest);
        message.code = code(rest);
        if message.code.is_some_and(|code| PROGRAMS.contains(&code)) || rest.starts_with(b"PHP ") {
            message.known |= by_text(rest);
        }
    } else if is_custom {
        message = custom(line);
    } else if rest.starts_with(b"PHP ") {
        // PHP without a server to log by.
        message.known |= by_text(rest);
    } else {
        message.code = code(line).filter(|code| AT_START.contains(code));
    }
    message
}

/// The codes by which a program's own words are written down: AH01071 (FastCGI), AH01215 (CGI).
const PROGRAMS: [u32; 2] = [1071, 1215];

/// The codes that are written before the format is known, when the server starts: any program that writes to the same log
/// could write others so.
const AT_START: [u32; 9] = [19, 20, 180, 316, 318, 513, 515, 534, 558];

/// What follows `[client 127.0.0.1:4711] `.
fn client(rest: &[u8]) -> Option<&[u8]> {
    let inside = rest.strip_prefix(b"[client ").or_else(|| rest.strip_prefix(b"[remote "))?;
    Some(inside[memchr::memchr(b']', inside)? + 1..].trim_ascii_start())
}

/// Takes the groups in brackets that Apache writes before a message. The first one is the time.
fn groups(rest: &mut &[u8], message: &mut ParsedLine) {
    let mut is_first = true;
    while let Some(inside) = rest.strip_prefix(b"[") {
        let Some(end) = memchr::memchr(b']', inside) else { return };
        if !group(&inside[..end], message) && !is_first {
            return;
        }
        is_first = false;
        *rest = inside[end + 1..].trim_ascii_start();
    }
}

/// Whether it is one that tells something.
fn group(inside: &[u8], message: &mut ParsedLine) -> bool {
    if let Some(pid) = inside.strip_prefix(b"pid ") {
        let digits = pid.split(|byte| *byte == b':').next().unwrap_or_default();
        message.pid = message.pid.or_else(|| number(digits));
        return true;
    }
    let last = inside.rsplit(|byte| *byte == b':').next().unwrap_or_default();
    if message.level.is_none() {
        message.level = level(last);
        return message.level.is_some();
    }
    false
}

fn level(word: &[u8]) -> Option<usize> {
    // trace1 to trace8 are one.
    let word = match word {
        [trace @ .., b'1'..=b'8'] if trace == b"trace" => trace,
        word => word,
    };
    LEVELS.iter().position(|level| level.as_bytes() == word)
}

/// What follows `file.c(123): `.
fn source_file(rest: &[u8]) -> Option<&[u8]> {
    let end = rest.iter().take(80).position(|byte| matches!(byte, b'(' | b' ' | b'['))?;
    let (name, after) = rest.split_at(end);
    let after = after.strip_prefix(b"(")?;
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_source = [b".c".as_slice(), b".cpp", b".h"].iter().any(|suffix| name.ends_with(suffix));
    (is_source && digits > 0).then(|| after[digits..].strip_prefix(b"): ")).flatten()
}

/// The number of `(24)Too many open files: `, and what follows.
fn system_error(rest: &[u8]) -> Option<(u32, &[u8])> {
    let inside = rest.strip_prefix(b"(")?;
    let digits = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let after = inside[digits..].strip_prefix(b")")?;
    let found = number(inside.get(..digits)?)?;
    let end = memchr::memmem::find(after, b": ")?;
    Some((found, &after[end + 2..]))
}

/// The number of a code at the begin.
fn code(rest: &[u8]) -> Option<u32> {
    let digits = rest.strip_prefix(b"AH")?.get(..5)?;
    let ends = matches!(rest.get(7), Some(b':' | b' ') | None);
    number(digits).filter(|_| ends)
}

fn number(digits: &[u8]) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

fn by_number(number: u32) -> u32 {
    bits(|sign| sign == Sign::System(number))
}

fn by_text(message: &[u8]) -> u32 {
    let message = &message[..message.len().min(MESSAGE_BYTES_MAX)];
    let has = |text: &str| memchr::memmem::find(message, text.as_bytes()).is_some();
    bits(|sign| match sign {
        Sign::Program(text) => has(text),
        Sign::Either(one, other) => has(one) || has(other),
        Sign::System(_) => false,
    })
}

fn bits(is: impl Fn(Sign) -> bool) -> u32 {
    KNOWN.iter().enumerate().filter(|(_, (_, sign))| is(*sign)).fold(0, |all, (bit, _)| all | 1 << bit)
}

/// A line of which it is not known where things stand.
fn custom(line: &[u8]) -> ParsedLine {
    let line = &line[..line.len().min(CODE_WITHIN_BYTES)];
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric();
    let words = line.split(|byte| !is_word(byte)).filter(|word| !word.is_empty());
    let code_at = memchr::memmem::find_iter(line, b"AH").find(|&at| {
        let begins = at == 0 || !is_word(&line[at - 1]);
        begins && code(&line[at..]).is_some()
    });
    let before = &line[..code_at.unwrap_or(line.len())];
    let system = memchr::memchr_iter(b'(', before).find_map(|at| system_error(&line[at..]));
    ParsedLine {
        level: words.clone().find_map(level),
        code: code_at.and_then(|at| code(&line[at..])),
        known: system.map_or(0, |(number, _)| by_number(number)),
        pid: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(known: u32) -> Vec<&'static str> {
        let set = KNOWN.iter().enumerate().filter(|(bit, _)| known & 1 << bit != 0);
        set.map(|(_, (name, _))| *name).collect()
    }

    fn check(line: &str, level: Option<&str>, code: Option<u32>, known: &[&str]) {
        let message = read(line.as_bytes(), false);
        let found = message.level.map(|level| LEVELS[level]);
        assert_eq!((found, message.code, names(message.known)), (level, code, known.to_vec()), "{line}");
    }

    const BEGIN: &str = "[Sun Nov 22 09:07:36.123456 2026]";

    // Captured of 2.4, but for the two of another format.
    #[test]
    fn lines_of_the_default_format_are_read() {
        let pid = format!("{BEGIN} [mpm_prefork:error] [pid 4711]");
        check(
            &format!("{pid} AH00161: server reached MaxRequestWorkers setting, consider raising"),
            Some("error"),
            Some(161),
            &[],
        );
        assert_eq!(read(format!("{pid} x").as_bytes(), false).pid, Some(4711));
        let event = format!("{BEGIN} [proxy_fcgi:error] [pid 1:tid 139]");
        assert_eq!(read(event.as_bytes(), false).pid, Some(1));
        check(
            &format!(
                "{event} (111)Connection refused: [client 127.0.0.1:4] AH01075: Error dispatching request to :"
            ),
            Some("error"),
            Some(1075),
            &["connection_refused"],
        );
        check(
            &format!(
                "{event} [client ::1:4] AH01071: Got error 'PHP message: PHP Fatal error:  Allowed memory size of 1 bytes exhausted'"
            ),
            Some("error"),
            Some(1071),
            &["php_fatal", "php_memory_limit"],
        );
        check(
            &format!(
                "{BEGIN} [core:trace3] [pid 1] core_filters.c(525): (99)Cannot assign requested address: AH00957: http: attempt"
            ),
            Some("trace"),
            Some(957),
            &["cannot_assign_address"],
        );
        check(
            &format!(
                "{BEGIN} [php:error] [pid 1] [client ::1:1] PHP Fatal error:  Uncaught mysqli_sql_exception: Too many connections"
            ),
            Some("error"),
            None,
            &["php_fatal", "database_refuses"],
        );
        check(
            &format!(
                "{BEGIN} [mpm_event:crit] [pid 1:tid 2] (24)Too many open files: AH02324: A resource shortage"
            ),
            Some("crit"),
            Some(2324),
            &["too_many_open_files"],
        );
        check(
            "[Wed Oct 11 14:32:52 2000] [error] [client 127.0.0.1] client denied",
            Some("error"),
            None,
            &[],
        );
        check("sh: 1: /usr/lib/cgi-bin/x: not found", None, None, &[]);
        check("", None, None, &[]);
    }

    // What clients send stands in messages, and counts for nothing.
    #[test]
    fn a_client_invents_no_code() {
        for message in [
            "[client ::1:1] AH00128: File does not exist: /var/www/AH00161: server reached",
            "[client ::1:1] script '/var/www/(24)Too many open files: AH00161: ' not found",
            "[client ::1:1] Hostname AH00161: provided",
            "[client ::1:1] [client x] AH00161: server",
            "[x] AH00161: server",
            "[client ::1:1] AH00128: /Allowed memory size of PHP Fatal error",
        ] {
            let text = read(format!("{BEGIN} [core:info] [pid 1] {message}").as_bytes(), false);
            assert!(text.known == 0 && text.code != Some(161), "{message}: {text:?}");
        }
        check("AH00161: a program's standard error", None, None, &[]);
        check("AH00515: WARNING: MaxRequestWorkers of 5 would require", None, Some(515), &[]);
    }

    #[test]
    fn codes_are_found_in_formats_of_the_operators_own() {
        for (line, level, code, known) in [
            (
                "2026-11-22 error (24)Too many open files: AH00161: server",
                Some("error"),
                Some(161),
                vec!["too_many_open_files"],
            ),
            (
                r#"{"level":"warn","pid":7,"message":"AH00514: MaxRequestWorkers"}"#,
                Some("warn"),
                Some(514),
                vec![],
            ),
            ("XAH00161: AH123: AH001611:", None, None, vec![]),
        ] {
            let message = read(line.as_bytes(), true);
            let found = message.level.map(|level| LEVELS[level]);
            assert_eq!((found, message.code, names(message.known)), (level, code, known), "{line}");
        }
    }

    proptest! {
        // Whatever stands in a log: never a panic.
        #[test]
        fn any_line_is_survived(line in prop::collection::vec(any::<u8>(), 0..200), noise in "[\\[\\]():.ahAHpidc0-9 ]{0,80}", custom in any::<bool>()) {
            read(&line, custom);
            read(noise.as_bytes(), custom);
            read(&[BEGIN.as_bytes(), b" [core:error] [pid ", &line].concat(), custom);
        }
    }
}
