//! Pure functions of recordings: the run's report, facts, rules, ranking, planner, verdict.
//!
//! No I/O, no clock, no randomness: the same recording gives the same findings, byte for byte. What depends on the
//! server's machine comes in through [`measurement::Measurement`].

pub mod ablation;
pub mod breakdown;
pub mod ceilings;
pub mod change_point;
pub mod check;
pub mod clock;
pub mod contradictions;
pub mod diagnosis;
mod expected;
pub mod experiments;
pub mod facts;
pub mod files_work;
mod fpm;
pub mod generator;
pub mod hopeless;
pub mod in_force;
pub mod incidents;
pub mod levels;
pub mod live_traffic;
mod manual;
pub mod measurement;
pub mod missing;
pub mod network;
pub mod next_limit;
pub mod pages;
pub mod percentiles;
pub mod planner;
pub mod processors;
pub mod repeats;
pub mod rules;
pub mod saturation;
pub mod series;
pub mod shortage;
pub mod site;
pub mod speed;
pub mod stats;
pub mod stop_loss;
pub mod summary;
mod unchanged;
pub mod verdict;
pub mod warmup;
mod work;
mod written;
