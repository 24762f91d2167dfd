//! Whether anything but a scenario had the machine's processors while it was measured: then its figures say nothing. Pure.
//!
//! What the hypervisor gave to others counts as well: the processors are as little there.
//!
//! Facts: /proc/stat is the whole machine's in every namespace (proc_stat(5)); the server's control group counts what the server
//! used; the generator says what it used.

use webdyno_analysis::measurement::Measurement;
use webdyno_analysis::measurement::series::SeriesSet;
use webdyno_analysis::run_report::run_report;
use webdyno_model::Result;

/// Cores that others may have.
pub const OTHERS_MAX: f64 = 0.4;
/// What the machine did.
const BUSY: [&str; 5] = ["cpu.user_s", "cpu.nice_s", "cpu.system_s", "cpu.irq_s", "cpu.softirq_s"];
/// What other guests of the host had of it.
const STOLEN: &str = "cpu.steal_s";
/// What the server did.
const SERVER: &str = "cgroup.cpu_s";

/// Cores that others used, by the recording of a round; `None` where it does not tell.
pub fn others_cores(measurement: &Measurement) -> Result<Option<f64>> {
    let series = SeriesSet::of(measurement);
    let busy: Option<f64> = BUSY.iter().map(|name| series.rate(name)).sum();
    let run = run_report(measurement)?;
    let client = run.client.cpu_s.map_or(0.0, |cpu_s| cpu_s / run.elapsed_s.max(1.0));
    let stolen = series.rate(STOLEN).unwrap_or(0.0);
    Ok(busy.zip(series.rate(SERVER)).map(|(busy, server)| (busy - server - client).max(0.0) + stolen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_analysis::measurement::TimedSample;
    use webdyno_model::number::Number;
    use webdyno_model::sample::Sample;

    /// Ten seconds in which the machine was busy for 8 s, and the server for so many.
    fn measured(server_s: f64, stolen_s: Option<f64>) -> Measurement {
        let at = |t_s: f64, share: f64| {
            let busy = BUSY.iter().map(|name| (*name, if *name == "cpu.user_s" { 8.0 } else { 0.0 }));
            let values = busy.chain([(SERVER, server_s)]).chain(stolen_s.map(|stolen_s| (STOLEN, stolen_s)));
            let values = values.map(|(name, value)| (name.to_owned(), Number(value * share)));
            let sample = Sample { source: "cpu".into(), values: values.collect(), ..Sample::default() };
            TimedSample { t_s, sample }
        };
        Measurement {
            samples: vec![at(0.0, 0.0), at(10.0, 1.0)],
            measured_to_s: 10.0,
            ..Measurement::default()
        }
    }

    #[test]
    fn what_others_and_the_hypervisor_take_disturbs() {
        for (what, server_s, stolen_s, disturbs) in [
            ("the server alone", 7.5, Some(0.0), false),
            ("another program", 3.0, Some(0.0), true),
            ("the hypervisor", 7.5, Some(5.4), true),
            ("what is not read is not taken", 7.5, None, false),
        ] {
            let cores = others_cores(&measured(server_s, stolen_s)).unwrap().unwrap();
            assert_eq!(cores > OTHERS_MAX, disturbs, "{what}: {cores}");
        }
    }
}
