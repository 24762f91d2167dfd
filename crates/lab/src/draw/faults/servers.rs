//! Faults of web servers and of the processes that make their pages.

use super::Fault;
use crate::draw::server::{Extra, Pages};

pub const FAULTS: &[Fault] = &[
    Fault {
        id: "symlink-checks",
        findings: &["apache-symlink-checks"],
        applies: |server| {
            server.is_apache() && server.pages == Pages::Static && server.is_full() && server.work_ms < 1.0
        },
        prepare: |server| {
            server.extras.insert(Extra::Deep);
        },
        set: |server, _| {
            server.settings.checks_links = true;
            "no FollowSymLinks, and files below 128 folders".into()
        },
    },
];
