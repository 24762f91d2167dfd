//! Commands by which a reader sees the same figures by hand.

use crate::measurement::Measurement;
use webdyno_model::service::ServiceSnapshot;
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
    let urls: std::collections::BTreeSet<&str> =
        workload.requests.iter().map(|request| request.url.as_str()).collect();
    for url in urls.iter().take(3) {
        command.push_str(&format!(" '{url}'"));
    }
    command.push_str(&format!(" -c {}", workload.connections));
    if let Arrival::Open { rate_per_s, .. } = workload.arrival {
        command.push_str(&format!(" -r {rate_per_s}"));
    }
    if !workload.keepalive {
        command.push_str(" --no-keepalive");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

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
