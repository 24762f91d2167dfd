//! Texts of several kernels, and this machine.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use webdyno_model::service::{LogFile, ServiceSnapshot};

/// Linux 6.18, with disks of other machines.
const MODERN: &str = "\
   7       0 loop0 5 0 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 9968054 206409 428697690 13173212 1236609 1757847 911753464 2687567 3 687260 16183799 1651656 76 817816280 308797 165494 14221
 254       1 vda1 100 0 800 5 0 0 0 0 0 4 5 0 0 0 0 0 0
 253       0 dm-0 40 0 320 8 10 0 80 2 0 9 10 0 0 0 0 0 0
   9       0 md0 40 0 320 8 10 0 80 2 0 9 10 0 0 0 0 0 0
 259       0 nvme0n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
";
/// Linux 3.10: no discards and flushes.
const OLD: &str = "   8       0 sda 100 3 800 50 20 5 160 30 0 40 80\n";

fn read(text: &str, logs: &[(&str, u64)]) -> Reading {
    let mut reading = Reading::default();
    let logs = logs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Disks::default().values(text, &logs, |name| name != "vda1", &mut reading);
    reading
}

#[test]
fn disks_are_told_in_bytes_and_seconds() {
    let reading = read(MODERN, &[("vda", 2)]);
    for (name, expected) in [
        ("disk.vda.reads_count", Some(9_968_054.0)),
        ("disk.vda.read_bytes", Some(428_697_690.0 * 512.0)),
        ("disk.vda.reading_s", Some(13_173.212)),
        ("disk.vda.written_bytes", Some(911_753_464.0 * 512.0)),
        ("disk.vda.in_flight_count", Some(3.0)),
        ("disk.vda.busy_s", Some(687.26)),
        ("disk.vda.waiting_s", Some(16_183.799)),
        ("disk.vda.flushes_count", Some(165_494.0)),
        ("disk.vda.logs_count", Some(2.0)),
        ("disk.dm-0.reads_count", Some(40.0)),
        ("disk.md0.reads_count", Some(40.0)),
        ("disk.dm-0.logs_count", None),
    ] {
        assert_eq!(reading.value(name), expected, "{name}");
    }
    let message =
        |disk: &str| reading.values.iter().any(|(name, _)| name.starts_with(&format!("disk.{disk}.")));
    assert!(!message("loop0") && !message("vda1") && !message("nvme0n1"), "{reading:?}");
    let old = read(OLD, &[]);
    assert_eq!((old.value("disk.sda.busy_s"), old.value("disk.sda.flushes_count")), (Some(0.04), None));
}

#[test]
fn a_disk_that_was_told_stays_and_too_many_are_said() {
    let line = |disk: usize, reads: usize| format!("8 {disk} sd{disk} {reads} 0 8 1 0 0 0 0 0 1 1\n");
    let mut disks = Disks::default();
    let mut message = |text: &str| {
        let mut reading = Reading::default();
        disks.values(text, &BTreeMap::from([("sd19".to_owned(), 1)]), |_| true, &mut reading);
        (disks.shown.clone(), reading.missing.len())
    };
    let first: String = (0..20).map(|disk| line(disk, 100 - disk)).collect();
    let (shown, missing) = message(&first);
    assert!(
        shown.len() == DISKS_MAX && missing == 1 && shown.contains("sd19"),
        "the one with the log is told"
    );
    let second: String = (0..20).map(|disk| line(disk, 100 + disk)).collect();
    assert_eq!(message(&second).0, shown);
    let (shown, missing) = message(&line(3, 5));
    assert_eq!((shown, missing), (BTreeSet::from(["sd3".to_owned()]), 0));
}

#[test]
fn names_that_are_left_out() {
    for (name, expected) in [
        ("loop12", true),
        ("ram0", true),
        ("sr0", true),
        ("sda", false),
        ("ramdisk", false),
        ("zram0", false),
    ] {
        assert_eq!(is_left_out(name), expected, "{name}");
    }
}

// The commands show what was read: counters may have risen meanwhile.
#[test]
fn this_machine_is_read_and_the_commands_agree() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    std::fs::write(&log, "a line\n").unwrap();
    let logs = vec![LogFile { path: log.display().to_string(), ..LogFile::default() }];
    let service = ServiceSnapshot { pid: std::process::id(), logs, ..ServiceSnapshot::default() };
    let target = Target { service: Some(Arc::new(service)), ..Target::default() };
    let mut disks = Disks::default();
    let reading = disks.read(&target);
    if disks.shown.is_empty() {
        eprintln!("SKIPPED: this machine shows no disk");
        return;
    }
    // Each log is on a disk, or it is said that its disk is not known.
    let with_logs = reading.values.iter().filter(|(name, _)| name.ends_with(".logs_count")).count();
    assert_eq!(
        with_logs == 0,
        reading.missing.iter().any(|missing| missing.signal == "disk.*.logs"),
        "{reading:?}"
    );
    for metric in disks.metrics().iter().filter(|metric| !metric.name.contains("logs")) {
        let (name, value) = reading.values.iter().find(|(name, _)| metric.describes(name)).unwrap();
        let command = metric.reproduce.replace("INSTANCE", metric.instance(name).unwrap());
        let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap().stdout;
        let shown: f64 = String::from_utf8(output).unwrap().trim().parse().unwrap();
        let level = name.ends_with("in_flight_count");
        assert!(
            level || shown >= *value && shown <= value * 1.1 + 1e9,
            "`{command}` shows {shown}, not {value}"
        );
    }
}

proptest! {
    // A torn or strange file gives fewer disks, never a panic.
    #[test]
    fn any_text_is_survived(cut in 0..MODERN.len(), noise in "[a-z0-9 -]{0,60}") {
        read(&format!("{noise}\n{}{noise}", &MODERN[..cut]), &[]);
    }
}
