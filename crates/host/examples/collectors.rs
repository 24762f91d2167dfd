//! What each collector costs: CPU of its thread per reading, and the longest reading.
//!
//!     collectors READINGS [PORT [SERVICE_PID [CLIENT_PID]]]
//!
//! Readings follow each other every 100 ms, in the order of the observer: what is read rarely by the clock is rarer among
//! them than among readings of an agent, so the first reading, in which all is read, is told apart.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use webdyno_host::collectors::{self, Target};

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn main() {
    let arguments: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let readings = arguments.first().copied().unwrap_or(20).max(2);
    let port = arguments.get(1).and_then(|&port| u16::try_from(port).ok()).filter(|&port| port != 0);
    let process = |index: usize| arguments.get(index).copied().filter(|&pid| pid != 0);
    let target = Target { port, service_pid: process(2), client_pid: process(3), ..Target::default() };
    println!("collector          first us   others us  longest us  values  bytes");
    for mut collector in collectors::all() {
        let (mut first, mut others, mut longest) = (0.0, 0.0, Duration::ZERO);
        let (mut values, mut bytes) = (0, 0);
        for number in 0..readings {
            let (begun, before) = (Instant::now(), cpu_us());
            let reading = collector.read(&target);
            let spent = cpu_us() - before;
            longest = longest.max(begun.elapsed());
            if number == 0 {
                first = spent;
            } else {
                others += spent;
                values += reading.values.len();
                bytes += reading
                    .values
                    .iter()
                    .map(|(name, value)| name.len() + value.to_string().len() + 4)
                    .sum::<usize>();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let count = f64::from(readings - 1);
        println!(
            "{:18} {first:9.0} {:11.0} {:11} {:7.0} {:6.0}",
            collector.name(),
            others / count,
            longest.as_micros(),
            values as f64 / count,
            bytes as f64 / count
        );
    }
}
