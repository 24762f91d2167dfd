//! When compressing responses saturates the CPUs, at a level that is expensive for little gain.

use crate::facts::{FactId, Facts};
use crate::resources::file_cost::{COSTLY, file_cost, logs_much};
use crate::resources::request_cost::{self, plain_file_us};
use crate::resources::site_profile;
use crate::settings::effective::{self, RequestTarget};
use crate::wording::format_time;
use webdyno_model::change::ApplyClass;
use webdyno_model::diagnosis::Remedy;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

pub(crate) const SETTING: &str = "DeflateCompressionLevel";
/// The level that zlib takes by itself: those above take up to several times as long for a few percent of the size.
const LEVEL: i64 = 6;
/// From this share of the service's CPU time on that compressing takes, that is too much as well: the first level takes a third of its
/// time, those below the fourth hardly more (measured: `limits::compression::expected`).
pub(crate) const MUCH_MIN: f64 = 0.4;
const LEVEL_FIRST: i64 = 1;
const LEVEL_DEAR_MIN: i64 = 4;
/// The share of the requests whose responses may come compressed.
const COMPRESSED_MIN: f64 = 0.5;
/// The share of the work that sending the same files as they are does not explain.
const EXCESS_MIN: f64 = 0.5;
/// Compression is the program's own work: where the kernel has more of it than this, it is not that.
const KERNEL_SHARE_MAX: f64 = 0.5;
/// Connections that are kept need few handshakes of TLS.
const KEPT_FRACTION_MIN: f64 = 0.9;
/// How unsure it may be that nothing else costs the time.
const DOUBT_MAX: f64 = 0.2;

/// What handing a request on to a program of another process costs Apache, at most; and so many times as much as all that is more than
/// anything else that it does.
const HANDED_ON_US: f64 = 500.0;
const HANDED_ON_TIMES_MIN: f64 = 5.0;

/// A lower level, where Apache compresses at a high one, and spends most of its time in the program itself: where it sends files, or hands
/// requests on to programs that take their CPU time themselves.
pub(crate) fn remedy(facts: &Facts) -> Option<Remedy> {
    let level = high_level(facts)?;
    of_files(facts, level).or_else(|| of_front(facts, level))
}

fn of_front(facts: &Facts, level: i64) -> Option<Remedy> {
    let service = facts.service.as_ref()?;
    let is_costly = |module: &String| COSTLY.contains(&module.as_str());
    let does_more = site_profile::makes_content_itself(service) || service.modules.iter().any(is_costly);
    let are_kept = site_profile::reused(facts).is_some_and(|reused| reused >= KEPT_FRACTION_MIN);
    let work = request_cost::request_cost(facts)
        .filter(|work| work.is_observed && !does_more && !logs_much(facts, work))?;
    let (system, user) = facts.value(FactId::cpu_system_cores).zip(facts.value(FactId::cpu_user_cores))?;
    let plain_us = plain_file_us(facts) + HANDED_ON_US;
    let is_compressing = system <= KERNEL_SHARE_MAX * (system + user)
        && (are_kept || site_profile::is_tls(facts) == Some(false))
        && work.request_us >= HANDED_ON_TIMES_MIN * plain_us;
    let why = format!(
        "of {} CPU time per request in Apache's own processes, handing it on takes at most {}: the rest compresses, at level {level}",
        format_time(work.request_us),
        format_time(plain_us)
    );
    is_compressing.then(|| lower(level, LEVEL, why))
}

fn of_files(facts: &Facts, level: i64) -> Option<Remedy> {
    let files = file_cost(facts).filter(|files| files.doubt <= DOUBT_MAX)?;
    files.kernel_share.filter(|kernel| *kernel <= KERNEL_SHARE_MAX)?;
    let (request_us, plain_us) = (files.beside_tls_us(), plain_file_us(facts));
    let why = format!(
        "of {} CPU time per request, sending the plain file takes at most {}: the rest is spent in Apache, which compresses at level {level}",
        format_time(request_us),
        format_time(plain_us)
    );
    (1.0 - plain_us / request_us >= EXCESS_MIN).then(|| lower(level, LEVEL, why))
}

/// The same where samples tell the share of the CPU time that compressing takes, whatever else the server does.
pub(crate) fn sampled_remedy(facts: &Facts, share: f64) -> Option<Remedy> {
    // How many of the responses come compressed, and without load of our own which, nobody needs to know: samples say what it takes.
    let first = facts.request_targets.iter().find(|target| target.compressed);
    let may_be = first.is_some() || facts.request_targets.is_empty();
    let level = level_of(facts, first).filter(|_| may_be)?;
    let (to, dear_min) = if share >= MUCH_MIN { (LEVEL_FIRST, LEVEL_DEAR_MIN) } else { (LEVEL, LEVEL + 1) };
    let why = format!("{:.0}% of the service's CPU time compresses, at level {level}", share * 100.0);
    (level >= dear_min).then(|| lower(level, to, why))
}

/// The level at which Apache compresses most responses, if it is a high one.
fn high_level(facts: &Facts) -> Option<i64> {
    let first = facts.request_targets.iter().find(|target| target.compressed)?;
    let share: f64 =
        facts.request_targets.iter().filter(|target| target.compressed).map(|target| target.share).sum();
    level_of(facts, Some(first)).filter(|level| *level > LEVEL && share >= COMPRESSED_MIN)
}

/// The level for what is asked for, if one is set.
fn level_of(facts: &Facts, target: Option<&RequestTarget>) -> Option<i64> {
    let service = facts.service.as_ref().filter(|_| facts.is_service("apache"))?;
    let level: i64 = effective::of_host(service, SETTING, target)?.parse().ok()?;
    let is_loaded = service.modules.iter().any(|module| module == "deflate_module");
    is_loaded.then_some(level)
}

fn lower(level: i64, to: i64, why: String) -> Remedy {
    Remedy {
        setting: SettingId::of_service("apache", SETTING),
        from: Some(SettingValue::Integer(level)),
        to: Some(SettingValue::Integer(to)),
        class: ApplyClass::Reload,
        risk: match to {
            LEVEL => "responses become a few percent larger".into(),
            _ => "responses grow by some 10 to 20%, and so does network traffic".into(),
        },
        why,
        predicted: None,
        together_with: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::facts;

    #[test]
    fn of_others_requests_the_samples_say_that_they_are_compressed() {
        let lowered = |compressed: Option<bool>| {
            let mut facts = facts(&[], &[("DeflateCompressionLevel", 9)]);
            facts.service.as_mut().unwrap().modules = vec!["deflate_module".into()];
            let target = RequestTarget::of("http://h/a.html").unwrap();
            let others = RequestTarget { share: 0.7, ..target.clone() };
            let target = |compressed| RequestTarget { share: 0.3, compressed, ..target };
            facts.request_targets = compressed.map(target).into_iter().collect();
            facts.request_targets.extend(compressed.map(|_| others));
            sampled_remedy(&facts, 0.6).is_some()
        };
        assert_eq!([Some(true), Some(false), None].map(lowered), [true, false, true]);
    }

    #[test]
    fn the_level_goes_as_far_down_as_what_compressing_takes_is_worth() {
        for (level, share, to) in
            [(9, 0.6, Some(1)), (6, 0.6, Some(1)), (3, 0.6, None), (9, 0.2, Some(6)), (6, 0.2, None)]
        {
            let mut facts = facts(&[], &[("DeflateCompressionLevel", level)]);
            facts.service.as_mut().unwrap().modules = vec!["deflate_module".into()];
            let lowered = sampled_remedy(&facts, share).and_then(|remedy| remedy.to);
            assert_eq!(lowered, to.map(SettingValue::Integer), "{level} at {share}");
        }
    }

    #[test]
    fn in_front_of_php_what_its_own_processes_take_is_compressing() {
        let of = |us: f64, system: f64, module: &str, reused: f64| {
            let values = [
                (FactId::service_cpu_cores, 0.9),
                (FactId::cores, 1.0),
                (FactId::cpu_busy_fraction, 1.0),
                (FactId::cpu_per_request_us, us),
                (FactId::cpu_system_cores, system),
                (FactId::cpu_user_cores, 1.0 - system),
                (FactId::answer_bytes_mean, 60_000.0),
                (FactId::connections_reused_fraction, reused),
            ];
            let mut facts = facts(&values, &[("DeflateCompressionLevel", 9)]);
            facts.service.as_mut().unwrap().modules = vec!["deflate_module".into(), module.into()];
            let target = RequestTarget::of("https://h/a.php").unwrap();
            facts.request_targets = vec![RequestTarget { share: 1.0, compressed: true, ..target }];
            remedy(&facts).and_then(|remedy| remedy.to)
        };
        let lowered = Some(SettingValue::Integer(6));
        assert_eq!(of(6_000.0, 0.1, "proxy_fcgi_module", 0.99), lowered);
        assert_eq!(of(1_500.0, 0.1, "proxy_fcgi_module", 0.99), None, "as much as handing it on");
        assert_eq!(of(6_000.0, 0.8, "proxy_fcgi_module", 0.99), None, "the kernel's work");
        assert_eq!(of(6_000.0, 0.1, "php_module", 0.99), None, "PHP's own");
        assert_eq!(of(6_000.0, 0.1, "security2_module", 0.99), None, "rules");
        assert_eq!(of(6_000.0, 0.1, "proxy_fcgi_module", 0.0), None, "handshakes");
    }

    #[test]
    fn a_high_level_that_fills_the_processors_is_lowered() {
        let of = |level: i64, compressed: bool, us: f64, system: f64| {
            let values = [
                (FactId::service_cpu_cores, 0.98),
                (FactId::cores, 1.0),
                (FactId::cpu_per_request_us, us),
                (FactId::cpu_system_cores, system),
                (FactId::cpu_user_cores, 1.0 - system),
                (FactId::answer_bytes_mean, 60_000.0),
            ];
            let mut facts = facts(&values, &[("DeflateCompressionLevel", level)]);
            facts.service.as_mut().unwrap().modules = vec!["core_module".into(), "deflate_module".into()];
            let target = RequestTarget::of("http://h/a.html").unwrap();
            facts.request_targets = vec![RequestTarget { share: 1.0, compressed, ..target }];
            remedy(&facts).and_then(|remedy| remedy.to)
        };
        for (level, compressed, us, system, lowered) in [
            (9, true, 20_000.0, 0.05, true),
            (7, true, 20_000.0, 0.05, true),
            (6, true, 20_000.0, 0.05, false),
            (9, false, 20_000.0, 0.05, false),
            // As cheap as plain files, or the kernel's work.
            (9, true, 250.0, 0.05, false),
            (9, true, 20_000.0, 0.8, false),
        ] {
            let to = lowered.then_some(SettingValue::Integer(6));
            assert_eq!(of(level, compressed, us, system), to, "{level} {compressed} {us} {system}");
        }
    }
}
