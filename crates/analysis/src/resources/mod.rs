//! What the machine and its services have and use, as several limits need it: processors, memory, costs, backends.

pub(crate) mod concurrency;
pub(crate) mod database_connections;
pub mod file_cost;
pub mod live_traffic;
pub(crate) mod memory_evidence;
pub mod memory_pressure;
pub(crate) mod php_cost;
pub(crate) mod php_fpm;
pub(crate) mod php_functions;
pub mod processor_time;
pub mod processors;
pub mod request_cost;
pub(crate) mod setting_source;
pub mod site_profile;
pub(crate) mod slow_responses;
pub mod syscall_cost;
pub mod time_breakdown;
pub(crate) mod utilisation;
pub(crate) mod worker_remedies;
pub(crate) mod worker_waits;
pub(crate) mod workers;
