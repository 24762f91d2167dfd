//! Functions of a real PHP, read from its memory: at work and waiting.

use crate::skip::skip;
use std::process::{Command, Stdio};
use webdyno_host::collectors::processes::php_functions::PhpFunctions;
use webdyno_host::collectors::{Collector, Target};

/// The parent waits, as those of PHP-FPM and Apache do; a child of its computes, another one sleeps.
const SCRIPT: &str = r#"<?php
class Shop {
    public static function prices() { while (true) { md5(str_repeat('x', 20000)); } }
    public function nap() { $wait = function () { while (true) { usleep(50000); } }; $wait(); }
}
foreach (['prices', 'nap'] as $name) { if (pcntl_fork() == 0) { [new Shop, $name](); } }
echo "ready\n";
sleep(60);
"#;

#[test]
fn what_php_computes_and_waits_in_is_told_by_function() {
    let command = |program: &str| Command::new(program);
    let asked = command("php").args(["-r", "exit((int) !function_exists('pcntl_fork'));"]).output();
    if !asked.is_ok_and(|output| output.status.success()) {
        return skip("php with pcntl is missing: apt-get install php-cli");
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.php");
    std::fs::write(&page, SCRIPT).unwrap();
    let mut php = command("setsid")
        .args(["php", "-d", "opcache.enable_cli=0"])
        .arg(page)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(php.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let target = Target { service_pid: Some(php.id()), ..Target::default() };
    let reading = PhpFunctions::default().read(&target);
    // It leads a group of its own: with its children.
    let group = rustix::process::Pid::from_child(&php);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    php.wait().unwrap();
    if !reading.missing.is_empty() && !rustix::process::geteuid().is_root() {
        return skip("the memory of PHP is not for us: run as root");
    }
    let sum = |end: &str, begin: &str| -> f64 {
        let is = |name: &&(String, f64)| {
            name.0.ends_with(end) && name.0.starts_with(&format!("php_functions.{begin}"))
        };
        reading.values.iter().filter(is).map(|(_, value)| value).sum()
    };
    let computing = sum("", "Shop::prices");
    let asleep = sum(".waiting_count", "Shop::{closure}@page.php;usleep");
    assert!(computing >= 10.0 && asleep >= 10.0, "{reading:?}");
    assert!(sum(".running_count", "Shop::prices") >= 0.5 * computing, "{reading:?}");
    assert_eq!(sum("samples_count", ""), sum("ing_count", ""), "{reading:?}");
}
