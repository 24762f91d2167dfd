//! Commands by which a reader sees the same figures by hand.

use crate::measurement::Measurement;
use std::collections::BTreeSet;
use webdyno_model::service::{Endpoint, LogFile, LogKind, ServiceSnapshot};
use webdyno_model::transport::{AddressFamily, Io, Transport};
use webdyno_model::workload::visit::{PageSpec, Resources, SessionSpec, Think, Visits};
use webdyno_model::workload::{Arrival, Workload};

/// A command of the catalogue with the service's own values in the places of the words PID, PORT, URL, ERROR_LOGS (of
/// PHP-FPM: LOG) and ACCESS_LOGS, of a pool ADDRESS and STATUS, of a database DATABASE, the load generator's process in that
/// of CLIENT, and the name of the disk, interface, pool.. in that of INSTANCE. What is not known stays, and a name that a
/// shell would read as something else: the reader has to fill it in.
pub fn with_service_values(
    command: &str,
    service: Option<&ServiceSnapshot>,
    instance: Option<&str>,
) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let value = |word: &str| -> Option<String> {
        match word {
            "PID" => Some(service?.pid.to_string()).filter(|pid| pid != "0"),
            "PORT" => Some(service?.port.to_string()).filter(|port| port != "0"),
            "URL" => service?.status_url.clone(),
            "INSTANCE" => instance.filter(|name| name.chars().all(is_plain)).map(ToOwned::to_owned),
            "ERROR_LOGS" | "LOG" => logs(service?, LogKind::Error),
            "ADDRESS" => pool(service?, instance)
                .map(|pool| path_or_address(pool).to_owned())
                .filter(|text| is_plain_text(text)),
            "STATUS" => pool(service?, instance)?.path.clone().filter(|text| is_plain_text(text)),
            "DATABASE" => client_options(service?),
            "ACCESS_LOGS" => logs(service?, LogKind::Access),
            "CLIENT" => Some("$(pgrep -x webdyno | head -n 1)".into()),
            _ => None,
        }
    };
    let mut filled = String::with_capacity(command.len());
    let mut rest = command;
    while !rest.is_empty() {
        let word = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        filled.push_str(&value(&rest[..word]).unwrap_or_else(|| rest[..word].to_owned()));
        let next = rest[word..].find(is_word).map_or(rest.len(), |gap| word + gap);
        filled.push_str(&rest[word..next]);
        rest = &rest[next..];
    }
    filled
}

/// Whether a letter is the same within quotes of a shell and without.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-.:/@+,=%".contains(letter)
}

fn is_plain_text(text: &str) -> bool {
    text.chars().all(is_plain)
}

/// The endpoint of this name, which is how pools are called.
fn pool<'a>(service: &'a ServiceSnapshot, instance: Option<&str>) -> Option<&'a Endpoint> {
    service.endpoints.iter().find(|endpoint| Some(endpoint.name.as_str()) == instance)
}

fn path_or_address(endpoint: &Endpoint) -> &str {
    endpoint.address.strip_prefix("unix:").unwrap_or(&endpoint.address)
}

/// Where a database listens, as options of its client.
fn client_options(service: &ServiceSnapshot) -> Option<String> {
    let endpoint = service.endpoints.first()?;
    let options = match (endpoint.address.strip_prefix("unix:"), endpoint.address.rsplit_once(':')) {
        (Some(path), _) => format!("--socket={path}"),
        (None, Some((host, port))) => {
            format!("--protocol=tcp --host={} --port={port}", host.trim_matches(['[', ']']))
        }
        (None, None) => return None,
    };
    options.chars().all(|letter| is_plain(letter) || letter == ' ').then_some(options)
}

/// A command that runs where a process has its network.
pub fn in_network_of(pid: u32, command: &str) -> String {
    format!("nsenter -t {pid} -n sh -c '{}'", command.replace('\'', "'\\''"))
}

/// The paths of the logs of a service, quoted for the shell; `None` when none is known.
fn logs(service: &ServiceSnapshot, kind: LogKind) -> Option<String> {
    let is_file = |log: &&LogFile| log.kind == kind && log.path.starts_with('/');
    let quoted = |log: &LogFile| format!("'{}'", log.path.replace('\'', "'\\''"));
    let paths: BTreeSet<String> = service.logs.iter().filter(is_file).map(quoted).collect();
    (!paths.is_empty()).then(|| paths.into_iter().collect::<Vec<_>>().join(" "))
}

/// The command that repeats the load.
pub(super) fn load(measurement: &Measurement) -> String {
    let Some(workload) = &measurement.workload else {
        return String::new();
    };
    let mut command = String::from("webdyno run");
    match &workload.list {
        Some(list) => command.push_str(&format!(
            " --urls '{}'{}",
            list.file,
            if list.random { " --random" } else { "" }
        )),
        None => {
            let urls: BTreeSet<&str> = workload.requests.iter().map(|request| request.url.as_str()).collect();
            urls.iter().take(3).for_each(|url| command.push_str(&format!(" '{url}'")));
        }
    }
    match &workload.visits {
        Some(visits) => command = visitor_command(workload, visits),
        None => command.push_str(&format!(" -c {}", workload.connections)),
    }
    if let Arrival::Open { rate_per_s, .. } = workload.arrival {
        command.push_str(&format!(" -r {rate_per_s}"));
    }
    if !workload.keepalive {
        command.push_str(" --no-keepalive");
    }
    command.push_str(&transport_flags(&workload.transport));
    command
}

/// The beginning of the command that repeats a load of visitors. What flags cannot say is in a workload file, whose name the
/// reader has to fill in.
fn visitor_command(workload: &Workload, visits: &Visits) -> String {
    let found = |page: &PageSpec| matches!(page.resources, Resources::Found);
    let by_flags = |session: &SessionSpec| {
        let [step] = session.steps.as_slice() else { return false };
        let request = workload.requests.get(step.request);
        let plain = request.is_some_and(|request| {
            request.method == "GET"
                && request.headers.is_empty()
                && request.auth.is_none()
                && !request.has_variables
        });
        plain && step.page.as_ref().is_none_or(found) && step.think.is_none() && step.captures.is_empty()
    };
    let pages = || visits.sessions.iter().map(|session| session.steps.iter().any(|step| step.page.is_some()));
    let uniform = pages().all(|page| page) || !pages().any(|page| page);
    let mut command = String::from("webdyno run");
    if !(uniform && visits.sessions.iter().all(by_flags)) {
        command.push_str(" --workload FILE.toml");
        return command;
    }
    if pages().any(|page| page) {
        command.push_str(" --page");
    }
    let urls: BTreeSet<&str> = workload.requests.iter().map(|request| request.url.as_str()).collect();
    urls.iter().take(3).for_each(|url| command.push_str(&format!(" '{url}'")));
    if workload.arrival == Arrival::Closed {
        command.push_str(&format!(" --users {}", visits.users));
    }
    if visits.think != Think::None {
        command.push_str(&format!(" --think '{}'", visits.think));
    }
    command
}

/// The flags that say how connections come about; those of files keep their quotes.
fn transport_flags(transport: &Transport) -> String {
    let mut flags = String::new();
    if let Some(streams) = transport.multiplexed_streams() {
        flags.push_str(if transport.http3_streams.is_some() { " --http3" } else { " --http2" });
        flags.push_str(&if streams > 1 { format!(" --streams {streams}") } else { String::new() });
    }
    if let Some(proxy) = &transport.proxy {
        flags.push_str(&format!(" --proxy {proxy}"));
    }
    let tls = &transport.tls;
    let files = [("cacert", &tls.ca_file), ("cert", &tls.certificate_file), ("key", &tls.key_file)];
    for (name, path) in files.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?))) {
        flags.push_str(&format!(" --{name} '{}'", path.display()));
    }
    for (name, given) in [("insecure", tls.insecure), ("no-tls-resumption", tls.no_resumption)] {
        flags.push_str(&if given { format!(" --{name}") } else { String::new() });
    }
    for source in &transport.source_ips {
        flags.push_str(&format!(" --source-ip {source}"));
    }
    for rule in &transport.connect_to {
        let host = |host: &Option<String>| match host {
            Some(address) if address.contains(':') => format!("[{address}]"),
            host => host.clone().unwrap_or_default(),
        };
        let port = |port: Option<u16>| port.map_or_else(String::new, |port| port.to_string());
        let (from, to) = (host(&rule.host), host(&rule.to_host));
        flags.push_str(&format!(" --connect-to '{from}:{}:{to}:{}'", port(rule.port), port(rule.to_port)));
    }
    if transport.resolve_each {
        flags.push_str(" --resolve each");
    }
    flags.push_str(match transport.address_family {
        AddressFamily::Any => "",
        AddressFamily::Ipv4 => " -4",
        AddressFamily::Ipv6 => " -6",
    });
    flags.push_str(if transport.io == Io::Uring { " --io uring" } else { "" });
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::transport::ConnectTo;
    use webdyno_model::workload::RequestSpec;
    use webdyno_model::workload::visit::StepSpec;

    #[test]
    fn visitors_are_repeated_by_flags_or_by_their_file() {
        let request = RequestSpec { url: "http://h/p".into(), ..RequestSpec::default() };
        let session = |steps: usize, page: bool| SessionSpec {
            name: "s".into(),
            weight: 1.0,
            steps: vec![StepSpec { page: page.then(PageSpec::default), ..StepSpec::default() }; steps],
        };
        let think = Think::Uniform { min_us: 100_000, max_us: 300_000 };
        for (steps, page, arrival, command) in [
            (1, true, Arrival::Closed, "webdyno run --page 'http://h/p' --users 40 --think '100ms..300ms'"),
            (1, false, Arrival::Closed, "webdyno run 'http://h/p' --users 40 --think '100ms..300ms'"),
            (2, true, Arrival::Closed, "webdyno run --workload FILE.toml"),
            (
                1,
                true,
                Arrival::Open { rate_per_s: 9.0, poisson: false },
                "webdyno run --page 'http://h/p' --think '100ms..300ms' -r 9",
            ),
        ] {
            let visits =
                Visits { sessions: vec![session(steps, page)], users: 40, think, ..Visits::default() };
            let requests = vec![request.clone()];
            let workload =
                Workload { requests, arrival, visits: Some(Box::new(visits)), ..Workload::default() };
            let measurement = Measurement { workload: Some(workload), ..Measurement::default() };
            assert_eq!(load(&measurement), command);
        }
    }

    #[test]
    fn a_load_is_repeated_the_way_it_went() {
        assert_eq!(transport_flags(&Transport::default()), "");
        let mut transport = Transport {
            source_ips: vec!["127.0.0.2".parse().unwrap()],
            connect_to: vec![ConnectTo {
                host: None,
                port: Some(443),
                to_host: Some("::1".into()),
                to_port: None,
            }],
            resolve_each: true,
            address_family: AddressFamily::Ipv6,
            http2_streams: Some(10),
            io: Io::Uring,
            ..Transport::default()
        };
        transport.tls.ca_file = Some("my ca.pem".into());
        assert_eq!(
            transport_flags(&transport),
            " --http2 --streams 10 --cacert 'my ca.pem' --source-ip 127.0.0.2 --connect-to ':443:[::1]:' --resolve each -6 --io uring"
        );
        let quic = Transport { http3_streams: Some(1), ..Transport::default() };
        assert_eq!(transport_flags(&quic), " --http3");
    }

    #[test]
    fn whole_words_are_filled_in() {
        let mut service = crate::facts::testing::apache(&[]);
        (service.pid, service.status_url) = (42, Some("http://h/s".into()));
        for (command, expected) in [
            ("ps -p $(pgrep -d, -P PID),PID", "ps -p $(pgrep -d, -P 42),42"),
            ("ss 'sport = :PORT' # é PORT", "ss 'sport = :80' # é 80"),
            ("curl 'URL?auto' | grep CURL", "curl 'http://h/s?auto' | grep CURL"),
            ("echo PIDS RAPID PID_FILE", "echo PIDS RAPID PID_FILE"),
            ("cat /proc/CLIENT/stat", "cat /proc/$(pgrep -x webdyno | head -n 1)/stat"),
            ("", ""),
        ] {
            assert_eq!(with_service_values(command, Some(&service), None), expected);
        }
        assert_eq!(with_service_values("ps PID", None, None), "ps PID");
        let endpoint = |name: &str, address: &str, path: Option<&str>| Endpoint {
            name: name.into(),
            address: address.into(),
            path: path.map(Into::into),
        };
        service.endpoints = vec![
            endpoint("server", "unix:/run/d.sock", None),
            endpoint("www", "127.0.0.1:9000", Some("/status")),
            endpoint("shop", "unix:/run/a b", Some("/s")),
        ];
        for (command, instance, expected) in [
            ("mariadb DATABASE -Ne 'SHOW STATUS'", None, "mariadb --socket=/run/d.sock -Ne 'SHOW STATUS'"),
            ("ask ADDRESS STATUS", Some("www"), "ask 127.0.0.1:9000 /status"),
            // What a shell would read as two words is left to the reader.
            ("ask ADDRESS STATUS", Some("shop"), "ask ADDRESS /s"),
        ] {
            assert_eq!(with_service_values(command, Some(&service), instance), expected);
        }
        service.endpoints = vec![endpoint("server", "[::1]:3306", None)];
        let command = with_service_values("mariadb DATABASE", Some(&service), None);
        assert_eq!(command, "mariadb --protocol=tcp --host=::1 --port=3306");
        assert_eq!(in_network_of(7, "echo 'a'"), r"nsenter -t 7 -n sh -c 'echo '\''a'\'''");
        let command = "cat /sys/class/net/INSTANCE/speed # INSTANCES";
        for (instance, displayed) in [("eth0.100", "eth0.100"), ("a b", "INSTANCE"), ("$(x)", "INSTANCE")] {
            let expected = command.replacen("INSTANCE", displayed, 1);
            assert_eq!(with_service_values(command, None, Some(instance)), expected);
        }
        (service.pid, service.port) = (0, 0);
        assert_eq!(with_service_values("ps PID PORT", Some(&service), None), "ps PID PORT");
    }
}
