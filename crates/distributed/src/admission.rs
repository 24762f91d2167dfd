//! What a worker agrees to do, whoever asks: its operator's list of targets, and limits of rate and time.

use std::fmt;
use url::Url;
use webdyno_model::workload::{Arrival, Workload, stage};
use webdyno_model::{Result, UserError};

/// The limits of a worker, which no plan can exceed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Limits {
    /// Servers that it may load; none: only this machine, over loopback.
    pub targets: Vec<AllowedTarget>,
    /// Most starts per second of its own part; closed loads are refused where there is one.
    pub rate_per_s_max: Option<f64>,
    /// Longest load, seconds.
    pub seconds_max: Option<u64>,
}

/// A server that may be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTarget {
    host: String,
    /// `None`: every port.
    port: Option<u16>,
}

impl AllowedTarget {
    /// Reads `HOST`, `HOST:PORT`, or an IPv6 address in brackets.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            UserError::usage(format!("`{text}` is not a host with or without a port"))
                .hint("as in --allow-target shop.example:443, or --allow-target '[2001:db8::1]'")
        };
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => (host, Some(port.parse().map_err(|_| wrong())?)),
            _ => (text, None),
        };
        let is_address = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || host.contains(['/', '@']) || (host.contains(':') && !is_address) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_ascii_lowercase(), port })
    }

    fn allows(&self, host: &str, port: u16) -> bool {
        if self.host == "*" {
            return true;
        }
        self.host == host.to_ascii_lowercase() && self.port.is_none_or(|allowed| allowed == port)
    }
}

impl fmt::Display for AllowedTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(formatter, "{}:{port}", self.host),
            None => formatter.write_str(&self.host),
        }
    }
}

impl Limits {
    /// Whether the part of a workload is within the limits; why not otherwise. `fraction` is the worker's part of all threads.
    pub fn check(&self, workload: &Workload, fraction: f64) -> std::result::Result<(), String> {
        let mut urls = workload.requests.iter().map(|request| request.url.as_str());
        urls.try_for_each(|url| self.check_url(url))?;
        for to in &workload.transport.connect_to {
            let (Some(host), Some(port)) = (&to.to_host, to.to_port) else {
                return Err("connections that lead elsewhere must name host and port".into());
            };
            self.check_server(host, port)?;
        }
        self.check_time(workload)?;
        match (self.rate_per_s_max, workload.arrival) {
            (Some(_), Arrival::Closed) => {
                Err("a closed loop has no rate that could be limited, and this worker limits rates".into())
            }
            (Some(most), Arrival::Open { rate_per_s, .. }) => {
                // What is written down as the highest rate of its stages need not be that.
                let highest = rate_per_s.max(stage::highest(&workload.stages)) * fraction;
                let refused = || format!("its part has {highest:.0} starts/s, and this worker allows {most}");
                (highest <= most).then_some(()).ok_or_else(refused)
            }
            (None, _) => Ok(()),
        }
    }

    /// Whether a server may be loaded.
    pub fn check_server(&self, host: &str, port: u16) -> std::result::Result<(), String> {
        let local = ["localhost", "127.0.0.1", "[::1]", "::1"].contains(&host);
        let allowed = match self.targets.is_empty() {
            true => local,
            false => self.targets.iter().any(|target| target.allows(host, port)),
        };
        if allowed {
            return Ok(());
        }
        let list: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        let list = if list.is_empty() { "loopback alone".into() } else { list.join(", ") };
        Err(format!("{host}:{port} is not a target that this worker may load: {list}"))
    }

    fn check_url(&self, url: &str) -> std::result::Result<(), String> {
        let parsed = Url::parse(url).map_err(|_| format!("`{url}` is not a URL"))?;
        let port = parsed.port_or_known_default().ok_or("a URL has no port")?;
        self.check_server(parsed.host_str().ok_or("a URL has no host")?, port)
    }

    fn check_time(&self, workload: &Workload) -> std::result::Result<(), String> {
        let Some(most_s) = self.seconds_max else { return Ok(()) };
        match workload.stop.duration_us {
            Some(us) if us <= most_s.saturating_mul(1_000_000) => Ok(()),
            Some(us) => {
                Err(format!("it lasts {} s, and this worker allows {most_s} s", us.div_ceil(1_000_000)))
            }
            // The worker ends it itself.
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::transport::ConnectTo;
    use webdyno_model::workload::stage::{Shape, Stage};
    use webdyno_model::workload::{RequestSpec, Stop};

    fn workload(url: &str) -> Workload {
        let request = RequestSpec { url: url.into(), ..RequestSpec::default() };
        Workload { requests: vec![request], ..Workload::default() }
    }

    #[test]
    fn a_plan_beyond_the_limits_is_refused() {
        let open = Arrival::Open { rate_per_s: 1000.0, poisson: false };
        let minute = Stop { duration_us: Some(60_000_000), requests: None };
        let allow = |text: &str| vec![AllowedTarget::parse(text).unwrap()];
        let limits = |targets, rate_per_s_max, seconds_max| Limits { targets, rate_per_s_max, seconds_max };
        let away = ConnectTo { host: None, port: None, to_host: Some("evil".into()), to_port: Some(80) };
        let mut led_away = workload("http://localhost/");
        led_away.transport.connect_to = vec![away];
        let with = |arrival, stop| Workload { arrival, stop, ..workload("http://127.0.0.1:81/") };
        let mut rises = with(open, minute);
        rises.stages =
            vec![Stage { duration_us: 60_000_000, shape: Shape::Hold { level: 9000.0 }, measured: true }];
        for (limits, workload, refused) in [
            (limits(vec![], Some(500.0), None), rises, Some("4500 starts/s")),
            (limits(vec![], None, None), workload("http://127.0.0.1:81/"), None),
            (limits(vec![], None, None), workload("http://[::1]/"), None),
            (limits(vec![], None, None), workload("http://shop.example/"), Some("loopback alone")),
            (limits(allow("shop.example:443"), None, None), workload("https://SHOP.example/a"), None),
            (
                limits(allow("shop.example:443"), None, None),
                workload("http://shop.example/"),
                Some("shop.example:443"),
            ),
            (limits(allow("*"), None, None), workload("http://shop.example/"), None),
            (limits(allow("shop.example"), None, None), workload("http://127.0.0.1/"), Some("not a target")),
            (limits(vec![], None, None), led_away, Some("evil:80")),
            (limits(vec![], Some(400.0), None), with(open, minute), Some("500 starts/s")),
            (limits(vec![], Some(500.0), None), with(open, minute), None),
            (limits(vec![], Some(500.0), None), with(Arrival::Closed, minute), Some("closed loop")),
            (limits(vec![], None, Some(59)), with(open, minute), Some("60 s")),
            (limits(vec![], None, Some(60)), with(open, minute), None),
        ] {
            let why = limits.check(&workload, 0.5).err();
            match (refused, &why) {
                (None, None) => {}
                (Some(part), Some(why)) => assert!(why.contains(part), "{why}"),
                _ => panic!("{refused:?}: {why:?}"),
            }
        }
    }

    #[test]
    fn targets_are_hosts_with_or_without_a_port() {
        for text in ["h", "h:80", "[::1]", "[::1]:80", "192.0.2.1:81"] {
            assert_eq!(AllowedTarget::parse(text).unwrap().to_string(), text);
        }
        for text in ["", ":80", "h:x", "::1", "http://h/", "u@h"] {
            assert!(AllowedTarget::parse(text).is_err(), "{text}");
        }
    }
}
