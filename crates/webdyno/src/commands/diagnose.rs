//! `webdyno diagnose`: load and observe a server, watch the traffic that is there, or look at a recording.

use super::experiments;
use crate::cli::load::{DURATION_US_DEFAULT, LoadArgs};
use crate::cli::{DiagnoseArgs, ServerArgs};
use crate::{exports, finish, interrupt, moment, objectives, place, progress, target, terminal};
use jiff::tz::TimeZone;
use std::path::Path;
use webdyno_analysis::diagnosis;
use webdyno_host::agent::{ServerAddress, ServerList, Start};
use webdyno_load::Prepared;
use webdyno_load::workload_file::Draft;
use webdyno_model::event::{EventBody, Purpose};
use webdyno_model::topology::Access;
use webdyno_model::workload::{Stop, Workload};
use webdyno_model::{Result, UserError};
use webdyno_session::live::{Length, Servers, Session};
use webdyno_session::recording::Recording;
use webdyno_session::view::{Outcome, View};

/// Seconds of observation before a load, so that counters have a reading before it.
pub const BEFORE_S: f64 = 1.2;
/// Seconds of observation before anything is changed: who else uses the server shows best while no load of ours runs. It
/// takes two requests to be sure; clients that send two a second at random send them within one second in 59 of 100
/// cases, within three in 98.
pub const BEFORE_CHANGES_S: f64 = 3.2;
/// Rates that have not settled after this many seconds beyond the measured ones never do.
const SETTLE_S_MAX: u32 = 40;

/// Diagnoses. Gives the exit code.
pub fn diagnose(arguments: &DiagnoseArgs) -> Result<u8> {
    refuse_what_goes_with_others(arguments)?;
    match (&arguments.from, arguments.watch_for) {
        (Some(directory), _) => from_recording(directory, arguments),
        (None, Some(window_us)) => watch(window_us, arguments),
        (None, None) => with_load(arguments),
    }
}

fn from_recording(directory: &Path, arguments: &DiagnoseArgs) -> Result<u8> {
    let recording = Recording::read(directory)?;
    let diagnosis = match &arguments.at {
        Some(text) => {
            let window = moment::window(&recording, text, &TimeZone::system())?;
            diagnosis::diagnose(&recording.watched(window))?
        }
        None => recording.diagnosis()?.ok_or_else(|| finish::nothing(directory))?,
    };
    let view =
        View { command: "diagnose".into(), outcome: Outcome::Diagnosis(diagnosis), ..View::of(&recording)? };
    exports::write(&arguments.output.exports, &recording, &view)?;
    if !arguments.output.exports.takes_stdout() {
        terminal::print_report(&webdyno_report::text(&view, &finish::paths(&view, directory)))?;
    }
    Ok(finish::exit_code(&view.outcome, arguments.fail_on_fault))
}

fn with_load(arguments: &DiagnoseArgs) -> Result<u8> {
    let draft = arguments.load.draft()?;
    let load = MeasuredLoad::prepare(&arguments.load, &draft, &arguments.server)?;
    let interrupted = interrupt::flag()?;
    let mut servers = load.connect()?;
    let pace = progress::Pace { measure_s: load.measure_s(), settles: true, changes: false };
    let mut session = Session::begin(
        &place::run_directory(&arguments.output, "diagnose"),
        super::about("diagnose", None, &draft.objectives),
        interrupted,
        progress::watcher(&arguments.output, pace),
    )?;
    let result = introduce(&mut session, &mut servers, BEFORE_S).and_then(|()| {
        session.load(&load.prepared, &load.workload, Purpose::Diagnose, load.length, Some(&servers)).and_then(
            |_| if arguments.ablate { experiments::make(&mut session, &load, &servers) } else { Ok(()) },
        )
    });
    drop(servers);
    finish::finish(session, result, &arguments.output, arguments.fail_on_fault)
}

fn watch(window_us: u64, arguments: &DiagnoseArgs) -> Result<u8> {
    refuse_results_of_a_load(arguments)?;
    let list = arguments.server.list()?;
    let how = Start { reads_only: true, ..arguments.server.start(list.web()?)? };
    let port = match (arguments.port, &arguments.url) {
        (Some(port), _) => port,
        (None, Some(url)) => target::port(url, &how.address)?,
        (None, None) => {
            return Err(UserError::usage("which listener is meant?")
                .hint("give --port N or --url URL; `ss -ltnp` lists the listeners of this host"));
        }
    };
    let interrupted = interrupt::flag()?;
    let mut servers = Servers::connect(&list, &how)?;
    observe(&mut servers, port, &arguments.server.access())?;
    let seconds = window_us as f64 / 1e6;
    let pace = progress::Pace { measure_s: seconds, settles: false, changes: false };
    let mut session = Session::begin(
        &place::run_directory(&arguments.output, "diagnose"),
        super::about("diagnose", None, &[]),
        interrupted,
        progress::watcher(&arguments.output, pace),
    )?;
    let result = introduce(&mut session, &mut servers, BEFORE_S)
        .and_then(|()| session.watch_for(seconds, &mut servers))
        .and_then(|()| session.append(EventBody::Watch { length_us: window_us }));
    drop(servers);
    finish::finish(session, result, &arguments.output, arguments.fail_on_fault)
}

/// clap drops a requirement where the flag that is required conflicts with one that is given.
fn refuse_what_goes_with_others(arguments: &DiagnoseArgs) -> Result<()> {
    if arguments.ablate && (arguments.from.is_some() || arguments.watch_for.is_some()) {
        return Err(UserError::usage("--ablate makes loads, and --for and --from make none")
            .hint("give a URL instead; `webdyno diagnose --help` says which flags go together"));
    }
    let wrong = |flag: &str, with: &str| {
        let text = format!("{flag} goes with {with}, which is not given");
        Err(UserError::usage(text).hint("`webdyno diagnose --help` says which flags go together"))
    };
    if arguments.at.is_some() && arguments.from.is_none() {
        return wrong("--at", "--from DIR");
    }
    match (arguments.watch_for, arguments.port, &arguments.url) {
        (None, Some(_), _) => wrong("--port", "--for TIME"),
        (None, _, Some(_)) => wrong("--url", "--for TIME"),
        _ => Ok(()),
    }
}

/// What needs a load of our own, told before there is something to wait for.
fn refuse_results_of_a_load(arguments: &DiagnoseArgs) -> Result<()> {
    let of_a_load = arguments.output.exports.given().find(|(flag, _)| *flag != "--json");
    of_a_load.map_or(Ok(()), |(flag, _)| {
        Err(UserError::usage(format!("{flag} is of a load, and --for makes none"))
            .hint("--json has the whole diagnosis; a URL instead of --for loads the server"))
    })
}

/// Writes who is observed into the log, and gathers the readings before the load.
pub fn introduce(session: &mut Session, servers: &mut Servers, before_s: f64) -> Result<()> {
    for event in servers.introduction() {
        session.append(event)?;
    }
    session.watch_for(before_s, servers)
}

/// Finds the service behind the port, and begins to observe it and the hosts behind it.
fn observe(servers: &mut Servers, port: u16, access: &Access) -> Result<()> {
    servers.front_mut().discover(port)?;
    servers.front_mut().observe_with(Some(port), access.clone())?;
    servers.observe_others(access)
}

/// The port that the load goes to. An error when it is not one port, or not one of the host that is observed.
fn observed_port(prepared: &Prepared, address: &ServerAddress) -> Result<u16> {
    let destinations = prepared.destinations();
    if *address == ServerAddress::Local {
        target::require_local(&destinations)?;
    }
    target::common_port(&destinations)
}

impl MeasuredLoad {
    /// Whether the load reaches its server over a network, although the server is this machine.
    pub fn could_be_local(&self) -> bool {
        let is_local = self.how.address == ServerAddress::Local;
        is_local
            && !self
                .prepared
                .destinations()
                .iter()
                .all(|to| to.addresses.iter().all(|at| at.ip().is_loopback()))
    }
}

/// A load that ends when enough was measured, and the server it is for.
pub struct MeasuredLoad {
    /// What is sent.
    pub workload: Workload,
    /// The engine's side of it.
    pub prepared: Prepared,
    /// How long.
    pub length: Length,
    list: ServerList,
    how: Start,
    access: Access,
    port: u16,
}

impl MeasuredLoad {
    /// Checks everything that can be checked before anything is started: flags, URLs, and one probing request.
    pub fn prepare(arguments: &LoadArgs, draft: &Draft, server: &ServerArgs) -> Result<Self> {
        let mut load = Self::unprobed(arguments, draft, server)?;
        load.probe()?;
        let prepared = &load.prepared;
        objectives::check(&draft.objectives, &draft.objective_places, &load.workload, prepared.names())?;
        Ok(load)
    }

    /// The same without the request: for a server that may not answer.
    pub fn unprobed(arguments: &LoadArgs, draft: &Draft, server: &ServerArgs) -> Result<Self> {
        let list = server.list()?;
        let how = server.start(list.web()?)?;
        let address = &how.address;
        let measure_us = draft.settings.duration_us.unwrap_or(DURATION_US_DEFAULT);
        let mut workload =
            arguments.workload_until(draft, Stop { duration_us: None, requests: arguments.requests })?;
        if !workload.stages.is_empty() {
            return Err(UserError::usage(
                "diagnose and tune measure a load that has settled, and this one has stages",
            )
            .hint("leave the stages and ramps out of the workload; `webdyno run` follows them"));
        }
        if let Some(path) = &workload.transport.unix_socket {
            let text = format!(
                "diagnose and tune find a server by its port, the socket {} has none",
                path.display()
            );
            return Err(UserError::usage(text)
                .hint("`webdyno run` loads any server; to observe or change one, load a port of it"));
        }
        let measure_s = u32::try_from(measure_us.div_ceil(1_000_000)).unwrap_or(u32::MAX).max(4);
        let length = match (arguments.requests, arguments.warmup) {
            (None, None) => Length::Settled { measure_s, at_most_s: measure_s.saturating_add(SETTLE_S_MAX) },
            (_, warmup_us) => Length::Fixed { warmup_s: Some(warmup_us.map_or(0.0, |us| us as f64 / 1e6)) },
        };
        if let (Length::Fixed { warmup_s: Some(warmup_s) }, None) = (length, arguments.requests) {
            // A given warm-up replaces the detection: then the load has a fixed end.
            workload.stop.duration_us = Some(measure_us + (warmup_s * 1e6) as u64);
        }
        let prepared = webdyno_load::prepare(&workload)?;
        objectives::check_before(&draft.objectives, &draft.objective_places, &workload, prepared.names())?;
        let port = observed_port(&prepared, address)?;
        let access = server.access();
        Ok(Self { workload, prepared, length, list, how, access, port })
    }

    /// One request before the load: is there a server, and is it the one that is meant?
    pub fn probe(&mut self) -> Result<()> {
        webdyno_load::probe(&mut self.prepared)?;
        // The probe may have been led on to other servers.
        observed_port(&self.prepared, &self.how.address)
            .map(|_| ())
            .map_err(|told| told.hint("a redirect leads there: load what is meant, without --redirects"))
    }

    /// Seconds that are measured.
    pub fn measure_s(&self) -> f64 {
        match self.length {
            Length::Settled { measure_s, .. } => f64::from(measure_s),
            Length::Fixed { .. } => self.workload.stop.duration_us.map_or(1.0, |us| us as f64 / 1e6),
        }
    }

    /// Starts the agent, makes sure that what is loaded is its machine, finds the service behind the port and observes
    /// it.
    pub fn connect(&self) -> Result<Servers> {
        let mut servers = Servers::connect(&self.list, &self.how)?;
        servers.front_mut().require_own(&self.prepared, &self.how.address.to_string())?;
        observe(&mut servers, self.port, &self.access)?;
        Ok(servers)
    }
}
