//! What holds of every server that is drawn.

use super::*;
use crate::scenario::Catalogue;

const SEEDS: std::ops::Range<u64> = 0..500;

fn drawn(seed: u64) -> DrawnServer {
    draw(Seed { seed, attempt: 0 })
}

#[test]
fn every_seed_gives_a_scenario_that_is_complete() {
    for seed in SEEDS {
        let name = Seed { seed, attempt: 0 }.name();
        let folder = Catalogue::BuiltIn.open(&name).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let rounds = &folder.scenario.rounds;
        let faults = drawn(seed).faults.len();
        assert_eq!(rounds.len(), [1, 2, 4][faults], "{name}");
        // Each state differs from the one before, and no site is filled anew.
        for round in &rounds[1..] {
            assert!(round.changes(), "{name}: {}", round.name);
            assert!(
                round.by_hand.iter().all(|line| !line.contains("fill.pl")),
                "{name}: {:?}",
                round.by_hand
            );
            assert!(round.by_hand.iter().all(|line| line.len() < 100_000), "{name}");
            // The shell of the hosts is dash, whose kill takes no `--`: programs would stay, and with them the faults.
            let all = round.by_hand.iter().chain(round.by_hand_on.values().flatten());
            assert!(
                all.into_iter().all(|line| !line.contains("kill -TERM -- ")),
                "{name}: {:?}",
                round.by_hand
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_server_and_others_give_others() {
    let mut seen = BTreeMap::new();
    for seed in SEEDS {
        let server = drawn(seed);
        assert_eq!(server, drawn(seed));
        seen.insert(server.files["scenario.toml"].clone(), seed);
        assert_ne!(draw(Seed { seed, attempt: 1 }).files, server.files);
        assert_eq!(draw(Seed { seed, attempt: 1 }).faults.len(), server.faults.len(), "{seed}");
    }
    assert_eq!(seen.len() as u64, SEEDS.end);
}

#[test]
fn all_that_can_be_drawn_is_drawn() {
    let servers: Vec<_> = SEEDS.map(drawn).collect();
    let ids: Vec<_> = faults::all().map(|fault| fault.id).collect();
    for id in &ids {
        assert!(servers.iter().any(|server| server.faults.iter().any(|fault| fault.id == *id)), "no {id}");
    }
    let settings = ids.into_iter().filter(|id| is_of_a_setting(id)).count();
    assert_eq!(settings, faults::OF_SETTINGS.len(), "each is a fault");
    for decoy in DECOYS {
        assert!(servers.iter().any(|server| server.decoys.contains(&decoy.words)), "no {}", decoy.words);
    }
    let with = |count: usize| servers.iter().filter(|server| server.faults.len() == count).count();
    assert!((90..160).contains(&with(0)) && (230..340).contains(&with(1)) && (50..130).contains(&with(2)));
}

/// What is there as found, and what mending brings, in the files and the description of some server with the fault.
#[test]
fn a_fault_is_there_as_found_and_mending_takes_it_away() {
    let servers: Vec<_> = SEEDS.map(drawn).collect();
    for (id, found, mended) in [
        ("opcache-off", "opcache.enable = 0", "opcache.enable = 1"),
        ("spawn-lag", "\nMinSpareServers 1\n", "MinSpareServers 5"),
        ("fpm-spawn-lag", "\npm = dynamic\n", "pm = static"),
        ("db-threads", "thread_cache_size = 0\n", "innodb_flush_log_at_trx_commit = 2"),
        ("db-cache", "innodb_buffer_pool_size = 8M\n", "innodb_flush_log_at_trx_commit = 2"),
        ("db-commit", "innodb_flush_log_at_trx_commit = 1;", "innodb_flush_log_at_trx_commit = 2;"),
        ("local-ports", "\"40000 4", "ip_local_port_range='32768 60999'"),
        ("conntrack", "firewall = true", "nf_conntrack_max\" = 65536"),
        ("upstream", "\"router\"", "4000mbit"),
        ("slow-clients", "/archive.zip; sleep 0.2", "kill -TERM -$(cat /run/travellers.pid)"),
        ("slow-uploads", "@/root/photo.raw", "kill -TERM -$(cat /run/travellers.pid)"),
        ("symlink-checks", "Options None\n", "Options FollowSymLinks"),
    ] {
        let of_fault = |server: &&DrawnServer| server.faults.iter().any(|fault| fault.id == id);
        let is_shown = |server: &DrawnServer| {
            let is_found = server.files.values().any(|text| text.contains(found));
            is_found && server.files["scenario.toml"].contains(mended)
        };
        assert!(servers.iter().filter(of_fault).any(is_shown), "{id}");
    }
}

#[test]
fn some_pools_start_a_process_when_a_request_comes() {
    let servers: Vec<_> =
        SEEDS.map(drawn).filter(|server| server.services[1].starts_with("PHP-FPM")).collect();
    let of_manager = |manager: &str| {
        let line = format!("\npm = {manager}\n");
        servers.iter().filter(|server| server.files.values().any(|text| text.contains(&line))).count()
    };
    let (on_demand, steady) = (of_manager("ondemand"), of_manager("static"));
    assert!(on_demand * 2 < steady && on_demand * 8 > steady, "{on_demand} of {}", servers.len());
    let told = servers.iter().filter(|server| server.words.contains("pm = ondemand")).count();
    assert!(told >= on_demand, "{told}");
}

#[test]
fn a_search_that_is_missed_is_looked_for_at_another_port() {
    let port = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    let ports = |text: &String| {
        text.split("127.0.0.1:").skip(1).map(port).collect::<std::collections::BTreeSet<String>>().len()
    };
    for server in SEEDS.map(drawn).filter(|server| server.faults.iter().any(|fault| fault.id == "app-gone")) {
        let is_meant = |(path, text): (&String, &String)| path.ends_with(".conf") && ports(text) == 2;
        assert!(server.files.iter().any(is_meant), "{}", server.seed.name());
        assert!(server.load.contains("/search "), "{}", server.load);
    }
}

#[test]
fn each_web_server_has_its_status_page_in_each_way() {
    let servers: Vec<_> = SEEDS.map(drawn).collect();
    for (front, one, other) in [
        ("Apache", "\"-status\"", "Require ip 10.99.0.7"),
        ("nginx", "allow 127.0.0.1;", "allow 10.99.0.7;"),
        ("lighttpd", "\nstatus.status-url", "    status.status-url"),
    ] {
        let of_front = || servers.iter().filter(|server| server.services[0] == front);
        for line in [one, other] {
            let has = |server: &&DrawnServer| server.files.values().any(|text| text.contains(line));
            let count = of_front().filter(has).count();
            assert!((1..of_front().count()).contains(&count), "{front}: {line} {count}");
        }
    }
}

#[test]
fn what_users_load_with_a_page_is_named_there() {
    let all: Vec<_> = SEEDS.map(drawn).filter(|server| server.load.contains("--page")).collect();
    assert!(all.len() >= 5, "{} servers", all.len());
    for server in all {
        let urls = server.load.split_whitespace().filter(|word| word.contains("://")).count();
        assert_eq!(urls, 1, "{}: {}", server.seed.name(), server.load);
        let names = |text: &String| text.contains("=/part") && text.contains('<');
        assert!(server.files.values().any(names), "{}", server.seed.name());
        assert!(server.load.contains("--users"), "{}", server.load);
    }
}

#[test]
fn no_name_and_no_file_tells_the_fault() {
    for seed in SEEDS {
        let server = drawn(seed);
        for (path, text) in server.files.iter().filter(|(path, _)| *path != "scenario.toml") {
            for fault in &server.faults {
                let telling = [&[fault.id], fault.findings].concat();
                // A word of a setting is no name: `gzip` has a level of compression.
                let tells =
                    |word: &&str| word.contains('-') && (path.contains(*word) || text.contains(*word));
                assert_eq!(telling.iter().find(|word| tells(word)), None, "{seed}: {path}");
            }
        }
        let description = &server.files["scenario.toml"];
        let spoken: Vec<_> = description
            .lines()
            .filter(|line| line.starts_with("title") || line.starts_with("story"))
            .collect();
        assert!(
            server.faults.iter().all(|fault| !spoken.iter().any(|line| line.contains(fault.id))),
            "{spoken:?}"
        );
    }
}

#[test]
fn names_of_scenarios_are_those_of_seeds() {
    for (name, seed) in [
        ("draw-17", Some(Seed { seed: 17, attempt: 0 })),
        ("draw-17-2", Some(Seed { seed: 17, attempt: 2 })),
        ("draw-17-0", None),
        ("draw-017", None),
        ("draw-", None),
        ("draw-x", None),
        ("draw--1", None),
        ("s5-lamp", None),
        ("draw-99999999999999999999", None),
    ] {
        assert_eq!(Seed::of_name(name), seed, "{name}");
    }
    assert!(paths("draw-17/server").iter().all(|path| path.starts_with("draw-17/server/")));
    assert!(Catalogue::BuiltIn.open("draw-17").is_ok() && Catalogue::BuiltIn.open("draw-x").is_err());
    assert!(!Catalogue::BuiltIn.names().unwrap().iter().any(|name| name.starts_with(PREFIX)));
}
