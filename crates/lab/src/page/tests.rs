//! What a page of a scenario shows.

use super::*;
use crate::scenario::Catalogue;
use std::path::Path;

#[test]
fn a_page_tells_everything_that_a_reader_can_type() {
    let folder = Catalogue::BuiltIn.open("workers-exhausted-prefork").unwrap();
    let page = page(&folder).unwrap();
    for part in [
        "# All workers are busy waiting\n",
        "cable as fast as the machine",
        "Apache (prefork) on `server`, with the modules `lua`.",
        "`/etc/apache2/mods-available/mpm_prefork.conf` on `server`:\n\n```\n",
        "MaxRequestWorkers      20",
        "sudo webdyno lab up workers-exhausted-prefork\n",
        "lab exec workers-exhausted-prefork client webdyno diagnose http://server/app -c 100",
        "--server \"exec:webdyno lab exec workers-exhausted-prefork server\"",
        "server# apache2 -k graceful\n",
        "`webdyno explain apache-workers-exhausted` tells more",
        "`MaxRequestWorkers` of apache from 90 to 400",
        "by hand on `server`: `ss -ltn",
        "at least 3.5 times that of the round `20 workers`, with the whole 95% interval",
    ] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
}

#[test]
fn a_fence_is_longer_than_those_in_the_text() {
    let mut page = String::new();
    code_block(&mut page, "", "a\n```\nb\n```\n");
    assert_eq!(page, "````\na\n```\nb\n```\n````\n\n");
}

#[test]
fn all_that_a_scenario_can_have_is_in_words() {
    let text = include_str!("../scenario/check/good_file.toml");
    let scenario = crate::scenario::parse(text, Path::new("x")).unwrap();
    let lines =
        [format::topology(&scenario), format::services(&scenario), format::changes(&scenario.rounds[1])];
    let all = lines.concat().join("\n");
    for part in [
        "The cable between `client` and `server` carries 120mbit from `client` to `server`, waiting 20ms at most.",
        "`server` has 256M memory; 64M swap; the time of 0.5 processors; the cores 0-1; at most 400 processes;",
        "`net.core.somaxconn` = `128`",
        "a disk of 64M at `/var/log`, with at most 100 writes a second",
        "`db` is another machine, without limits.",
        "The whole machine has `net.netfilter.nf_conntrack_max` = `1000`",
        "MariaDB on `db`, filled by `srv/data.sql`.",
        "Apache (prefork) on `server`, with the modules `lua`, without the modules `status`, at most 64M memory.",
        "carries 250mbit",
    ] {
        assert!(all.contains(part), "{part} in\n{all}");
    }
}

#[test]
fn commands_of_the_signs_know_the_scenario() {
    for (name, parts) in [
        ("worker-churn", vec!["`pgrep -c -P $(cat /run/apache2/apache2.pid)`"]),
        (
            "stacked-db-bandwidth",
            vec!["`: `mariadb -Ne ", "webdyno lab run stacked-db-bandwidth --rounds 3 --keep"],
        ),
        ("conntrack-full", vec!["`sudo webdyno lab run conntrack-full --rounds 2 --keep` leaves it up"]),
    ] {
        let page = page(&Catalogue::BuiltIn.open(name).unwrap()).unwrap();
        for part in parts {
            assert!(page.contains(part), "{part} in\n{page}");
        }
        // What is typed on a host needs no run of the lab.
        assert_eq!(page.contains("--keep` leaves it"), name != "worker-churn", "{page}");
        // What removes everything comes last: whoever types from the top still needs it before.
        assert!(
            page.ends_with(&format!("lab down {name}            # removes everything\n```\n\n")),
            "{page}"
        );
    }
    assert!(
        manual_steps::has_placeholder("connect ADDRESS | x")
            && !manual_steps::has_placeholder("'by PIDS and a cgroup'")
    );
}

#[test]
fn a_page_names_the_folder_of_a_scenario_that_is_not_in_the_program() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let page = page(&Catalogue::Directory(scenarios.clone()).open("conntrack-full").unwrap()).unwrap();
    let from = format!("--scenarios {}", scenarios.display());
    for words in ["up conntrack-full\n", "run conntrack-full`", "run conntrack-full --rounds 2 --keep`"] {
        assert!(page.contains(&format!("webdyno lab {from} {words}")), "{words} in\n{page}");
    }
    assert!(page.contains("sudo webdyno lab exec conntrack-full "), "{page}");
}
