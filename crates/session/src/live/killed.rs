//! A load during which the kernel ended the agent itself, as the server ran out of memory: that is harm like any other. The
//! server has no memory for another process, and says so in the count of its kernel; the next agent reads it.
//!
//! As root the agent is spared where it may say so (`host/agent/hardening`): that needs CAP_SYS_RESOURCE, which containers lack.

use super::{LiveSession, LoadLength, Servers};
use webdyno_load::Prepared;
use webdyno_model::Result;
use webdyno_model::event::EventBody;
use webdyno_model::harm_guard::{HarmCause, HarmGuardTrip};
use webdyno_model::number::Number;
use webdyno_model::purpose::Purpose;
use webdyno_model::workload::Workload;

/// So long the next agent is heard before it is asked what happened: each of its collectors has read once by then.
const READ_AGAIN_S: f64 = 1.5;

/// What a collector counts, what the harm guard calls the same, and whose processes it counts.
const COUNTERS: [(&str, &str, &str); 2] = [
    ("cgroup.oom_kills_count", "memory.group_oom_kills_count", " of the service's control group"),
    ("memory.oom_kills_count", "memory.oom_kills_count", ""),
];

impl LiveSession {
    /// As [`LiveSession::load`]; a load that ended because the kernel killed an agent for want of memory counts as one that had to be
    /// stopped. All that the agent had changed is put back by then. An agent that ended for another reason is an error, as ever.
    pub fn load_or_recover(
        &mut self,
        prepared: &Prepared,
        workload: &Workload,
        purpose: Purpose,
        length: LoadLength,
        servers: &mut Servers,
    ) -> Result<u32> {
        if servers.has_lost_agent() {
            self.observe_for(READ_AGAIN_S, servers)?;
        }
        let before = self.kills();
        let error = match self.load(prepared, workload, purpose, length, Some(servers)) {
            Err(error) if servers.has_lost_agent() && !self.is_interrupted() => error,
            ended => return ended,
        };
        // The first look waits for the next agent, the second one is for what it reads.
        for seconds in [0.1, READ_AGAIN_S] {
            self.observe_for(seconds, servers)?;
        }
        let Some(brake) = trip(before, self.kills()) else { return Err(error) };
        let load = self.loads;
        if self.recording().load(load).is_some_and(|record| record.harm_guard_trip.is_none()) {
            self.append(EventBody::Brake { load, brake })?;
        }
        Ok(load)
    }

    /// How many processes the kernel has killed, as it was read last.
    fn kills(&self) -> [Option<f64>; 2] {
        COUNTERS.map(|(metric, ..)| {
            let mut samples = self.recording.samples.iter().rev();
            samples.find_map(|(_, sample)| sample.values.get(metric).map(|count| count.0))
        })
    }
}

/// What made the load stop; `None` where nothing says that it was the memory.
fn trip(before: [Option<f64>; 2], after: [Option<f64>; 2]) -> Option<HarmGuardTrip> {
    COUNTERS.into_iter().zip(before.into_iter().zip(after)).find_map(|((_, metric, whose), (before, after))| {
        let count = Some(after? - before?).filter(|count| *count >= 1.0)?;
        let processes = if count == 1.0 { "process" } else { "processes" };
        Some(HarmGuardTrip {
            cause: HarmCause::OutOfMemory,
            metric: metric.into(),
            value: Number(count),
            limit: Number(1.0),
            text: format!(
                "the kernel killed {count} {processes}{whose} for want of memory, webdyno's agent among them"
            ),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_ended_for_another_reason_is_no_want_of_memory() {
        let count = |group, machine| [group, machine];
        for (before, after, expected) in [
            (
                count(Some(2.0), Some(7.0)),
                count(Some(5.0), Some(10.0)),
                Some(("memory.group_oom_kills_count", 3.0)),
            ),
            (count(None, Some(7.0)), count(None, Some(8.0)), Some(("memory.oom_kills_count", 1.0))),
            (count(Some(2.0), Some(7.0)), count(Some(2.0), Some(7.0)), None),
            (count(None, None), count(Some(1.0), Some(1.0)), None),
        ] {
            let found = trip(before, after);
            let found = found.as_ref().map(|trip| (trip.metric.as_str(), trip.value.0));
            assert_eq!(found, expected);
        }
    }
}
