//! Whatever is killed, and whenever, an agent elsewhere puts everything back, ends, and leaves nothing.

use super::sshd::{Sshd, processes, program as script, read};
use super::{can_run, exec, program};
use crate::skip::needs;
use crate::support::{Apache, Place, Server, shared_turn, signal, wait_until};
use rustix::process::Signal;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use webdyno_host::agent::{AgentClient, ServerAddress, Start};

/// An end of a connection is seen at once; that nothing comes any more, after ten seconds.
const AT_ONCE: Duration = Duration::from_secs(9);
const STALLED: Duration = Duration::from_secs(40);

/// A tool that observes over ssh.
fn tool(place: &Place, sshd: &Sshd, port: u16) -> Child {
    Command::new(program())
        .args([
            "diagnose",
            "--for",
            "100s",
            "--server",
            "ssh://web1",
            "-q",
            "--out",
            "run",
            "--port",
            &port.to_string(),
        ])
        .env("WEBDYNO_STATE", place.path("state"))
        .env("PATH", sshd.search_path())
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The ssh that goes there.
fn ssh(sshd: &Sshd) -> Vec<u32> {
    let mark = format!("/usr/bin/ssh\0-F\0{}", sshd.path("config").display());
    processes().filter(|pid| read(*pid, "cmdline").starts_with(&mark)).collect()
}

#[test]
fn nothing_stays_whoever_is_killed() {
    let _turn = shared_turn();
    needs!(can_run());
    let (place, site) = (Place::new(), Server::answering("hi"));
    let mut slowest = vec![];
    for whom in ["tool", "ssh", "agent", "sshd"] {
        let sshd = Sshd::start();
        let mut tool = tool(&place, &sshd, site.port);
        assert!(wait_until(Duration::from_secs(30), || !sshd.agents().is_empty()), "{whom}: no agent");
        let entries = std::fs::read_dir(sshd.path("tmp")).unwrap().count();
        assert_eq!(entries, 0, "the program has no name while it runs");
        let begun = Instant::now();
        match whom {
            "tool" => tool.kill().unwrap(),
            "ssh" => ssh(&sshd).into_iter().for_each(|pid| signal(pid, Signal::KILL)),
            "agent" => sshd.agents().into_iter().for_each(|pid| signal(pid, Signal::KILL)),
            // What serves the connection: the parent of the agent.
            _ => sshd.agents().into_iter().for_each(|pid| {
                let status = read(pid, "status");
                let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap();
                signal(parent.parse().unwrap(), Signal::KILL);
            }),
        }
        // A tool that lives would connect again: it is ended before it does.
        let agents = sshd.agents();
        assert!(wait_until(AT_ONCE, || agents.iter().all(|pid| read(*pid, "cmdline").is_empty())), "{whom}");
        slowest.push((begun.elapsed(), whom));
        let _ = tool.kill();
        tool.wait().unwrap();
        assert!(wait_until(AT_ONCE, || sshd.is_clean()), "{whom}: {:?}", sshd.there());
    }
    eprintln!("ended after: {slowest:?}");
}

/// While the program is copied there is no agent yet that could look after anything.
#[test]
fn nothing_stays_of_a_copy_that_was_cut_off() {
    let _turn = shared_turn();
    needs!(can_run());
    let (place, site) = (Place::new(), Server::answering("hi"));
    std::thread::scope(|scope| {
        for (whom, at_most) in [("tool", AT_ONCE), ("ssh", AT_ONCE), ("head", AT_ONCE), ("nobody", STALLED)] {
            let (place, port) = (&place, site.port);
            scope.spawn(move || {
                let sshd = Sshd::start();
                // The script and a part of the program, then nothing more: without an end, as of a connection that is lost.
                let config = sshd.path("config").display().to_string();
                let stalls =
                    format!("{{ dd bs=1 count=100000 status=none; exec sleep 60; }} | exec /usr/bin/ssh -F {config} \"$@\"");
                script(&sshd.path("bin/ssh"), &stalls);
                let mut tool = tool(place, &sshd, port);
                let head = || {
                    sshd.there()
                        .into_iter()
                        .find(|(_, line)| line.starts_with("head\0-c"))
                        .map(|(pid, _)| pid)
                };
                assert!(
                    wait_until(Duration::from_secs(30), || head().is_some()),
                    "{whom}: {:?}",
                    sshd.there()
                );
                assert!(std::fs::read_dir(sshd.path("tmp")).unwrap().next().is_none(), "it has no name");
                let begun = Instant::now();
                match whom {
                    "tool" => {
                        let children = crate::support::children(tool.id());
                        tool.kill().unwrap();
                        // What pretends the loss must not hold the connection open any more.
                        children.into_iter().for_each(end_group);
                    }
                    "ssh" => ssh(&sshd).into_iter().for_each(|pid| signal(pid, Signal::KILL)),
                    "head" => signal(head().unwrap(), Signal::KILL),
                    _ => {}
                }
                let is_gone = || !sshd.there().iter().any(|(_, line)| !line.starts_with("sleep\0"));
                assert!(wait_until(at_most, is_gone), "{whom}: {:?}", sshd.there());
                eprintln!("{whom}: gone after {:?}", begun.elapsed());
                let children = crate::support::children(tool.id());
                let _ = tool.kill();
                tool.wait().unwrap();
                children.into_iter().for_each(end_group);
                // The watch's own sleep of 10 s may be left.
                assert!(
                    wait_until(Duration::from_secs(15), || sshd.is_clean()),
                    "{whom}: {:?}",
                    sshd.there()
                );
            });
        }
    });
}

fn end_group(leader: u32) {
    let leader = rustix::process::Pid::from_raw(leader as i32).unwrap();
    let _ = rustix::process::kill_process_group(leader, Signal::KILL);
}

/// The guardian is at the server: when its connection dies it puts everything back.
#[test]
fn a_change_is_put_back_when_the_connection_dies() {
    let _turn = shared_turn();
    needs!(can_run());
    needs!(std::path::Path::new("/usr/sbin/apache2").exists(), "needs apache2-bin");
    let (place, sshd) = (Place::new(), Sshd::start());
    let apache = Apache::start(&place.path("server"), 20);
    let before = apache.configuration();
    let command =
        format!("{} env WEBDYNO_STATE={} webdyno agent", sshd.login(), place.path("state").display());
    drop(exec(&command).unwrap());
    let address = ServerAddress::parse(&format!("exec:{command}")).unwrap();
    let client = AgentClient::start(&Start::at(address, program())).unwrap();
    apache.raise_limit(&client);
    assert!(apache.configuration() != before && apache.has_limit(30));
    let begun = Instant::now();
    ssh(&sshd).into_iter().for_each(|pid| signal(pid, Signal::KILL));
    assert!(wait_until(Duration::from_secs(30), || apache.configuration() == before && apache.has_limit(20)));
    eprintln!("put back after {:?}", begun.elapsed());
    assert!(wait_until(Duration::from_secs(30), || sshd.is_clean()), "{:?}", sshd.there());
    assert!(client.keep().unwrap_err().message.contains("the agent ended unexpectedly"));
}

/// When the guardian is killed, too, nothing of ours is there any more; a rollback brings itself along.
#[test]
fn a_rollback_reaches_a_server_without_our_program() {
    let _turn = shared_turn();
    needs!(can_run());
    needs!(std::path::Path::new("/usr/sbin/apache2").exists(), "needs apache2-bin");
    let (place, sshd) = (Place::new(), Sshd::start());
    let apache = Apache::start(&place.path("server"), 20);
    let before = apache.configuration();
    let command =
        format!("exec:{} env WEBDYNO_STATE={} webdyno agent", sshd.login(), place.path("there").display());
    drop(exec("webdyno agent").unwrap());
    let client = AgentClient::start(&Start::at(ServerAddress::parse(&command).unwrap(), program())).unwrap();
    apache.raise_limit(&client);
    sshd.agents().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    assert!(wait_until(AT_ONCE, || sshd.agents().is_empty()) && apache.configuration() != before);
    let rollback = || {
        let mut command_line = place.webdyno();
        command_line.args(["rollback", "--server", &command]);
        crate::support::run(&mut command_line).with_code(0).stdout
    };
    let reported = rollback();
    assert!(reported.contains("reloaded apache"), "{reported}");
    assert!(apache.configuration() == before && apache.has_limit(20));
    assert!(rollback().starts_with("Nothing to roll back"));
    assert!(wait_until(AT_ONCE, || sshd.is_clean()), "{:?}", sshd.there());
}
