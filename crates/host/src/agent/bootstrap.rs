//! Our own program on a server for one session: what `sh` is told there (`bootstrap.sh`), and what it says.
//!
//! The program goes through the one connection that the session then uses. It lies in a file without a name: whatever is
//! killed, and whenever, nothing of it stays.

use crate::agent::address::ServerAddress;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

const SCRIPT: &str = include_str!("bootstrap.sh");

/// What an agent is told that is started by sudo where that is all sudo permits (docs/sudoers).
pub const SETTINGS_ONLY: &str = "agent --settings-only";

/// For who has to be root first. Whoever joins words finds one of them. Where sudo permits no shell, it may permit the
/// program that is installed there, and those words alone.
const AS_ROOT: &str = "{ [ \"$(id -u)\" = 0 ] && { echo '@MARK@ shell'; exec sh; }
sudo -n -l sh >/dev/null 2>&1 </dev/null ||
{ sudo -n -l webdyno @WORDS@ >/dev/null 2>&1 </dev/null && { echo '@MARK@ go'; exec sudo -n webdyno @WORDS@; }; }
echo '@MARK@ shell'; exec sudo -n sh; }\n";

/// A program that came nowhere for this long is given up there.
const STALL_S: u64 = 10;

/// A file that is sent, as it was when it was opened.
#[derive(Debug)]
pub struct Program {
    file: File,
    bytes: u64,
    sha256: String,
}

impl Program {
    /// Opens a program and reads it once.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(path).map_err(|error| io_error("read", path.display(), &error))
    }

    fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        let bytes = io::copy(&mut file, &mut hash)?;
        file.rewind()?;
        Ok(Self { file, bytes, sha256: hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect() })
    }

    /// The next bytes of it; none at its end.
    pub fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

/// What is said to the shell of one session, and by which mark its answers are known.
#[derive(Debug)]
pub struct Script {
    mark: String,
}

/// What the shell said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellReply {
    /// It is the shell that has the rights.
    Shell,
    /// It waits for the program.
    Ready,
    /// It has the program whole, which runs from here on.
    Go,
    /// It gave up: why, in the words of the script.
    Failed(Vec<String>),
}

impl Script {
    /// With a mark that nothing else says.
    pub fn new() -> io::Result<Self> {
        let mut random = [0_u8; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        Ok(Self { mark: format!("webdyno-{:016x}", u64::from_be_bytes(random)) })
    }

    /// What makes a shell with root's rights of the first one, or runs what is installed there with these words.
    pub fn as_root(&self, words: &str) -> String {
        AS_ROOT.replace("@MARK@", &self.mark).replace("@WORDS@", permitted(words))
    }

    /// What takes the program and runs it with these words.
    pub fn text(&self, program: &Program, words: &str) -> String {
        let kilobytes = program.bytes.div_ceil(1024) + 64;
        SCRIPT
            .replace("@MARK@", &self.mark)
            .replace("@NAME@", &self.mark)
            .replace("@SYSTEMS@", &systems(std::env::consts::ARCH))
            .replace("@KB@", &kilobytes.to_string())
            .replace("@BYTES@", &program.bytes.to_string())
            .replace("@STALL_S@", &STALL_S.to_string())
            .replace("@HASH@", &program.sha256)
            .replace("@WORDS@", words)
    }

    /// What a line says; `None` for one that is somebody else's, such as a greeting. Text without an end may stand
    /// before it.
    pub fn read(&self, line: &str) -> Option<ShellReply> {
        let (_, said) = line.split_once(&self.mark)?;
        let mut words = said.split_ascii_whitespace();
        match words.next()? {
            "shell" => Some(ShellReply::Shell),
            "ready" => Some(ShellReply::Ready),
            "go" => Some(ShellReply::Go),
            "fail" => Some(ShellReply::Failed(words.map(str::to_owned).collect())),
            _ => None,
        }
    }
}

/// The words that sudo is asked for in place of some.
pub fn permitted(words: &str) -> &str {
    if words == "agent" { SETTINGS_ONLY } else { words }
}

/// What `uname -s` and `uname -m` say of machines that run our program, as a pattern of the shell.
fn systems(architecture: &str) -> String {
    let others = match architecture {
        "x86_64" => &["amd64"][..],
        "aarch64" => &["arm64"],
        "x86" => &["i386", "i486", "i586", "i686", "x86_64"],
        _ => &[],
    };
    let all = [architecture].into_iter().chain(others.iter().copied());
    all.map(|machine| format!("'Linux {machine}'")).collect::<Vec<_>>().join(" | ")
}

/// Why the script gave up, in plain words.
pub fn failure(server: &ServerAddress, words: &[String]) -> UserError {
    let what = words.first().map_or("", String::as_str);
    let rest = words.get(1..).unwrap_or_default().join(" ");
    let message = |text: String| UserError::cannot_run(format!("{server}: {text}"));
    match what {
        "machine" => message(format!(
            "the machine is {rest}, and this program is for Linux {}",
            std::env::consts::ARCH
        ))
        .hint("build webdyno for that machine, put it there, and name it, as in --server exec:'ssh HOST /opt/webdyno agent'"),
        "proc" => message("/proc is not mounted there, and all that is observed is read from it".into())
            .hint("mount it there: `mount -t proc proc /proc`"),
        "lacks" => message(format!("there is no `{rest}` there, which copying the program takes"))
            .hint("put webdyno there, and name it, as in --server exec:'COMMAND /opt/webdyno agent'"),
        "folder" => {
            let why = if rest.is_empty() { "there is none".to_owned() } else { rest };
            message(format!("no temporary folder there takes a program: {why}")).hint(
                "set TMPDIR there to a folder with room where programs may run, or put webdyno there and name it, as in --server exec:'COMMAND /opt/webdyno agent'",
            )
        }
        "short" => message(format!("only {rest} bytes of the program arrived, or there was no room for more"))
            .hint("`df /tmp` there shows the room; a connection that was cut off says so above"),
        "changed" => message("the program was changed on its way".into())
            .hint("whatever carries stdin must leave it as it is: no terminal (-t), no filter"),
        "run" => cannot_run_there(server, &rest),
        _ => message(format!("it gave up: {}", words.join(" "))),
    }
}

/// Our program does not run there, for what it or the system said itself.
fn cannot_run_there(server: &ServerAddress, said: &str) -> UserError {
    let (status, text) = said.split_once(' ').unwrap_or((said, ""));
    let is_old = text.contains("GLIBC_") || text.contains("libc.so") || text.contains("error while loading");
    let is_other_libc = status == "127" && !is_old;
    match (is_old, is_other_libc, status) {
        (true, ..) | (_, true, _) => {
            let why = if is_old { text } else { "it has another C library, or none" };
            UserError::cannot_run(format!("{server}: this build of webdyno does not run there: {why}"))
                .hint("`make static` builds webdyno-static, which runs anywhere: put it beside this program")
        }
        (.., "126") => UserError::cannot_run(format!("{server}: the system there refuses to run the program: {text}"))
            .hint("its security rules (SELinux, AppArmor, fapolicyd) say why; or put webdyno there and name it, as in --server exec:'COMMAND /opt/webdyno agent'"),
        _ => UserError::cannot_run(format!("{server}: the program fails there with status {status}: {text}")),
    }
}

/// The program to be sent: a static one beside ours where there is one of the same build, else ours. `tells` gives what
/// a program says with `--version`.
pub fn to_send(own: &Path, build: &str, tells: impl Fn(&Path) -> Option<String>) -> PathBuf {
    let Some(folder) = own.parent() else { return own.to_owned() };
    let beside = [folder.join("webdyno-static"), folder.join("../libexec/webdyno/webdyno-static")];
    let ours = |path: &PathBuf| tells(path).is_some_and(|version| version.contains(build));
    beside.into_iter().find(ours).unwrap_or_else(|| own.to_owned())
}

/// How a command of `exec:` is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecForm {
    /// It starts an agent that is there.
    AsItIs(String),
    /// It starts a shell, which gets the program.
    Shell(String),
}

/// `... webdyno agent` becomes `... sh`; any other command that ends in `agent` starts one itself; what is left is
/// what a command is given to, and gets `sh`.
pub fn exec_form(command: &str) -> ExecForm {
    let command = command.trim();
    if let Some(before) = command.strip_suffix("agent").map(str::trim_end)
        && let Some(prefix) = before.strip_suffix("webdyno")
        && command.len() > before.len() + "agent".len()
        && (prefix.is_empty() || prefix.ends_with(char::is_whitespace))
    {
        return ExecForm::Shell(format!("{prefix}sh"));
    }
    let last = command.split_whitespace().next_back().unwrap_or_default();
    match last.trim_matches(['\'', '"']) {
        "agent" => ExecForm::AsItIs(command.to_owned()),
        _ => ExecForm::Shell(format!("{command} sh")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_command_starts_an_agent_or_a_shell() {
        for (command, shell) in [
            ("docker exec -i C webdyno agent", Some("docker exec -i C sh")),
            ("ssh -J hop host  webdyno  agent ", Some("ssh -J hop host  sh")),
            ("webdyno agent", Some("sh")),
            ("ip netns exec web", Some("ip netns exec web sh")),
            ("docker exec -i C /usr/local/bin/webdyno agent", None),
            ("./webdyno agent", None),
            ("chroot /srv sh -c 'exec webdyno agent'", None),
            ("ssh host \"webdyno agent\"", None),
            ("my-webdyno agent", None),
            ("echo x # agent", None),
            ("run webdynoagent", Some("run webdynoagent sh")),
        ] {
            let expected = shell.map_or_else(
                || ExecForm::AsItIs(command.trim().to_owned()),
                |shell| ExecForm::Shell(shell.to_owned()),
            );
            assert_eq!(exec_form(command), expected);
        }
    }

    fn program() -> Program {
        Program { file: File::open("/dev/null").unwrap(), bytes: 5000, sha256: "ab".into() }
    }

    #[test]
    fn the_script_has_no_hole_left_and_knows_its_answers() {
        let script = Script::new().unwrap();
        let text = script.text(&program(), "agent");
        assert!(
            !text.replace("\"$@\"", "").contains('@')
                && text.contains("head -c 5000 ")
                && text.contains("exec /proc/self/fd/5 agent")
        );
        assert_ne!(Script::new().unwrap().mark, script.mark);
        let said = |text: &str| script.read(&text.replace("M", &script.mark));
        assert_eq!(said("M ready"), Some(ShellReply::Ready));
        assert_eq!(said("Welcome! M go"), Some(ShellReply::Go));
        assert_eq!(said("M fail short 12"), Some(ShellReply::Failed(vec!["short".into(), "12".into()])));
        assert_eq!(
            (said("Welcome!"), said("M"), said("M x"), said("webdyno-0 ready")),
            (None, None, None, None)
        );
    }

    #[test]
    fn failures_are_told_in_plain_words() {
        for (words, part, hint) in [
            (
                "machine Linux aarch64",
                "the machine is Linux aarch64, and this program is for Linux ",
                "build webdyno",
            ),
            ("proc", "/proc is not mounted", "mount"),
            ("lacks head", "there is no `head` there", "put webdyno there"),
            ("folder /tmp is mounted noexec", "/tmp is mounted noexec", "TMPDIR"),
            ("folder", "there is none", "TMPDIR"),
            ("short 12", "only 12 bytes", "df"),
            ("changed", "changed on its way", "terminal"),
            (
                "run 1 /proc/self/fd/5: /lib/libc.so.6: version `GLIBC_2.34' not found",
                "GLIBC_2.34",
                "make static",
            ),
            ("run 127 sh: 1: /proc/self/fd/5: not found", "another C library", "make static"),
            ("run 126 sh: Permission denied", "refuses to run", "SELinux"),
            ("run 139", "status 139", ""),
            ("", "it gave up", ""),
        ] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let error = failure(&ServerAddress::Local, &words);
            assert!(error.message.contains(part), "{error}");
            assert!(error.hint.unwrap_or_default().contains(hint), "{part}");
        }
    }

    #[test]
    fn a_static_program_of_the_same_build_is_preferred() {
        let own = Path::new("/opt/bin/webdyno");
        let tells = |of: &'static str| {
            move |path: &Path| path.ends_with(of).then(|| "webdyno 1 (build 77)".to_owned())
        };
        assert_eq!(to_send(own, "77", tells("webdyno-static")), Path::new("/opt/bin/webdyno-static"));
        assert_eq!(
            to_send(own, "77", tells("libexec/webdyno/webdyno-static")),
            Path::new("/opt/bin/../libexec/webdyno/webdyno-static")
        );
        assert_eq!(to_send(own, "78", tells("webdyno-static")), own);
        assert_eq!(to_send(own, "77", |_| None), own);
    }

    proptest! {
        /// Any line is an answer or none, never a panic; what failed is always told.
        #[test]
        fn any_line_is_read(line in any::<String>()) {
            let script = Script { mark: "webdyno-1".into() };
            let said = script.read(&format!("webdyno-1 fail {line}"));
            if let Some(ShellReply::Failed(words)) = said {
                prop_assert!(!failure(&ServerAddress::Local, &words).message.is_empty());
            }
            prop_assert_eq!(script.read(&line.replace("webdyno-1", "")), None);
        }

        /// A command is never lost: what starts a shell holds all its words but the agent's.
        #[test]
        fn any_command_has_a_form(command in "[a-z' \"/-]{1,30}( webdyno)?( agent)?") {
            match exec_form(&command) {
                ExecForm::AsItIs(text) => prop_assert_eq!(text, command.trim()),
                ExecForm::Shell(text) => prop_assert!(text.ends_with("sh")),
            }
        }
    }
}
