//! Faults of web servers and of the processes that make their pages.

use super::{Fault, nothing, too_few, waits};
use crate::draw::server::{Arrival, Extra, Front, Pages};

/// Requests under way from the first second on that make few processes worth being too few.
const SUDDEN_MIN: f64 = 20.0;

pub const FAULTS: &[Fault] = &[
    Fault {
        id: "symlink-checks",
        findings: &["apache-symlink-checks"],
        applies: |server| {
            server.is_apache() && server.pages == Pages::Static && server.is_full() && server.work_ms < 1.0
        },
        prepare: |server| server.extras.extend([Extra::Deep]),
        set: |server, _| {
            server.settings.checks_links = true;
            "no FollowSymLinks, and files below 128 folders".into()
        },
    },
    Fault {
        id: "spawn-lag",
        findings: &["apache-spawn-lag"],
        // Prefork starts one in the first second, then two, four, eight.
        applies: |server| {
            waits(server)
                && server.front == Front::Prefork
                && server.holds_workers()
                && server.demand() >= SUDDEN_MIN
        },
        prepare: |server| server.extras.extend([Extra::Sudden]),
        set: |server, random| {
            let few = random.whole(1, 4) as u32;
            server.settings.few_workers = Some(few);
            format!("StartServers {few} and MinSpareServers 1 for {:.0} under way at once", server.demand())
        },
    },
    Fault {
        id: "fpm-spawn-lag",
        findings: &["php-fpm-spawn-lag"],
        // PHP-FPM starts as many a second as it keeps in reserve.
        applies: |server| waits(server) && server.has_fpm() && server.demand() >= SUDDEN_MIN / 2.0,
        prepare: |server| server.extras.extend([Extra::Sudden]),
        set: |server, random| {
            let few = random.whole(1, 2) as u32;
            server.settings.few_children = Some(few);
            format!("pm = dynamic, {few} at the start and in reserve, for {:.0} under way", server.demand())
        },
    },
    Fault {
        id: "app-workers",
        findings: &["app-workers-exhausted"],
        applies: |server| waits(server) && server.pages == Pages::Proxy,
        prepare: nothing,
        set: |server, random| {
            server.settings.app_workers = too_few(server, random);
            format!(
                "{} processes of the application for {:.0} under way",
                server.settings.app_workers,
                server.demand()
            )
        },
    },
    Fault {
        id: "app-gone",
        findings: &["backend-refused"],
        // In a closed loop others would come in the place of what fails.
        applies: |server| {
            server.pages == Pages::Proxy
                && server.front != Front::Lighttpd
                && !server.loads_resources
                && !matches!(server.arrival, Arrival::Closed(_))
        },
        prepare: |server| server.extras.extend([Extra::Search]),
        set: |server, _| {
            server.settings.misses_search = true;
            "half of the requests go to a port where nobody listens".into()
        },
    },
    Fault {
        id: "app-single",
        findings: &["single-thread-saturated", "app-workers-exhausted"],
        applies: |server| {
            server.pages == Pages::Proxy && !server.pinned && server.is_full() && server.work_ms > 1.5
        },
        prepare: nothing,
        set: |server, _| {
            server.settings.app_workers = 1;
            "one process of the application on several cores".into()
        },
    },
];
