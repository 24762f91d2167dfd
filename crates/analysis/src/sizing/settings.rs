//! What the recommended servers need at the goal, and the settings to start with: places for what is held there, and some more.

use super::choose::ServerOf;
use super::server::{Draw, LINK_USABLE, PROCESSORS_USABLE, Server};
use crate::limits::ceiling::Resource;
use webdyno_model::number::{human, significant};
use webdyno_model::sizing::{MachineCatalogue, SizeChoice, SizeNeeds, SizeReport, StartSetting};

/// The kernel's default of net.core.somaxconn.
const SOMAXCONN_DEFAULT: f64 = 4096.0;
/// So long may nobody accept a connection: a collection of garbage, a reload.
const ACCEPT_PAUSE_S: f64 = 1.0;
/// Connections that administrators and jobs have beside the site.
const CONNECTIONS_SPARE: f64 = 10.0;

/// Writes what is known of the first choice.
pub(super) fn write<'a>(
    report: &mut SizeReport,
    best: &SizeChoice,
    of: &ServerOf<'a>,
    catalogue: &'a MachineCatalogue,
    goal_rate: f64,
    headroom: f64,
) {
    report.recommended = Some(best.name.clone());
    let Some(machine) = catalogue.machines.iter().find(|machine| machine.name == best.name) else { return };
    let server = Server { has_database: best.database.is_none(), ..of(machine) };
    let serving = (best.count - best.spare) as f64;
    let rate = goal_rate / serving;
    let (places, memory_bytes, response_us) = server.at(rate);
    let free = 1.0 - headroom;
    let bits = server.demands.link_bytes.map(|bytes| rate * bytes.value * 8.0 / LINK_USABLE / free);
    let cache_bytes = server.cache_bytes(rate, headroom);
    report.needs = Some(SizeNeeds {
        cores: significant(rate * server.cpu_us(Draw::default()) / 1e6 / PROCESSORS_USABLE / free, 3),
        memory_bytes: memory_bytes.map(|bytes| significant(bytes + cache_bytes.unwrap_or(0.0), 2)),
        cache_bytes: cache_bytes.map(|bytes| significant(bytes, 2)),
        link_bit_s: bits.map(|bits| significant(bits, 2)),
    });
    report.response_time_mean_us = response_us.map(|us| significant(us, 3));
    report.settings = settings(&server, &places, rate, serving);
}

fn settings(server: &Server<'_>, places: &[f64], rate: f64, serving: f64) -> Vec<StartSetting> {
    let of_pool = |(pool, places): (&super::demands::PoolDemand, &f64)| {
        let held = human::number(*places);
        let (setting, value, why) = match pool.resource {
            Resource::Workers => (
                "MaxRequestWorkers",
                *places,
                format!("for {} req/s, and half as many again for bursts", human::number(rate)),
            ),
            Resource::PhpChildren => {
                ("pm.max_children", *places, "one for each worker that runs PHP then".to_owned())
            }
            _ => (
                "max_connections",
                places * serving + CONNECTIONS_SPARE,
                format!("{held} of each server, and {CONNECTIONS_SPARE} for administration"),
            ),
        };
        StartSetting { setting: setting.into(), value: value.ceil() as u64, why: why + "." }
    };
    let mut all: Vec<StartSetting> = server.demands.pools.iter().zip(places).map(of_pool).collect();
    let queue = rate * ACCEPT_PAUSE_S;
    all.push(StartSetting {
        setting: "net.core.somaxconn".into(),
        value: SOMAXCONN_DEFAULT.max(2f64.powf(queue.max(1.0).log2().ceil())) as u64,
        why: "a second of new connections; ListenBacklog alike.".into(),
    });
    all
}
