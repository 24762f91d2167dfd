//! What the program writes to stdout and stderr. A closed pipe ends output, never the program. The live view leaves the
//! terminal before.

use crate::live_view::{self, Palette};
use clap::ColorChoice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use webdyno_model::UserError;
use webdyno_model::error::io_error;
use webdyno_report::TextStyle;

/// Reading more recordings than this may take a while.
const UNANNOUNCED_MAX: usize = 50;

/// Writes to stdout. A reader that went away is no error; a full disk is.
pub fn print(text: &str) -> webdyno_model::Result<()> {
    print_bytes(text.as_bytes())
}

/// The same of what may be no text.
pub fn print_bytes(bytes: &[u8]) -> webdyno_model::Result<()> {
    live_view::leave();
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(io_error("write to", "stdout", &error))
        }
        _ => Ok(()),
    }
}

/// Writes a line of a log to stderr, with the time of day in UTC.
pub fn print_log_line(text: &str) {
    let now = jiff::Timestamp::now().strftime("%H:%M:%S");
    let _ = writeln!(std::io::stderr().lock(), "{now} {}", printable(text));
}

/// Writes a report for people to stdout: where that is a terminal that shows ASCII alone, without any other letter.
pub fn print_report(text: &str) -> webdyno_model::Result<()> {
    if std::io::stdout().is_terminal() && shows_ascii_alone() {
        print(&webdyno_report::ascii(text))
    } else {
        print(text)
    }
}

fn shows_ascii_alone() -> bool {
    !is_utf8(|name| std::env::var(name).ok())
}

/// What the terminal of stderr shows.
pub fn palette() -> Palette {
    Palette { ascii: shows_ascii_alone(), colour: !refuses_color() }
}

/// Whether nobody wants colours (no-color.org).
fn refuses_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// How a report is shown: in colour on a terminal, unless the environment or the flag wants it otherwise.
pub fn style(is_verbose: bool, color: ColorChoice) -> TextStyle {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let has_color = match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => std::io::stdout().is_terminal() && !refuses_color() && !is_dumb,
    };
    TextStyle { is_verbose, has_color }
}

/// Whether the locale's letters are UTF-8: the first variable decides that is set and not empty (locale(7)).
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|locale| !locale.is_empty());
    let codeset = set.as_deref().and_then(|locale| locale.split_once('.')).map(|(_, codeset)| codeset);
    codeset.is_some_and(|codeset| {
        let codeset = codeset.split('@').next().unwrap_or_default();
        codeset.eq_ignore_ascii_case("utf-8") || codeset.eq_ignore_ascii_case("utf8")
    })
}

/// Writes one line to stderr.
pub fn print_status(line: &str) {
    live_view::leave();
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}

/// Lines without control characters: what a server, its host or a recording says may be in them.
pub fn printable(text: &str) -> String {
    text.split('\n').map(webdyno_report::sanitize).collect::<Vec<_>>().join("\n")
}

/// Says that a list takes its time, where it does: so many recordings are read for the index.
pub fn print_reading(count: usize) {
    if count > UNANNOUNCED_MAX {
        print_status(&format!("webdyno: reading {count} recordings for the index"));
    }
}

/// An error in one line, and its hint in the next.
pub fn print_error(error: &UserError) {
    print_status(&format!("webdyno: {}", error.message));
    if let Some(hint) = &error.hint {
        print_status(&format!("  hint: {hint}"));
    }
}

/// Whether somebody watches stderr.
pub fn is_stderr_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether stderr takes a line without waiting: a terminal that is held (Ctrl-S, a network that hangs) does not, nor a pipe that
/// nobody reads.
pub fn stderr_takes_line() -> bool {
    takes(std::io::stderr())
}

fn takes(to: impl AsFd) -> bool {
    let mut events = [PollFd::new(&to, PollFlags::OUT)];
    // What is closed says so, and holds nobody up.
    poll(&mut events, Some(&Timespec::default())).is_err() || !events[0].revents().is_empty()
}

/// The lines of the terminal of stderr; of one that does not say it those of a VT100.
pub fn stderr_rows() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 1).unwrap_or(24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_told_moves_the_cursor() {
        assert_eq!(printable("a\u{1b}[2J\n  b\u{9b}K\r"), "a\u{fffd}[2J\n  b\u{fffd}K ");
    }

    #[test]
    fn what_is_full_takes_nothing_and_what_is_closed_holds_nobody_up() {
        let (mut to, reader) = std::os::unix::net::UnixStream::pair().unwrap();
        to.set_nonblocking(true).unwrap();
        assert!(takes(&to));
        while to.write(&[0; 4096]).is_ok() {}
        assert!(!takes(&to));
        drop(reader);
        assert!(takes(&to));
    }

    #[test]
    fn the_locale_says_which_letters_a_terminal_shows() {
        for (all, ctype, lang, utf8) in [
            ("", "", "en_US.UTF-8", true),
            ("", "", "de_DE.utf8@euro", true),
            ("", "", "de_DE.ISO-8859-1", false),
            ("C", "", "en_US.UTF-8", false),
            ("", "C.UTF-8", "C", true),
            ("", "", "en_US", false),
            ("", "", "", false),
        ] {
            let variable = |name: &str| {
                Some(match name {
                    "LC_ALL" => all.to_owned(),
                    "LC_CTYPE" => ctype.to_owned(),
                    _ => lang.to_owned(),
                })
            };
            assert_eq!(is_utf8(variable), utf8, "{all} {ctype} {lang}");
        }
        assert!(!is_utf8(|_| None));
    }
}
