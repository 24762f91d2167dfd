//! The flags of a load, and the workload that they describe.

use super::body::{BodyArgs, RequestBody};
use super::list::ListArgs;
use super::transport::TransportArgs;
use super::visits::VisitArgs;
use super::{ParseResult, duration_us, whole};
use clap::Args;
use webdyno_load::workload::file;
use webdyno_load::workload::file::{Draft, Settings, request_name};
use webdyno_model::objective::Objective;
use webdyno_model::transport::Transport;
use webdyno_model::workload::{Clock, Expectation, RequestSpec, StatusSet, Stop, Workload};
use webdyno_model::{Result, UserError};

/// Names of requests are told apart up to this many; beyond, figures by name would fill the log.
const NAMES_MAX: usize = 20;

/// What is sent, how it arrives, and when it ends.
#[derive(Debug, Clone, Args)]
pub struct LoadArgs {
    /// What to load; several are loaded in turn
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// Concurrent requests, closed loop [default: 50]
    ///
    /// With --rate, and with users, the maximum of connections
    #[arg(short, long, value_name = "N", value_parser = whole::<u32>(1..=1_000_000, "50"), allow_negative_numbers = true)]
    pub connections: Option<u32>,
    /// Constant rate, open loop: requests per second
    ///
    /// With --page or a workload file: pages or sessions per second
    #[arg(short, long, value_name = "N", group = "paced", value_parser = rate, allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// Duration of the load [default: 10s]
    ///
    /// For diagnose and tune: duration of the measurement after the warm-up
    #[arg(short, long, value_name = "TIME", value_parser = duration_us, allow_hyphen_values = true)]
    pub duration: Option<u64>,
    /// Stop after N requests
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration", value_parser = whole::<u64>(1..=u64::MAX, "1000"), allow_negative_numbers = true)]
    pub requests: Option<u64>,
    /// Warm-up to exclude [default: detected: until the rate is stable]
    #[arg(long, value_name = "TIME", value_parser = warmup_us, allow_hyphen_values = true)]
    pub warmup: Option<u64>,
    /// Threads of the load generator [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = whole::<u32>(1..=1024, "2"), allow_negative_numbers = true)]
    pub threads: Option<u32>,
    /// Timeout of a request [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration_us, allow_hyphen_values = true)]
    pub timeout: Option<u64>,
    /// New connection for each request
    #[arg(long)]
    pub no_keepalive: bool,
    #[command(flatten)]
    pub list: ListArgs,
    /// Method [default: GET, or POST with a body]
    #[arg(short, long, value_name = "METHOD", value_parser = method)]
    pub method: Option<String>,
    /// Header line, as 'Name: value' (repeatable)
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = header)]
    pub headers: Vec<(String, String)>,
    #[command(flatten)]
    pub body: BodyArgs,
    /// Status codes that count as successful, such as 200-399,404 [default: 100-399]
    #[arg(long, value_name = "CODES", value_parser = StatusSet::parse)]
    pub ok: Option<StatusSet>,
    /// Condition on each response: status=CODE, length=BYTES, regex=PATTERN or sha256=HEX (repeatable)
    ///
    /// The last three are conditions on the decoded body
    #[arg(long, value_name = "CONDITION", value_parser = Expectation::parse)]
    pub expect: Vec<Expectation>,
    /// Follow up to N redirects per request [default: 0; users follow 10]
    ///
    /// To the servers of the URLs, and those that a first request before the load leads to
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0..=50, "5"), allow_negative_numbers = true)]
    pub redirects: Option<u32>,
    /// Objective: 'p99<200ms', 'errors<0.1%' (repeatable)
    #[arg(long = "slo", value_name = "SLO", value_parser = Objective::parse)]
    pub objectives: Vec<Objective>,
    /// Exponential instead of constant gaps between requests
    #[arg(long)]
    pub poisson: bool,
    /// Clock for the end of a response [default: auto]
    ///
    /// engine: when the generator read it; kernel: when the kernel received its last byte; auto: engine, with a sample of
    /// connections stamped by the kernel to report how long responses wait in the socket buffer
    #[arg(long, value_name = "auto|engine|kernel", default_value = "auto", value_parser = clock, hide_default_value = true)]
    pub clock: Clock,
    /// Seed of all random choices [default: 1]
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// What visitors do
    #[command(flatten)]
    pub visits: VisitArgs,
    /// How connections come about
    #[command(flatten)]
    pub transport: TransportArgs,
}

/// Seconds that diagnose and tune measure by default, and run loads.
pub const DURATION_US_DEFAULT: u64 = 10_000_000;

impl LoadArgs {
    /// What is to be loaded, of the workload file or of the URLs, as the flags change it.
    pub fn draft(&self) -> Result<Draft> {
        let mut draft = match &self.visits.workload {
            Some(path) => {
                self.refuse_with_file("--workload")?;
                file::read(path)?
            }
            None => self.draft_of_urls()?,
        };
        self.apply_flags(&mut draft.settings);
        draft.objectives.extend(self.objectives.iter().cloned());
        Ok(draft)
    }

    /// One that a file says, as the flags change it.
    pub fn over(&self, draft: &Draft) -> Draft {
        let mut draft = draft.clone();
        self.apply_flags(&mut draft.settings);
        draft
    }

    /// The workload for `run`: it ends by itself.
    pub fn workload(&self, draft: &Draft) -> Result<Workload> {
        let duration_us = match (draft.settings.duration_us, self.requests) {
            (_, Some(_)) => None,
            (None, None) if !draft.settings.stages.is_empty() => None,
            (duration, None) => Some(duration.unwrap_or(DURATION_US_DEFAULT)),
        };
        let stop = Stop { duration_us, requests: self.requests };
        let workload = self.workload_until(draft, stop)?;
        if self.warmup.is_some() && !workload.stages.is_empty() {
            return Err(UserError::usage(
                "the stages of the load say what of it is measured, and so does --warmup",
            )
            .hint(
                "leave --warmup out, or mark stages as not measured, as in --stage 10s@100/s,measured=no",
            ));
        }
        check_warmup(self.warmup, workload.stop.duration_us)?;
        Ok(workload)
    }

    /// The workload for measurements that end when enough was seen.
    pub fn workload_until(&self, draft: &Draft, stop: Stop) -> Result<Workload> {
        let workload = draft.workload(stop)?;
        let Transport { http2_streams, http3_streams, .. } = workload.transport;
        Ok(Workload {
            threads: self.threads,
            clock: self.clock,
            transport: Transport { http2_streams, http3_streams, ..self.transport.transport() },
            ..workload
        })
    }

    /// What flags say counts, whatever the file says.
    fn apply_flags(&self, settings: &mut Settings) {
        fn set<T: Clone>(slot: &mut Option<T>, given: &Option<T>) {
            if given.is_some() {
                slot.clone_from(given);
            }
        }
        if self.visits.users.is_some() || self.rate.is_some() {
            (settings.users, settings.rate_per_s) = (self.visits.users, self.rate);
        }
        set(&mut settings.duration_us, &self.duration);
        set(&mut settings.connections, &self.connections);
        set(&mut settings.timeout_us, &self.timeout);
        set(&mut settings.ok_status, &self.ok);
        set(&mut settings.redirects_max, &self.redirects);
        set(&mut settings.seed, &self.seed);
        set(&mut settings.poisson, &self.poisson.then_some(true));
        set(&mut settings.keepalive, &self.no_keepalive.then_some(false));
        if self.transport.http2 || self.transport.http3 {
            (settings.http2, settings.http3) = (Some(self.transport.http2), Some(self.transport.http3));
        }
        set(&mut settings.streams, &self.transport.streams);
        settings.expect.extend(self.expect.iter().cloned());
        self.visits.apply_flags(settings);
        settings.connections_allowed = open_file_connections_max(self.threads);
    }

    /// A file says itself what is sent.
    pub fn refuse_with_file(&self, flag: &str) -> Result<()> {
        let others = [
            (!self.urls.is_empty(), "URLs"),
            (self.method.is_some(), "a method (-m)"),
            (!self.headers.is_empty(), "headers (-H)"),
            (self.body.is_given(), "a body (-b, --body-file, -F)"),
            (self.list.file.is_some(), "a list (--urls)"),
        ];
        match others.into_iter().find(|(is_given, _)| *is_given) {
            None => Ok(()),
            Some((_, what)) => Err(UserError::usage(format!(
                "{flag} names a file that says what is sent, and {what} would be something else"
            ))
            .hint("write it into the file: docs/workload.md has every key")),
        }
    }

    fn draft_of_urls(&self) -> Result<Draft> {
        if self.urls.is_empty() && self.list.file.is_none() {
            return Err(UserError::usage("no URL to load was given")
                .hint("as in: webdyno run http://127.0.0.1:8080/, or give a list with --urls FILE"));
        }
        if self.list.random && self.list.file.is_none() {
            return Err(UserError::usage("--random draws from a list, and none is given")
                .hint("give it with --urls FILE"));
        }
        let payload = self.body.read(&self.headers)?;
        if self.list.file.is_some() {
            return self.list.draft(self.method.as_deref(), &self.headers, &self.body, self.visits.auth()?);
        }
        let auth = self.visits.auth()?;
        let request = |url: &String| RequestSpec { auth: auth.clone(), ..self.request(url, &payload) };
        let requests: Vec<RequestSpec> = self.urls.iter().map(request).collect();
        Ok(Draft::from_requests(requests, self.visits.page))
    }

    fn request(&self, url: &str, payload: &RequestBody) -> RequestSpec {
        // A body that is empty is one all the same.
        let default = match url.starts_with("ws://") || url.starts_with("wss://") {
            true => "TEXT",
            false if self.body.is_given() => "POST",
            false => "GET",
        };
        let distinct: std::collections::BTreeSet<_> = self.urls.iter().collect();
        let name = if distinct.len() > NAMES_MAX { "all".to_owned() } else { request_name(url) };
        let content_type = payload.content_type.iter().map(|value| ("Content-Type".into(), value.clone()));
        RequestSpec {
            name,
            method: self.method.clone().unwrap_or_else(|| default.into()),
            url: url.to_owned(),
            headers: self.headers.iter().cloned().chain(content_type).collect(),
            body: payload.body.clone(),
            ..RequestSpec::default()
        }
    }
}

/// Connections that this machine's limit of open files has room for; `None` is no limit.
pub fn open_file_connections_max(threads: Option<u32>) -> Option<u32> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let allowed = webdyno_load::connections_allowed(threads.unwrap_or(cores));
    allowed.map(|allowed| u32::try_from(allowed).unwrap_or(u32::MAX))
}

/// A warm-up must leave something to measure. It is cut in whole seconds, as the load is recorded by the second.
fn check_warmup(warmup_us: Option<u64>, duration_us: Option<u64>) -> Result<()> {
    let (Some(warmup_us), Some(duration_us)) = (warmup_us, duration_us) else { return Ok(()) };
    let cut_s = warmup_us.div_ceil(1_000_000);
    if cut_s.saturating_mul(1_000_000) < duration_us {
        return Ok(());
    }
    let displayed = |us: u64| us as f64 / 1e6;
    Err(UserError::usage(format!(
        "a warm-up of {} s, cut in whole seconds, leaves nothing of a load of {} s",
        displayed(warmup_us),
        displayed(duration_us)
    ))
    .hint(format!("give a shorter --warmup, or a longer load, as in -d {}s", cut_s.saturating_add(10))))
}

fn rate(text: &str) -> ParseResult<f64> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 1e7);
    rate.ok_or_else(|| "a rate per second above 0, at most 10000000, as 500".into())
}

/// The seed of what is drawn at random.
pub(super) fn seed(text: &str) -> ParseResult<u64> {
    whole(0..=u64::MAX, "7")(text)
}

fn warmup_us(text: &str) -> ParseResult<u64> {
    super::values::time_us(text, "0s or 5s")
}

fn method(text: &str) -> ParseResult<String> {
    let token = !text.is_empty()
        && text.len() <= 32
        && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    if token { Ok(text.to_ascii_uppercase()) } else { Err("a method, as GET or POST".into()) }
}

fn header(text: &str) -> ParseResult<(String, String)> {
    let (name, value) = text.split_once(':').ok_or("a header line, as 'Name: value'")?;
    let (name, value) = (name.trim(), value.trim());
    let token = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if !token {
        return Err("a header line with a name of letters, digits and dashes, as 'X-Name: value'".into());
    }
    if value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
        return Err("a header line without line breaks, as 'Name: value'".into());
    }
    Ok((name.into(), value.into()))
}

fn clock(text: &str) -> ParseResult<Clock> {
    match text {
        "auto" => Ok(Clock::Auto),
        "engine" => Ok(Clock::Engine),
        "kernel" => Ok(Clock::Kernel),
        _ => Err("auto, engine or kernel".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warmup_leaves_something_to_measure() {
        for (warmup_ms, duration_ms, is_good) in [
            (1000, 1000, false),
            (5000, 1000, false),
            (1500, 2000, false),
            (1500, 2001, true),
            (1000, 1001, true),
            (0, 1, true),
            (1, 1000, false),
        ] {
            let reported = check_warmup(Some(warmup_ms * 1000), Some(duration_ms * 1000));
            assert_eq!(reported.is_ok(), is_good, "{warmup_ms} ms of {duration_ms} ms");
        }
        assert!(check_warmup(Some(u64::MAX), None).is_ok() && check_warmup(None, Some(1)).is_ok());
    }

    #[test]
    fn an_empty_body_is_posted() {
        let parse = |arguments: &[&str]| {
            let all = ["webdyno", "run", "http://a/"].iter().chain(arguments);
            match <crate::cli::Cli as clap::Parser>::try_parse_from(all).unwrap().command {
                crate::cli::Command::Run(run) => {
                    let draft = run.draft().unwrap();
                    run.load.workload(&draft).unwrap().requests[0].method.clone()
                }
                other => panic!("{other:?}"),
            }
        };
        for (arguments, method) in [
            (&[][..], "GET"),
            (&["-b", ""], "POST"),
            (&["--body-file", "/dev/null"], "POST"),
            (&["-b", "", "-m", "PUT"], "PUT"),
        ] {
            assert_eq!(parse(arguments), method, "{arguments:?}");
        }
    }

    #[test]
    fn wrong_values_are_told() {
        assert!(header("no colon").is_err() && header("a b: c").is_err() && header("X: a\r\nY: b").is_err());
        assert!(rate("0").is_err() && rate("x").is_err() && rate("inf").is_err());
        assert!(Expectation::parse("status=99").is_err() && Expectation::parse("size=1").is_err());
        assert!(Expectation::parse("sha256=12").is_err() && Expectation::parse("regex").is_err());
        assert_eq!(Expectation::parse("regex=a=b").unwrap(), Expectation::Regex("a=b".into()));
        assert_eq!(
            Expectation::parse(&format!("sha256={:A>64}", "")).unwrap(),
            Expectation::Sha256("a".repeat(64))
        );
        assert!(method("G T").is_err());
        assert!(clock("tsc").is_err() && clock("kernel") == Ok(Clock::Kernel));
        assert_eq!(header("X-A:  b ").unwrap(), ("X-A".into(), "b".into()));
    }
}
