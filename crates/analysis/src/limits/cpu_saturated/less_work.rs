//! What would make requests cheaper, by what samples show that the processors work for.
//!
//! Sources: the manuals of mod_ssl, mod_deflate, mod_log_config, core (AllowOverride) and of nginx (ssl_session_cache, gzip, access_log),
//! and of PHP (OPcache).

use crate::facts::Facts;
use crate::facts::processor_time::word;
use crate::resources::processor_time::share_of_all;
use crate::resources::site_profile::is_file_by_name;
use webdyno_model::processor_time::ProcessorWork as Work;

/// From which share on it is worth a word, and what to do about it.
#[rustfmt::skip] // a table
const ADVICE: &[(Work, f64, &str)] = &[
    (Work::TlsHandshakes, 0.1, "keep connections, resume sessions (a session cache or tickets), sign with an ECDSA P-256 key"),
    (Work::Compression, 0.1, "a lower level, or files that are compressed once"),
    (Work::PhpCompilation, 0.1, "OPcache on, and large enough for all scripts"),
    (Work::Settings, 0.1, "move the rules of .htaccess to the server's own files"),
    (Work::Rewriting, 0.1, "fewer patterns for each request, the frequent ones first"),
    (Work::Logging, 0.1, "write log lines by the block (BufferedLogs, access_log buffer=), and fewer of them"),
    (Work::Php, 0.4, "keep whole pages (a cache in front), look which scripts take it, opcache.jit where they compute"),
    (Work::Database, 0.3, "look which statements take it (slow query log, EXPLAIN)"),
];

/// `; 24% is compiling PHP: OPcache on, ..`; nothing where nobody sampled, or nothing can be said.
pub(super) fn advice(facts: &Facts) -> String {
    let of = |(work, least, what): &(Work, f64, &str)| {
        let share = share_of_all(facts, &[*work]).filter(|share| share >= least)?;
        Some(format!("; {:.0}% is {}: {what}", share * 100.0, word(*work)))
    };
    ADVICE.iter().filter_map(of).chain(files_by_php(facts)).collect()
}

/// Of so many requests for files PHP has to do with the others at most a little.
const FILE_REQUESTS_MIN: f64 = 0.9;
const PHP_SHARE_MIN: f64 = 0.3;

/// Where nearly all requests are for files by their names, and PHP takes the time all the same.
fn files_by_php(facts: &Facts) -> Option<String> {
    let files = facts.request_targets.iter().filter(|target| is_file_by_name(target));
    let requests: f64 = files.map(|target| target.share).sum();
    let php = share_of_all(facts, &[Work::Php, Work::PhpCompilation])?;
    (requests >= FILE_REQUESTS_MIN && php >= PHP_SHARE_MIN).then(|| {
        format!(
            "; {:.0}% of the requests are for files by their names and {:.0}% of the time is PHP's: let the server send files itself",
            requests * 100.0,
            php * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{add_samples, facts};
    use crate::settings::effective::RequestTarget;

    #[test]
    fn what_takes_a_good_share_has_its_advice() {
        assert_eq!(advice(&Facts::default()), "");
        let mut facts = facts(&[], &[]);
        let places =
            [("php-fpm;php-fpm;lex_scan", 240), ("nginx;[kernel];tcp_ack", 700), ("nginx;libz.so.1", 60)];
        add_samples(&mut facts, &places);
        assert_eq!(advice(&facts), "; 24% is compiling PHP: OPcache on, and large enough for all scripts");
        add_samples(&mut facts, &[("php-fpm;php-fpm;execute_ex", 350), ("nginx;[kernel];tcp_ack", 650)]);
        assert_eq!(advice(&facts), "");
        let target = RequestTarget::of("http://h/logo.png").unwrap();
        facts.request_targets = vec![RequestTarget { share: 1.0, ..target }];
        let files = "; 100% of the requests are for files by their names and 35% of the time is PHP's: let the server send files itself";
        assert_eq!(advice(&facts), files);
    }
}
