//! When requests are due and users are active: pure functions of the workload and the time.

pub(crate) mod deadlines;
pub(crate) mod pacer;
pub(crate) mod rate_profile;
pub(crate) mod user_profile;
