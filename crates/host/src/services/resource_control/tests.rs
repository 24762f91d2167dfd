//! What a control group of version 2 shows, in a folder; and what is refused.

use super::memory::{self, MemoryLimit};
use super::processors::{self, AllowedProcessors};
use super::*;
use std::fs;
use std::process::{Child, Command};

fn service(pid: u32) -> ServiceSnapshot {
    ServiceSnapshot { service: "apache".into(), pid, ..ServiceSnapshot::default() }
}

fn change(name: &str, to: SettingValue) -> SettingChange {
    SettingChange { setting: webdyno_model::setting::SettingId::of_service("apache", name), to }
}

/// A process that ends with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("60").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_values_of_a_group_are_replaced_and_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    for (name, text) in [("cpuset.cpus", "\n"), ("memory.max", "max\n")] {
        fs::write(file(name), text).unwrap();
    }
    let cpus = AllowedProcessors::Group(folder.path().to_owned());
    let limit = MemoryLimit { file: file("memory.max"), moved: None };
    let shown = |name: &str| fs::read_to_string(file(name)).unwrap();
    assert_eq!(cpus.read(processors::SETTING).unwrap().as_deref(), Some("inherited"));
    cpus.write(processors::SETTING, "0,1,2").unwrap();
    assert!(shown("cpuset.cpus").starts_with("0-2"));
    cpus.write(processors::SETTING, "inherited").unwrap();
    assert!(shown("cpuset.cpus").starts_with('\n'), "{:?}", shown("cpuset.cpus"));
    assert_eq!(limit.read(memory::SETTING).unwrap().as_deref(), Some("max"));
    limit.write(memory::SETTING, "1048576").unwrap();
    assert_eq!(limit.read(memory::SETTING).unwrap().as_deref(), Some("1048576"));
    for wrong in ["", "-1", "much"] {
        assert!(
            limit.write(memory::SETTING, wrong).is_err() && cpus.write(processors::SETTING, wrong).is_err()
        );
    }
    assert!(limit.read("TasksMax").is_err() && cpus.read("TasksMax").is_err());
    drop(folder);
    assert_eq!((limit.read(memory::SETTING).unwrap(), cpus.read(processors::SETTING).unwrap()), (None, None));
    assert!(limit.write(memory::SETTING, "4096").is_err(), "never a new file");
}

#[test]
fn what_cannot_be_is_refused_with_its_bounds() {
    let sleeper = Sleeper::start();
    let service = service(sleeper.0.id());
    for (name, to, why, hint) in [
        ("AllowedCPUs", "0", "AllowedCPUs (cpus) cannot be `0`", "a whole number from 1 to "),
        ("AllowedCPUs", "70000", "cannot be `70000`", "may use the processors 0"),
        ("AllowedCPUs", "0-1", "cannot be `0-1`", "a whole number"),
        ("MemoryMax", "1M", "MemoryMax (memory) of apache cannot be `1M`", "a size from 32."),
        ("MemoryMax", "900T", "cannot be `900T`", "that cannot be dropped"),
        ("MemoryMax", "much", "cannot be `much`", "as 512M"),
    ] {
        let (preparation, holders) = prepare(&service, &[change(name, SettingValue::parse(to))]).unwrap();
        let error = preparation.into_plan().unwrap_err();
        let shown_hint = error.hint.unwrap_or_default();
        assert!(error.message.contains(why) && shown_hint.contains(hint), "{}: {shown_hint}", error.message);
        assert!(holders.is_empty());
    }
}

#[test]
fn values_in_force_are_left_out_and_both_go_together() {
    let sleeper = Sleeper::start();
    let mut service = service(sleeper.0.id());
    note(&mut service);
    let cpus = service.settings["AllowedCPUs"].clone();
    let [now, most] = [cpus.running.unwrap(), cpus.default.unwrap()];
    assert!(now.number() >= Some(1.0) && now.number() <= most.number());
    let (preparation, holders) = prepare(&service, &[change("AllowedCPUs", now)]).unwrap();
    assert!(matches!(preparation, Preparation::Plan(plan) if plan.changes.is_empty()) && holders.len() == 1);
    if most.number() < Some(2.0) || !rustix::process::geteuid().is_root() {
        return;
    }
    let wanted = [
        change("AllowedCPUs", SettingValue::Integer(1)),
        change("MemoryMax", SettingValue::Text("512M".into())),
    ];
    let (preparation, holders) = prepare(&service, &wanted).unwrap();
    let plan = preparation.into_plan().unwrap();
    assert_eq!((plan.changes.len(), holders.len(), plan.class), (2, 2, ApplyClass::Live));
    assert_eq!(plan.changes[1].to, SettingValue::Text("536870912".into()));
    let mixed = [wanted[0].clone(), change("TasksMax", SettingValue::Integer(99))];
    assert!(prepare(&service, &mixed).unwrap().0.into_plan().is_err());
}
