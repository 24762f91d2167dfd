//! Facts on workers: from the scoreboard of mod_status (inside), and from the number of processes (outside).
//!
//! Source: the documentation of mod_status, and what prefork, worker and event of Apache 2.4 were seen to do under load.

use super::{Derivation, FactBuilder, FactId};
use crate::measurement::series::SeriesSet;
use crate::measurement::statistics::mean;
use webdyno_model::sample::Sample;

/// A connection in the accept queue does not prove that no worker is free: it may have come this instant. With at most
/// this share of the workers idle it does, if no more workers may be started. Under worker and event the listener of a
/// process hands out what its own threads can take, so that threads of one process are idle while connections wait
/// for another's, and the status page is only answered when some have come free: up to 15 of 50 were seen idle
/// while 150 connections waited the whole time.
const IDLE_FRACTION_MAX: f64 = 0.35;
/// Readings of the scoreboard and of the accept queue belong together when they are at most this far apart.
const SAME_TIME_S: f64 = 1.0;

fact_table! {
    "fraction": scoreboard_full_fraction, status_unanswered_fraction, processes_at_limit_fraction;
    "workers": workers_when_full;
    "requests": requests_at_server_mean;
    "us": worker_time_mean_us;
    "processes": service_processes_fell_max;
}

impl FactBuilder<'_> {
    /// In which share of its readings the scoreboard was full ([`ScoreboardReading`]), how many workers there were then, and in
    /// which share of the attempts the status page did not answer at all.
    pub(super) fn scoreboard(&mut self) {
        let readings: Vec<_> = self.series.samples_of("apache_status").collect();
        let limit = self.service.and_then(|service| service.number("MaxRequestWorkers"));
        let look = |timed: &&crate::measurement::TimedSample| {
            let queue = queue_at(&self.series, timed.t_s + timed.sample.duration_us as f64 / 1e6);
            ScoreboardReading::of(&timed.sample, limit, queue)
        };
        let looks: Vec<ScoreboardReading> = readings.iter().filter_map(look).collect();
        let full: Vec<f64> = looks.iter().map(|look| f64::from(u8::from(look.full))).collect();
        // One reading is no share: a single look may be a coincidence.
        let full_fraction = (full.len() >= 2).then(|| mean(&full)).flatten();
        let live: Vec<f64> = looks.iter().filter(|look| look.full).map(|look| look.live).collect();
        let is_unanswered = |sample: &Sample| sample.error.is_some() && sample.values.is_empty();
        let unanswered = readings.iter().filter(|timed| is_unanswered(&timed.sample)).count();
        let has_page = self.service.is_some_and(|service| service.status_url.is_some());
        let unanswered =
            (has_page && !readings.is_empty()).then(|| unanswered as f64 / readings.len() as f64);
        let idle = ("apache.workers_idle_count", Derivation::Mean);
        self.add_from(FactId::scoreboard_full_fraction, full_fraction, idle);
        self.add_from(FactId::workers_when_full, mean(&live), ("apache.slots_count", Derivation::Mean));
        let wait = ("apache.status_wait_us", Derivation::Mean);
        self.add_from(FactId::status_unanswered_fraction, unanswered, wait);
    }

    /// Mean time that a request holds a worker, by Little's law: writing workers / requests per second. The request
    /// for the status page itself is always one of them, and each reading is one of the accesses: neither belongs to
    /// the requests that are asked about.
    ///
    /// `Total Duration / Total Accesses` would say the same under the event MPM, but under prefork and worker Apache
    /// adds each request's time twice (its request loop stops the clock, and stops it again after flushing).
    pub(super) fn worker_time(&mut self) {
        const ACCESSES: &str = "apache.accesses_count";
        let writing =
            self.series.mean("apache.workers_writing_count").map(|writing| (writing - 1.0).max(0.0));
        let rate = self.series.span(ACCESSES).zip(self.series.increase(ACCESSES)).map(
            |((first, last), (accesses, seconds))| {
                let between = |time: f64| time > first.0 && time <= last.0;
                let own = self.series.all(ACCESSES).iter().filter(|(time, _)| between(*time)).count();
                (accesses - own as f64) / seconds
            },
        );
        let queue = self.series.mean("sockets.accept_queue_count");
        let at_server = writing.zip(queue).map(|(writing, queue)| writing + queue);
        let metric = ("apache.workers_writing_count", Derivation::Mean);
        self.add_from(FactId::requests_at_server_mean, at_server, metric);
        let time_us =
            writing.zip(rate.filter(|rate| *rate >= 1.0)).map(|(writing, rate)| writing / rate * 1e6);
        self.add_from(
            FactId::worker_time_mean_us,
            time_us,
            ("apache.workers_writing_count", Derivation::Mean),
        );
    }

    /// The view from outside: in which share of the readings as many processes ran as hold all the workers that
    /// `MaxRequestWorkers` allows, and by how many processes their number fell at most from one reading to the next.
    pub(super) fn processes(&mut self) {
        let counts = self.series.levels("process.count");
        let threads = super::threads_per_process(self.service);
        let limit = self.service.and_then(|service| service.number("MaxRequestWorkers"));
        let limit = limit.map(|most| super::workers_of_processes(most, threads));
        // The parent is a process too, and not a worker.
        let at_limit = |limit: f64| {
            let at: Vec<f64> =
                counts.iter().map(|count| f64::from(u8::from((count - 1.0) * threads >= limit))).collect();
            (at.len() >= 2).then(|| mean(&at)).flatten()
        };
        let fell = counts.windows(2).map(|pair| (pair[0] - pair[1]).max(0.0)).reduce(f64::max);
        let from = ("process.count", Derivation::Mean);
        self.add_from(FactId::processes_at_limit_fraction, limit.and_then(at_limit), from);
        self.add_from(FactId::service_processes_fell_max, fell, from);
    }
}

/// The accept queue at the time at which a status page was written.
fn queue_at(series: &SeriesSet, time_s: f64) -> Option<f64> {
    series.nearest("sockets.accept_queue_count", time_s, SAME_TIME_S)
}

struct ScoreboardReading {
    /// Workers that exist, busy or not.
    live: f64,
    /// No more may be started, and none is idle or those few that are leave connections waiting.
    full: bool,
}

impl ScoreboardReading {
    /// `limit` is the MaxRequestWorkers in force, `queue` the accept queue at the same time.
    ///
    /// An open slot (`.`) is no leave to start one more: under worker and event the slots of a process that has ended
    /// stay open below those of a later one, while as many processes run as the limit allows.
    fn of(sample: &Sample, limit: Option<f64>, queue: Option<f64>) -> Option<Self> {
        let level = |name: &str| sample.values.get(name).map(|value| value.0);
        let (slots, open) = (level("apache.slots_count")?, level("apache.slots_open_count")?);
        let idle = level("apache.workers_idle_count")?;
        // After a reload that lowered the limit, prefork shows dead workers behind it for ever.
        let live = limit.map_or(slots - open, |limit| (slots - open).min(limit));
        let may_start = open > 0.0 && limit.is_none_or(|limit| live < limit);
        let waiting = queue.is_some_and(|queue| queue >= 1.0);
        let taken = idle == 0.0 || (waiting && idle <= (IDLE_FRACTION_MAX * live).max(1.0));
        Some(Self { live, full: taken && !may_start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{apache, of, sample};
    use webdyno_model::service::{ServiceSnapshot, SettingValue};

    fn status(t_s: f64, idle: f64, open: f64) -> crate::measurement::TimedSample {
        let slots = ("apache.slots_count", 150.0);
        let values = [slots, ("apache.workers_idle_count", idle), ("apache.slots_open_count", open)];
        sample(t_s, "apache_status", &values)
    }

    fn queue(t_s: f64, length: f64) -> crate::measurement::TimedSample {
        sample(t_s, "sockets", &[("sockets.accept_queue_count", length)])
    }

    #[test]
    fn a_full_scoreboard_is_told_apart_from_a_filling_one() {
        let looks = vec![status(1.0, 0.0, 100.0), status(2.0, 0.0, 0.0), status(3.0, 0.0, 0.0)];
        let facts = of([looks, vec![status(4.0, 0.0, 0.0)]].concat(), None);
        assert_eq!(facts.value(FactId::scoreboard_full_fraction), Some(0.75));
    }

    #[test]
    fn a_few_idle_workers_are_none_while_connections_wait() {
        // (idle of 150, open slots, queue, share of full readings)
        for (idle, open, waiting, full) in [
            (40.0, 0.0, 3.0, 1.0),
            (40.0, 0.0, 0.0, 0.0),
            (60.0, 0.0, 3.0, 0.0),
            (5.0, 20.0, 3.0, 0.0),
            (0.0, 0.0, 0.0, 1.0),
        ] {
            let seconds = (1..=4).map(f64::from);
            let samples = seconds.flat_map(|t| [status(t, idle, open), queue(t - 0.3, waiting)]);
            let facts = of(samples.collect(), None);
            let observed = facts.value(FactId::scoreboard_full_fraction);
            assert_eq!(observed, Some(full), "{idle} idle, {open} open, {waiting} waiting");
        }
    }

    #[test]
    fn a_passing_burst_does_not_fill_the_board() {
        let seconds = (1..=8).map(f64::from);
        let samples =
            seconds.flat_map(|t| [status(t, 30.0, 0.0), queue(t, if t == 3.0 { 9.0 } else { 0.0 })]);
        assert_eq!(of(samples.collect(), None).value(FactId::scoreboard_full_fraction), Some(0.125));
    }

    #[test]
    fn open_slots_of_ended_processes_are_no_leave_to_start_more() {
        // As the event MPM shows it: two processes of ten threads are allowed, and they hold slots 0 and 2.
        let values = [
            ("apache.slots_count", 30.0),
            ("apache.slots_open_count", 10.0),
            ("apache.workers_idle_count", 0.0),
        ];
        let sample = sample(1.0, "apache_status", &values).sample;
        assert!(ScoreboardReading::of(&sample, Some(20.0), None).unwrap().full);
        assert!(!ScoreboardReading::of(&sample, Some(30.0), None).unwrap().full);
        assert_eq!(ScoreboardReading::of(&sample, None, None).unwrap().live, 20.0);
        // Behind a limit that was lowered to 5 there are dead ones.
        assert_eq!(ScoreboardReading::of(&sample, Some(5.0), None).unwrap().live, 5.0);
    }

    #[test]
    fn worker_time_is_writing_workers_over_rate_without_the_readings_own() {
        let reading = |t_s, writing, accesses| {
            let values = [("apache.workers_writing_count", writing), ("apache.accesses_count", accesses)];
            sample(t_s, "apache_status", &values)
        };
        // 20 requests in 10 s beside the two readings' own.
        let facts = of(vec![reading(0.0, 5.0, 0.0), reading(5.0, 5.0, 11.0), reading(10.0, 5.0, 22.0)], None);
        assert_eq!(facts.value(FactId::worker_time_mean_us), Some(2_000_000.0));
    }

    #[test]
    fn one_second_of_ramp_or_respawn_does_not_hide_the_limit() {
        let counts = [90.0, 151.0, 151.0, 150.0, 151.0, 151.0, 151.0, 151.0];
        let read = |counts: &[f64]| -> Vec<_> {
            let timed = counts.iter().zip(1..);
            timed.map(|(count, t)| sample(f64::from(t), "process", &[("process.count", *count)])).collect()
        };
        let prefork = of(read(&counts), Some(apache(&[("MaxRequestWorkers", 150)])));
        assert_eq!(prefork.value(FactId::processes_at_limit_fraction), Some(0.75));
        assert_eq!(prefork.value(FactId::service_processes_fell_max), Some(1.0));
        let mut event = apache(&[("MaxRequestWorkers", 150), ("ThreadsPerChild", 25)]);
        event.mode = Some("event".into());
        let at = |event: &_, counts: &[f64]| {
            let facts = of(read(counts), Some(ServiceSnapshot::clone(event)));
            (facts.value(FactId::processes_at_limit_fraction), facts.workers_configured())
        };
        assert_eq!(at(&event, &[6.0, 7.0, 7.0, 7.0]), (Some(0.75), Some(150.0)));
        // Whole processes: what is left over starts no further one, and less than one is one.
        for (most, workers) in [(32, 25.0), (74, 50.0), (10, 25.0)] {
            let setting = event.settings.get_mut("MaxRequestWorkers").unwrap();
            setting.configured = Some(SettingValue::Integer(most));
            let full = 1.0 + workers / 25.0;
            assert_eq!(at(&event, &[full; 3]), (Some(1.0), Some(workers)), "{most}");
        }
        assert_eq!(of(read(&counts), None).value(FactId::processes_at_limit_fraction), None);
    }
}
