//! Commands by which a reader sees the same figures by hand.

use crate::measurement::Measurement;
use webdyno_model::service::ServiceSnapshot;
use webdyno_model::transport::{AddressFamily, Transport};
use webdyno_model::workload::Arrival;

/// A command of the catalogue with the service's own values in the places of the words PID, PORT and URL, and the
/// load generator's process in that of CLIENT. What is not known stays: the reader has to fill it in.
pub(crate) fn filled_in(command: &str, service: Option<&ServiceSnapshot>) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let value = |word: &str| -> Option<String> {
        match word {
            "PID" => Some(service?.pid.to_string()),
            "PORT" => Some(service?.port.to_string()),
            "URL" => service?.status_url.clone(),
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
            let urls: std::collections::BTreeSet<&str> =
                workload.requests.iter().map(|request| request.url.as_str()).collect();
            urls.iter().take(3).for_each(|url| command.push_str(&format!(" '{url}'")));
        }
    }
    command.push_str(&format!(" -c {}", workload.connections));
    if let Arrival::Open { rate_per_s, .. } = workload.arrival {
        command.push_str(&format!(" -r {rate_per_s}"));
    }
    if !workload.keepalive {
        command.push_str(" --no-keepalive");
    }
    command.push_str(&ways(&workload.transport));
    command
}

/// The flags that say how connections come about; those of files keep their quotes.
fn ways(transport: &Transport) -> String {
    let mut flags = String::new();
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
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::transport::ConnectTo;

    #[test]
    fn a_load_is_repeated_the_way_it_went() {
        assert_eq!(ways(&Transport::default()), "");
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
            ..Transport::default()
        };
        transport.tls.ca_file = Some("my ca.pem".into());
        assert_eq!(
            ways(&transport),
            " --cacert 'my ca.pem' --source-ip 127.0.0.2 --connect-to ':443:[::1]:' --resolve each -6"
        );
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
            assert_eq!(filled_in(command, Some(&service)), expected);
        }
        assert_eq!(filled_in("ps PID", None), "ps PID");
    }
}
