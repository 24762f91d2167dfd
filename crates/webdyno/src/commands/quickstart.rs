//! `webdyno quickstart`: the whole loop on a private Apache of its own.

use crate::cli::QuickstartArgs;
use crate::measuring::{self, BEFORE_S, record_servers};
use crate::process::{interrupt_flag, own_executable};
use crate::{finish, progress, terminal};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use webdyno_analysis::measurement::Measurement;
use webdyno_host::agent::ServerAddress;
use webdyno_lab::quickstart::{PrivateApache, USERS};
use webdyno_model::change::{ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::event::EventBody;
use webdyno_model::purpose::Purpose;
use webdyno_model::tune::Goal;
use webdyno_model::workload::{RequestSpec, Workload};
use webdyno_model::{Result, UserError};
use webdyno_session::live::{LiveSession, LiveTarget, LoadLength, Server, Servers};
use webdyno_session::rounds::{self, TuneOptions};
use webdyno_session::tuning_target::{AppliedChange, LoadMeasurement, TuningTarget};

/// Seconds measured before and after each change.
const MEASURE_S: u32 = 10;
/// Seconds after which a load ends, settled or not.
const LOAD_S_MAX: u32 = 34;
/// Every load has ended by then, counted from the start of the session: the whole has to be over within 90 s, also on
/// a slow machine, and after the last load there is a change to put back, an Apache to stop and a report to write.
const DEADLINE_US: u64 = 78_000_000;
/// No round begins after this time.
const BUDGET_US: u64 = 45_000_000;
/// Somebody else may take the free port before Apache does.
const PORTS_TRIED_MAX: u32 = 5;

/// Runs the whole loop. Gives the exit code.
pub fn quickstart(arguments: &QuickstartArgs) -> Result<u8> {
    if arguments.goal == Goal::Objectives {
        return Err(UserError::usage("a quickstart has no objectives that could be met")
            .hint("write --goal max, or a rate as in --goal '500 req/s'"));
    }
    let interrupted = interrupt_flag()?;
    let pace = progress::ProgressPlan { measure_s: f64::from(MEASURE_S), settles: true, changes: true };
    let about = measuring::session_info("quickstart", Some(arguments.goal), &[]);
    let (_companions, mut session) = measuring::begin((about, pace), &arguments.output, None, interrupted)?;
    let directory = session.directory().to_owned();
    let result = with_private_apache(&mut session, &directory, arguments);
    finish::finish(session, result, &arguments.output, false)
}

fn with_private_apache(
    session: &mut LiveSession,
    directory: &Path,
    arguments: &QuickstartArgs,
) -> Result<()> {
    let mut apache = PrivateApache::create(directory)?;
    let result = Server::connect(&ServerAddress::Local, &own_executable()?).and_then(|server| {
        let mut servers = Servers::of(server);
        let result = launch(session, servers.front_mut(), &mut apache).and_then(|()| {
            if !arguments.output.quiet {
                terminal::print_status(&format!(
                    "A private Apache listens on 127.0.0.1:{} with the values of a fresh installation; {USERS} virtual users come to it.",
                    apache.port
                ));
            }
            tune(session, &mut servers, &apache, arguments)
        });
        let agent = servers.front().agent();
        let disposed = agent.dispose().and_then(|_| agent.close());
        result.and(disposed.map(|_| ()))
    });
    let removed = apache.remove();
    result.and(removed)
}

fn launch(session: &LiveSession, server: &mut Server, apache: &mut PrivateApache) -> Result<()> {
    let mut tried = 1;
    while let Err(error) = server.agent().launch(&apache.command, &apache.pid_file, apache.port) {
        if session.is_interrupted() {
            return Err(UserError::interrupted());
        }
        // Whatever else keeps Apache from starting will do so on every port.
        if tried >= PORTS_TRIED_MAX || !is_port_conflict(&error, apache.port) {
            return Err(error);
        }
        tried += 1;
        apache.take_free_port()?;
    }
    server.discover(apache.port)?;
    server.observe(apache.port)
}

/// Whether a launch failed because somebody else has the port: as the agent or Apache (AH00072, "could not bind") say
/// it, or because it cannot be bound now that the launch was undone.
fn is_port_conflict(error: &UserError, port: u16) -> bool {
    let reported = [Some(&error.message), error.hint.as_ref()];
    let says = |text: &str| {
        ["AH00072", "ddress already in use", "is taken by another program"]
            .iter()
            .any(|mark| text.contains(mark))
    };
    reported.into_iter().flatten().any(|text| says(text))
        || TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

fn tune(
    session: &mut LiveSession,
    servers: &mut Servers,
    apache: &PrivateApache,
    arguments: &QuickstartArgs,
) -> Result<()> {
    record_servers(session, servers, BEFORE_S)?;
    let workload = workload(apache);
    let prepared = webdyno_load::prepare(&workload)?;
    servers.front_mut().require_served_here(&prepared, &ServerAddress::Local.to_string())?;
    let length = length_at(session.elapsed_us());
    let target = LiveTarget {
        session,
        servers,
        prepared,
        workload,
        length,
        options: ApplyOptions::default(),
        confirm: None,
        export: None,
        private: true,
    };
    let options =
        TuneOptions { goal: arguments.goal, apply: true, allow_restart: true, budget_us: BUDGET_US };
    rounds::tune(&mut DeadlineTarget(target), options).map(|_| ())
}

/// The length of a load that begins so long after the start: what is left until the deadline bounds it.
fn length_at(elapsed_us: u64) -> LoadLength {
    let left_s = DEADLINE_US.saturating_sub(elapsed_us) / 1_000_000;
    let at_most_s = u32::try_from(left_s).unwrap_or(LOAD_S_MAX).clamp(1, LOAD_S_MAX);
    LoadLength::Settled { measure_s: MEASURE_S, at_most_s }
}

/// A live target whose loads all end by the deadline.
struct DeadlineTarget<'a>(LiveTarget<'a>);

impl TuningTarget for DeadlineTarget<'_> {
    fn measure(&mut self, purpose: Purpose) -> Result<LoadMeasurement> {
        self.0.length = length_at(self.0.elapsed_us());
        self.0.measure(purpose)
    }

    fn verify(&mut self, best: &Measurement) -> Result<LoadMeasurement> {
        self.0.length = length_at(self.0.elapsed_us());
        self.0.verify(best)
    }

    fn prepare(&mut self, changes: &[SettingChange]) -> Result<Preparation> {
        self.0.prepare(changes)
    }

    fn apply(&mut self, plan: &RenderedPlan, allow_restart: bool) -> Result<Option<AppliedChange>> {
        self.0.apply(plan, allow_restart)
    }

    fn revert(&mut self, mark: u64) -> Result<()> {
        self.0.revert(mark)
    }

    fn keep(&mut self) -> Result<()> {
        self.0.keep()
    }

    fn record(&mut self, body: EventBody) -> Result<()> {
        self.0.record(body)
    }

    fn elapsed_us(&self) -> u64 {
        self.0.elapsed_us()
    }
}

/// Users without think time and without kept connections: each holds one worker at a time, and only while it is
/// served, so that three times as many users as workers need three times as many workers.
fn workload(apache: &PrivateApache) -> Workload {
    let request = |url: String| RequestSpec {
        name: url.splitn(4, '/').last().map_or_else(String::new, |path| format!("/{path}")),
        url,
        ..RequestSpec::default()
    };
    Workload {
        requests: apache.urls().into_iter().map(request).collect(),
        connections: USERS,
        threads: Some(1),
        keepalive: false,
        ..Workload::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_taken_port_is_a_reason_to_try_another_one() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let held_port = held.local_addr().unwrap().port();
        let free_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let reported = |hint: &str| UserError::cannot_run("`apache2` did not start").hint(hint);
        let bind =
            "it says: (98)Address already in use: AH00072: make_sock: could not bind to address 127.0.0.1:81";
        for (error, port, again) in [
            (reported(bind), free_port, true),
            (UserError::cannot_run("port 81 is taken by another program"), free_port, true),
            (reported("it says: Invalid command 'LuaScope'"), free_port, false),
            (UserError::cannot_run("`apache2` does not answer on port 81"), free_port, false),
            (UserError::cannot_run("`apache2` does not answer on port 81"), held_port, true),
        ] {
            assert_eq!(is_port_conflict(&error, port), again, "{error:?}");
        }
    }

    #[test]
    fn every_load_ends_by_the_deadline() {
        for (elapsed_s, at_most_s) in [(0, 34), (44, 34), (45, 33), (70, 8), (77, 1), (78, 1), (500, 1)] {
            let length = LoadLength::Settled { measure_s: MEASURE_S, at_most_s };
            assert_eq!(length_at(elapsed_s * 1_000_000), length, "{elapsed_s}");
        }
    }
}
