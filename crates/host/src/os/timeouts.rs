//! How long things may take, in one place: what waits for something else must be given longer than that may use.
//!
//! The agent does one thing after the other, so its longest time is the sum of its parts, and the tool waits for that
//! sum and a margin. In seconds, with a systemd unit, which is the slow case (units may give a program 90 s to stop
//! and 90 s to start, systemd.service(5)):
//!
//! ```text
//! read the configuration    20    = -V 10, -l 10
//! snapshot                  42    = configuration 20, systemctl show 10, status page 12
//! reload                   281.3  = configuration 20, status page 12, port 8, systemctl 200, show 20, page 2,
//!                                   children 5, watch 0.3, settle 10, page 2, look 2
//! restart                  268    = configuration 20, port 8, systemctl 200, answer 30, port 8, look 2
//! start again              268    = configuration 20, orphans 10, systemctl 200, answer 30, port 8
//! undo                     653.3  = find 42, locate 10, test 10, reload 281.3, find 42, start again 268
//! shadow                    85    = configuration 20, launch 20, its answers 30, stop 10 and kill 5
//! proof                    275    = shadow 85 with the new files, with the old ones and what it answers 20, once more
//! apply                   1423.6  = configuration 20, test 10, configuration 20, the site's answers 20, proof 275,
//!                                   test 10, configuration 20, page 2, reload 281.3, read back 10, snapshot 42,
//!                                   the site 30, undo 653.3, the site 30
//! the tool waits          1485.6  = apply 1423.6, snapshot 42, margin 20
//! ```
//!
//! Nobody waits that long for an agent that is gone: its end is seen at once, and its silence after [`AGENT_SILENCE`],
//! as it answers heartbeats whatever it is at.

use std::time::Duration;

/// Without a message for this long the tool counts as gone, and the agent reverts everything.
pub const SILENCE: Duration = Duration::from_secs(15);

/// Without a message for this long the agent counts as gone; longer than [`SILENCE`], so that one whose machine or
/// connection stood still has begun to revert everything.
pub const AGENT_SILENCE: Duration = Duration::from_secs(30);

/// The same for an agent whose parent is gone, which carried the connection.
pub const ORPHAN_SILENCE: Duration = Duration::from_secs(5);

/// How often the agent hears that the tool lives, and the clocks are compared: several times within [`SILENCE`], and often
/// enough that two clocks do not drift apart by more than a millisecond meanwhile.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// For the disk, the journal, and whatever else takes moments.
pub const MARGIN: Duration = Duration::from_secs(20);

/// A question to a program about itself or its configuration.
pub const QUERY: Duration = Duration::from_secs(10);

/// A request for a status page: when all workers are busy it waits for one of them.
pub const PAGE: Duration = Duration::from_secs(2);

/// Trying pages until one answers; the last one may still take [`PAGE`].
pub const PAGE_TRIES: Duration = Duration::from_secs(10);

/// Looking whether an address answers.
pub const PROBE: Duration = Duration::from_secs(2);

/// The addresses of a port that are looked at.
pub const PROBE_ADDRESSES_COUNT_MAX: usize = 4;

/// A start until the port answers.
pub const START: Duration = Duration::from_secs(30);

/// A stop by signal.
pub const STOP: Duration = Duration::from_secs(30);

/// A systemctl command: units may give a program 90 s to stop and 90 s to start.
pub const UNIT: Duration = Duration::from_secs(200);

/// The end of workers whose main process is gone.
pub const ORPHANS: Duration = Duration::from_secs(10);

/// A reload until it shows.
pub const RELOAD: Duration = Duration::from_secs(20);

/// New workers after a reload, where nothing else shows it. When all are busy there is none until one has finished, so
/// their absence is no failure.
pub const CHILDREN: Duration = Duration::from_secs(5);

/// The requests under way of a program that is about to read its configuration: meanwhile all others wait.
pub const DRAIN: Duration = Duration::from_secs(5);

/// How long a main process is watched after a reload showed: it may end while it sets up its modules.
pub const WATCH: Duration = Duration::from_millis(300);

/// Until the old generation of workers is gone after a reload.
pub const SETTLE: Duration = Duration::from_secs(10);

/// Until a program shows its new values: an Apache generation needs a second or two.
pub const READ_BACK: Duration = Duration::from_secs(10);

/// One answer of a site.
pub const SITE_ANSWER: Duration = Duration::from_secs(5);

/// Learning how a site answers.
pub const SITE_LEARN: Duration = Duration::from_secs(20);

/// A site that gave no answer for so long in all while it was looked at, hangs: twice the time of an answer.
pub const SITE_SILENCE: Duration = Duration::from_secs(10);

/// Looking whether a site answers as before: five requests that are slow, or a few tries.
pub const SITE_CHECK: Duration = Duration::from_secs(30);

/// A program that is launched for a session, until it answers.
pub const LAUNCH: Duration = Duration::from_secs(20);

/// A program that is asked to end, before it is ended with force.
pub const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A program that is ended with force.
pub const KILL: Duration = Duration::from_secs(5);

/// How often the guardian tries to revert everything.
pub const PUT_BACK_ATTEMPTS_COUNT: u32 = 3;

/// The pause between two attempts.
pub const PUT_BACK_PAUSE: Duration = Duration::from_secs(2);

/// Reading a configuration: the program is asked twice.
const CONFIGURATION: Duration = sum(&[QUERY, QUERY]);

/// Looking at all addresses of a port.
const PORT: Duration = PROBE.saturating_mul(PROBE_ADDRESSES_COUNT_MAX as u32);

const PAGE_SEARCH: Duration = sum(&[PAGE_TRIES, PAGE]);

/// Reading a service anew.
pub const SNAPSHOT: Duration = sum(&[CONFIGURATION, QUERY, PAGE_SEARCH]);

const RELOADING: Duration =
    sum(&[CONFIGURATION, PAGE_SEARCH, PORT, UNIT, RELOAD, PAGE, CHILDREN, WATCH, SETTLE, PAGE, PROBE]);

const RESTARTING: Duration =
    sum(&[CONFIGURATION, PORT, longer(UNIT, sum(&[STOP, START])), START, PORT, PROBE]);

/// Making a configuration take effect.
pub const ACTIVATE: Duration = longer(RELOADING, RESTARTING);

/// Starting a service again that has died.
pub const START_AGAIN: Duration = sum(&[CONFIGURATION, ORPHANS, longer(UNIT, START), START, PORT]);

/// Looking where a program is now, and its unit.
const LOCATE: Duration = QUERY;

/// Undoing a change, with a service that dies of it and is started again.
pub const UNDO: Duration = sum(&[SNAPSHOT, LOCATE, QUERY, ACTIVATE, SNAPSHOT, START_AGAIN]);

/// Looking for changes of others that wait for a reload.
const PENDING_CHECK: Duration = CONFIGURATION;

/// Starting a shadow instance, asking it, and stopping it.
const SHADOW: Duration = sum(&[CONFIGURATION, LAUNCH, SITE_CHECK, STOP_PATIENCE, KILL]);

/// Proving a change: at most three shadows, and what the second one answers.
const PROOF: Duration = sum(&[SHADOW.saturating_mul(3), SITE_LEARN]);

/// What comes before anything is written: the site's answers, and the proof.
const PREPARATION: Duration = sum(&[PENDING_CHECK, QUERY, CONFIGURATION, SITE_LEARN, PROOF]);

/// Applying a change, and undoing it because the very last step failed.
pub const APPLY: Duration = sum(&[
    PREPARATION,
    QUERY,
    PENDING_CHECK,
    PAGE,
    ACTIVATE,
    READ_BACK,
    SNAPSHOT,
    SITE_CHECK,
    UNDO,
    SITE_CHECK,
]);

/// Stopping what was launched.
pub const DISPOSE: Duration = sum(&[STOP_PATIENCE, KILL, STOP_PATIENCE, KILL]);

/// The answer to hello: the agent has only to be started.
pub const HELLO_ANSWER: Duration = Duration::from_secs(30);

/// Finding a service and its access logs, to be observed.
const OBSERVE: Duration = sum(&[SNAPSHOT, CONFIGURATION]);

/// The answer to a question that only reads: a service to observe, or a plan, which reads the configuration twice.
pub const READ_ANSWER: Duration = sum(&[longer(OBSERVE, sum(&[CONFIGURATION, CONFIGURATION])), MARGIN]);

/// Looking at files whose pages are dropped.
pub const DROP_PAGES: Duration = Duration::from_secs(60);

/// The answer to that.
pub const DROP_PAGES_ANSWER: Duration = sum(&[DROP_PAGES, MARGIN]);

/// The answer to discover: the first one comes after what an earlier session left was reverted.
pub const DISCOVER_ANSWER: Duration = sum(&[UNDO, DISPOSE, READ_ANSWER]);

/// The answer to apply; after a failure the service is read anew.
pub const APPLY_ANSWER: Duration = sum(&[APPLY, SNAPSHOT, MARGIN]);

/// The answer to revert; after it the service is read anew.
pub const REVERT_ANSWER: Duration = sum(&[UNDO, SNAPSHOT, MARGIN]);

/// The answer to goodbye: everything is reverted, if need be in several attempts.
pub const BYE_ANSWER: Duration =
    sum(&[sum(&[UNDO, DISPOSE, PUT_BACK_PAUSE]).saturating_mul(PUT_BACK_ATTEMPTS_COUNT), MARGIN]);

/// The answer to launch: what does not get ready is stopped again.
pub const LAUNCH_ANSWER: Duration = sum(&[LAUNCH, DISPOSE, MARGIN]);

/// The answer to dispose.
pub const DISPOSE_ANSWER: Duration = sum(&[DISPOSE, MARGIN]);

/// How long a rollback waits for a guardian: it notices the silence of its tool, and reverts everything.
pub const GUARDIAN: Duration = sum(&[SILENCE, UNDO, DISPOSE, MARGIN]);

/// The answer to a rollback of other sessions: a guardian is waited for, and several of them may be undone.
pub const ROLL_BACK_ANSWER: Duration = sum(&[GUARDIAN, sum(&[UNDO, DISPOSE]).saturating_mul(8), MARGIN]);

const fn sum(parts: &[Duration]) -> Duration {
    let (mut total, mut at) = (Duration::ZERO, 0);
    while at < parts.len() {
        total = total.saturating_add(parts[at]);
        at += 1;
    }
    total
}

const fn longer(a: Duration, b: Duration) -> Duration {
    if a.as_millis() > b.as_millis() { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_the_constants_add_up_to() {
        for (time, expected_ms) in [
            (CONFIGURATION, 20_000),
            (SNAPSHOT, 42_000),
            (RELOADING, 281_300),
            (RESTARTING, 268_000),
            (START_AGAIN, 268_000),
            (UNDO, 653_300),
            (SHADOW, 85_000),
            (PROOF, 275_000),
            (APPLY, 1_423_600),
            (APPLY_ANSWER, 1_485_600),
        ] {
            assert_eq!(time.as_millis(), expected_ms);
        }
    }

    /// Whoever waits is given longer than what it waits for may use: else it calls a server broken that is at work.
    #[test]
    fn who_waits_outlasts_what_is_waited_for() {
        let starting_by_systemd = sum(&[UNIT, START]);
        for (what, waiting, used) in [
            ("apply", APPLY_ANSWER, sum(&[PROOF, ACTIVATE, READ_BACK, UNDO])),
            ("asking a site", SITE_LEARN, SITE_ANSWER.saturating_mul(3)),
            ("a site that is silent", SITE_CHECK, SITE_SILENCE),
            ("a slow answer and a second try", SITE_SILENCE, SITE_ANSWER),
            ("revert", REVERT_ANSWER, sum(&[ACTIVATE, START_AGAIN])),
            ("bye", BYE_ANSWER, UNDO),
            ("activate", ACTIVATE, starting_by_systemd),
            ("start again", START_AGAIN, starting_by_systemd),
            ("launch", LAUNCH_ANSWER, LAUNCH),
            ("read", READ_ANSWER, SNAPSHOT),
            ("discover", DISCOVER_ANSWER, sum(&[UNDO, SNAPSHOT])),
            ("observe", READ_ANSWER, sum(&[SNAPSHOT, CONFIGURATION])),
            ("rollback", GUARDIAN, UNDO),
            ("rollback there", ROLL_BACK_ANSWER, sum(&[GUARDIAN, UNDO])),
            ("silence of the agent", AGENT_SILENCE, SILENCE),
            ("silence", SILENCE, HEARTBEAT_EVERY.saturating_mul(4)),
            ("silence of an orphan", ORPHAN_SILENCE, HEARTBEAT_EVERY.saturating_mul(4)),
        ] {
            assert!(waiting > used, "{what}: {waiting:?} for {used:?}");
        }
    }
}
