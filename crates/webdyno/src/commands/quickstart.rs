//! `webdyno quickstart`: the whole loop on a private Apache of its own.

use super::diagnose::introduce;
use crate::cli::QuickstartArgs;
use crate::{finish, interrupt, place, progress, terminal};
use std::path::Path;
use webdyno_host::agent::ServerAddress;
use webdyno_lab::quickstart::{PrivateApache, USERS};
use webdyno_model::Result;
use webdyno_model::workload::{Arrival, RequestSpec, StatusSet, Stop, Workload};
use webdyno_session::live::{Length, LiveStand, Server, Session};
use webdyno_session::rounds::{self, Options};

/// Seconds measured before and after each change.
const MEASURE_S: u32 = 10;
/// Seconds after which a load ends, settled or not: the whole has to be over within 90.
const LOAD_S_MAX: u32 = 34;
/// No round begins after this time.
const BUDGET_US: u64 = 45_000_000;
/// Somebody else may take the free port before Apache does.
const PORTS_TRIED_MAX: u32 = 5;

/// Runs the whole loop. Gives the exit code.
pub fn quickstart(arguments: &QuickstartArgs) -> Result<u8> {
    let directory = place::run_directory(&arguments.output, "quickstart");
    let interrupted = interrupt::flag()?;
    let pace = progress::Pace { measure_s: f64::from(MEASURE_S), settles: true, changes: true };
    let about = super::about("quickstart", Some(arguments.goal), &[]);
    let mut session =
        Session::begin(&directory, about, interrupted, progress::watcher(&arguments.output, pace))?;
    let result = with_private_apache(&mut session, &directory, arguments);
    finish::finish(session, result, &arguments.output, false)
}

fn with_private_apache(session: &mut Session, directory: &Path, arguments: &QuickstartArgs) -> Result<()> {
    let mut apache = PrivateApache::create(directory)?;
    let result = Server::connect(&ServerAddress::Local, &super::own_executable()?).and_then(|mut server| {
        let result = launch(&mut server, &mut apache).and_then(|()| {
            if !arguments.output.quiet {
                terminal::tell(&format!(
                    "A private Apache listens on 127.0.0.1:{} with the values of a fresh installation; {USERS} virtual users come to it.",
                    apache.port
                ));
            }
            tune(session, &mut server, &apache, arguments)
        });
        let disposed = server.agent().dispose().and_then(|_| server.agent().bye());
        result.and(disposed.map(|_| ()))
    });
    let removed = apache.remove();
    result.and(removed)
}

fn launch(server: &mut Server, apache: &mut PrivateApache) -> Result<()> {
    let mut tried = 1;
    while let Err(error) = server.agent().launch(&apache.command, &apache.pid_file, apache.port) {
        if tried >= PORTS_TRIED_MAX {
            return Err(error);
        }
        tried += 1;
        apache.take_free_port()?;
    }
    server.discover(apache.port)?;
    server.observe(apache.port)
}

fn tune(
    session: &mut Session,
    server: &mut Server,
    apache: &PrivateApache,
    arguments: &QuickstartArgs,
) -> Result<()> {
    introduce(session, server)?;
    let workload = workload(apache);
    let prepared = webdyno_load::prepare(&workload)?;
    let length = Length::Settled { measure_s: MEASURE_S, at_most_s: LOAD_S_MAX };
    let mut stand = LiveStand { session, server, prepared, workload, length, confirm: None };
    let options = Options { goal: arguments.goal, apply: true, allow_restart: true, budget_us: BUDGET_US };
    rounds::tune(&mut stand, options).map(|_| ())
}

/// Users without think time and without kept connections: each holds one worker at a time, and only while it is
/// served, so that three times as many users as workers need three times as many workers.
fn workload(apache: &PrivateApache) -> Workload {
    let request = |url: String| RequestSpec {
        name: url.splitn(4, '/').last().map_or_else(String::new, |path| format!("/{path}")),
        method: "GET".into(),
        url,
        headers: vec![],
        body: String::new(),
    };
    Workload {
        requests: apache.urls().into_iter().map(request).collect(),
        arrival: Arrival::Closed,
        stop: Stop { duration_us: None, requests: None },
        connections: USERS,
        threads: Some(1),
        timeout_us: 10_000_000,
        keepalive: false,
        ok_status: StatusSet::default(),
        expect: vec![],
        seed: 1,
    }
}
