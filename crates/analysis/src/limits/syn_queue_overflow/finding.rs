//! When `syn-queue-overflow` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::manual_remedy::{manual, raised_sysctl, sysctl};
use crate::wording::format_number;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

/// Dropped SYNs per second that somebody notices.
const DROPS_PER_S_MIN: f64 = 0.1;
/// Half-open connections that are no fault: each one is for the time of a round trip.
const HALF_OPEN_MIN: f64 = 32.0;
/// Where the client lost fewer of its connections, the drops were others' and cost it nothing.
const LOST_FRACTION_MIN: f64 = 0.002;

/// Fires when SYNs are dropped for lack of room in the list of half-open connections.
pub fn check(facts: &Facts) -> Option<Finding> {
    // With cookies no SYN is dropped for lack of room in this list, whatever else is.
    if facts.value(FactId::syn_cookies_mode).is_some_and(|mode| mode >= 1.0)
        || facts.value(FactId::syn_cookies).is_some_and(|cookies| cookies > 0.0)
        || facts.value(FactId::lost_syn_fraction).is_some_and(|lost| lost < LOST_FRACTION_MIN)
    {
        return None;
    }
    let per_s = |name: FactId| facts.value(name).zip(facts.window_s(name).filter(|window| *window > 0.0));
    let noticed = |name: FactId| {
        per_s(name).filter(|(count, window_s)| count / window_s >= DROPS_PER_S_MIN).map(|(count, _)| count)
    };
    let lost = facts.value(FactId::lost_syn_fraction).is_some();
    let half_open = facts.value(FactId::half_open_max);
    let (dropped, confidence) =
        match (noticed(FactId::syn_queue_drops), noticed(FactId::listen_drops_without_overflow)) {
            (Some(full), other) => (full.max(other.unwrap_or(0.0)), if lost { 0.95 } else { 0.85 }),
            // Drops that have no name: the half-open connections give it.
            (None, Some(other)) => match half_open {
                Some(open) if open >= HALF_OPEN_MIN => (other, if lost { 0.9 } else { 0.75 }),
                Some(_) => return None,
                None => (other, if lost { 0.7 } else { 0.5 }),
            },
            _ => return None,
        };
    let open =
        half_open.map_or(String::new(), |open| format!(" ({} half-open connections)", format_number(open)));
    let binds = FullList::of(facts, noticed(FactId::syn_queue_drops).is_some());
    let cookies = match cookies_mode(facts, &binds) {
        Some(_) => "SYN cookies would avoid this, but are off.",
        None => "SYN cookies avoid this; whether they are on could not be read.",
    };
    Some(Finding {
        id: LimitId::SynQueueOverflow.into(),
        summary: format!(
            "SYN backlog full{open}: {} SYNs dropped, of all senders.{} {cookies}",
            format_number(dropped),
            binds.to_text()
        ),
        confidence,
        explains_fraction: crate::limits::common::connect_time_share(facts),
        facts: facts.cite(&fact_ids! {
            syn_queue_drops, listen_drops_without_overflow, listen_drops, listen_overflows, syn_cookies,
            syn_cookies_mode, syn_backlog_limit, half_open_max, accept_queue_limit, accept_queue_max,
            lost_syn_fraction, connecting_fraction, connect_timeouts, syn_flooding_messages,
        }),
        remedies: remedies(facts, half_open, &binds),
    })
}

/// Which of the two limits of the list is met. The kernel counts them apart (net/ipv4/tcp_input.c, `tcp_conn_request`).
enum FullList {
    /// That of the accept queue, where it is known.
    AcceptQueue(Option<f64>),
    /// `net.ipv4.tcp_max_syn_backlog`, where it is known.
    Backlog(Option<f64>),
}

impl FullList {
    fn of(facts: &Facts, is_full: bool) -> Self {
        match is_full {
            true => Self::AcceptQueue(facts.value(FactId::accept_queue_limit)),
            false => Self::Backlog(facts.value(FactId::syn_backlog_limit)),
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::AcceptQueue(Some(limit)) => {
                format!(" It is limited by the accept queue ({}).", format_number(*limit))
            }
            Self::Backlog(Some(limit)) => format!(
                " net.ipv4.tcp_max_syn_backlog is {}, its last quarter reserved for known addresses.",
                format_number(*limit)
            ),
            Self::AcceptQueue(None) | Self::Backlog(None) => String::new(),
        }
    }
}

/// What `net.ipv4.tcp_syncookies` is. The kernel drops SYNs for a full accept queue only where it sends no cookies.
fn cookies_mode(facts: &Facts, binds: &FullList) -> Option<f64> {
    let is_off = matches!(binds, FullList::AcceptQueue(_));
    facts.value(FactId::syn_cookies_mode).or(is_off.then_some(0.0))
}

fn remedies(facts: &Facts, half_open: Option<f64>, binds: &FullList) -> Vec<Remedy> {
    let mut all = vec![sysctl(
        "net.ipv4.tcp_syncookies",
        cookies_mode(facts, binds),
        1.0,
        "new connections lose some TCP options while the backlog is full; takes effect at once",
        "with cookies a full backlog does no harm: the kernel keeps no state, and all clients that reply connect"
            .into(),
    )];
    // Twice what was seen to be half open, as it was clipped.
    let wanted = (2.0
        * half_open.unwrap_or(0.0).max(facts.value(FactId::accept_queue_limit).unwrap_or(512.0)))
    .max(1024.0)
    .log2()
    .ceil()
    .exp2();
    let number = |value: f64| Some(SettingValue::Integer(value as i64));
    let backlogs = [("nginx", "listen backlog"), ("lighttpd", "server.listen-backlog")];
    let (front, setting) =
        backlogs.into_iter().find(|row| facts.is_service(row.0)).unwrap_or(("apache", "ListenBacklog"));
    let queue = Remedy {
        from: facts.value(FactId::accept_queue_limit).and_then(number),
        to: number(wanted),
        ..manual(
            SettingId::of_service(front, setting),
            "some hundred bytes of kernel memory each; a restart, as the socket keeps its queue until then",
            "twice the half-open connections: the backlog is limited by the accept queue, so net.core.somaxconn has to be as large, too",
        )
    };
    // It is too small whatever was seen of its use.
    let limit = facts.value(FactId::syn_backlog_limit);
    let backlog = raised_sysctl(
        "net.ipv4.tcp_max_syn_backlog",
        limit,
        wanted.max(2.0 * limit.unwrap_or(0.0)),
        "some hundred bytes of kernel memory each",
        &format!(
            "twice the half-open connections; the backlog is also limited by the accept queue, so {setting} and \
             net.core.somaxconn have to be as large, with a restart"
        ),
    );
    all.push(if matches!(binds, FullList::AcceptQueue(_)) { queue } else { backlog });
    all.push(manual(
        SettingId::external("network", "path"),
        "none",
        "find who does not reply: a firewall that allows only one direction, or forged senders",
    ));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};

    const HALF_OPEN: &[(FactId, f64)] = &[
        (FactId::syn_queue_drops, 0.0),
        (FactId::listen_drops_without_overflow, 300.0),
        (FactId::syn_cookies, 0.0),
        (FactId::half_open_max, 97.0),
        (FactId::lost_syn_fraction, 0.4),
        (FactId::connecting_fraction, 0.9),
    ];

    fn check_with(changes: &[(FactId, f64)]) -> Option<f64> {
        let values = with_changes(HALF_OPEN, changes);
        check(&facts(&values, &[])).map(|finding| finding.confidence)
    }

    #[test]
    fn drops_count_under_two_names() {
        const UNKNOWN: f64 = f64::NAN;
        for (changes, confidence) in [
            (&[][..], Some(0.9)),
            (&[(FactId::syn_queue_drops, 300.0)][..], Some(0.95)),
            (&[(FactId::half_open_max, UNKNOWN)][..], Some(0.7)),
            (&[(FactId::half_open_max, UNKNOWN), (FactId::lost_syn_fraction, UNKNOWN)][..], Some(0.5)),
            (&[(FactId::lost_syn_fraction, UNKNOWN)][..], Some(0.75)),
            // Something else was dropped, nothing was, cookies stood in, or nobody noticed.
            (&[(FactId::half_open_max, 2.0)][..], None),
            (&[(FactId::listen_drops_without_overflow, 0.0)][..], None),
            (&[(FactId::syn_cookies, 40.0), (FactId::syn_queue_drops, 300.0)][..], None),
            (&[(FactId::lost_syn_fraction, 0.0)][..], None),
            (&[(FactId::syn_cookies_mode, 1.0)][..], None),
            (&[(FactId::syn_cookies_mode, 0.0)][..], Some(0.9)),
        ] {
            assert_eq!(check_with(changes), confidence, "{changes:?}");
        }
    }

    #[test]
    fn cookies_come_first_and_the_list_is_never_longer_than_the_queue() {
        let known = [(FactId::syn_backlog_limit, 128.0)];
        let remedies = check(&facts(&[HALF_OPEN, &known].concat(), &[])).unwrap().remedies;
        let settings: Vec<_> = remedies.iter().map(|remedy| remedy.setting.name.as_str()).collect();
        assert_eq!(settings, ["net.ipv4.tcp_syncookies", "net.ipv4.tcp_max_syn_backlog", "path"]);
        assert_eq!(remedies[1].to.as_ref().and_then(|to| to.number()), Some(1024.0));
    }

    #[test]
    fn cookies_are_off_where_that_is_known() {
        for (changes, is_off) in [
            (&[][..], false),
            (&[(FactId::syn_cookies_mode, 0.0)], true),
            (&[(FactId::syn_queue_drops, 300.0)], true),
        ] {
            let finding = check(&facts(&with_changes(HALF_OPEN, changes), &[])).unwrap();
            let summary = &finding.summary;
            assert_eq!(summary.ends_with("would avoid this, but are off."), is_off, "{summary}");
            assert_eq!(finding.remedies[0].from, is_off.then_some(SettingValue::Integer(0)), "{changes:?}");
        }
    }

    #[test]
    fn a_list_is_never_made_shorter() {
        for (limit, to) in [(4096.0, Some(8192.0)), (256.0, Some(1024.0)), (f64::NAN, None)] {
            let changes = [(FactId::syn_backlog_limit, limit), (FactId::half_open_max, f64::NAN)];
            let finding = check(&facts(&with_changes(HALF_OPEN, &changes), &[])).unwrap();
            assert_eq!(finding.remedies[1].to.as_ref().and_then(SettingValue::number), to, "{limit}");
        }
    }

    #[test]
    fn the_limit_that_is_met_is_named_and_raised() {
        let with = |drops: f64| {
            let known = [
                (FactId::syn_backlog_limit, 128.0),
                (FactId::accept_queue_limit, 64.0),
                (FactId::syn_queue_drops, drops),
            ];
            check(&facts(&[&HALF_OPEN[1..], &known].concat(), &[])).unwrap()
        };
        for (drops, setting, now, words) in [
            (0.0, "net.ipv4.tcp_max_syn_backlog", 128.0, "tcp_max_syn_backlog is 128"),
            (300.0, "ListenBacklog", 64.0, "limited by the accept queue (64)"),
        ] {
            let finding = with(drops);
            assert!(finding.summary.contains(words), "{}", finding.summary);
            let remedy = &finding.remedies[1];
            let from = remedy.from.as_ref().and_then(SettingValue::number);
            assert_eq!((remedy.setting.name.as_str(), from), (setting, Some(now)));
        }
    }
    #[test]
    fn the_queue_is_that_of_the_server_in_front() {
        let drops = [(FactId::syn_queue_drops, 300.0), (FactId::accept_queue_limit, 64.0)];
        let mut facts = facts(&[&HALF_OPEN[1..], &drops].concat(), &[]);
        for (front, setting) in
            [("nginx", "nginx listen backlog"), ("lighttpd", "lighttpd server.listen-backlog")]
        {
            facts.service.as_mut().unwrap().service = front.into();
            assert_eq!(check(&facts).unwrap().remedies[1].setting.full_name(), setting);
        }
    }
}
