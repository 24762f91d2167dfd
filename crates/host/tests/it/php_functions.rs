//! Functions of a real PHP, read from its memory: at work and waiting.

use crate::skip::skip;
use std::process::{Command, Stdio};
use webdyno_host::collectors::processes::php_functions::PhpFunctions;
use webdyno_host::collectors::{Collector, Reading, Target};

/// The parent waits, as those of PHP-FPM and Apache do; a child of its computes and calls itself one of a pool, another one sleeps.
const SCRIPT: &str = r#"<?php
class Shop {
    public static function prices() { cli_set_process_title('php-fpm: pool www'); echo "ready\n"; while (true) { md5(str_repeat('x', 20000)); } }
    public function nap() { $wait = function () { while (true) { usleep(50000); } }; $wait(); }
}
foreach (['nap', 'prices'] as $name) { if (pcntl_fork() == 0) { [new Shop, $name](); } }
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
    // As PHP-FPM when it is reloaded: another program in the same process.
    let mut php = command("setsid")
        .args(["sh", "-c", "read line; exec php -d opcache.enable_cli=0 \"$0\""])
        .arg(page)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut collector = PhpFunctions::default();
    let target = Target { service_pid: Some(php.id()), ..Target::default() };
    let before = collector.read(&target);
    std::io::Write::write_all(&mut php.stdin.take().unwrap(), b"go\n").unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(php.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let found = (0..20).map(|_| collector.read(&target)).find(|reading| *reading != before);
    // It leads a group of its own: with its children.
    let group = rustix::process::Pid::from_child(&php);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    php.wait().unwrap();
    let reading = found.unwrap();
    assert_eq!(before, Reading::default());
    if !reading.missing.is_empty() && !rustix::process::geteuid().is_root() {
        return skip("the memory of PHP is not for us: run as root");
    }
    let sum = |end: &str, begin: &str| -> f64 {
        let is = |name: &&(String, f64)| {
            name.0.ends_with(end) && name.0.starts_with(&format!("php_functions.{begin}"))
        };
        reading.values.iter().filter(is).map(|(_, value)| value).sum()
    };
    let computing = sum("", "www/Shop::prices");
    let asleep = sum(".waiting_count", "Shop::{closure}@page.php;usleep");
    assert!(computing >= 10.0 && asleep >= 10.0, "{reading:?}");
    assert!(sum(".running_count", "www/Shop::prices") >= 0.5 * computing, "{reading:?}");
    assert_eq!(sum("samples_count", ""), sum("ing_count", ""), "{reading:?}");
}
