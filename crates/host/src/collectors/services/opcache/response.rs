//! What the script answers: lines `name value`.

use super::refusal::{self, Refusal};
use crate::collectors::Reading;
use crate::collectors::monotonic_counter::MonotonicCounter;
use crate::probes::fastcgi::Answer;
use std::collections::BTreeMap;

/// Levels: the name of the value and of the field.
pub const LEVELS: [(&str, &str); 15] = [
    ("enabled_count", "opcache_enabled"),
    ("full_count", "cache_full"),
    ("restart_pending_count", "restart_pending"),
    ("memory_used_bytes", "memory_usage.used_memory"),
    ("memory_free_bytes", "memory_usage.free_memory"),
    ("memory_wasted_bytes", "memory_usage.wasted_memory"),
    ("strings_used_bytes", "interned_strings_usage.used_memory"),
    ("strings_free_bytes", "interned_strings_usage.free_memory"),
    ("scripts_count", "opcache_statistics.num_cached_scripts"),
    ("keys_count", "opcache_statistics.num_cached_keys"),
    ("keys_max_count", "opcache_statistics.max_cached_keys"),
    ("jit_on_count", "jit.on"),
    ("jit_enabled_count", "jit.enabled"),
    ("jit_buffer_bytes", "jit.buffer_size"),
    ("jit_free_bytes", "jit.buffer_free"),
];

/// Totals.
pub const TOTALS: [(&str, &str); 5] = [
    ("hits_count", "opcache_statistics.hits"),
    ("misses_count", "opcache_statistics.misses"),
    ("oom_restarts_count", "opcache_statistics.oom_restarts"),
    ("hash_restarts_count", "opcache_statistics.hash_restarts"),
    ("manual_restarts_count", "opcache_statistics.manual_restarts"),
];

/// The numbers by field.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpcacheValues(BTreeMap<String, f64>);

/// Reads an answer; an error when it is not that of the script.
pub fn parse(answer: &Answer) -> Result<OpcacheValues, Refusal> {
    let text = String::from_utf8_lossy(&answer.body);
    let number = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let value: f64 = value.trim().parse().ok()?;
        (value.is_finite() && value >= 0.0).then(|| (name.to_owned(), value))
    };
    let message = OpcacheValues(text.lines().filter_map(number).collect());
    if message.get("webdyno.end").is_none() {
        return Err(refusal::of_answer(answer));
    }
    if message.is("webdyno.loaded") && !message.is("webdyno.callable") {
        return Err(refusal::disabled());
    }
    if message.is("webdyno.restricted") {
        return Err(refusal::restricted());
    }
    Ok(message)
}

impl OpcacheValues {
    fn get(&self, field: &str) -> Option<f64> {
        self.0.get(field).copied()
    }

    fn is(&self, field: &str) -> bool {
        self.get(field) == Some(1.0)
    }

    /// Adds the values. Where OPcache is not loaded, or off, that is known, and all else is missing.
    pub fn values(
        &self,
        instance: &str,
        totals: &mut [MonotonicCounter; TOTALS.len()],
        reading: &mut Reading,
    ) {
        let name = |what: &str| format!("opcache.{instance}.{what}");
        if !self.is("opcache_enabled") {
            reading.push(name("enabled_count"), 0.0);
            let (why, how) = match self.is("webdyno.loaded") {
                true => ("OPcache is switched off", "opcache.enable = 1 in php.ini, and reload php-fpm"),
                false => ("OPcache is not loaded", "install OPcache (php-opcache), and restart php-fpm"),
            };
            return reading.lacks(format!("opcache.{instance}"), why, how);
        }
        for (what, field) in LEVELS {
            reading.push_some(name(what), self.get(field));
        }
        // Hits and misses begin anew with the cache.
        let begun =
            ["start_time", "last_restart_time"].map(|field| self.get(&format!("opcache_statistics.{field}")));
        let source = begun
            .iter()
            .flatten()
            .fold(0, |source: u64, time| source.wrapping_mul(31).wrapping_add(*time as u64));
        for ((what, field), counter) in TOTALS.iter().zip(totals) {
            let is_of_cache = matches!(*what, "hits_count" | "misses_count");
            let value =
                self.get(field).map(|value| counter.update(if is_of_cache { source } else { 0 }, value));
            reading.push_some(name(what), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANSWER: &str = "webdyno.loaded 1\nwebdyno.callable 1\nwebdyno.restricted 0\nopcache_enabled 1\ncache_full 0\n\
        memory_usage.used_memory 9000\nmemory_usage.current_wasted_percentage 0.5\nopcache_statistics.hits 7\n\
        opcache_statistics.start_time 1763456544\nopcache_statistics.last_restart_time 0\nwebdyno.end 1\n";

    fn answer(body: &str) -> Answer {
        Answer { status: 200, body: body.into(), stderr: vec![] }
    }

    fn read(body: &str, totals: &mut [MonotonicCounter; TOTALS.len()]) -> Reading {
        let mut reading = Reading::default();
        parse(&answer(body)).unwrap().values("www", totals, &mut reading);
        reading
    }

    #[test]
    fn values_are_those_of_the_answer() {
        let mut totals = Default::default();
        let reading = read(ANSWER, &mut totals);
        assert_eq!(reading.value("opcache.www.enabled_count"), Some(1.0));
        assert_eq!(reading.value("opcache.www.memory_used_bytes"), Some(9000.0));
        assert_eq!(reading.value("opcache.www.hits_count"), Some(7.0));
        assert_eq!(reading.value("opcache.www.misses_count"), None, "not told is not zero");
        let anew =
            ANSWER.replace("hits 7", "hits 0").replace("last_restart_time 0", "last_restart_time 1763456600");
        assert_eq!(read(&anew, &mut totals).value("opcache.www.hits_count"), Some(7.0));
        let more = anew.replace("hits 0", "hits 5");
        assert_eq!(read(&more, &mut totals).value("opcache.www.hits_count"), Some(12.0));
    }

    #[test]
    fn a_cache_that_is_off_is_told_as_off() {
        for (loaded, why) in [(1, "switched off"), (0, "not loaded")] {
            let body = format!(
                "webdyno.loaded {loaded}\nwebdyno.callable {loaded}\nwebdyno.restricted 0\nwebdyno.end 1\n"
            );
            let reading = read(&body, &mut Default::default());
            assert_eq!(reading.values, [("opcache.www.enabled_count".to_owned(), 0.0)]);
            assert!(reading.missing[0].why.contains(why));
        }
    }

    #[test]
    fn who_may_not_ask_is_told() {
        let disabled = ANSWER.replace("callable 1", "callable 0");
        assert!(parse(&answer(&disabled)).unwrap_err().why.contains("disable_functions"));
        let restricted = ANSWER.replace("restricted 0", "restricted 1");
        assert!(parse(&answer(&restricted)).unwrap_err().why.contains("restrict_api"));
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(cut in 0..ANSWER.len(), noise in prop::collection::vec(any::<u8>(), 0..60)) {
            let body = [ANSWER.as_bytes()[..cut].to_vec(), noise].concat();
            if let Ok(message) = parse(&Answer { body, ..answer("") }) {
                message.values("www", &mut Default::default(), &mut Reading::default());
            }
        }
    }
}
