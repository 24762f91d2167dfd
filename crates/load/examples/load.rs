//! Loads one URL and prints what the engine itself costs: `load URL CONNECTIONS SECONDS [RATE] [close] [uring] [http3] [streams=N]`.
//! With `streams` it speaks HTTP/2, or with `http3` that. Any certificate is accepted.

use webdyno_load::{Control, prepare, probe, run};
use webdyno_model::histogram::TimeHistogram;
use webdyno_model::transport::{Io, TlsOptions, Transport};
use webdyno_model::workload::{Arrival, RequestSpec, Stop, Workload};
use webdyno_model::{Result, UserError};

fn main() {
    if let Err(error) = load() {
        eprintln!("{error}\n{}", error.hint.clone().unwrap_or_default());
        std::process::exit(i32::from(error.exit_code()));
    }
}

fn workload() -> Result<Workload> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let usage =
        || UserError::usage("load URL CONNECTIONS SECONDS [RATE] [close] [uring] [http3] [streams=N]");
    let number = |index: usize| args.get(index).and_then(|text| text.parse::<f64>().ok()).ok_or_else(usage);
    let url = args.first().ok_or_else(usage)?.clone();
    let streams =
        args.iter().find_map(|text| text.strip_prefix("streams=")).and_then(|text| text.parse().ok());
    let has = |word: &str| args.iter().any(|text| text == word);
    Ok(Workload {
        requests: vec![RequestSpec { name: url.clone(), url, ..RequestSpec::default() }],
        arrival: match number(3) {
            Ok(rate_per_s) if rate_per_s > 0.0 => Arrival::Open { rate_per_s, poisson: false },
            _ => Arrival::Closed,
        },
        stop: Stop { duration_us: Some((number(2)? * 1e6) as u64), requests: None },
        connections: number(1)? as u32,
        threads: Some(1),
        keepalive: !has("close"),
        transport: Transport {
            tls: TlsOptions { insecure: true, ..TlsOptions::default() },
            http2_streams: streams.filter(|_| !has("http3")),
            http3_streams: streams.filter(|_| has("http3")),
            io: if has("uring") { Io::Uring } else { Io::Epoll },
            ..Transport::default()
        },
        ..Workload::default()
    })
}

fn load() -> Result<()> {
    let mut prepared = prepare(&workload()?)?;
    prepared.warnings().iter().for_each(|warning| println!("{warning}"));
    println!("{:?}", probe(&mut prepared)?);
    let (mut completed, mut failed) = (0, 0);
    let [mut response, mut delay, mut service] =
        [const { None }; 3].map(|_: Option<()>| TimeHistogram::new());
    let end = run(&prepared, &Control::new(), &mut |interval| {
        completed += interval.completed;
        failed += interval.failed;
        println!(
            "{} started {} completed {} failed {} in flight {} {:?} {:?}",
            interval.t_s,
            interval.started,
            interval.completed,
            interval.failed,
            interval.in_flight,
            interval.errors.named().iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(),
            interval.connections
        );
        for (sum, part) in [
            (&mut response, &interval.response_time),
            (&mut service, &interval.service_time),
            (&mut delay, &interval.client_delay),
        ] {
            let _ = part.iter().try_for_each(|part| sum.merge_encoded(part));
        }
    })?;
    println!("{completed} good, {failed} failed, {} in flight", end.in_flight_at_end);
    println!("response {:?}\nservice {:?}\ndelay {:?}", response.dist(), service.dist(), delay.dist());
    let cpu_us: u64 = end.thread_cpu_us.iter().sum();
    println!("engine cpu per request {:.3} us", cpu_us as f64 / completed as f64);
    Ok(())
}
