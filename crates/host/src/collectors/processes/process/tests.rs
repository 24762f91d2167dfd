//! Times that are taken off each other, and real processes.

use super::*;

fn target(service_pid: Option<u32>, client_pid: Option<u32>) -> Target {
    Target { service_pid, client_pid, ..Target::default() }
}

#[test]
fn foreign_time_is_told_only_when_what_is_taken_off_is_known() {
    let times =
        CpuTimes { machine_ns: Some(10 * NS_PER_S), service_ns: Some((1, 3 * NS_PER_S)), client_ns: None };
    for (client_pid, expected) in [(None, Some(7.0)), (Some(5), None)] {
        let mut reading = Reading::default();
        Process::default().cpu_values(&target(Some(4), client_pid), times, &mut reading);
        assert_eq!(reading.value("process.foreign_cpu_s"), expected);
        assert_eq!(reading.value("process.cpu_s"), Some(3.0));
        assert_eq!(reading.value("process.client_cpu_s"), None);
    }
}

/// Readings of machine and service as `(machine_s, (identity, service_s))`; the last values of the service's
/// counter and the foreign one, which never fall on the way.
fn check(readings: &[(f64, (u64, f64))], expected: (f64, f64)) {
    let mut process = Process::default();
    let mut last = (0.0, 0.0);
    let ns = |seconds: f64| (seconds * NS_PER_S as f64).round() as u64;
    for &(machine_s, (identity, service_s)) in readings {
        let service_ns = Some((identity, ns(service_s)));
        let times = CpuTimes { machine_ns: Some(ns(machine_s)), service_ns, client_ns: None };
        let mut reading = Reading::default();
        process.cpu_values(&target(Some(4), None), times, &mut reading);
        let now = (reading.value("process.cpu_s").unwrap(), reading.value("process.foreign_cpu_s").unwrap());
        assert!(now.0 >= last.0 && now.1 >= last.1, "{now:?} after {last:?}");
        last = now;
    }
    assert_eq!(last, expected, "{readings:?}");
}

#[test]
fn counters_survive_a_restart_of_the_service() {
    // A restarted service starts from nothing: 3 s of the new one, and 5 + 7 s of others after the first 50.
    let restarted = [(100.0, (1, 50.0)), (110.0, (1, 55.0)), (120.0, (2, 1.0)), (130.0, (2, 4.0))];
    check(&restarted, (58.0, 62.0));
}

#[test]
fn foreign_time_stands_still_while_ticks_lag_behind_nanoseconds() {
    check(&[(100.0, (1, 50.0)), (100.0, (1, 50.009)), (100.01, (1, 50.009))], (50.009, 50.001));
    check(&[(1.0, (1, 3.0)), (2.0, (1, 4.0))], (4.0, 0.0));
    // A machine that counts less for good: what comes on top later is seen at once.
    let less = [(100.0, (1, 50.0)), (101.0, (1, 52.0)), (102.0, (1, 54.0)), (103.0, (1, 56.0))];
    check(&[&less[..], &[(104.0, (1, 56.0))]].concat(), (56.0, 51.0));
}

#[test]
fn a_vanished_service_is_named() {
    let reading = Process::default().read(&target(Some(u32::MAX), None));
    assert_eq!(reading.values, vec![]);
    assert_eq!(reading.error.unwrap(), format!("the service's main process {} is gone", u32::MAX));
}

#[test]
fn a_process_can_be_read() {
    // Not this one: it has the children of other tests, which come and go.
    let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let reading = Process::default().read(&target(Some(process.id()), Some(std::process::id())));
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(reading.value("process.count").unwrap() >= 1.0);
    assert!(reading.value("process.open_files_max_count").unwrap() >= 3.0);
    assert_eq!(reading.error, None);
}

/// A shell with 50 children that each burn some 5 ms and then wait for their input to end.
const BURNERS: &str = "exec 3<&0; n=0; while [ $n -lt 50 ]; do \
    (i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; echo; read -r _ <&3) & n=$((n+1)); done; \
    exec 3<&-; wait; echo; exec sleep 60";

/// What many processes used below a tick each is seen while they live: by the counter, and by the command that
/// stands beside it. When they have ended, their parent's ticks tell the truth.
#[test]
fn small_times_of_many_processes_are_seen() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let mut shell = Command::new("sh")
        .args(["-c", BURNERS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let burnt = lines.by_ref().take(50).filter(Result::is_ok).count();
    let mut process = Process::default();
    let pid = shell.id();
    let mut cpu_s = || process.read(&target(Some(pid), None)).value("process.cpu_s");
    let alive_s = cpu_s();
    let command = process_metric("process.cpu_s").reproduce.replace("PID", &shell.id().to_string());
    let by_hand = Command::new("sh").args(["-c", &command]).output().unwrap().stdout;
    drop(shell.stdin.take());
    let waited = lines.next().is_some_and(|line| line.is_ok());
    let ended_s = procfs::stat(shell.id()).map(|stat| ns_of(stat.reaped_cpu_ticks) as f64 / 1e9);
    let all_s = cpu_s();
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert!(burnt == 50 && waited);
    let (alive_s, ended_s, all_s) = (alive_s.unwrap(), ended_s.unwrap(), all_s.unwrap());
    assert!(ended_s > 0.05, "the children used {ended_s} s: too little to tell");
    assert!(alive_s >= 0.6 * ended_s, "{alive_s} s of {ended_s} s were seen");
    assert!(all_s >= alive_s);
    let by_hand: f64 = String::from_utf8(by_hand).unwrap().trim().parse().unwrap();
    assert!((by_hand - alive_s).abs() <= 0.1 * alive_s, "`{command}` shows {by_hand}, not {alive_s}");
}

fn process_metric(name: &str) -> Metric {
    Process::default().metrics().into_iter().find(|metric| metric.name == name).unwrap()
}
