//! The status page of Apache in its automatic format (`?auto`): fetched and parsed.
//!
//! Facts: the documentation of mod_status (<https://httpd.apache.org/docs/2.4/mod/mod_status.html>) and captured
//! output of 2.4.71. Lines are `Name: value`; which ones there are depends on version, MPM and `ExtendedStatus`: 2.4.6
//! tells neither its MPM nor durations.

use std::time::Duration;
use webdyno_model::{Result, UserError};

pub(crate) mod fetch;

/// What the status page says. What a version or setting does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// `Apache/2.4.65 (Debian)`.
    pub version: Option<String>,
    /// `prefork`, `worker`, `event`.
    pub mpm: Option<String>,
    /// Seconds since the main process started.
    pub uptime_s: Option<u64>,
    /// Rises by one at each reload.
    pub config_generation: Option<u64>,
    /// Requests since the start; only with `ExtendedStatus On`.
    pub accesses_count: Option<u64>,
    /// Bytes served since the start, in steps of 1024; only with `ExtendedStatus On`.
    pub served_bytes: Option<u64>,
    /// Time that requests took since the start, without reading and keep-alive.
    pub busy_duration_ms: Option<u64>,
    /// Processes of the event MPM.
    pub processes_count: Option<u64>,
    /// Of these, on their way out.
    pub stopping_count: Option<u64>,
    /// Connections of the event MPM.
    pub connections_count: Option<u64>,
    /// Of these, being written without a worker.
    pub connections_writing_count: Option<u64>,
    /// Of these, kept open without a worker.
    pub connections_keepalive_count: Option<u64>,
    /// Of these, being closed without a worker.
    pub connections_closing_count: Option<u64>,
    /// The slots by state.
    pub scoreboard: Option<Scoreboard>,
}

/// How many slots of the scoreboard are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scoreboard {
    /// All slots: at least the effective MaxRequestWorkers, see [`Scoreboard::limit_count`].
    pub slots_count: u64,
    /// Those up to the last one that is open.
    pub until_open_count: u64,
    /// `.`: no worker there.
    pub open_count: u64,
    /// `_`: waits for a connection. Of a page that tells how many of them are of this generation: these.
    pub idle_count: u64,
    /// `S`.
    pub starting_count: u64,
    /// `R`.
    pub reading_count: u64,
    /// `W`.
    pub writing_count: u64,
    /// `K`.
    pub keepalive_count: u64,
    /// `D`: looks up a name.
    pub dns_count: u64,
    /// `C`.
    pub closing_count: u64,
    /// `L`.
    pub logging_count: u64,
    /// `G`: finishes its last request after a reload.
    pub finishing_count: u64,
    /// `I`: is cleaned up.
    pub cleanup_count: u64,
}

impl Scoreboard {
    /// Counts states. A state that a later version may add is counted as a slot and nothing else.
    pub fn parse(slots: &str) -> Self {
        let mut board = Self::default();
        for state in slots.chars() {
            board.slots_count += 1;
            let Some(count) = board.state(state) else {
                continue;
            };
            *count += 1;
            if state == '.' {
                board.until_open_count = board.slots_count;
            }
        }
        board
    }

    fn state(&mut self, state: char) -> Option<&mut u64> {
        Some(match state {
            '.' => &mut self.open_count,
            '_' => &mut self.idle_count,
            'S' => &mut self.starting_count,
            'R' => &mut self.reading_count,
            'W' => &mut self.writing_count,
            'K' => &mut self.keepalive_count,
            'D' => &mut self.dns_count,
            'C' => &mut self.closing_count,
            'L' => &mut self.logging_count,
            'G' => &mut self.finishing_count,
            'I' => &mut self.cleanup_count,
            _ => return None,
        })
    }

    /// The effective MaxRequestWorkers, if that which the files give is known.
    ///
    /// mod_status shows that many slots, and behind them those that are in use, which there are after a reload with a
    /// lower limit: of workers that finish, of new ones that came while the old ones held their places, and under
    /// prefork of workers that have ended (AH00167, "long lost child came home"), as nobody cleans up behind the limit.
    /// Open slots are never shown there. So the board of a lower limit has none behind it; else all slots count.
    pub fn limit_count(&self, configured_count: Option<u64>) -> u64 {
        let fits = |configured: &u64| (self.until_open_count.max(1)..=self.slots_count).contains(configured);
        configured_count.filter(fits).unwrap_or(self.slots_count)
    }

    /// Workers that have a connection or a request: `R W K D C L`.
    pub fn busy_count(&self) -> u64 {
        self.reading_count
            + self.writing_count
            + self.keepalive_count
            + self.dns_count
            + self.closing_count
            + self.logging_count
    }
}

/// Fetches and parses the status page. `url` is without query (one that is there is left off); `timeout` bounds
/// everything from connecting to the last byte, but for the look-up of a host that is not an address.
/// Errors name the cause: no connection, no answer in time, the status code, or a page that is not in the automatic
/// format.
pub fn fetch_status(url: &str, timeout: Duration) -> Result<ServerStatus> {
    parse_status(url, &fetch::get(url, timeout)?)
}

/// Parses the automatic format. An error when it is another page; single lines that are missing, or are not what they
/// should be, are `None`.
pub fn parse_status(url: &str, page: &str) -> Result<ServerStatus> {
    let value = |key: &str| page.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let text = |key: &str| value(key).map(|value| value.trim().to_owned());
    // Old versions show some whole numbers with a fraction or an exponent.
    let number = |key: &str| {
        let value: f64 = value(key)?.trim().parse().ok()?;
        (value.is_finite() && (0.0..9e15).contains(&value)).then_some(value as u64)
    };
    if value("Scoreboard").is_none() && value("BusyWorkers").is_none() {
        return Err(other_page(url, page));
    }
    Ok(ServerStatus {
        version: text("ServerVersion"),
        mpm: text("ServerMPM"),
        uptime_s: number("ServerUptimeSeconds").or_else(|| number("Uptime")),
        config_generation: number("ParentServerConfigGeneration"),
        accesses_count: number("Total Accesses"),
        served_bytes: number("Total kBytes").map(|kilobytes| kilobytes.saturating_mul(1024)),
        busy_duration_ms: number("Total Duration"),
        processes_count: number("Processes"),
        stopping_count: number("Stopping"),
        connections_count: number("ConnsTotal"),
        connections_writing_count: number("ConnsAsyncWriting"),
        connections_keepalive_count: number("ConnsAsyncKeepAlive"),
        connections_closing_count: number("ConnsAsyncClosing"),
        scoreboard: value("Scoreboard").map(|slots| {
            let board = Scoreboard::parse(slots.trim_end());
            let alive = number("IdleWorkers").unwrap_or(board.idle_count);
            Scoreboard { idle_count: board.idle_count.min(alive), ..board }
        }),
    })
}

fn other_page(url: &str, page: &str) -> UserError {
    let what = if page.trim_start().starts_with('<') {
        "HTML instead of the automatic format"
    } else if page.trim().is_empty() {
        "nothing"
    } else {
        "something that is not the automatic format of mod_status"
    };
    UserError::cannot_run(format!("the status page {url}?auto answers {what}"))
        .hint(format!("look at `curl -s '{url}?auto'`; `SetHandler server-status` must cover that path"))
}
