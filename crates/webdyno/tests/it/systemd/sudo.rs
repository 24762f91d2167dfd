//! A machine that lets its tuner in by ssh and sudo, with the very file of docs/sudoers and nothing else.
//!
//! Facts: sudoers(5), with `use_pty` as Debian's own file sets it; sshd(8).

use super::machine::{Machine, PROGRAM, can_boot};
use super::{WORKERS, assert_restored, assert_workers, change, tune_and_roll_back};
use crate::skip::needs;
use crate::support::{shared_turn, turn, wait_until};
use std::path::Path;
use std::time::Duration;
use webdyno_host::agent::{AgentClient, ServerAddress, Start};
use webdyno_model::change::{ApplyClass, ApplyOptions, Preparation, SettingChange};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const SUDOERS: &str = include_str!("../../../../../docs/sudoers");

/// `alice` may log in as `tuner`, which is in the group of the file.
const USERS: &str = "set -e
useradd -m alice && useradd -m -s /bin/bash tuner
groupadd --system webdyno && usermod --append --groups webdyno tuner
install -d -o alice -m 700 /home/alice/.ssh && install -d -o tuner -m 700 /home/tuner/.ssh
ssh-keygen -q -t ed25519 -N '' -f /home/alice/.ssh/id_ed25519
install -o tuner -m 600 /home/alice/.ssh/id_ed25519.pub /home/tuner/.ssh/authorized_keys
echo \"127.0.0.1 $(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)\" >/home/alice/.ssh/known_hosts
chown -R alice: /home/alice/.ssh
install -o root -g root -m 440 /root/sudoers /etc/sudoers.d/webdyno && visudo -c
";

fn let_in() -> Machine {
    let machine = Machine::boot_with(&[("/root/sudoers", SUDOERS)]);
    machine.shell(USERS);
    machine
}

/// The agent that `--server ssh://tuner@127.0.0.1 --sudo` comes to: here the words that get to the machine stand before.
fn agent(machine: &Machine) -> AgentClient {
    webdyno_host::agent::name_build(env!("WEBDYNO_BUILD"));
    let login = "runuser -u alice -- ssh -oBatchMode=yes tuner@127.0.0.1 webdyno agent";
    let address = ServerAddress::parse(&format!("exec:{} {login}", machine.entrance())).unwrap();
    // What is copied where a shell is to be had, and is no agent.
    let copied = Path::new("/bin/true");
    AgentClient::start(&Start { sudo: true, ..Start::at(address, copied) }).unwrap()
}

/// `webdyno` as alice types it on another machine.
fn operate(machine: &Machine, words: &str) -> (i32, String) {
    let line = format!(
        "cd /home/alice && runuser -u alice -- {PROGRAM} {words} --server ssh://tuner@127.0.0.1 --sudo"
    );
    machine.typed(&line)
}

#[test]
fn sudo_permits_what_tuning_takes_and_nothing_else() {
    let _turn = shared_turn();
    needs!(can_boot());
    let machine = let_in();
    for refused in
        ["sh", "webdyno agent", "webdyno tune", "webdyno rollback --server local", "cat /etc/shadow"]
    {
        let (code, printed) = machine.typed(&format!("runuser -u tuner -- sudo -n {refused}"));
        assert!(code == 1 && printed.contains("a password is required"), "{refused}: {printed}");
    }
    let (before, first) = (machine.configuration(), machine.unit("apache2"));
    let (code, printed) = operate(&machine, "check --port 80");
    assert!(code == 0 && printed.contains("apache workers"), "{printed}");
    let client = agent(&machine);
    assert_eq!(change(&client, &[WORKERS], 20), ApplyClass::Reload);
    assert_workers(&machine, 20);
    assert_eq!(machine.unit("apache2").reloads, first.reloads + 1);
    client.close().unwrap();
    assert_restored(&machine, &before);
    let journal = machine.shell("journalctl -b -q -o cat --no-pager _COMM=sudo");
    assert!(journal.contains("COMMAND=/usr/local/bin/webdyno agent --settings-only"), "{journal}");
}

#[test]
fn a_tuning_by_ssh_and_sudo_is_kept_and_rolled_back() {
    let _turn = turn();
    needs!(can_boot());
    let machine = let_in();
    tune_and_roll_back(&machine, |words| operate(&machine, words));
}

/// The connection is lost while a change is tried out: sudo stands between the guardian and it.
#[test]
fn a_guardian_behind_sudo_outlives_its_connection() {
    let _turn = shared_turn();
    needs!(can_boot());
    let machine = let_in();
    let before = machine.configuration();
    let client = agent(&machine);
    change(&client, &[WORKERS], 20);
    assert_workers(&machine, 20);
    // Its end may be that of the other one already.
    machine.typed("pkill -KILL -u tuner sshd; pkill -KILL -u alice ssh");
    let is_over = || machine.typed("pgrep -f '[w]ebdyno agent'").0 == 1;
    assert!(wait_until(Duration::from_secs(40), is_over));
    assert_restored(&machine, &before);
    drop(client);
}

/// Who may run that agent must not become root by it.
#[test]
fn an_agent_for_settings_runs_and_writes_nothing_that_it_is_given() {
    let _turn = shared_turn();
    needs!(can_boot());
    let machine = let_in();
    let before = machine.configuration();
    let client = agent(&machine);
    let command = ["touch", "/etc/owned"].map(str::to_owned);
    let error = client.launch(&command, Path::new("/run/x.pid"), 8000).unwrap_err();
    assert!(error.message.contains("it starts no program"), "{error}");
    client.discover(80).unwrap();
    let wanted =
        SettingChange { setting: SettingId::of_service("apache", WORKERS), to: SettingValue::Integer(20) };
    let mut plan = client.prepare(&[wanted]).and_then(Preparation::into_plan).unwrap();
    plan.files[0].path = "/etc/cron.d/owned".into();
    let error = client.apply(&plan, &ApplyOptions::default()).unwrap_err();
    assert!(error.message.contains("it writes only what it has prepared itself"), "{error}");
    client.close().unwrap();
    assert_restored(&machine, &before);
}
