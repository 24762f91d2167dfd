//! What ssh, sudo and whatever else carries a connection said on stderr, and what it means.
//!
//! Source of the texts: OpenSSH (sshconnect.c, sshconnect2.c, ssh.c, readconf.c), sudo (plugins/sudoers), dash, bash and
//! busybox ("not found"), docker and kubectl.

use crate::agent::address::ServerAddress;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use webdyno_model::UserError;

/// The most lines that are kept.
const LINES_COUNT_MAX: usize = 30;
/// The most of a line that is kept, in bytes.
const LINE_BYTES_MAX: u64 = 1000;

/// What a child said on stderr: kept while it connects, and told once it has.
#[derive(Debug, Clone, Default)]
pub struct StderrCapture(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    connected: bool,
    ended: bool,
}

impl StderrCapture {
    /// Listens on a thread of its own, which ends with the stream.
    pub fn of(stderr: impl Read + Send + 'static) -> Self {
        let stderr_capture = Self::default();
        let ears = stderr_capture.clone();
        std::thread::spawn(move || ears.listen(stderr));
        stderr_capture
    }

    fn listen(&self, stderr: impl Read) {
        let mut reader = BufReader::new(stderr);
        loop {
            let mut line = vec![];
            match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(1..) => self.record_line(String::from_utf8_lossy(&line).trim_end()),
                Ok(0) | Err(_) => break,
            }
        }
        self.state().ended = true;
    }

    fn record_line(&self, line: &str) {
        let mut state = self.state();
        match state.connected {
            true => print_line(line),
            false if line.trim().is_empty() => {}
            false => {
                if state.lines.len() == LINES_COUNT_MAX {
                    state.lines.pop_front();
                }
                state.lines.push_back(line.to_owned());
            }
        }
    }

    /// From now on it is the agent that speaks there: it is told as it comes, and what was kept, too.
    pub fn connected(&self) {
        let mut state = self.state();
        state.connected = true;
        std::mem::take(&mut state.lines).iter().for_each(|line| print_line(line));
    }

    /// Whether nothing more comes.
    pub fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// The lines that are kept.
    pub fn lines(&self) -> Vec<String> {
        self.state().lines.iter().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What shows the lines of agents, where that is not stderr at once.
static OUTLET: OnceLock<fn(&str)> = OnceLock::new();

/// From now on this shows what agents say on stderr: a terminal that is drawn on shows it later. The first one stays.
pub fn show_lines_by(outlet: fn(&str)) {
    let _ = OUTLET.set(outlet);
}

/// Stderr may be closed.
fn print_line(line: &str) {
    match OUTLET.get() {
        Some(outlet) => outlet(line),
        None => drop(writeln!(std::io::stderr(), "{line}")),
    }
}

/// What a text means: what is told, and what helps; `@` stands for the server, and `@@` for the host alone.
const MEANINGS: [(&str, &str, &str); 32] = [
    (
        "Could not resolve hostname",
        "the name of the host is not known",
        "check it; `getent hosts @@` must know it, or the ssh configuration",
    ),
    (
        "Name or service not known",
        "the name of the host is not known",
        "check it; `getent hosts @@` must know it, or the ssh configuration",
    ),
    (
        "IDENTIFICATION HAS CHANGED",
        "the host has another key than the one that is known",
        "find out why; `ssh-keygen -R @@` forgets the old one",
    ),
    (
        "Host key verification failed",
        "the key of the host is not known",
        "`ssh @@` shows it and asks; then try again",
    ),
    (
        "Too many authentication failures",
        "the host takes none of our keys",
        "`ssh @@ true` must work; IdentitiesOnly and IdentityFile in the ssh configuration choose the key",
    ),
    (
        "Permission denied (",
        "the host takes none of our keys",
        "`ssh @@ true` must work without a question: `ssh-copy-id @@`, or `ssh-add` for a key with a passphrase",
    ),
    ("no matching host key type", "ssh here and there agree on no method", "`ssh @@` must work first"),
    ("no matching key exchange", "ssh here and there agree on no method", "`ssh @@` must work first"),
    ("Bad configuration option", "the ssh configuration is wrong", "`ssh -G @@` says where"),
    (
        "Bad owner or permissions",
        "the ssh configuration has wrong permissions",
        "`ssh -G @@` says of which file",
    ),
    (
        "kex_exchange_identification",
        "the connection was closed before ssh began",
        "`ssh @@` must work first; it may have too many of them at once (MaxStartups)",
    ),
    (
        "account is currently not available",
        "the user may not log in there",
        "name another user, as in --server ssh://USER@@@",
    ),
    (
        "sftp connections only",
        "the user may only copy files there",
        "name another user, as in --server ssh://USER@@@",
    ),
    (
        "a password is required",
        "sudo asks for a password there",
        "permit the user `sh`, or `webdyno agent --settings-only`, without one (NOPASSWD; docs/sudoers), or log in as root",
    ),
    (
        "a terminal is required",
        "sudo asks for a password there",
        "permit the user `sh`, or `webdyno agent --settings-only`, without one (NOPASSWD; docs/sudoers), or log in as root",
    ),
    (
        "you must have a tty",
        "sudo wants a terminal there",
        "`Defaults !requiretty` in sudoers, or log in as root",
    ),
    ("is not in the sudoers", "the user may not use sudo there", "permit it in sudoers, or log in as root"),
    (
        "is not allowed to",
        "sudo refuses that to the user there",
        "permit `sh`, or `webdyno agent --settings-only`, in sudoers (docs/sudoers), or log in as root",
    ),
    ("may not run sudo", "the user may not use sudo there", "permit it in sudoers, or log in as root"),
    ("unknown user", "sudo does not know the user", "log in as root"),
    ("sudo: command not found", "there is no sudo there", "log in as root, and leave --sudo out"),
    // As dash says it, also of a folder of the PATH that may not be read.
    ("exec: sudo:", "there is no sudo there", "log in as root, and leave --sudo out"),
    ("sudo: not found", "there is no sudo there", "log in as root, and leave --sudo out"),
    (
        "exec: \"sh\"",
        "there is no shell there",
        "put webdyno there and name it, as in --server exec:'COMMAND /opt/webdyno agent'",
    ),
    (
        "failed to run command 'sh'",
        "there is no shell there",
        "put webdyno there and name it, as in --server exec:'COMMAND /opt/webdyno agent'",
    ),
    (
        "failed to run command ‘sh’",
        "there is no shell there",
        "put webdyno there and name it, as in --server exec:'COMMAND /opt/webdyno agent'",
    ),
    (
        "Connection refused",
        "nothing there takes ssh connections",
        "is sshd running, and on this port? another one is named as in --server ssh://@@:2222",
    ),
    (
        "Connection timed out",
        "the host does not answer",
        "is it up, and does a firewall let ssh through? `ssh @@` must work",
    ),
    (
        "Operation timed out",
        "the host does not answer",
        "is it up, and does a firewall let ssh through? `ssh @@` must work",
    ),
    ("No route to host", "there is no way to the host", "is it up? `ip route get ADDRESS` shows the way"),
    ("Network is unreachable", "there is no way to the host", "`ip route get ADDRESS` shows the way"),
    ("Cannot open network namespace", "there is no such network namespace", "`ip netns list` names them"),
];

/// Why a connection did not come about. `status` is how the command ended, `noise` what it said instead of an agent.
pub fn explain(server: &ServerAddress, lines: &[String], status: Option<String>, noise: &str) -> UserError {
    let host = match server {
        ServerAddress::Ssh(host) => host.host.clone(),
        ServerAddress::Local | ServerAddress::Exec(_) => "HOST".into(),
    };
    let last = lines.iter().rev().find(|line| !line.starts_with("Warning: ")).map(|line| line.trim());
    // nologin(8) and the like speak to stdout.
    let all: Vec<&str> = lines.iter().map(String::as_str).chain(noise.lines()).collect();
    let known = MEANINGS.iter().find_map(|(text, what, hint)| {
        // The last of them is the reason: warnings and what was tried before stand above it.
        let line = all.iter().rev().find(|line| line.contains(text))?;
        Some((what, hint, line.trim()))
    });
    if let Some((what, hint, line)) = known {
        let hint = hint.replace("USER@@@", &format!("USER@{host}")).replace("@@", &host);
        return UserError::cannot_run(format!("{server}: {what} ({line})")).hint(hint);
    }
    let ended = status.map_or_else(String::new, |status| format!(" ({status})"));
    let said = last.or_else(|| noise.lines().map(str::trim).rfind(|line| !line.is_empty()));
    let why = said.map_or_else(String::new, |said| format!(": {said}"));
    let error = UserError::cannot_run(format!("{server}: no agent could be started there{ended}{why}"));
    match server {
        ServerAddress::Local => error,
        ServerAddress::Ssh(_) => error.hint(format!("`ssh {host} sh` must give a shell that says nothing by itself")),
        ServerAddress::Exec(command) => error.hint(format!(
            "it must run a shell or `webdyno agent` and connect its stdin and stdout (`docker exec` and `kubectl exec` need -i): {command}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh() -> ServerAddress {
        ServerAddress::parse("ssh://admin@web1").unwrap()
    }

    #[test]
    fn what_ssh_and_sudo_say_is_told_in_plain_words() {
        for (line, message, hint) in [
            (
                "ssh: Could not resolve hostname web1: Name or service not known",
                "the name of the host is not known",
                "getent hosts web1",
            ),
            (
                "root@web1: Permission denied (publickey).",
                "the host takes none of our keys",
                "ssh-copy-id web1",
            ),
            ("Host key verification failed.", "the key of the host is not known", "`ssh web1`"),
            (
                "ssh: connect to host web1 port 22: Connection refused",
                "nothing there takes ssh connections",
                "ssh://web1:2222",
            ),
            ("This account is currently not available.", "the user may not log in", "ssh://USER@web1"),
            ("sudo: a password is required", "sudo asks for a password there", "NOPASSWD"),
            ("sudo: sorry, you must have a tty to run sudo", "sudo wants a terminal there", "requiretty"),
            ("www is not in the sudoers file.", "the user may not use sudo", "sudoers"),
            ("sh: 1: sudo: not found", "there is no sudo there", "log in as root"),
            (
                "chroot: failed to run command ‘sh’: No such file or directory",
                "there is no shell there",
                "put webdyno there",
            ),
        ] {
            let lines: Vec<String> = line.lines().map(str::to_owned).collect();
            let error = explain(&ssh(), &lines, Some("exit status: 255".into()), "");
            assert!(error.message.starts_with(&format!("ssh://admin@web1: {message}")), "{error}");
            assert!(error.message.ends_with(&format!("({})", lines.last().unwrap())), "{error}");
            assert!(error.hint.clone().unwrap().contains(hint), "{error:?}");
            assert_eq!(error.exit_code(), 1);
        }
    }

    #[test]
    fn what_is_not_known_is_told_as_it_was_said() {
        let said = |lines: &[&str], noise: &str| {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            explain(&ssh(), &lines, Some("exit status: 1".into()), noise).message
        };
        let start = "ssh://admin@web1: no agent could be started there (exit status: 1)";
        assert_eq!(
            said(&["x", "Error: No such container: C", "Warning: y"], ""),
            format!("{start}: Error: No such container: C")
        );
        assert_eq!(said(&[], "Welcome\nPlease choose:\n"), format!("{start}: Please choose:"));
        assert_eq!(said(&[], ""), start);
        let exec = ServerAddress::parse("exec:docker exec C webdyno agent").unwrap();
        let error = explain(&exec, &[], None, "");
        assert_eq!(error.message, "exec:docker exec C webdyno agent: no agent could be started there");
        assert!(error.hint.unwrap().contains("need -i"));
    }

    #[test]
    fn what_is_said_is_kept_bounded_and_any_bytes_are_text() {
        let mut text: Vec<u8> = (0..100).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        text.extend([0xff, b'\n']);
        text.extend([b'x'; 2500]);
        let stderr_capture = StderrCapture::default();
        stderr_capture.listen(&text[..]);
        let lines = stderr_capture.lines();
        assert_eq!((lines.len(), stderr_capture.has_ended()), (LINES_COUNT_MAX, true));
        assert_eq!(lines.last().unwrap().len(), 500);
        assert!(lines.contains(&"\u{fffd}".to_owned()) && lines.contains(&"line 99".to_owned()));
    }
}
