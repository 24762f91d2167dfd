//! Shadow instances of a real, private Apache: what is proved on them, and that nothing of the original is touched.

// Helpers outside of #[test] functions may fail a test, too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::apache::server::{MODULES, Server, apache_is_installed};
use crate::skip::needs;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use webdyno_host::change::action::{Launch, Launched, Surroundings};
use webdyno_host::change::journal::Owner;
use webdyno_host::change::seams::disk::{Disk, RealDisk, sha256_hex};
use webdyno_host::change::seams::processes::{Running, System};
use webdyno_host::change::seams::this_machine::ThisMachine;
use webdyno_host::change::seams::tree::Tree;
use webdyno_host::change::undo::rollback::rollback_with;
use webdyno_host::change::{Changer, StateDir, Tools};
use webdyno_host::os::process::{ProcessName, wait_until};
use webdyno_host::probes::site::Answer;
use webdyno_host::services::tunable;
use webdyno_model::Result;
use webdyno_model::change::{ApplyClass, ApplyOptions, Change, FileEdit, RenderedPlan, SiteProbe};
use webdyno_model::service::{Control, SettingValue};
use webdyno_model::setting::SettingId;

/// Some threads for few requests, whatever the MPM.
const FEW: &str = "StartServers 1\n<IfModule prefork.c>\nMinSpareServers 1\nMaxSpareServers 2\nMaxRequestWorkers 5\nServerLimit 20\n</IfModule>\n\
                   <IfModule !prefork.c>\nThreadsPerChild 4\nThreadLimit 8\nServerLimit 8\nMinSpareThreads 4\nMaxSpareThreads 8\n\
                   MaxRequestWorkers 8\n</IfModule>\n";

/// Everything beside the server that two instances could share: a log by a program, a CGI daemon, locks, a cache.
const MORE: &str = "IncludeOptional ROOT/none/*.conf\nIncludeOptional ROOT/none.conf\nInclude ROOT/many\nLoadModule cgid_module MODULES/mod_cgid.so\nLoadModule env_module MODULES/mod_env.so\nLoadModule cache_module MODULES/mod_cache.so\n\
                    LoadModule cache_disk_module MODULES/mod_cache_disk.so\nCacheRoot ROOT/run/cache\nCacheEnable disk /\n\
                    Mutex flock:ROOT/run/lock default\nScriptSock ROOT/run/cgisock\nCustomLog \"|/usr/bin/tee ROOT/pipe\" \"%h\"\n\
                    ScriptAlias /cgi/ ROOT/cgi/\nPassEnv DB_PASSWORD\n<Directory ROOT/cgi>\nRequire all granted\n</Directory>\n";

/// A private server with logs and two sites, and a changer for it.
struct Fixture {
    server: Server,
    changer: Changer,
    state: tempfile::TempDir,
}

impl Fixture {
    fn new(mpm: &str, more: &[(&str, &str)]) -> Self {
        let fixture = Self::stopped(mpm, more);
        fixture.server.start();
        fixture
    }

    /// Before the server starts.
    fn stopped(mpm: &str, more: &[(&str, &str)]) -> Self {
        let server = Server::debian(mpm, FEW);
        let port = server.port;
        let modules =
            ["dir", "alias"].map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n"));
        server.write("mods-enabled/more.load", &modules.concat());
        let site = |name: &str| {
            format!(
                "<VirtualHost *:{port}>\n    ServerName {name}.example\n    DocumentRoot \"{}/{name}\"\n    CustomLog ${{RUN}}/{name}.log \"%h %r\"\n    \
                 ErrorLog ${{RUN}}/{name}-error.log\n</VirtualHost>\n",
                server.root.path().display()
            )
        };
        server.write("sites-enabled/000-default.conf", &site("first"));
        server.write("sites-enabled/001-second.conf", &site("second"));
        server.write("first/index.html", "the first site\n");
        server.write("second/index.html", &"the second site\n".repeat(100));
        server.write("conf-enabled/log.conf", "CustomLog ${RUN}/access.log \"%h %r\"\n");
        let state = tempfile::tempdir().unwrap();
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, text) in more {
            server.write(
                name,
                &text
                    .replace("ROOT", &server.root.path().display().to_string())
                    .replace("MODULES", MODULES)
                    .replace("STATE", state.path().join("state").to_str().unwrap()),
            );
        }
        let changer = Self::changer(state.path());
        Self { server, changer, state }
    }

    fn changer(state: &Path) -> Changer {
        let owner = Owner { tool: None, what: "webdyno tune".into() };
        Changer::new(StateDir::at(state.join("state")), Arc::new(ThisMachine), owner)
    }

    /// Applies such a plan, and gives what is noted of its proof.
    fn apply(&mut self, name: &str, after: &str) -> Result<Vec<String>> {
        let plan = plan(&self.server.path(name), after);
        let probes = ["first", "second"].map(|name| SiteProbe {
            host: format!("{name}.example"),
            target: "/".into(),
            tls: false,
        });
        let options = ApplyOptions { probes: probes.to_vec(), ..ApplyOptions::default() };
        let applied = self.changer.apply(&plan, &self.server.snapshot(), &options);
        let of_proof = |note: &String| note.contains("proved") || note.contains("compared");
        let notes = self.changer.take_notes().into_iter().filter(of_proof).collect();
        applied.map(|_| notes)
    }

    /// Every file of the server: its bytes and when it was changed last.
    fn picture(&self) -> BTreeMap<String, (String, i64)> {
        picture(self.server.root.path())
    }

    /// Whether nothing of a shadow is left: no process, no file.
    fn is_clear(&self) -> bool {
        let shadows = self.state.path().join("state/shadow");
        let is_empty = fs::read_dir(&shadows).map_or(true, |mut entries| entries.next().is_none());
        is_empty && processes_of(&shadows).is_empty()
    }
}

/// A plan that writes one file, as if it set something.
fn plan(path: &Path, after: &str) -> RenderedPlan {
    let path = path.parent().unwrap().canonicalize().unwrap().join(path.file_name().unwrap());
    let path = path.to_str().unwrap().to_owned();
    let change = Change {
        setting: SettingId::of_service("apache", "Timeout"),
        from: None,
        to: SettingValue::Integer(1),
        file: path.clone(),
        class: ApplyClass::Reload,
        server: None,
    };
    let before_sha256 = fs::read(&path).ok().map(|bytes| sha256_hex(&bytes));
    RenderedPlan {
        files: vec![FileEdit {
            before: fs::read_to_string(&path).ok(),
            path,
            before_sha256,
            after: after.into(),
        }],
        class: ApplyClass::Reload,
        ..RenderedPlan::live(vec![change], String::new())
    }
}

fn picture(folder: &Path) -> BTreeMap<String, (String, i64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let metadata = fs::symlink_metadata(&entry).unwrap();
        if metadata.is_dir() {
            found.extend(picture(&entry));
        } else if metadata.is_file() {
            let time = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
            found.insert(entry.display().to_string(), (sha256_hex(&fs::read(&entry).unwrap()), time));
        }
    }
    found
}

/// Says which files differ, where they do.
fn assert_same(now: &BTreeMap<String, (String, i64)>, before: &BTreeMap<String, (String, i64)>) {
    let names: BTreeSet<_> = now.keys().chain(before.keys()).collect();
    let differ: Vec<_> = names.into_iter().filter(|name| now.get(*name) != before.get(*name)).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

/// The processes whose command names a directory.
fn processes_of(folder: &Path) -> Vec<String> {
    let line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| line(entry.unwrap()));
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder.to_str().unwrap())).collect()
}

#[test]
fn a_change_is_proved_and_leaves_no_trace_of_the_proof() {
    needs!(apache_is_installed());
    for mpm in ["prefork", "worker", "event"] {
        let mut fixture = Fixture::new(mpm, &[]);
        let applied = fixture.apply("conf-enabled/zzz.conf", "Timeout 7\n").unwrap();
        assert_eq!(applied, Vec::<String>::new(), "{mpm}");
        assert!(fixture.is_clear(), "{mpm}");
        assert!(fixture.server.path("conf-enabled/zzz.conf").exists());
    }
}

/// What `-t` accepts and a start or a reload does not survive, with what Apache says of it.
#[test]
fn what_does_not_start_is_refused_before_anything_is_written() {
    needs!(apache_is_installed());
    let module = ("mods-enabled/f.load", "LoadModule log_forensic_module MODULES/mod_log_forensic.so\n");
    let mut fixture = Fixture::new("event", &[module]);
    let root = fixture.server.root.path().display().to_string();
    for (line, said) in [
        (format!("PidFile {root}/none/a.pid\n"), format!("could not log pid to file {root}/none/a.pid")),
        (format!("ForensicLog {root}/none/a\n"), format!("could not open forensic log file {root}/none/a")),
        ("CustomLog \"|/none/rotate\" common\n".to_owned(), "/none/".to_owned()),
    ] {
        assert!(fixture.server.run(&["-t", "-c", line.trim()]).status.success(), "{line}");
        let (before, pid) = (fixture.picture(), fixture.server.pid());
        let error = fixture.apply("conf-enabled/zzz.conf", &line).unwrap_err();
        assert!(error.message.starts_with("apache does not start with the new configuration: "), "{error}");
        assert!(error.message.contains(&said) && !error.message.contains("shadow"), "{error}");
        assert!(
            error.hint.as_deref().unwrap().contains("nothing of the server itself was changed"),
            "{error}"
        );
        assert_same(&logs_apart(fixture.picture()), &logs_apart(before));
        assert_eq!(fixture.server.pid(), pid, "{line}");
        assert!(fixture.is_clear(), "{line}");
    }
    // A line that only the real file has is told by the name and number of the real file.
    let error = fixture.apply("conf-enabled/security.conf", "# first\nNoSuchDirective\n").unwrap_err();
    let expected = format!("Syntax error on line 2 of {root}/conf-enabled/security.conf");
    assert!(error.message.contains(&expected), "{error}");
}

/// The site itself writes its logs when it is asked.
fn logs_apart(mut picture: BTreeMap<String, (String, i64)>) -> BTreeMap<String, (String, i64)> {
    picture.retain(|name, _| !name.ends_with(".log"));
    picture
}

#[test]
fn what_answers_otherwise_is_refused_before_anything_is_written() {
    needs!(apache_is_installed());
    let mut fixture = Fixture::new("prefork", &[]);
    let before = logs_apart(fixture.picture());
    let root = fixture.server.root.path().display().to_string();
    let site = fs::read_to_string(fixture.server.path("sites-enabled/001-second.conf")).unwrap();
    let closed = site.replace("</VirtualHost>", "Redirect 503 /\n</VirtualHost>");
    let error = fixture.apply("sites-enabled/001-second.conf", &closed).unwrap_err();
    let expected = "apache answers otherwise with the new configuration: GET / answered 200 with 1,600 bytes before, and 503 with";
    assert!(error.message.starts_with(expected), "{error}");
    // Another site that answers 200, too, with fewer bytes.
    let error = fixture
        .apply(
            "sites-enabled/001-second.conf",
            &site.replace(&format!("{root}/second"), &format!("{root}/first")),
        )
        .unwrap_err();
    assert!(error.message.ends_with("1,600 bytes before, and 200 with 15 bytes now"), "{error}");
    assert_same(&logs_apart(fixture.picture()), &before);
    assert!(fixture.is_clear());
}

/// What no shadow can show: a file that is read with each request, not with the configuration.
#[test]
fn a_site_that_answers_otherwise_after_the_change_has_the_original_back_at_once() {
    needs!(apache_is_installed());
    let mut fixture = Fixture::new(
        "event",
        &[("conf-enabled/a.conf", "<Directory ROOT>\nAllowOverride All\n</Directory>\n")],
    );
    let original = logs_apart(fixture.picture());
    let error = fixture.apply("first/.htaccess", "NoSuchDirective\n").unwrap_err();
    let expected =
        "the change made the site answer otherwise: GET / answered 200 with 15 bytes before, and 500 with";
    assert!(error.message.starts_with(expected), "{error}");
    assert!(!error.hint.unwrap().contains("still"));
    // Apache writes its pid file anew with each reload.
    let without_pid = |mut picture: BTreeMap<String, (String, i64)>| {
        picture.retain(|name, _| !name.ends_with(".pid"));
        picture
    };
    assert_same(&without_pid(logs_apart(fixture.picture())), &without_pid(original));
    assert!(fixture.is_clear() && !fixture.changer.has_unkept());
}

/// Renders the shadow of a server's own configuration, starts it, and gives what it answers on its port.
fn answers_of_shadow(fixture: &Fixture, control: &Control, probes: &[SiteProbe]) -> Vec<Answer> {
    let folder = fixture.state.path().join("shadow");
    let apache = tunable("apache").unwrap();
    let shadow = apache.shadow(control, &[], fixture.server.port, &folder).unwrap().unwrap();
    let tree = Tree { root: &folder, folders: &shadow.folders, files: &shadow.files, owner: shadow.user };
    RealDisk.plant(&tree).unwrap();
    let surroundings = Surroundings {
        environment: shadow.environment,
        directory: shadow.directory,
        user: shadow.user,
        inherited: shadow.inherited,
    };
    let pid_file = shadow.pid_file.display().to_string();
    let launch = Launch {
        folder: Some(folder.display().to_string()),
        surroundings: Some(surroundings),
        ..Launch::new(shadow.command, pid_file, shadow.port)
    };
    let mut running = ThisMachine.launch(&launch).unwrap();
    let mut launched = None;
    running
        .wait_until_ready(&launch, &mut |found| {
            launched = Some(found);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error} {:?} {:?}", error.hint, fs::read_to_string(&shadow.log)));
    let address = SocketAddr::from(([127, 0, 0, 1], shadow.port));
    let ask = |probe: &SiteProbe| ThisMachine.request_site(address, probe, Duration::from_secs(5)).unwrap();
    let answers = probes.iter().map(ask).collect();
    let launched = launched.unwrap();
    webdyno_host::os::process::stop(launched.process, launched.group, Duration::from_secs(10)).unwrap();
    running.end();
    RealDisk.remove_tree(&folder).unwrap();
    answers
}

fn probe(host: &str, target: &str) -> SiteProbe {
    SiteProbe { host: host.into(), target: target.into(), tls: false }
}

#[test]
fn a_shadow_answers_as_the_original_and_touches_nothing_of_it() {
    needs!(apache_is_installed());
    for mpm in ["event", "prefork"] {
        let cgi = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s' \"$DB_PASSWORD\"\n";
        let files = [
            ("conf-enabled/more.conf", MORE),
            ("cgi/x", cgi),
            ("many/1/a b.conf", "ServerAdmin a@example.org\n"),
            ("many/2", "Timeout 8\n"),
            ("run/cache/.keep", ""),
            ("run/lock/.keep", ""),
        ];
        let fixture = Fixture::stopped(mpm, &files);
        fs::set_permissions(fixture.server.path("cgi/x"), fs::Permissions::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            for name in ["run/cache", "run/lock"] {
                std::os::unix::fs::chown(fixture.server.path(name), Some(33), Some(33)).unwrap();
            }
        }
        fixture.server.start();
        let pipe = fixture.server.path("pipe");
        let control = fixture.server.snapshot().control.unwrap();
        // Apache reads its configuration twice before it says that it runs, and writes what the snapshot asked it into a
        // log once that is answered: from then on nothing of it changes by itself.
        let message = |log: &str, text: &str| {
            fs::read_to_string(fixture.server.path(log)).is_ok_and(|lines| lines.contains(text))
        };
        let is_settled = || {
            message("run/error.log", "AH00094: Command line")
                && message("run/first.log", "GET /server-status")
                && processes_of(&pipe).len() == 1
        };
        assert!(wait_until(Duration::from_secs(30), is_settled), "{mpm}: {:?}", processes_of(&pipe));
        let before = fixture.picture();
        let probes = [
            probe("first.example", "/"),
            probe("second.example", "/"),
            probe("none.example", "/none"),
            probe("first.example", "/cgi/x"),
        ];
        let answers = answers_of_shadow(&fixture, &control, &probes);
        assert_same(&fixture.picture(), &before);
        assert_eq!(processes_of(&pipe).len(), 1, "{mpm}: one program gets the original's log, as before");
        let live = SocketAddr::from(([127, 0, 0, 1], fixture.server.port));
        let asked =
            probes.iter().map(|probe| ThisMachine.request_site(live, probe, Duration::from_secs(5)).unwrap());
        assert_eq!(answers, asked.collect::<Vec<_>>(), "{mpm}");
        let seen: Vec<_> = answers.iter().map(|answer| (answer.status, answer.length_bytes)).collect();
        assert_eq!((seen[0], seen[1], seen[2].0, seen[3]), ((200, 15), (200, 1600), 404, (200, 6)), "{mpm}");
    }
}

/// A server in the foreground, as a user of its own where that is possible; with TLS on a second port.
#[test]
fn a_server_in_the_foreground_of_another_user_has_a_shadow_too() {
    needs!(apache_is_installed());
    let tls = crate::ports::free_port();
    let mut fixture =
        Fixture::stopped("event", &[("conf-enabled/tls.conf", &format!("Listen 127.0.0.1:{tls} https\n"))]);
    fixture.server.write("ports.conf", &format!("Listen {}\n", fixture.server.port));
    let run = fixture.server.path("run");
    let user = rustix::process::geteuid().is_root().then_some((33, 33));
    let mut command = Command::new(crate::apache::server::EXECUTABLE);
    command
        .arg("-f")
        .arg(fixture.server.path("apache2.conf"))
        .args(["-DFOREGROUND", "-d", "/etc"])
        .process_group(0);
    if let Some((uid, gid)) = user {
        std::os::unix::fs::chown(&run, Some(uid), Some(gid)).unwrap();
        command.uid(uid).gid(gid);
    }
    let mut original = command.stderr(Stdio::null()).spawn().unwrap();
    let served =
        || fixture.server.pid().is_some() && TcpStream::connect(("127.0.0.1", fixture.server.port)).is_ok();
    assert!(wait_until(Duration::from_secs(10), served));
    let proved = fixture.apply("conf-enabled/zzz.conf", "Timeout 7\n");
    let refused = fixture.apply("conf-enabled/zzz.conf", "Redirect 503 /\n");
    let owner = fs::metadata(fixture.state.path().join("state/shadow")).unwrap().uid();
    fixture.server.stop();
    original.wait().unwrap();
    assert_eq!(proved.unwrap(), Vec::<String>::new());
    let refused = refused.unwrap_err();
    assert!(refused.message.contains("503"), "{refused}");
    assert_eq!(owner, rustix::process::geteuid().as_raw());
    assert!(fixture.is_clear());
}

/// A configuration that cannot be doubled: it looks whether its shadow is there.
#[test]
fn where_no_shadow_starts_the_change_goes_on_with_a_warning() {
    needs!(apache_is_installed());
    let of = |n: u64| {
        format!("<IfFile STATE/shadow/{}-{n}>\nError \"not twice\"\n</IfFile>\n", std::process::id())
    };
    let mut fixture = Fixture::new("event", &[("conf-enabled/a.conf", &(of(1) + &of(2)))]);
    let applied = fixture.apply("conf-enabled/zzz.conf", "Timeout 7\n").unwrap();
    let [warning] = applied.as_slice() else { panic!("{applied:?}") };
    let expected = "none starts here, not even with the old one: AH00526: Syntax error on line ";
    assert!(warning.contains(expected) && warning.contains("not twice"), "{warning}");
    assert!(fixture.is_clear() && fixture.server.path("conf-enabled/zzz.conf").exists());
}

/// This machine, in which something happens when somebody asks.
struct Eventful<F>(F);

impl<F: Fn(SocketAddr) + Send + Sync> System for Eventful<F> {
    fn this_process(&self) -> Result<ProcessName> {
        ThisMachine.this_process()
    }

    fn is_running(&self, process: ProcessName) -> bool {
        ThisMachine.is_running(process)
    }

    fn end_process(&self, process: ProcessName, own_group: Option<u32>, patience: Duration) -> Result<()> {
        ThisMachine.end_process(process, own_group, patience)
    }

    fn boot_id(&self) -> Option<String> {
        ThisMachine.boot_id()
    }

    fn now_us(&self) -> i64 {
        ThisMachine.now_us()
    }

    fn monotonic(&self) -> Duration {
        ThisMachine.monotonic()
    }

    fn pause(&self, time: Duration) {
        ThisMachine.pause(time);
    }

    fn check_launch(&self, launch: &Launch) -> Result<()> {
        ThisMachine.check_launch(launch)
    }

    fn launch(&self, launch: &Launch) -> Result<Box<dyn Running>> {
        ThisMachine.launch(launch)
    }

    fn stop_launched(&self, launch: &Launch, launched: Option<Launched>, agent: ProcessName) -> Result<bool> {
        ThisMachine.stop_launched(launch, launched, agent)
    }

    fn request_site(&self, address: SocketAddr, probe: &SiteProbe, at_most: Duration) -> io::Result<Answer> {
        (self.0)(address);
        ThisMachine.request_site(address, probe, at_most)
    }
}

/// The environment variable that makes the test below the agent that is killed: `STATE|ROOT|PORT|PID`.
const VICTIM: &str = "WEBDYNO_TEST_SHADOW_AGENT";

/// As a test: kills the process that has a shadow running, and rolls back. With [`VICTIM`]: is that process.
#[test]
fn a_shadow_does_not_outlive_its_agent_by_more_than_a_rollback() {
    needs!(apache_is_installed());
    if let Ok(order) = std::env::var(VICTIM) {
        let [state, file, port, pid] = order.split('|').collect::<Vec<_>>().try_into().unwrap();
        return agent(Path::new(state), file, port.parse().unwrap(), pid.parse().unwrap());
    }
    let fixture = Fixture::new("event", &[]);
    let before = logs_apart(fixture.picture());
    let (state, file) = (fixture.state.path().join("state"), fixture.server.path("conf-enabled/zzz.conf"));
    let pid = fixture.server.pid().unwrap();
    let test = "shadow::a_shadow_does_not_outlive_its_agent_by_more_than_a_rollback";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(VICTIM, format!("{}|{}|{}|{pid}", state.display(), file.display(), fixture.server.port));
    let output = command.output().unwrap();
    assert_eq!(output.status.signal(), Some(9), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!fixture.is_clear() && !processes_of(&state.join("shadow")).is_empty());
    let lines = rollback_with(&Tools::of_this_machine(StateDir::at(&state))).unwrap();
    assert!(lines.concat().contains("removed the shadow instance of /usr/sbin/apache2"), "{lines:?}");
    assert!(fixture.is_clear());
    assert_same(&logs_apart(fixture.picture()), &before);
    assert_eq!(fixture.server.pid(), Some(pid));
}

/// Applies a change, and kills itself as soon as it asks another port than the server's.
fn agent(state: &Path, file: &str, port: u16, pid: u32) {
    let this = rustix::process::Pid::from_raw(std::process::id().try_into().unwrap()).unwrap();
    let kill = move |address: SocketAddr| {
        if address.port() != port {
            rustix::process::kill_process(this, rustix::process::Signal::KILL).unwrap();
        }
    };
    let tools = Tools { system: Arc::new(Eventful(kill)), ..Tools::of_this_machine(StateDir::at(state)) };
    let mut changer = Changer::with(tools, Owner { tool: None, what: "webdyno tune".into() });
    let snapshot = tunable("apache").unwrap().snapshot(pid, port).unwrap();
    changer.apply(&plan(Path::new(file), "Timeout 7\n"), &snapshot, &ApplyOptions::default()).unwrap();
}

/// The server ends after its reload was seen, just when the site is looked at: it is started again with the original.
#[test]
fn a_server_that_ends_after_its_reload_is_started_again() {
    needs!(apache_is_installed());
    let mut fixture = Fixture::new("event", &[]);
    let (pid, file, port) =
        (fixture.server.pid().unwrap(), fixture.server.path("conf-enabled/zzz.conf"), fixture.server.port);
    let path = file.clone();
    let kill = move |address: SocketAddr| {
        let main = ProcessName::of(pid).filter(|_| address.port() == port && path.exists());
        if let Some(main) = main {
            webdyno_host::os::process::stop(main, main.led_group(), Duration::from_secs(5)).unwrap();
        }
    };
    let state = StateDir::at(fixture.state.path().join("state"));
    let tools = Tools { system: Arc::new(Eventful(kill)), ..Tools::of_this_machine(state) };
    fixture.changer = Changer::with(tools, Owner { tool: None, what: "webdyno tune".into() });
    let error = fixture.apply("conf-enabled/zzz.conf", "Timeout 7\n").unwrap_err();
    assert!(error.message.contains("not at all now (connection refused)"), "{error}");
    assert!(!error.hint.unwrap().contains("still"));
    assert!(!file.exists() && fixture.is_clear());
    assert_ne!(fixture.server.pid(), Some(pid));
    assert_eq!(fixture.server.snapshot().number("Timeout"), Some(30.0));
}
