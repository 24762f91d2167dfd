//! `webdyno siege`: flags of siege 4, its resource file, and the load they mean.

use super::flags::{text, usage, whole, workload, wrong};
use super::siege_config::{Target, TargetBody, directives, target, targets};
use super::siege_report::Report;
use super::totals::{prepare, run};
use crate::terminal::{print, print_status};
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use webdyno_model::error::io_error;
use webdyno_model::workload::{Stop, Workload};
use webdyno_model::{Result, UserError};

const TOOL: &str = "siege";
/// Redirects that a request follows.
const REDIRECTS: u32 = 10;
const HELP: &str = "\
Usage: webdyno siege [options] [URL]
  -c, --concurrent=NUM      Users at once (25, or as the resource file says)
  -r, --reps=NUM            Requests of each user
  -t, --time=NUMm           Length of the load: S, M or H, as in 30S (minutes without)
  -d, --delay=NUM           Longest pause before each request, seconds, at random
  -b, --benchmark           No pauses
  -i, --internet            URLs at random
  -f, --file=FILE           List of URLs
  -R, --rc=FILE             Resource file
  -l, --log[=FILE]          Append a line to a log (/var/log/siege.log)
  -m, --mark=TEXT           A line in the log before it
  -H, --header=TEXT         Header line, repeatable
  -A, --user-agent=TEXT     User-Agent
  -T, --content-type=TEXT   Content type of what is sent
  -j, --json-output         The results on stdout, as JSON
  -q, --quiet               No report but JSON
  -v, --verbose             Accepted
  -C, --config              Print the configuration
      --no-parser           Accepted: HTML is not read
      --no-follow           Redirects are not followed
  -V, --version             Print the version
  -h, --help                Print this
Not there: -g, -p (docs/compatibility.md).
";

/// What flags and the resource file ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub concurrent: u64,
    pub reps: Option<u64>,
    pub time_s: Option<u64>,
    delay_s: f64,
    internet: bool,
    file: Option<PathBuf>,
    log: Option<PathBuf>,
    mark: Option<String>,
    headers: Vec<String>,
    agent: Option<String>,
    content_type: Option<String>,
    pub json: bool,
    quiet: bool,
    follows: bool,
    keeps: bool,
    timeout_s: u64,
    url: Option<String>,
}

impl Default for Options {
    /// As siege without a resource file.
    fn default() -> Self {
        Self {
            concurrent: 10,
            reps: None,
            time_s: None,
            delay_s: 0.0,
            internet: false,
            file: None,
            log: None,
            mark: None,
            headers: vec![],
            agent: None,
            content_type: None,
            json: false,
            quiet: false,
            follows: true,
            keeps: false,
            timeout_s: 30,
            url: None,
        }
    }
}

/// Runs it. Gives the exit code.
pub fn siege(words: Vec<OsString>) -> Result<u8> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some((options, asked)) = parse(words, &variable)? else { return Ok(0) };
    if asked {
        return print(&options.configuration()).map(|()| 0);
    }
    let load = options.workload(&options.targets()?)?;
    let (prepared, _) = prepare(&load)?;
    if !options.quiet {
        let version = env!("CARGO_PKG_VERSION");
        print_status(&format!(
            "** webdyno {version} as siege\n** Preparing {} concurrent users for battle.",
            options.concurrent
        ));
        print_status("The server is now under siege...");
    }
    let totals = run(&prepared, &mut |_| {})?;
    let report = Report::of(&totals);
    if options.json {
        print(&report.json())?;
    } else if !options.quiet {
        print_status(&format!("\n{}", report.text()));
    }
    if let Some(path) = &options.log {
        let mark = options.mark.as_deref();
        report.append(path, mark).map_err(|error| io_error("write", path.display(), &error))?;
    }
    Ok(0)
}

/// What the words and the resource file ask for, and whether that is only to be shown; `None` where help or version are printed.
fn parse(words: Vec<OsString>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<(Options, bool)>> {
    let mut options = Options::default();
    options.read_resources(&words, variable)?;
    let mut asked = false;
    let mut parser = lexopt::Parser::from_args(words);
    while let Some(argument) = parser.next().map_err(wrong(TOOL))? {
        match argument {
            Short('C') | Long("config") => asked = true,
            Short('h') | Long("help") => return print(HELP).map(|()| None),
            Short('V') | Long("version") => {
                return print(&format!("webdyno {} as siege\n", env!("CARGO_PKG_VERSION"))).map(|()| None);
            }
            Short('b') | Long("benchmark") => options.delay_s = 0.0,
            Short('i') | Long("internet") => options.internet = true,
            Short('j') | Long("json-output") => options.json = true,
            Short('q') | Long("quiet") => options.quiet = true,
            Short('v') | Long("verbose" | "no-parser") => {}
            Long("no-follow") => options.follows = false,
            Short('l') | Long("log") => {
                let path = parser.optional_value().map_or_else(|| "/var/log/siege.log".into(), PathBuf::from);
                options.log = Some(path);
            }
            Short(flag) => {
                let name = LONG.iter().find(|(short, _)| *short == flag).map(|(_, name)| *name);
                options
                    .take(name.ok_or_else(|| not_there(&format!("-{flag}")))?, &text(TOOL, &mut parser)?)?;
            }
            Long(name) => {
                let name = LONG
                    .iter()
                    .find(|(_, long)| *long == name)
                    .map(|(_, name)| *name)
                    .ok_or_else(|| not_there(&format!("--{name}")))?;
                options.take(name, &text(TOOL, &mut parser)?)?;
            }
            Value(url) => options.url = Some(url.to_string_lossy().into_owned()),
        }
    }
    Ok(Some((options, asked)))
}

/// Flags with a value.
const LONG: [(char, &str); 10] = [
    ('c', "concurrent"),
    ('r', "reps"),
    ('t', "time"),
    ('d', "delay"),
    ('f', "file"),
    ('R', "rc"),
    ('m', "mark"),
    ('H', "header"),
    ('A', "user-agent"),
    ('T', "content-type"),
];

fn not_there(flag: &str) -> UserError {
    match flag {
        "-g" | "--get" | "-p" | "--print" => UserError::usage(format!("siege: {flag} is not there"))
            .hint("`curl -i URL` shows a response; docs/compatibility.md has the differences"),
        _ => usage(TOOL, format!("{flag} is no flag of siege")),
    }
}

/// A length such as `30S`, `5M` or `1H`, seconds; minutes without a unit.
fn length_s(value: &str) -> Result<u64> {
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &value[digits.len()..] {
        "s" | "S" => Some(1),
        "m" | "M" | "" => Some(60),
        "h" | "H" => Some(3600),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    seconds
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| usage(TOOL, format!("-t takes a time such as 30S, 5M or 1H, not `{value}`")))
}

impl Options {
    /// Reads the resource file: that of `-R`, of SIEGERC, or `~/.siege/siege.conf` or `~/.siegerc` where there is one.
    fn read_resources(
        &mut self,
        words: &[OsString],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let given = given_resources(words).or_else(|| variable("SIEGERC").map(PathBuf::from));
        let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
        let usual =
            || [home.join(".siege/siege.conf"), home.join(".siegerc")].into_iter().find(|path| path.exists());
        let Some(path) = given.clone().or_else(usual) else { return Ok(()) };
        let text = std::fs::read_to_string(&path).map_err(unreadable(&path))?;
        for (name, value) in directives(&text, variable) {
            let is_true = ["true", "on", "yes"].contains(&value.to_ascii_lowercase().as_str());
            match name.as_str() {
                "concurrent" | "reps" | "time" | "delay" | "file" | "header" | "user-agent"
                    if !value.is_empty() =>
                {
                    self.take(&name, &value)?
                }
                "timeout" => self.timeout_s = whole(TOOL, &name, &value, 1)?,
                "internet" => self.internet = is_true,
                "benchmark" if is_true => self.delay_s = 0.0,
                "json_output" => self.json = is_true,
                "quiet" => self.quiet = is_true,
                "connection" => self.keeps = value.eq_ignore_ascii_case("keep-alive"),
                "url" => self.url = Some(value),
                "logfile" if self.log.is_some() => self.log = Some(value.into()),
                "logging" if is_true => self.log = Some("/var/log/siege.log".into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// A flag or a directive with a value.
    fn take(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "concurrent" => self.concurrent = whole(TOOL, name, value, 1)?,
            "reps" if value == "once" => self.reps = Some(1),
            "reps" => (self.reps, self.time_s) = (Some(whole(TOOL, name, value, 1)?), None),
            "time" => (self.time_s, self.reps) = (Some(length_s(value)?), None),
            "delay" => {
                let delay = value.parse().ok().filter(|delay: &f64| delay.is_finite() && *delay >= 0.0);
                self.delay_s =
                    delay.ok_or_else(|| usage(TOOL, format!("--delay takes seconds, not `{value}`")))?;
            }
            "file" => self.file = Some(value.into()),
            "mark" => self.mark = Some(value.into()),
            "header" => self.headers.push(value.into()),
            "user-agent" => self.agent = Some(value.into()),
            "content-type" => self.content_type = Some(value.into()),
            // It was read before.
            _ => {}
        }
        Ok(())
    }

    /// What is asked for.
    fn targets(&self) -> Result<Vec<Target>> {
        if let (Some(url), None) = (&self.url, &self.file) {
            return Ok(vec![target(url)]);
        }
        let Some(path) = &self.file else {
            return Err(usage(TOOL, "neither a URL nor a list of URLs (-f) is given"));
        };
        let text = std::fs::read_to_string(path).map_err(unreadable(path))?;
        targets(&text, path)
    }

    /// The load.
    fn workload(&self, targets: &[Target]) -> Result<Workload> {
        let mut workload = workload(self.flags(targets))?;
        // Its own sense of a number: a user's requests.
        if let Some(reps) = self.reps {
            workload.stop = Stop { duration_us: None, requests: Some(reps * self.concurrent) };
        }
        // Requests are drawn at random where their weights differ.
        if let Some(first) = workload.requests.first_mut().filter(|_| self.internet) {
            first.weight += f64::EPSILON;
        }
        for (request, target) in workload.requests.iter_mut().zip(targets) {
            target.method.clone_into(&mut request.method);
            let bytes = match &target.body {
                None => continue,
                Some(TargetBody::Text(text)) => text.clone().into_bytes(),
                Some(TargetBody::File(path)) => std::fs::read(path).map_err(unreadable(path))?,
            };
            request.body = bytes.into();
            let kind = self.content_type.as_deref().unwrap_or("application/x-www-form-urlencoded");
            request.headers.push(("Content-Type".into(), kind.into()));
        }
        Ok(workload)
    }

    /// The same for `webdyno run`.
    fn flags(&self, targets: &[Target]) -> Vec<String> {
        let mut flags: Vec<String> = targets.iter().map(|target| target.url.clone()).collect();
        let mut add = |flag: &str, value: String| flags.extend([flag.to_owned(), value]);
        if self.delay_s > 0.0 {
            add("--users", self.concurrent.to_string());
            add("--think", format!("0ms..{}ms", (self.delay_s * 1000.0).round()));
        }
        add("-c", self.concurrent.to_string());
        // Without an end it goes on until somebody ends it.
        add("-d", format!("{}s", self.time_s.unwrap_or(365 * 24 * 3600)));
        add("--timeout", format!("{}s", self.timeout_s));
        add("--redirects", if self.follows { REDIRECTS } else { 0 }.to_string());
        let agent = self.agent.iter().map(|agent| format!("User-Agent: {agent}"));
        for header in self.headers.iter().cloned().chain(agent) {
            add("-H", header);
        }
        flags.extend((!self.keeps).then(|| "--no-keepalive".to_owned()));
        // siege trusts every certificate.
        flags.extend(
            targets.iter().any(|target| target.url.starts_with("https:")).then(|| "--insecure".to_owned()),
        );
        flags
    }

    /// The configuration, as `-C` shows it.
    fn configuration(&self) -> String {
        let named = |name: &str, value: String| format!("{name:<32}{value}\n");
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "n/a".into());
        [
            named("concurrent users:", self.concurrent.to_string()),
            named("time to run:", or_none(self.time_s.map(|seconds| format!("{seconds} s")))),
            named("repetitions:", or_none(self.reps.map(|reps| reps.to_string()))),
            named("socket timeout:", self.timeout_s.to_string()),
            named("delay:", format!("{:.3} sec", self.delay_s)),
            named("internet simulation:", self.internet.to_string()),
            named("connection:", if self.keeps { "keep-alive" } else { "close" }.into()),
            named("named URL:", or_none(self.url.clone())),
            named("URLs file:", or_none(self.file.as_ref().map(|path| path.display().to_string()))),
            named("json output:", self.json.to_string()),
        ]
        .concat()
    }
}

/// The resource file that the words name.
fn given_resources(words: &[OsString]) -> Option<PathBuf> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let behind = |at: usize| words.get(at + 1).map(|word| PathBuf::from(word.as_ref()));
    words.iter().enumerate().find_map(|(at, word)| match word.as_ref() {
        "-R" | "--rc" => behind(at),
        word => word.strip_prefix("--rc=").or_else(|| word.strip_prefix("-R")).map(PathBuf::from),
    })
}

/// The error of a file that cannot be read.
fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> UserError + '_ {
    move |error| {
        io_error("read", path.display(), &error)
            .hint(format!("see whether it is there: ls -l {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &str) -> Result<Option<(Options, bool)>> {
        parse(words.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect(), &|_| None)
    }

    #[test]
    fn flags_are_those_of_run() {
        let (parsed, asked) = options("-c5 --reps=4 -H X:1 -A me -b localhost/a").unwrap().unwrap();
        assert!(!asked);
        let workload = parsed.workload(&parsed.targets().unwrap()).unwrap();
        assert_eq!(
            (workload.connections, workload.stop.requests, workload.stop.duration_us),
            (5, Some(20), None)
        );
        assert_eq!(
            (workload.keepalive, workload.redirects_max, workload.timeout_us),
            (false, 10, 30_000_000)
        );
        assert_eq!(workload.requests[0].url, "http://localhost/a");
        let (in_time, _) = options("-c 5 -t 2M --no-follow -d 1 http://a/").unwrap().unwrap();
        let workload = in_time.workload(&in_time.targets().unwrap()).unwrap();
        assert_eq!((workload.stop.duration_us, workload.redirects_max), (Some(120_000_000), 0));
        assert!(workload.visits.is_some());
    }

    #[test]
    fn what_is_wrong_says_so() {
        for (wrong, why) in [
            ("-t 5X http://a/", "-t takes"),
            ("-c 0 http://a/", "concurrent takes"),
            ("-r 18446744073709551615 http://a/", "reps takes"),
            ("-d x http://a/", "--delay takes"),
            ("-g http://a/", "-g is not there"),
            ("-Z http://a/", "-Z is no flag"),
        ] {
            let error = options(wrong).unwrap_err();
            assert!(error.message.contains(why), "{wrong}: {}", error.message);
        }
        let (none, _) = options("-c 5").unwrap().unwrap();
        assert!(none.targets().unwrap_err().message.contains("neither a URL"));
        assert!(options("-R /nowhere/rc http://a/").unwrap_err().message.contains("/nowhere/rc"));
    }
}
