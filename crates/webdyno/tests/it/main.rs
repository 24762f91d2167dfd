//! The program as its users meet it: one binary with all end-to-end tests, and the checks on the source itself.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on must say where

mod access_logs;
mod apache;
mod backends;
mod booting;
mod capacity;
mod change_record;
mod checking;
mod circles;
mod cluster;
mod command_line;
mod comparing;
mod connecting;
mod debian;
mod distributed;
mod disturbance;
mod exports;
mod extent;
mod fitting;
mod guide;
mod harm_guard;
mod http2;
mod http3;
mod interrupted;
mod kills;
mod lab_hosts;
mod lab_runs;
mod lab_scenarios;
mod lists;
mod live_metrics;
mod live_traffic;
mod live_view;
mod loading;
#[path = "../../../host/tests/it/mounts.rs"]
mod mounts;
mod namespaces;
#[path = "../../../load/tests/it/nginx.rs"]
mod nginx;
mod observing;
mod other_tiers;
mod other_tools;
mod out_of_memory;
mod placement;
#[path = "../../../host/tests/it/ports.rs"]
mod ports;
#[path = "../../../host/tests/it/programs.rs"]
mod programs;
mod proposals;
mod proxy;
mod quickstart;
mod recordings;
#[path = "../../../load/tests/it/refusing.rs"]
mod refusing;
mod secrets;
mod serving;
mod several_hosts;
mod sizing;
#[path = "../../../host/tests/it/skip.rs"]
mod skip;
mod stages;
mod support;
mod sweeping;
mod systemd;
#[path = "../../../host/tests/it/tables.rs"]
mod tables;
mod tidy;
#[path = "../../../host/tests/it/traced.rs"]
mod traced;
mod transport;
mod turns;
mod users;
#[path = "../../../evaluation/tests/it/valid.rs"]
mod valid;
mod verdict;
mod visitors;
mod words;
mod workload_files;
