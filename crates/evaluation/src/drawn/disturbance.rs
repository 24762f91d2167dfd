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
