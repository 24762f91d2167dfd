//! The integration tests of this crate: one binary.

mod agent;
mod agent_apache;
mod apache;
mod booting;
mod brake;
mod change;
mod claims;
mod clients;
mod fake;
mod fake_brake;
mod fate;
mod full_disk;
mod generations;
mod hardened;
mod live_traffic;
mod mariadb;
mod mounts;
mod moved;
mod network;
mod outsider;
mod php_fpm;
mod ports;
mod prove;
mod shadow;
mod skip;
mod waiting;
