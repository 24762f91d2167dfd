//! `webdyno check`: one look at a server without traffic, for its ceilings and for settings that contradict each other.

use crate::cli::CheckArgs;
use crate::measuring::{self, target};
use crate::process::interrupt_flag;
use crate::{finish, observe_view, run_directory};
use webdyno_host::agent::Start;
use webdyno_model::event::EventBody;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::topology::Topology;
use webdyno_model::{Result, UserError};
use webdyno_session::live::{LiveSession, ObserveUntil, ObservedHosts, Servers};

/// Checks. Gives the exit code.
pub fn check(arguments: &CheckArgs) -> Result<u8> {
    refuse_load_flags(arguments)?;
    let list = arguments.server.list()?;
    let how = Start { reads_only: true, ..arguments.server.start(list.web()?)? };
    let given = match &arguments.url {
        Some(url) => Some(target::port(url, &how.address)?),
        None => arguments.port,
    };
    let interrupted = interrupt_flag()?;
    let mut servers = Servers::connect(&list, &how)?;
    let mut watched = ObservedHosts { port: given, access: arguments.server.access() };
    let mut found = servers.topologies(&watched)?;
    if watched.port.is_none() {
        watched.port = Some(single_port(&found)?);
        found = servers.topologies(&watched)?;
    }
    let mut session = LiveSession::observe(
        &run_directory::run_directory(&arguments.output, "check"),
        measuring::session_info("check", None, &[]),
        interrupted,
        observe_view::observer(&arguments.output, true),
        None,
    )?;
    let until = ObserveUntil::TwoReadings;
    let result = session
        .begin_observing(&mut servers, (&watched, found), until)
        .and_then(|()| session.observe_until(&mut servers, until, &mut |_| {}));
    drop(servers);
    // The session itself remembers no samples: what it came to is read back.
    finish::finish_from_disk(session, result, &arguments.output, arguments.fail_on_fault)
}

/// What needs a load of our own, told before there is something to wait for.
fn refuse_load_flags(arguments: &CheckArgs) -> Result<()> {
    if let Some(word) = &arguments.misplaced {
        let hint = match word.contains("://") {
            true => format!("check --url {word}"),
            false => "a listener is named as in --port 80, another machine as in --server ssh://HOST".into(),
        };
        return Err(UserError::usage(format!("check makes no load, and takes no `{word}`")).hint(hint));
    }
    if let Some(flag) = arguments.output.live.given() {
        return Err(UserError::usage(format!("{flag} is of what goes on, and check is one look"))
            .hint("`webdyno observe` has the same flag, and watches the server until Ctrl-C"));
    }
    if arguments.output.web.is_some() {
        return Err(UserError::usage("--web shows a session under way, and check is over in seconds")
            .hint("`webdyno serve` shows its report"));
    }
    arguments.output.exports.refuse_of_load("check", "--json has all that was found")
}

/// The port of the only web server of the host. An error when there is none, or more than one.
fn single_port(found: &[EventBody]) -> Result<u16> {
    let first = found.iter().find_map(|event| match event {
        EventBody::Topology { host: None, topology } => Some(topology.as_ref()),
        _ => None,
    });
    let servers = first.map(web_servers).unwrap_or_default();
    match servers.as_slice() {
        [only] => Ok(only.port),
        [] => Err(UserError::cannot_run("no web server was found on this host").hint(
            "give --port N or --url URL; `ss -ltnp` lists the listeners, and names of others take root",
        )),
        several => {
            let named: Vec<String> =
                several.iter().map(|one| format!("--port {} ({})", one.port, one.service)).collect();
            Err(UserError::usage(format!("which of {} web servers is meant?", several.len()))
                .hint(format!("give one of {}", named.join(", "))))
        }
    }
}

/// The web servers of a host that listen on a port.
fn web_servers(topology: &Topology) -> Vec<&ServiceSnapshot> {
    let serves = |service: &&ServiceSnapshot| service.role.as_deref() == Some("web") && service.port != 0;
    match &topology.front {
        Some(front) if front.port != 0 => vec![front],
        _ => topology.services().filter(serves).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(ports: &[u16]) -> Vec<EventBody> {
        let server = |port: &u16| ServiceSnapshot {
            service: "apache".into(),
            role: Some("web".into()),
            port: *port,
            ..ServiceSnapshot::default()
        };
        let database = ServiceSnapshot { role: Some("db".into()), port: 3306, ..ServiceSnapshot::default() };
        let backends = ports.iter().map(server).chain([database]).collect();
        let topology = Box::new(Topology { backends, ..Topology::default() });
        vec![EventBody::Topology { host: None, topology }]
    }

    #[test]
    fn the_only_web_server_is_meant_and_of_several_one_is_asked_for() {
        assert_eq!(single_port(&host(&[8080])).unwrap(), 8080);
        let several = single_port(&host(&[80, 8080])).unwrap_err();
        assert_eq!(several.exit_code(), 2);
        assert!(several.hint.unwrap().contains("--port 80 (apache), --port 8080 (apache)"));
        assert_eq!(single_port(&host(&[])).unwrap_err().exit_code(), 1);
    }
}
