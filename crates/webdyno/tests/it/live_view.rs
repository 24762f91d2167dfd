//! The live view on a real terminal: script(1) of util-linux gives one, the shell's stty(1) shows that it is as before.

use crate::support::{Place, Server, shared_turn, skip, wait_until};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A terminal on which `webdyno` loads a server, between two lines with the modes of the terminal.
struct TerminalRun {
    script: Child,
    keys: ChildStdin,
    output: Arc<Mutex<Vec<u8>>>,
}

impl TerminalRun {
    /// `None`, and said so, where there is no script(1).
    fn begin(place: &Place, arguments: &str, term: &str) -> Option<Self> {
        let program = assert_cmd::cargo::cargo_bin("webdyno").display().to_string();
        let line = format!(
            "trap : INT; stty cols 80 rows 24; stty -g; {program} {arguments}; code=$?; echo; stty -g; exit $code"
        );
        let script = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .envs([("TERM", term), ("LC_ALL", "C.UTF-8"), ("SHELL", "/bin/sh")])
            .env("WEBDYNO_STATE", place.path("state"))
            .current_dir(place.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut script) = script else {
            skip("script(1) is missing; install bsdutils");
            return None;
        };
        let output = Arc::new(Mutex::new(vec![]));
        let (sink, mut terminal) = (output.clone(), script.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = terminal.read(&mut bytes) {
                sink.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        let keys = script.stdin.take().unwrap();
        Some(Self { script, keys, output })
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until the view has drawn. What is drawn has no blanks: the cursor moves over them.
    fn wait_until_drawn(&self) {
        let is_drawn = wait_until(Duration::from_secs(30), || {
            let output = self.output();
            ["p99", "flight", "successful", "Latency,", "req/s"].iter().all(|word| output.contains(word))
        });
        assert!(is_drawn, "{}", self.output());
    }

    /// Types a key once the view has drawn a few seconds. Gives exit code and output.
    fn end_with(mut self, key: &[u8]) -> (Option<i32>, String) {
        self.wait_until_drawn();
        std::thread::sleep(Duration::from_millis(2500));
        self.keys.write_all(key).unwrap();
        self.end()
    }

    /// Waits for the end. Gives exit code and output.
    fn end(mut self) -> (Option<i32>, String) {
        let mut code = None;
        wait_until(Duration::from_secs(60), || {
            code = self.script.try_wait().unwrap().map(|status| status.code());
            code.is_some()
        });
        if code.is_none() {
            self.script.kill().unwrap();
        }
        (code.flatten(), self.output())
    }
}

/// The modes of the terminal are the same before and after.
fn assert_restored(output: &str) {
    let modes: Vec<&str> = output.lines().map(str::trim).filter(|line| is_modes(line)).collect();
    assert_eq!(modes.len(), 2, "{output}");
    assert_eq!(modes[0], modes[1]);
}

/// What `stty -g` prints: hexadecimal numbers with colons between.
fn is_modes(line: &str) -> bool {
    line.matches(':').count() > 10 && line.chars().all(|letter| letter.is_ascii_hexdigit() || letter == ':')
}

#[test]
fn q_and_ctrl_c_end_the_view_with_the_report_and_the_terminal_as_before() {
    let _turn = shared_turn();
    let server = Server::answering(ANSWER);
    for (key, out) in [(b"q", "q"), (b"\x03", "c")] {
        let place = Place::new();
        let arguments = format!("run {} -r 100 -d 60s --out {out}", server.url());
        let Some(run) = TerminalRun::begin(&place, &arguments, "xterm-256color") else { return };
        let (code, output) = run.end_with(key);
        assert_eq!(code, Some(130), "{output}");
        assert_eq!(output.matches(ENTER).count(), 1, "{output}");
        let (view, after) = output.split_once(LEAVE).unwrap();
        assert!(view.contains("loading") && view.contains("webdyno run"), "{view}");
        // After the view nothing moves the cursor any more, and the lines of progress and the report can be read.
        assert!(!after.contains("\x1b[?1049") && !after.contains(";1H"), "{after}");
        assert!(after.contains("loading: 50 connections"), "{after}");
        assert!(after.contains("report.html"), "{after}");
        assert_restored(&output);
        assert!(place.path(out).join("report.html").exists());
    }
}

#[test]
fn what_an_agent_says_is_read_when_the_view_is_gone() {
    let _turn = shared_turn();
    let (place, server) = (Place::new(), Server::answering(ANSWER));
    let program = assert_cmd::cargo::cargo_bin("webdyno").display().to_string();
    let says = "(until [ -e go ]; do sleep 0.1; done; echo said-meanwhile >&2) > /dev/null &";
    let arguments = format!(
        "diagnose {} -r 100 -d 60s --out o --server \"exec:{says} exec {program} agent\"",
        server.url()
    );
    let Some(run) = TerminalRun::begin(&place, &arguments, "xterm") else { return };
    run.wait_until_drawn();
    std::fs::write(place.path("go"), "").unwrap();
    let (_, output) = run.end_with(b"q");
    let (view, after) = output.split_once(LEAVE).unwrap();
    assert!(!view.contains("said-meanwhile") && after.contains("said-meanwhile"), "{output}");
}

#[test]
fn other_terminals_have_lines_and_the_last_is_cleared() {
    let _turn = shared_turn();
    let server = Server::answering(ANSWER);
    for (flag, term, end) in [("--no-tui", "xterm", " left\r\n"), ("-c 2", "dumb", "\r\x1b[K")] {
        let place = Place::new();
        let arguments = format!("run {} -r 100 -d 3s --warmup 0s --color never --out o {flag}", server.url());
        let Some(run) = TerminalRun::begin(&place, &arguments, term) else { return };
        let (code, output) = run.end();
        // On a busy machine the run may be invalid.
        assert!(matches!(code, Some(0 | 3)), "{output}");
        assert!(!output.contains(ENTER), "{output}");
        let (before, _) = output.split_once(" req/s, ").unwrap();
        let before = before.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        assert!(before.contains("req/s") && before.ends_with(end), "{before:?}");
        assert_restored(&output);
    }
}
