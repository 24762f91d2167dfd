//! The collector without a php-fpm: which pools there are, and what is told of those that do not answer.

use super::*;
use crate::collectors::Collector;
use std::sync::Arc;
use webdyno_model::service::{ScopedSetting, SettingScope};

fn fpm(pid: u32, pools: &[&str]) -> ServiceSnapshot {
    let endpoint = |name: &&str| Endpoint {
        name: (*name).to_owned(),
        address: format!("unix:/no/such/{name}.sock"),
        path: Some("/status".into()),
    };
    ServiceSnapshot {
        service: "php_fpm".into(),
        pid,
        endpoints: pools.iter().map(endpoint).collect(),
        ..ServiceSnapshot::default()
    }
}

fn target(backends: Vec<ServiceSnapshot>) -> Target {
    Target { backends: backends.into(), ..Target::default() }
}

#[test]
fn pools_of_one_name_are_told_apart() {
    let target = target(vec![fpm(1, &["www", "shop"]), fpm(2, &["www"])]);
    let instances: Vec<_> = pools(&target).into_iter().map(|(_, _, instance)| instance).collect();
    assert_eq!(instances, ["www@1", "shop", "www@2"]);
    let front = Target { service: Some(Arc::new(fpm(1, &["www"]))), ..Target::default() };
    assert_eq!(pools(&front).len(), 1);
}

#[test]
fn settings_are_those_of_the_pool() {
    let scoped = |pool: &str, value: &str| ScopedSetting {
        setting: "chroot".into(),
        value: value.into(),
        scope: vec![SettingScope::Pool(pool.to_owned())],
        ..ScopedSetting::default()
    };
    let snapshot =
        ServiceSnapshot { scoped: vec![scoped("a", ""), scoped("b", "/srv")], ..fpm(1, &["a", "b"]) };
    assert_eq!(pool_value(&snapshot, "b", "chroot"), Some("/srv"));
    assert_eq!(pool_value(&snapshot, "a", "chroot"), None, "empty is not set");
}

// What cannot be had is missing with its reason, and nothing is zero for it.
#[test]
fn without_an_fpm_nothing_is_told() {
    let reading = PhpFpm::default().read(&Target::default());
    assert_eq!((reading.values, reading.error), (vec![], None));
    assert!(reading.missing[0].why.contains("no PHP-FPM was found"));
}

#[test]
fn of_many_pools_some_are_left_out_and_that_is_said() {
    let names: Vec<String> = (0..20).map(|n| format!("p{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // A process without children.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let reading = PhpFpm::default().read(&target(vec![fpm(child.id(), &names)]));
    child.kill().unwrap();
    child.wait().unwrap();
    let counts = reading.values.iter().filter(|(name, _)| name.ends_with(".processes_count"));
    assert_eq!(counts.count(), POOLS_MAX);
    assert!(
        reading.missing.iter().any(|missing| missing.why.starts_with("of 20 pools those 8")),
        "{reading:?}"
    );
    assert!(reading.error.unwrap().contains("the pool p00 cannot be asked: nobody listens there"));
    assert!(!reading.values.iter().any(|(name, _)| name.contains("queue")));
}
