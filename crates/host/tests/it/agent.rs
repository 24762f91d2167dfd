//! The agent over pipes, with a simulated server: whatever becomes of the tool, the server ends as it was found.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::fake::{FILES, FakeServer, PORT};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use webdyno_host::agent::clock::ClockOffset;
use webdyno_host::agent::framing::{read_message, write_message};
use webdyno_host::agent::protocol::{Framed, FromAgent, PROTOCOL, ToAgent};
use webdyno_host::agent::{AgentClient, BUILD, Options, ServerAddress, serve};
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_host::change::{notice, pending};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_model::Result;
use webdyno_model::change::{ApplyOptions, Preparation, RenderedPlan, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

fn options(server: &FakeServer, silence_max: Duration) -> Options {
    let host = Arc::new(server.clone());
    Options {
        state: server.state(),
        host,
        silence_max,
        build: BUILD.to_owned(),
        detach: false,
        settings_only: false,
    }
}

/// The tool's end of an agent that runs in a thread of the test.
pub struct Session {
    to: Option<PipeWriter>,
    from: Option<PipeReader>,
    agent: JoinHandle<Result<()>>,
    next_id: u64,
    /// What the agent wanted to be known.
    pub warnings: Vec<String>,
}

impl Session {
    fn start(server: &FakeServer, silence_max: Duration) -> Self {
        Self::with(options(server, silence_max))
    }

    /// With a given machine.
    pub fn with(options: Options) -> Self {
        let (input, to) = pipe().unwrap();
        let (from, output) = pipe().unwrap();
        let agent = std::thread::spawn(move || serve(input, output, options));
        Self { to: Some(to), from: Some(from), agent, next_id: 1, warnings: vec![] }
    }

    /// After hello.
    pub fn welcomed(server: &FakeServer, silence_max: Duration) -> Self {
        Self::welcomed_with(options(server, silence_max))
    }

    fn welcomed_with(options: Options) -> Self {
        let mut session = Self::with(options);
        let hello = ToAgent::Hello { protocol: PROTOCOL, build: BUILD.into(), tool: None, reads_only: false };
        assert!(matches!(session.request(hello), FromAgent::Hello { .. }));
        session
    }

    /// After hello and discover, with the plan for so many workers.
    fn greeted(server: &FakeServer, silence_max: Duration) -> (Self, RenderedPlan) {
        Self::greeted_with(options(server, silence_max))
    }

    fn greeted_with(options: Options) -> (Self, RenderedPlan) {
        let mut session = Self::welcomed_with(options);
        assert!(matches!(session.request(ToAgent::Discover { port: PORT }), FromAgent::Discovered { .. }));
        let FromAgent::Prepared { preparation: Preparation::Plan(plan) } =
            session.request(ToAgent::Prepare { changes: vec![wanted(20)], behind: false })
        else {
            panic!()
        };
        (session, *plan)
    }

    pub fn send(&mut self, body: ToAgent) -> u64 {
        self.next_id += 1;
        write_message(self.to.as_mut().unwrap(), &Framed { id: self.next_id, body }).unwrap();
        self.next_id
    }

    pub fn receive(&mut self) -> Option<Framed<FromAgent>> {
        loop {
            match read_message::<Framed<FromAgent>>(self.from.as_mut().unwrap()).unwrap() {
                Some(Framed { body: FromAgent::Warning { text }, .. }) => self.warnings.push(text),
                // What stands behind the service was seen to be something else.
                Some(Framed { id: 0, body: FromAgent::Topology { .. } }) => {}
                other => return other,
            }
        }
    }

    pub fn request(&mut self, body: ToAgent) -> FromAgent {
        let id = self.send(body);
        let answer = self.receive().unwrap();
        assert_eq!(answer.id, id);
        answer.body
    }

    fn apply(&mut self, plan: RenderedPlan) {
        let answer = self.request(ToAgent::Apply {
            plan,
            options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
        });
        assert!(matches!(answer, FromAgent::Applied { mark: 1, .. }), "{answer:?}");
    }

    pub fn ended(self) -> Result<()> {
        drop(self.to);
        self.agent.join().unwrap()
    }
}

const LONG: Duration = Duration::from_secs(60);

/// The plan for so many workers.
fn planned(client: &AgentClient, workers: i64) -> RenderedPlan {
    client.prepare(&[wanted(workers)]).and_then(Preparation::into_plan).unwrap()
}

fn wanted(workers: i64) -> SettingChange {
    SettingChange { setting: SettingId::of_service("fake", "Workers"), to: SettingValue::Integer(workers) }
}

/// Whoever may run such an agent by sudo, and nothing else, must not become root by it.
#[test]
fn an_agent_for_settings_does_nothing_else_that_it_is_told() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    let (mut session, plan) =
        Session::greeted_with(Options { settings_only: true, ..options(&server, LONG) });
    let mut foreign = plan.clone();
    foreign.files[0].after.push_str("Workers 99\n");
    let command = vec!["/bin/true".to_owned()];
    for (question, why) in [
        (ToAgent::Launch { command, pid_file: "/x".into(), port: 1 }, "it starts no program"),
        (ToAgent::Apply { plan: foreign, options: ApplyOptions::default() }, "only what it has prepared"),
        (ToAgent::RollBack { journal: Some("/tmp/x".into()), only_unkept: false }, "`/tmp/x` is no session"),
    ] {
        let FromAgent::Failed { error } = session.request(question) else { panic!("{why}") };
        assert!(error.message.contains(why), "{error}");
    }
    assert_eq!(server.picture(), original);
    session.apply(plan);
    assert!(server.running().contains("Workers 20"));
    session.ended().unwrap();
    assert_eq!(server.picture(), original);
}

#[test]
fn settings_that_were_kept_for_another_machine_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = FakeServer::set_up(folder.path());
    let has_cores = |count: &str| std::fs::write(folder.path().join("cores"), count).unwrap();
    let told = || {
        let mut session = Session::start(&server, LONG);
        let hello = ToAgent::Hello { protocol: PROTOCOL, build: BUILD.into(), tool: None, reads_only: true };
        session.request(hello);
        session.request(ToAgent::Discover { port: PORT });
        let warnings = session.warnings.clone();
        session.ended().unwrap();
        warnings
    };
    has_cores("2");
    assert_eq!(told(), Vec::<String>::new());
    let (mut session, plan) = Session::greeted(&server, LONG);
    session.apply(plan);
    assert!(matches!(session.request(ToAgent::Keep), FromAgent::Done));
    session.request(ToAgent::Bye);
    session.ended().unwrap();
    assert_eq!(told(), Vec::<String>::new());
    has_cores("4");
    let warnings = told();
    assert!(
        matches!(&warnings[..], [text] if text.contains("fake Workers 20 was kept on") && text.contains("4 cores (then 2)")),
        "{warnings:?}"
    );
    rollback_with(&server.tools(Arc::new(webdyno_host::change::seams::disk::RealDisk))).unwrap();
    assert_eq!(told(), Vec::<String>::new());
}

#[test]
fn a_tool_that_is_gone_is_reverted_and_the_next_command_hears_of_it_once() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    let (mut session, plan) = Session::greeted(&server, LONG);
    session.apply(plan);
    assert!(server.running().contains("Workers 20"));
    session.ended().unwrap();
    assert_eq!(server.picture(), original);
    assert_eq!(pending(&server.state()).unwrap(), []);
    let message = notice(&server.state()).unwrap();
    assert!(message.ends_with("was interrupted; its guardian reverted all of its changes"), "{message}");
    assert_eq!(notice(&server.state()), None);
}

/// What a guardian left alone is told once: by the next command's notice, or by the rollback.
#[test]
fn what_a_guardian_left_alone_is_told_once() {
    for by_rollback in [false, true] {
        let (_folder, server) = FakeServer::fresh();
        let (mut session, plan) = Session::greeted(&server, LONG);
        session.apply(plan);
        std::fs::write(server.conf("a.conf"), "Workers 99\n").unwrap();
        let error = session.ended().unwrap_err();
        let left_alone = "a.conf was changed by someone else meanwhile and is left alone; its original is ";
        assert!(error.message.contains(left_alone), "{error}");
        let tools = server.tools(Arc::new(webdyno_host::change::seams::disk::RealDisk));
        let text = match by_rollback {
            true => rollback_with(&tools).unwrap_err().message,
            false => notice(&server.state()).unwrap(),
        };
        assert!(text.contains(left_alone), "{text}");
        assert_eq!((rollback_with(&tools), notice(&server.state())), (Ok(vec![]), None));
        assert_eq!(std::fs::read_to_string(server.conf("a.conf")).unwrap(), "Workers 99\n");
    }
}

/// A remedy of what stands behind the server, or of nobody here, ends no session: the next change can be prepared.
#[test]
fn changes_of_other_targets_are_for_a_person_and_no_wrong_usage() {
    let (_folder, server) = FakeServer::fresh();
    let (mut session, _) = Session::greeted(&server, LONG);
    for (setting, expected) in [
        (SettingId::of_service("mariadb", "max_connections"), "0 databases are seen behind the server"),
        (SettingId::of_service("php_fpm", "pm.max_children"), "0 PHP-FPM are seen behind the server"),
        (SettingId::sysctl("kernel.pid_max"), "is not a setting of the kernel that webdyno changes"),
    ] {
        let change = SettingChange { setting, to: SettingValue::Integer(300) };
        let answer = session.request(ToAgent::Prepare { changes: vec![change], behind: false });
        let FromAgent::Prepared { preparation: Preparation::NotPreparable { why, .. } } = answer else {
            panic!("{answer:?}")
        };
        assert!(why.contains(expected), "{why}");
    }
    let next = session.request(ToAgent::Prepare { changes: vec![wanted(20)], behind: false });
    assert!(
        matches!(next, FromAgent::Prepared { preparation: Preparation::Plan(_) }),
        "the session goes on: {next:?}"
    );
    session.ended().unwrap();
}

#[test]
fn what_is_kept_stays_without_the_tool_and_what_came_after_does_not() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    let (mut session, plan) = Session::greeted(&server, LONG);
    session.apply(plan);
    assert_eq!(session.request(ToAgent::Keep), FromAgent::Done);
    let FromAgent::Prepared { preparation: Preparation::Plan(plan) } =
        session.request(ToAgent::Prepare { changes: vec![wanted(30)], behind: false })
    else {
        panic!()
    };
    let answer = session.request(ToAgent::Apply {
        plan: *plan,
        options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
    });
    assert!(matches!(answer, FromAgent::Applied { .. }), "{answer:?}");
    assert!(server.running().contains("Workers 30"));
    session.ended().unwrap();
    assert!(server.running().contains("Workers 20"), "{}", server.running());
    rollback_with(&server.tools(Arc::new(webdyno_host::change::seams::disk::RealDisk))).unwrap();
    assert_eq!(server.picture(), original);
}

#[test]
fn silence_reverts_and_heartbeats_prevent_it_also_during_a_long_apply() {
    let (_folder, mut server) = FakeServer::fresh();
    server.slow = Duration::from_millis(900);
    let original = server.picture();
    let (mut session, plan) = Session::greeted(&server, Duration::from_millis(400));
    let apply = session.send(ToAgent::Apply {
        plan,
        options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
    });
    let start = Instant::now();
    let mut beats = vec![];
    while start.elapsed() < Duration::from_millis(1400) {
        beats.push(session.send(ToAgent::Heartbeat));
        std::thread::sleep(Duration::from_millis(100));
    }
    let answers: Vec<_> = (0..beats.len() + 1).map(|_| session.receive().unwrap()).collect();
    let applied = answers.iter().position(|answer| answer.id == apply).unwrap();
    assert!(matches!(answers[applied].body, FromAgent::Applied { .. }), "{answers:?}");
    assert!(applied >= 3, "heartbeats are answered while the apply goes on");
    assert!(server.running().contains("Workers 20"));
    // From here on the tool hangs, with its pipes open.
    assert!(wait_until(Duration::from_secs(10), || session.agent.is_finished()));
    assert_eq!(server.picture(), original);
}

#[test]
fn an_apply_is_given_up_when_the_tool_is_gone() {
    for written in [false, true] {
        let (_folder, mut server) = FakeServer::fresh();
        // An activation, once begun, would be waited for. What was written needs one to be undone.
        server.slow = if written { Duration::ZERO } else { LONG };
        server.slow_test = Duration::from_millis(500);
        let original = server.picture();
        let (mut session, plan) = Session::greeted(&server, LONG);
        let options = ApplyOptions::default();
        session.send(ToAgent::Apply { plan: plan.clone(), options: options.clone() });
        session.send(ToAgent::Apply { plan, options });
        let is_written = || std::fs::read_to_string(server.conf("a.conf")).unwrap() != FILES[0].1;
        assert!(!written || wait_until(Duration::from_secs(10), is_written));
        let start = Instant::now();
        session.ended().unwrap();
        assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
        assert_eq!(server.picture(), original, "written: {written}");
        assert_eq!(pending(&server.state()).unwrap(), []);
        assert_eq!(notice(&server.state()).is_some(), written, "who finds what was put back is told");
    }
}

#[test]
fn an_end_during_an_apply_reverts_it() {
    for bye in [true, false] {
        let (_folder, mut server) = FakeServer::fresh();
        server.slow = Duration::from_millis(200);
        let original = server.picture();
        let (mut session, plan) = Session::greeted(&server, LONG);
        session.send(ToAgent::Apply {
            plan,
            options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
        });
        if bye {
            session.send(ToAgent::Bye);
            assert!(matches!(session.receive().unwrap().body, FromAgent::Applied { .. }));
            let FromAgent::Reverted { actions, .. } = session.receive().unwrap().body else { panic!() };
            assert!(actions[0].starts_with("restored "), "{actions:?}");
        } else {
            let is_written = || std::fs::read_to_string(server.conf("a.conf")).unwrap() != FILES[0].1;
            assert!(wait_until(Duration::from_secs(10), is_written));
        }
        session.ended().unwrap();
        assert_eq!(server.picture(), original);
        assert_eq!(notice(&server.state()).is_some(), !bye, "a tool that said good bye needs no notice");
    }
}

/// Neither a closed stdout nor a tool that reads nothing keeps the guardian from its work.
#[test]
fn a_tool_that_does_not_listen_is_reverted_too() {
    for closed in [true, false] {
        let (_folder, server) = FakeServer::fresh();
        let original = server.picture();
        let (mut session, plan) = Session::greeted(&server, LONG);
        session.apply(plan);
        if closed {
            session.from = None;
        }
        // Their answers fill the pipe (64 KiB) and the queue behind it.
        for _ in 0..7000 {
            session.send(ToAgent::Heartbeat);
        }
        let from = session.from.take();
        session.ended().unwrap();
        assert_eq!(server.picture(), original, "closed: {closed}");
        drop(from);
    }
}

#[test]
fn a_broken_message_is_the_end_and_reverts() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    let (mut session, plan) = Session::greeted(&server, LONG);
    session.apply(plan);
    session.to.as_mut().unwrap().write_all(&[0xff; 64]).unwrap();
    assert!(wait_until(Duration::from_secs(10), || session.agent.is_finished()));
    assert_eq!(server.picture(), original);
}

#[test]
fn another_version_is_refused_with_both_names() {
    let (_folder, server) = FakeServer::fresh();
    for (protocol, build) in [(PROTOCOL + 1, BUILD), (PROTOCOL, "0.0.1")] {
        let mut session = Session::start(&server, LONG);
        let answer =
            session.request(ToAgent::Hello { protocol, build: build.into(), tool: None, reads_only: false });
        let FromAgent::Failed { error } = answer else { panic!("{answer:?}") };
        let text = format!(
            "the tool is webdyno {build} with protocol {protocol}, and the agent is {BUILD} with protocol {PROTOCOL}"
        );
        assert_eq!(error.message, text);
        assert_eq!(session.receive(), None, "it has ended");
        assert_eq!(session.ended().unwrap_err().message, text);
    }
    let mut session = Session::start(&server, LONG);
    let FromAgent::Failed { error } = session.request(ToAgent::Keep) else { panic!() };
    assert_eq!(error.message, "the agent got a request before hello");
    session.ended().unwrap();
}

#[test]
fn a_second_tuner_hears_who_is_at_work() {
    let (_folder, server) = FakeServer::fresh();
    let (mut first, plan) = Session::greeted(&server, LONG);
    first.apply(plan);
    let (mut second, plan) = Session::greeted(&server, LONG);
    let FromAgent::Failed { error } = second.request(ToAgent::Apply {
        plan,
        options: ApplyOptions { allow_restart: false, ..ApplyOptions::default() },
    }) else {
        panic!()
    };
    let pid = std::process::id();
    assert_eq!(error.message, format!("`webdyno` (agent with pid {pid}) is changing this server already"));
    second.ended().unwrap();
    assert!(server.running().contains("Workers 20"), "the second one took nothing of the first one's back");
    first.ended().unwrap();
}

/// The environment variable that makes the test below an agent, on descriptors 3 and 4: the folder of its server.
const AGENT: &str = "WEBDYNO_TEST_AGENT";

/// As a test: the client with an agent of its own process. With [`AGENT`]: that agent.
#[test]
fn a_client_works_with_its_agent_and_says_when_it_is_gone() {
    if let Ok(folder) = std::env::var(AGENT) {
        let server = FakeServer::at(Path::new(&folder));
        let (input, output) = (File::open("/dev/fd/4").unwrap(), File::create("/dev/fd/3").unwrap());
        let options = Options { detach: true, ..options(&server, LONG) };
        let code = i32::from(serve(input, output, options).is_err());
        std::process::exit(code);
    }
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();

    let client = client(&server);
    assert_eq!(client.hello().environment.hostname.as_deref(), Some("fake"));
    let same = ClockOffset { offset_us: 0, error_us: 0 };
    assert_eq!((client.hello().clock, client.clock()), (same, same), "it is one clock");
    let samples = client.observe(Some(PORT), None, Default::default()).unwrap();
    let (clock_us, sample) = samples.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(sample.source, "fake on Some(8000)");
    assert!(clock_us.abs_diff(webdyno_host::os::clock::clock_us()) < 60_000_000);
    assert!(
        client
            .prepare(&[wanted(20)])
            .and_then(Preparation::into_plan)
            .unwrap_err()
            .message
            .contains("no service was discovered yet")
    );
    assert_eq!(client.discover(PORT).unwrap().service, "fake");
    let applied = client.apply(&planned(&client, 20), &ApplyOptions::default()).unwrap();
    assert_eq!(applied.snapshot.number("Workers"), Some(20.0));
    let again = client.apply(&planned(&client, 30), &ApplyOptions::default()).unwrap();
    assert_eq!(client.revert(again.mark, false).unwrap().actions.len(), 2);
    assert!(server.running().contains("Workers 20"));
    assert_eq!(client.close().unwrap().actions.len(), 2);
    assert_eq!(server.picture(), original);
    drop(client);

    let client = self::client(&server);
    client.discover(PORT).unwrap();
    client.apply(&planned(&client, 20), &ApplyOptions::default()).unwrap();
    let journal = pending(&server.state()).unwrap().remove(0);
    assert!(journal.tool_is_alive && journal.guardian_is_alive && !journal.kept, "{journal:?}");
    let pid: u32 = journal.id.rsplit('-').next().unwrap().parse().unwrap();
    ProcessName::of(pid).unwrap().signal(rustix::process::Signal::KILL).unwrap();
    assert!(wait_until(Duration::from_secs(5), || ProcessName::of(pid).is_none()));
    let error = client.keep().unwrap_err();
    assert!(error.message.starts_with("the agent ended unexpectedly"), "{error}");
    assert!(error.message.ends_with("killed, as the kernel does when memory runs out)"), "{error}");
    assert!(error.hint.unwrap().starts_with("run `webdyno rollback`"));
    drop(client);
    assert!(server.running().contains("Workers 20"), "nobody is left to undo it");
    rollback_with(&server.tools(Arc::new(webdyno_host::change::seams::disk::RealDisk))).unwrap();
    assert_eq!(server.picture(), original);
    assert_eq!(std::fs::read_to_string(server.conf("a.conf")).unwrap(), FILES[0].1);
}

fn client(server: &FakeServer) -> AgentClient {
    let test = "agent::a_client_works_with_its_agent_and_says_when_it_is_gone";
    let (program, folder) = (std::env::current_exe().unwrap(), server.folder.display());
    let command = format!(
        "{AGENT}={folder} exec {} --exact {test} --nocapture 3>&1 4<&0 >/dev/null # agent",
        program.display()
    );
    let address = ServerAddress::parse(&format!("exec:{command}")).unwrap();
    AgentClient::spawn(&address, Path::new("/none")).unwrap()
}

/// SIGTERM to an agent is an end like any other.
#[test]
fn a_terminated_agent_reverts_first() {
    let (_folder, server) = FakeServer::fresh();
    let original = server.picture();
    let client = client(&server);
    client.discover(PORT).unwrap();
    client.apply(&planned(&client, 20), &ApplyOptions::default()).unwrap();
    let id = pending(&server.state()).unwrap().remove(0).id;
    let agent = ProcessName::of(id.rsplit('-').next().unwrap().parse().unwrap()).unwrap();
    agent.signal(rustix::process::Signal::INT).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(agent.is_alive(), "Ctrl-C is for the tool");
    agent.signal(rustix::process::Signal::TERM).unwrap();
    assert!(agent.wait_for_end(Duration::from_secs(10)));
    assert_eq!(server.picture(), original);
}

#[test]
fn an_agent_that_does_not_start_is_told_with_its_command() {
    let address = ServerAddress::parse("exec:exit 127 # agent").unwrap();
    let error = AgentClient::spawn(&address, Path::new("/none")).err().unwrap();
    assert_eq!(error.message, format!("{address}: no agent could be started there (exit status: 127)"));
    assert!(error.hint.clone().unwrap().contains("a shell or `webdyno agent`"), "{error:?}");
    let error = AgentClient::spawn(&ServerAddress::Local, Path::new("/none")).err().unwrap();
    assert_eq!(error.message, "cannot start the agent local: no such file or directory");
}
