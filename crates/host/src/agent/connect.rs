//! Making the connection to an agent: the command that carries it, our program sent over it where there is none, and a
//! reason in plain words when it does not come about.
//!
//! ssh(1) is the system's, with the user's configuration. What is set beside it is what scp(1) and sftp(1) set: no
//! forwarding, no terminal, no command of the configuration's own. Where nobody can be asked it asks nothing (BatchMode).

use crate::agent::address::{ServerAddress, SshHost};
use crate::agent::bootstrap::{self, ExecForm, Program, Script, ShellReply, exec_form};
use crate::agent::foreground::{Foreground, group};
use crate::agent::stderr_capture::{StderrCapture, explain};
use crate::agent::this_build;
use crate::os::process::wait_until;
use crate::os::timeouts;
use rustix::process::{Signal, kill_process_group};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use webdyno_model::error::io_error;
use webdyno_model::{Result, UserError};

/// What is never the user's to decide in a session of ours.
const SSH_OPTIONS: [&str; 11] = [
    "-T",
    "-x",
    "-oClearAllForwardings=yes",
    "-oForwardAgent=no",
    "-oPermitLocalCommand=no",
    "-oRemoteCommand=none",
    "-oRequestTTY=no",
    "-oStdinNull=no",
    // A connection that is lost is noticed within 15 s.
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
    "-oConnectTimeout=20",
];

/// How much is sent at once.
const CHUNK_BYTES: usize = 64 << 10;
/// The most that may be said before the shell answers: greetings of the server.
const NOISE_BYTES_MAX: usize = 64 << 10;
/// How long the end of what ended is waited for.
const END_WAIT: Duration = Duration::from_secs(2);

/// A connection to a program of ours that waits for what it is told.
pub struct Connection {
    /// What carries it.
    pub child: Child,
    /// To the agent.
    pub stdin: ChildStdin,
    /// From the agent.
    pub stdout: ChildStdout,
    /// What was said beside it; nothing is kept of an agent that speaks to our own stderr.
    pub stderr: Option<StderrCapture>,
}

/// What is run here, and whether it is a shell that gets the program first.
struct AgentCommand {
    command: Command,
    sends: bool,
}

/// How an agent is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Where.
    pub address: ServerAddress,
    /// This program, which is also the agent.
    pub own_executable: PathBuf,
    /// Whether it gets root's rights there, by sudo(8).
    pub sudo: bool,
    /// Whether it writes nothing at all: what earlier sessions left stays, and what would change anything is refused.
    pub reads_only: bool,
}

impl Start {
    /// With the rights that it has by itself, for a session that may change the server.
    pub fn at(address: ServerAddress, own_executable: &Path) -> Self {
        Self { address, own_executable: own_executable.to_owned(), sudo: false, reads_only: false }
    }
}

/// Connects. Errors: nothing there can be an agent, each with what helps.
pub fn connect(start: &Start) -> Result<Connection> {
    start_on_server(start, "agent")
}

/// Whether an address can start an agent and do nothing else: then what is wanted must be asked of the agent.
pub fn only_starts_an_agent(address: &ServerAddress) -> bool {
    matches!(address, ServerAddress::Exec(text) if matches!(exec_form(text), ExecForm::AsItIs(_)))
}

/// Has our program do something else there than serve: what it prints goes to `output`. Gives its exit code.
pub fn run_on_server(start: &Start, words: &str, mut output: impl Write) -> Result<u8> {
    let Connection { mut child, stdin, mut stdout, stderr: stderr_capture } = start_on_server(start, words)?;
    drop(stdin);
    stderr_capture.iter().for_each(StderrCapture::connected);
    let message = io::copy(&mut stdout, &mut output).and_then(|_| output.flush());
    let status = child.wait().map_err(|error| io_error("wait for", &start.address, &error))?;
    // What it complained of is told by then.
    stderr_capture.map(|stderr_capture| wait_until(END_WAIT, || stderr_capture.has_ended()));
    message.map_err(|error| io_error("show what was said by", &start.address, &error))?;
    status.code().and_then(|code| u8::try_from(code).ok()).ok_or_else(|| {
        UserError::cannot_run(format!(
            "{}: `webdyno {words}` did not end by itself ({status})",
            start.address
        ))
    })
}

/// Has our program run with these words: over the connection where it is elsewhere. Errors: as of an agent.
pub fn start_on_server(start: &Start, words: &str) -> Result<Connection> {
    let foreground = Foreground::ours();
    let AgentCommand { command, sends } = agent_command(start, words, foreground.is_some())?;
    // Opened before anything is started: what cannot be read need not be waited for.
    let program = sends.then(|| program(&start.own_executable)).transpose()?;
    let mut connection = spawn(command, start, program.is_some())?;
    let Some(program) = program else { return Ok(connection) };
    let lent = foreground.map(|ours| ours.lend(&connection.child));
    let asks = lent.is_some();
    let sent = Sending::new(&mut connection, asks).send(program, start.sudo, words);
    drop(lent);
    match sent {
        Ok(()) => {
            connection.stderr.iter().for_each(StderrCapture::connected);
            Ok(connection)
        }
        Err(stopped) => Err(why(&start.address, connection, stopped)),
    }
}

fn agent_command(start: &Start, words: &str, terminal: bool) -> Result<AgentCommand> {
    let with = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    Ok(match &start.address {
        ServerAddress::Local => {
            let is_root = rustix::process::geteuid().is_root();
            let (mut command, words) = match start.sudo && !is_root {
                true => {
                    let mut command = with("sudo", &["-n", "--"]);
                    command.arg(&start.own_executable);
                    (command, bootstrap::permitted(words))
                }
                false => (Command::new(&start.own_executable), words),
            };
            command.args(words.split(' '));
            AgentCommand { command, sends: false }
        }
        ServerAddress::Ssh(host) => AgentCommand { command: ssh(host, terminal), sends: true },
        ServerAddress::Exec(text) => match exec_form(text) {
            ExecForm::Shell(text) => AgentCommand { command: with("sh", &["-c", &text]), sends: true },
            ExecForm::AsItIs(text) if start.sudo => {
                return Err(UserError::usage(format!(
                    "--sudo is for a shell, and this starts an agent: {text}"
                ))
                .hint("write sudo into the command itself"));
            }
            ExecForm::AsItIs(text) => AgentCommand { command: with("sh", &["-c", &text]), sends: false },
        },
    })
}

fn ssh(host: &SshHost, terminal: bool) -> Command {
    let mut command = Command::new("ssh");
    command.args(SSH_OPTIONS);
    if !terminal {
        command.arg("-oBatchMode=yes");
    }
    command.args(host.port.map(|port| format!("-p{port}")));
    command.args(host.user.as_ref().map(|user| format!("-l{user}")));
    command.args(["--", &host.host, "sh"]);
    command
}

fn program(own: &Path) -> Result<Program> {
    let tells = |path: &Path| {
        let output = Command::new(path).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
        output.ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let path = bootstrap::to_send(own, this_build(), tells);
    // What an update replaced has no name any more: what runs is what is sent.
    let is_ours = std::env::current_exe().is_ok_and(|current| current == path);
    Program::open(if is_ours { Path::new("/proc/self/exe") } else { &path })
}

fn spawn(mut command: Command, start: &Start, sends: bool) -> Result<Connection> {
    // What carries it says why there is no agent. A terminal may be drawn on: what an agent says of its own is shown then by
    // who draws; elsewhere it speaks for itself, also when its tool is gone.
    let hears = sends || start.sudo || io::stderr().is_terminal();
    let stderr = if hears { Stdio::piped() } else { Stdio::inherit() };
    // A group of its own: Ctrl-C is for the tool, which then tells the agent what to do.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
    let mut child = command.spawn().map_err(|error| not_started(&command, start, &error))?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(UserError::cannot_run("the agent has no stdin and stdout"));
    };
    let stderr_capture = child.stderr.take().map(StderrCapture::of);
    Ok(Connection { child, stdin, stdout, stderr: stderr_capture })
}

fn not_started(command: &Command, start: &Start, error: &io::Error) -> UserError {
    let program = command.get_program().to_string_lossy();
    match (error.kind(), &*program) {
        (io::ErrorKind::NotFound, "ssh") => UserError::cannot_run("there is no ssh on this machine")
            .hint("`apt-get install openssh-client`, or `dnf install openssh-clients`"),
        (io::ErrorKind::NotFound, "sudo") => UserError::cannot_run("there is no sudo on this machine")
            .hint("run webdyno as root, and leave --sudo out"),
        _ => io_error("start the agent", &start.address, error),
    }
}

/// Why sending ended before its time.
enum Stopped {
    /// The stream ended, or broke.
    Ended,
    /// Nothing happened for so long.
    Silent(Duration),
    /// The shell there said why.
    Failed(Vec<String>),
    /// Here.
    Here(UserError),
}

impl From<io::Error> for Stopped {
    fn from(_: io::Error) -> Self {
        Self::Ended
    }
}

/// The program on its way.
struct Sending<'a> {
    connection: &'a mut Connection,
    noise: String,
    watchdog: Watchdog,
    /// Whether somebody may be asked for a password: then nobody is in a hurry.
    asks: bool,
}

impl<'a> Sending<'a> {
    fn new(connection: &'a mut Connection, asks: bool) -> Self {
        let watchdog = Watchdog::over(&connection.child);
        Self { connection, noise: String::new(), watchdog, asks }
    }

    fn send(
        mut self,
        program: Program,
        sudo: bool,
        words: &str,
    ) -> std::result::Result<(), (Stopped, String)> {
        let sent = self.send_all(program, sudo, words);
        let silent = self.watchdog.end();
        sent.map_err(|stopped| match (stopped, silent) {
            // What was ended for its silence has ended, too.
            (Stopped::Ended, Some(silence)) => (Stopped::Silent(silence), self.noise),
            (stopped, _) => (stopped, self.noise),
        })
    }

    fn send_all(
        &mut self,
        mut program: Program,
        sudo: bool,
        words: &str,
    ) -> std::result::Result<(), Stopped> {
        let script =
            Script::new().map_err(|error| Stopped::Here(io_error("read", "/dev/urandom", &error)))?;
        if !self.asks {
            self.watchdog.expect_within(timeouts::HELLO_ANSWER);
        }
        if sudo {
            self.write(script.as_root(words).as_bytes());
            if self.expect_reply(&script, &[ShellReply::Shell, ShellReply::Go])? == ShellReply::Go {
                return Ok(());
            }
        }
        self.write(script.text(&program, words).as_bytes());
        self.expect_reply(&script, &[ShellReply::Ready])?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            self.watchdog.expect_within(timeouts::HELLO_ANSWER);
            match program.next(&mut chunk) {
                Ok(0) => break,
                Ok(count) => self.write(chunk.get(..count).unwrap_or_default()),
                Err(error) => return Err(Stopped::Here(io_error("read", "this program", &error))),
            }
        }
        self.expect_reply(&script, &[ShellReply::Go])?;
        Ok(())
    }

    /// What cannot be said any more has a reason, which is heard next.
    fn write(&mut self, bytes: &[u8]) {
        let _ = self.connection.stdin.write_all(bytes).and_then(|()| self.connection.stdin.flush());
    }

    /// Waits for one of these answers. Bytes are taken one by one: what follows it is the agent's.
    fn expect_reply(
        &mut self,
        script: &Script,
        expected: &[ShellReply],
    ) -> std::result::Result<ShellReply, Stopped> {
        let mut line = vec![];
        let mut byte = [0];
        loop {
            let more = self.connection.stdout.read(&mut byte)? > 0;
            if more && byte != *b"\n" {
                line.extend(byte);
                if line.len() + self.noise.len() < NOISE_BYTES_MAX {
                    continue;
                }
            }
            let text = String::from_utf8_lossy(&line).into_owned();
            match script.read(&text) {
                Some(ShellReply::Failed(words)) => return Err(Stopped::Failed(words)),
                Some(said) if expected.contains(&said) => return Ok(said),
                Some(_) | None => self.noise += &format!("{text}\n"),
            }
            line.clear();
            if !more || self.noise.len() >= NOISE_BYTES_MAX {
                return Err(Stopped::Ended);
            }
        }
    }
}

/// Ends what carries the connection when nothing happens for too long.
struct Watchdog {
    state: Arc<Mutex<Watched>>,
}

#[derive(Default)]
struct Watched {
    until: Option<(Instant, Duration)>,
    over: bool,
    bit: Option<Duration>,
}

impl Watchdog {
    fn over(child: &Child) -> Self {
        let state = Arc::new(Mutex::new(Watched::default()));
        let (watched, group) = (Arc::clone(&state), group(child));
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_millis(100));
                let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                if watched.over {
                    return;
                }
                if let Some((until, length)) = watched.until.filter(|(until, _)| Instant::now() > *until) {
                    let _ = until;
                    watched.bit = Some(length);
                    group.map(|group| kill_process_group(group, Signal::KILL));
                    return;
                }
            }
        });
        Self { state }
    }

    fn expect_within(&self, length: Duration) {
        let mut watched = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        watched.until = Some((Instant::now() + length, length));
    }

    /// Ends the watch. For how long nothing had happened, if it had to end something.
    fn end(&self) -> Option<Duration> {
        let mut watched = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        watched.over = true;
        watched.bit
    }
}

/// Why there is no agent.
fn why(server: &ServerAddress, connection: Connection, (stopped, noise): (Stopped, String)) -> UserError {
    let Connection { mut child, stdin, stdout, stderr: stderr_capture } = connection;
    drop((stdin, stdout));
    let ended = wait_until(END_WAIT, || !matches!(child.try_wait(), Ok(None)));
    if !ended {
        group(&child).map(|group| kill_process_group(group, Signal::KILL));
    }
    let status = child.wait().ok();
    if let Some(stderr_capture) = &stderr_capture {
        // A connection that ssh shares with others keeps the stream open.
        wait_until(END_WAIT, || stderr_capture.has_ended());
    }
    let lines = stderr_capture.map(|stderr_capture| stderr_capture.lines()).unwrap_or_default();
    match stopped {
        Stopped::Here(error) => error,
        Stopped::Failed(words) => bootstrap::failure(server, &words),
        Stopped::Silent(silence) => UserError::cannot_run(format!(
            "{server}: nothing was heard for {} s{}",
            silence.as_secs(),
            lines.last().map_or_else(String::new, |line| format!(" after: {line}"))
        ))
        .hint("the command of --server must connect stdin and stdout of a shell, and ask nothing"),
        Stopped::Ended => {
            let interrupted = status.is_some_and(|status| status.signal() == Some(Signal::INT.as_raw()));
            match interrupted || status.is_some_and(|status| status.code() == Some(130)) {
                true => UserError::interrupted(),
                false => {
                    explain(server, &lines, status.filter(|_| ended).map(|status| status.to_string()), &noise)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that takes everything and says nothing would be waited for without end.
    #[test]
    fn what_says_nothing_is_ended() {
        for (pause, ended) in [(Duration::from_millis(200), true), (Duration::from_secs(60), false)] {
            let mut command = Command::new("sleep");
            let mut child = command.arg("60").process_group(0).spawn().unwrap();
            let watchdog = Watchdog::over(&child);
            watchdog.expect_within(pause);
            let is_over = || matches!(child.try_wait(), Ok(Some(_)));
            let at_most = if ended { Duration::from_secs(20) } else { Duration::from_millis(500) };
            assert_eq!(wait_until(at_most, is_over), ended);
            assert_eq!(watchdog.end(), ended.then_some(pause));
            let _ = child.kill();
            child.wait().unwrap();
        }
    }

    fn words(start: &Start, terminal: bool) -> (String, bool) {
        let way = agent_command(start, "agent", terminal).unwrap();
        let words = std::iter::once(way.command.get_program()).chain(way.command.get_args());
        (words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "), way.sends)
    }

    #[test]
    fn ssh_asks_only_where_somebody_is() {
        let start = |text: &str| Start::at(ServerAddress::parse(text).unwrap(), Path::new("/own"));
        let (asks, sends) = words(&start("ssh://u@[::1]:2222"), true);
        assert!(asks.starts_with("ssh -T ") && asks.ends_with(" -p2222 -lu -- ::1 sh") && sends, "{asks}");
        assert!(!asks.contains("BatchMode"));
        assert!(words(&start("ssh://h"), false).0.ends_with(" -oBatchMode=yes -- h sh"));
        assert_eq!(words(&start("local"), false), ("/own agent".into(), false));
        assert_eq!(words(&start("exec:nsenter x"), false), ("sh -c nsenter x sh".into(), true));
        assert_eq!(words(&start("exec:/x/webdyno agent"), false), ("sh -c /x/webdyno agent".into(), false));
    }
}
