//! `db-connections-exhausted`: the database refuses connections, as it has as many as it allows.
//!
//! Each process of the application wants a connection of its own. Where more of them work at once than `max_connections`
//! allows, the database turns the others away, and their pages are errors. Those come fast: who counts answers sees more
//! of them than ever; who counts good ones sees that they are missing.
//!
//! ## How it is recognised
//! From inside: connections fail (`Connection_errors_max_connections`, `Aborted_connects`) while as many are connected as are
//! allowed. From outside: the log of the site has `Too many connections`, or the database refuses this program's own
//! connection as too many. And good answers are missing: by their status, or as many requests as were refused a connection,
//! since pages that catch the error often say "come again" with status 200.
//!
//! ## What to do
//! `max_connections` to the number of the application's workers, a tenth more, and ten for other programs; no more than half
//! of the available memory holds, at what one connection may take for its buffers. It takes effect at once. Where
//! connections are held because statements take long or wait for each other, that is what to remedy.
//!
//! ## By hand
//! `SHOW GLOBAL STATUS LIKE 'Max_used_connections'`, `'Connection_errors_max_connections'` and `'Aborted_connects'`;
//! `grep -c 'Too many connections' error.log`.

pub(crate) mod ceiling;
pub(crate) mod finding;
pub(crate) mod remedy;

/// Stable id.
pub const ID: &str = "db-connections-exhausted";
/// What it causes, and what is therefore not the cause where this one is found.
pub const CAUSES: &[&str] = &["backend-refused"];
