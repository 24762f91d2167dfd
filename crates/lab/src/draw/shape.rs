//! Draws a server that nothing is wrong with, and its load: every pool has room for what comes.

use super::random::Random;
use super::server::{Arrival, Front, Names, Pages, Query, Server, Settings, Status};
use std::collections::BTreeSet;

const SITES: [&str; 12] = [
    "shop", "forum", "portal", "gallery", "intranet", "wiki", "tickets", "library", "weather", "recipes",
    "press", "museum",
];
const PAGE_NAMES: [&str; 8] = ["view", "list", "item", "search", "show", "entry", "detail", "overview"];
const PORTS: [u16; 6] = [80, 80, 8080, 8000, 8081, 3080];
const TLS_PORTS: [u16; 3] = [443, 443, 8443];
const LOG_FORMATS: [&str; 4] = ["combined", "common", "vhost_combined", "timed"];
/// The share of servers with lighttpd.
const LIGHTTPD_FRACTION: f64 = 0.12;
/// Users who load whole pages: each has several connections.
const PAGE_USERS_MAX: u32 = 60;
/// A link that nothing fills.
pub const MBIT_FREE: u32 = 4000;
/// Memory that no server here uses up, MB.
pub const MEMORY_FREE_MB: u32 = 8192;
/// A table of connections that nothing fills.
const TRACKED_FREE: u32 = 65_536;
/// A quota that no machine of ours uses up.
pub const CPUS_FREE: f64 = 16.0;

/// A server.
pub fn server(random: &mut Random) -> Server {
    let front = random.one(&[Front::Prefork, Front::Worker, Front::Event, Front::Nginx]);
    let front = if random.chance(LIGHTTPD_FRACTION) { Front::Lighttpd } else { front };
    let pages = pages(random, front);
    let tls = random.chance(0.3) && front != Front::Lighttpd;
    // It has one process, which alone cannot fill several cores.
    let pinned = random.chance(0.65) || front == Front::Lighttpd;
    let is_php = matches!(pages, Pages::ModPhp | Pages::FpmUnix | Pages::FpmTcp);
    let query =
        (is_php && random.chance(0.45)).then(|| random.one(&[Query::Item, Query::Item, Query::Number]));
    let mut server = Server {
        front,
        pages,
        names: names(random, tls),
        pinned,
        tls,
        status: random.one(&[Status::There, Status::There, Status::There, Status::Protected, Status::Absent]),
        wait_ms: 0,
        work_ms: work_ms(random, pages),
        answer_bytes: random.log(200.0, 20_000.0) as u32,
        files_bytes: vec![],
        classes: if is_php && random.chance(0.4) { random.whole(60, 140) as u32 } else { 0 },
        page_mb: 0,
        query,
        arrival: Arrival::Closed(1),
        loads_resources: false,
        kept: random.chance(0.6),
        extras: BTreeSet::new(),
        settings: settings(random),
    };
    if pages == Pages::Static || random.chance(0.25) {
        server.files_bytes = (0..random.whole(1, 4)).map(|_| random.log(400.0, 300_000.0) as u32).collect();
    }
    if tls && !server.kept {
        server.work_ms += 1.5;
    }
    server.work_ms += f64::from(server.classes) * 0.02 + if query.is_some() { 0.7 } else { 0.0 };
    // nginx counts processors, not those that it may use.
    server.settings.nginx_workers = pinned.then_some(1);
    load(random, &mut server);
    size(&mut server);
    server
}

fn pages(random: &mut Random, front: Front) -> Pages {
    match front {
        Front::Prefork => random.one(&[
            Pages::Static,
            Pages::ModPhp,
            Pages::ModPhp,
            Pages::ModPerl,
            Pages::FpmUnix,
            Pages::Cgi,
        ]),
        Front::Worker => random.one(&[Pages::Static, Pages::FpmTcp, Pages::Lua, Pages::Proxy, Pages::Cgi]),
        Front::Event => random.one(&[
            Pages::Static,
            Pages::FpmUnix,
            Pages::FpmTcp,
            Pages::Lua,
            Pages::Proxy,
            Pages::Proxy,
        ]),
        Front::Nginx | Front::Lighttpd => {
            random.one(&[Pages::Static, Pages::FpmUnix, Pages::FpmTcp, Pages::Proxy, Pages::Proxy])
        }
    }
}

/// What a page costs besides its wait, by a guess.
fn work_ms(random: &mut Random, pages: Pages) -> f64 {
    match pages {
        Pages::Static => 0.15,
        Pages::Cgi => 6.0 + random.log(0.2, 3.0),
        _ => 0.6 + random.log(0.2, 6.0),
    }
}

fn names(random: &mut Random, tls: bool) -> Names {
    let site = random.one(&SITES);
    let roots = [format!("/var/www/{site}"), format!("/srv/{site}"), format!("/srv/www/{site}/public")];
    let others = (0..random.whole(0, 3)).map(|_| random.one(&SITES)).filter(|other| *other != site);
    let others: BTreeSet<&str> = others.collect();
    Names {
        site,
        page: random.one(&PAGE_NAMES),
        root: roots[random.whole(0, 2) as usize].clone(),
        log_format: random.one(&LOG_FORMATS),
        others: others.into_iter().collect(),
        port: if tls { random.one(&TLS_PORTS) } else { random.one(&PORTS) },
        inner_port: random.whole(9000, 9400) as u16,
    }
}

fn settings(random: &mut Random) -> Settings {
    Settings {
        cpus: CPUS_FREE,
        mbit: MBIT_FREE,
        upstream_mbit: MBIT_FREE,
        memory_mb: MEMORY_FREE_MB,
        tracked: TRACKED_FREE,
        rsa_bits: random.one(&[0, 0, 2048]),
        resumes: true,
        threads: random.one(&[16, 25, 32]),
        keepalive_s: random.whole(2, 5) as u32,
        log_level: "warn",
        front_connections: random.one(&[1024, 2048, 4096]),
        opcache: true,
        opcache_mb: 128,
        index: true,
        ..Settings::default()
    }
}

/// How requests come. Where pages wait the processors are used in part; where they only work either in part, or wholly in a
/// closed loop.
fn load(random: &mut Random, server: &mut Server) {
    let waits = server.query == Some(Query::Number) || (server.pages != Pages::Static && random.chance(0.7));
    let used = random.log(0.08, 0.5);
    let rate = used * server.cores() * 1000.0 / server.work_ms;
    let kind = random.whole(0, 2);
    if waits {
        let at_once = random.log(6.0, 120.0);
        server.wait_ms = (at_once * 1000.0 / rate).clamp(15.0, 400.0) as u32;
    }
    let each_ms = f64::from(server.wait_ms) + server.work_ms;
    server.arrival = match (kind, waits) {
        (0, true) => Arrival::Closed(((rate * each_ms / 1000.0) as u32).clamp(4, 150)),
        (0, false) => Arrival::Closed(random.log(6.0, 60.0) as u32),
        (1, _) => Arrival::Open((rate.min(2500.0)).round().max(2.0)),
        _ => {
            let think_ms = random.log(300.0, 2500.0);
            let users = (rate.min(1500.0) * (think_ms + each_ms) / 1000.0).clamp(4.0, 400.0);
            Arrival::Users(users as u32, think_ms as u32)
        }
    };
    if let Arrival::Users(users, think_ms) = server.arrival
        && server.resources() > 0
        && random.chance(0.6)
    {
        server.loads_resources = true;
        server.arrival = Arrival::Users(users.min(PAGE_USERS_MAX), think_ms);
    }
}

/// Pools with room for what comes.
fn size(server: &mut Server) {
    let (demand, connections) = (server.demand(), server.connections());
    let room = (demand * 1.6) as u32 + 12;
    let settings = &mut server.settings;
    settings.workers = (f64::from(connections) * 1.3) as u32 + 20;
    settings.children = room;
    settings.app_workers = room;
    settings.partner_workers = room;
    settings.db_connections = settings.workers.max(room) + 20;
    if server.is_apache() && server.front != Front::Prefork {
        let threads = server.settings.threads;
        server.settings.workers = server.settings.workers.next_multiple_of(threads);
    }
}
