//! The agent with a real, private Apache: apply, refuse, revert and roll back, as a tuning session does.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::agent::Session;
use crate::apache::server::{MODULES, Server, apache_is_installed};
use crate::skip::needs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::agent::protocol::{FromAgent, PROTOCOL, ToAgent};
use webdyno_host::agent::{BUILD, Options};
use webdyno_host::change::journal::Owner;
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_host::change::{Changer, StateDir, Tools};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const PREFORK: &str = "<IfModule mpm_prefork_module>\n    StartServers 2\n    MaxRequestWorkers 5\n    ServerLimit 20\n</IfModule>\n";

fn options(state: &Path) -> Options {
    let host = Arc::new(ThisMachine);
    let silence_max = Duration::from_secs(60);
    Options {
        state: StateDir::at(state),
        host,
        silence_max,
        build: BUILD.to_owned(),
        detach: false,
        settings_only: false,
    }
}

/// After hello and discover.
fn greeted(server: &Server, state: &Path) -> Session {
    let mut session = Session::with(options(state));
    let hello = ToAgent::Hello { protocol: PROTOCOL, build: BUILD.into(), tool: None, reads_only: false };
    let answer = session.request(hello);
    assert!(matches!(&answer, FromAgent::Hello { collectors, .. } if !collectors.is_empty()), "{answer:?}");
    let answer = session.request(ToAgent::Discover { port: server.port });
    assert!(
        matches!(&answer, FromAgent::Discovered { snapshot } if snapshot.service == "apache"),
        "{answer:?}"
    );
    session
}

fn plan(session: &mut Session, wishes: &[(&str, i64)]) -> RenderedPlan {
    let wanted = |(setting, to): &(&str, i64)| SettingChange {
        setting: SettingId::of_service("apache", *setting),
        to: SettingValue::Integer(*to),
    };
    let answer =
        session.request(ToAgent::Prepare { changes: wishes.iter().map(wanted).collect(), behind: false });
    let FromAgent::Prepared { preparation: Preparation::Plan(plan) } = answer else { panic!("{answer:?}") };
    *plan
}

/// The bytes of all configuration files.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let is_configuration =
            entry.to_string_lossy().contains("conf") || entry.to_string_lossy().contains("mods-");
        if entry.is_dir() && is_configuration {
            found.extend(files(&entry));
        } else if entry.is_file() && is_configuration {
            found.insert(entry.display().to_string(), std::fs::read(&entry).unwrap());
        }
    }
    found
}

fn workers(server: &Server) -> Option<f64> {
    server.snapshot().number("MaxRequestWorkers")
}

#[test]
fn a_reload_and_a_restart_are_put_back_when_the_tool_is_gone() {
    needs!(apache_is_installed());
    let server = Server::debian("prefork", PREFORK);
    server.start();
    let (state, original) = (tempfile::tempdir().unwrap(), files(&server.path("")));
    assert!(original.len() > 2, "{:?}", original.keys());

    let mut session = greeted(&server, state.path());
    let reload = plan(&mut session, &[("MaxRequestWorkers", 12)]);
    assert_eq!(reload.class, ApplyClass::Reload);
    let answer = session.request(ToAgent::Apply {
        plan: reload,
        options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
    });
    assert!(matches!(answer, FromAgent::Applied { .. }), "{answer:?}");
    assert_eq!(workers(&server), Some(12.0));

    let restart = plan(&mut session, &[("MaxRequestWorkers", 40), ("ServerLimit", 40)]);
    assert_eq!(restart.class, ApplyClass::Restart);
    let answer = session.request(ToAgent::Apply {
        plan: restart.clone(),
        options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
    });
    assert!(
        matches!(&answer, FromAgent::Failed { error } if error.message.contains("needs a restart")),
        "{answer:?}"
    );
    let answer = session.request(ToAgent::Apply {
        plan: restart,
        options: ApplyOptions { allow_restart: true, ..ApplyOptions::default() },
    });
    let FromAgent::Applied { mark, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(workers(&server), Some(40.0));
    let answer = session.request(ToAgent::Revert { mark, live_traffic: false });
    assert!(matches!(answer, FromAgent::Reverted { .. }), "{answer:?}");
    assert_eq!(workers(&server), Some(12.0));

    session.ended().unwrap();
    assert!(wait_until(Duration::from_secs(10), || workers(&server) == Some(5.0)), "{:?}", workers(&server));
    assert_eq!(files(&server.path("")), original);
}

/// Tool, agent and service are killed: the rollback restores the files and starts the service again. A setting of a file of our own,
/// and a parameter within a line of the site.
#[test]
fn a_rollback_after_everything_was_killed_brings_the_service_back() {
    needs!(apache_is_installed());
    let event = "StartServers 1\nThreadsPerChild 30\nMaxRequestWorkers 30\n";
    let of_apache = |name: &str| SettingId::of_service("apache", name);
    for (mpm, mpm_conf, setting) in [
        ("prefork", PREFORK, of_apache("MaxRequestWorkers")),
        ("event", event, of_apache("ProxyPass max").of_pool("127.0.0.1:1")),
    ] {
        let server = Server::debian(mpm, mpm_conf);
        let load = |name: &str| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n");
        server.write("mods-enabled/proxy.load", &(load("proxy") + &load("proxy_http")));
        server.write("conf-enabled/app.conf", "ProxyPass /app http://127.0.0.1:1/  max=2 \\\n  retry=0\n");
        server.start();
        let (original, workers_before) = (files(&server.path("")), workers(&server));
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools::of_this_machine(StateDir::at(folder.path()));
        let mut changer = Changer::with(tools.clone(), Owner { tool: None, what: "webdyno tune".into() });
        let snapshot = server.snapshot();
        let wanted = SettingChange { setting, to: SettingValue::Integer(12) };
        let apache = tools.programs.tunable("apache").unwrap();
        let plan = apache.prepare(&snapshot, &[wanted]).and_then(Preparation::into_plan).unwrap();
        assert_eq!(plan.class, ApplyClass::Reload);
        changer.apply(&plan, &snapshot, &ApplyOptions::default()).unwrap();
        assert_ne!(files(&server.path("")), original);
        drop(changer);
        let main = ProcessName::of(server.pid().unwrap()).unwrap();
        webdyno_host::os::process::stop(main, main.led_group(), Duration::from_secs(5)).unwrap();
        let lines = rollback_with(&tools).unwrap();
        assert!(lines.iter().any(|line| line.contains("started apache again")), "{lines:?}");
        assert_eq!((files(&server.path("")), workers(&server)), (original, workers_before));
        assert_eq!(rollback_with(&tools).unwrap(), Vec::<String>::new());
    }
}
