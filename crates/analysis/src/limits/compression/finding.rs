//! When `compression` is found, what proves it, and what to change.

use super::expected;
use crate::facts::processor_time::compressed_by_application;
use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::cpu_saturated::{deflate, gzip};
use crate::limits::manual_remedy::manual;
use crate::limits::single_thread_saturated;
use crate::resources::{memory_evidence, processor_time, processors};
use crate::wording::format_time;
use webdyno_model::diagnosis::{Finding, Remedy};
use webdyno_model::number::significant;
use webdyno_model::processor_time::ProcessorWork;
use webdyno_model::service::SettingValue;
use webdyno_model::setting::SettingId;

const CONFIDENCE: f64 = 0.85;

/// From this share of the service's CPU time on it is what takes it.
const SHARE_MIN: f64 = deflate::MUCH_MIN;
const CONFIDENCE_SAMPLED: f64 = 0.9;
const LEVEL_HIGH: f64 = 8.0;
const SAVED_BY_LEVEL: f64 = 0.5;
const SAVED_BY_HIGH_LEVEL: f64 = 0.8;
/// From this share on it is a part of it that a setting saves, beside TLS, or a program that makes the responses.
const PART_MIN: f64 = 0.12;
const CONFIDENCE_PART: f64 = 0.65;

/// mod_deflate takes 268 kB for each response (deflateInit2 of zlib) and gives them back: the kernel maps, clears and unmaps them. Of
/// small responses that is several times what compressing them takes.
const SETUP_PARTS_MAX: f64 = 8.0;
const COMPRESSING_MIN: f64 = 0.02;
/// Programs take memory, too.
const PROGRAMS_MAX: f64 = 0.05;

/// Fires where compressing saturates the cores, or the one core of one thread, and a lower level costs less: by samples where
/// there are any, else by what a request costs.
pub fn check(facts: &Facts) -> Option<Finding> {
    if memory_evidence::is_proven(facts) {
        return None;
    }
    match processor_time::share(facts, ProcessorWork::Compression) {
        Some(share) => sampled(facts, share),
        None => estimated(facts),
    }
}

fn sampled(facts: &Facts, share: f64) -> Option<Finding> {
    let is_saturated = || {
        processors::cpu_shortage(facts).is_some() || single_thread_saturated::finding::check(facts).is_some()
    };
    let is_most = share >= SHARE_MIN;
    let of_all = processor_time::share_of_all(facts, &[ProcessorWork::Compression]);
    let remedy = of_brotli(facts)
        .or_else(|| deflate::sampled_remedy(facts, share))
        .or_else(|| gzip::sampled_remedy(facts))
        .or_else(|| of_application(facts))
        .or_else(|| of_lighttpd(facts))?;
    let is_deflate = remedy.setting.name == deflate::SETTING;
    let setup = of_all.filter(|_| is_deflate).map_or(0.0, |compressing| setup_share(facts, compressing));
    let is_part = of_all.is_some_and(|share| share + setup >= PART_MIN);
    let saved = saved_by_level(&remedy);
    let binds = ((is_most || is_part) && is_saturated()) || costs_more_than_quota(facts, of_all, saved);
    binds.then_some(())?;
    let begin = if is_most { "Compression takes the CPU." } else { "Compression takes a part of the CPU." };
    let summary = format!("{begin}{}{}", processor_time::sentence(facts), level(&remedy));
    let mut finding = finding(facts, summary, share, remedy);
    finding.remedies.extend((setup > share).then(compressed_files));
    Some(Finding { confidence: if is_most { CONFIDENCE_SAMPLED } else { CONFIDENCE_PART }, ..finding })
}

/// What getting memory for compressing takes, where nothing else is known to get much.
fn setup_share(facts: &Facts, compressing: f64) -> f64 {
    const PROGRAMS: [ProcessorWork; 3] =
        [ProcessorWork::Php, ProcessorWork::PhpCompilation, ProcessorWork::Application];
    let of_all = |works: &[ProcessorWork]| processor_time::share_of_all(facts, works).unwrap_or(1.0);
    if compressing < COMPRESSING_MIN || of_all(&PROGRAMS) > PROGRAMS_MAX {
        return 0.0;
    }
    of_all(&[ProcessorWork::Memory]).min(SETUP_PARTS_MAX * compressing)
}

fn compressed_files() -> Remedy {
    manual(
        SettingId::application("compression"),
        "files are kept twice, or the smallest are sent as they are",
        "the memory that mod_deflate takes for each response costs more than compressing it: files that are compressed once, or no compression of the smallest",
    )
}

/// Where it is Brotli that takes most of it: the level of gzip is not what is too high then.
fn of_brotli(facts: &Facts) -> Option<Remedy> {
    let mut parts = facts.processor_time.iter().flat_map(|time| &time.parts);
    let compression = parts.find(|part| part.work == ProcessorWork::Compression)?;
    compression.mostly.contains("brotli").then_some(())?;
    let setting = match facts.service.as_ref()?.service.as_str() {
        "nginx" => SettingId::of_service("nginx", "brotli_comp_level"),
        "apache" => SettingId::of_service("apache", "BrotliCompressionQuality"),
        _ => return None,
    };
    Some(manual(
        setting,
        "responses grow by a few percent",
        "Brotli compresses responses while they are sent: a lower level (each one above 4 takes much longer for little), or files that are compressed once",
    ))
}

/// Where lighttpd does: <https://redmine.lighttpd.net/projects/lighttpd/wiki/Mod_deflate>.
fn of_lighttpd(facts: &Facts) -> Option<Remedy> {
    let has = |setting: &str| facts.text(setting).is_some();
    let is_on = facts.is_service("lighttpd") && has("deflate.mimetypes") && !has("deflate.cache-dir");
    is_on.then(|| {
        manual(
            SettingId::of_service("lighttpd", "deflate.cache-dir"),
            "space on a disk; what programs make is compressed each time all the same",
            "mod_deflate compresses the same files again for each request: in a folder of its own it keeps them compressed",
        )
    })
}

/// Where the site's own program compresses, whose settings nobody knows.
fn of_application(facts: &Facts) -> Option<Remedy> {
    let share = facts.processor_time.as_ref().map(compressed_by_application)?;
    (share >= SHARE_MIN).then(|| {
        manual(
            SettingId::application("compression"),
            "responses grow by a few percent",
            "the site's program compresses its responses itself: a lower level (zlib.output_compression_level of PHP, the level of the middleware), or files that are compressed once",
        )
    })
}

/// Whether a quota is what saturates, and a lower level would give more than all processors that the service may use.
fn costs_more_than_quota(facts: &Facts, share: Option<f64>, saved: f64) -> bool {
    let usable = facts.value(FactId::usable_cores).or(facts.value(FactId::cores));
    let left = processors::used_up_quota(facts).zip(usable).map(|(quota, usable)| quota / usable);
    left.zip(share).is_some_and(|(left, share)| share >= SHARE_MIN && 1.0 - saved * share <= left)
}

/// What a low level saves of compressing, by the level that is set: zlib takes about twice as long at its usual 6 as at 1, and several
/// times as long at 9.
fn saved_by_level(remedy: &Remedy) -> f64 {
    let level = remedy.from.as_ref().and_then(SettingValue::number);
    if level.is_some_and(|level| level >= LEVEL_HIGH) { SAVED_BY_HIGH_LEVEL } else { SAVED_BY_LEVEL }
}

fn estimated(facts: &Facts) -> Option<Finding> {
    let request_us = facts.value(FactId::cpu_per_request_us)?;
    let remedy = remedy(facts, request_us)?;
    let plain_us = gzip::plain_us(facts)?.min(request_us);
    let summary = format!(
        "Compression takes the CPU: a request takes {} of CPU time, the same bytes sent as they are at most {}.{}",
        format_time(request_us),
        format_time(plain_us),
        level(&remedy),
    );
    Some(finding(facts, summary, 1.0 - plain_us / request_us, remedy))
}

/// ` gzip_comp_level is 9.`
fn level(remedy: &Remedy) -> String {
    let told = remedy.from.as_ref().map(|level| format!(" {} is {level}.", remedy.setting.name));
    told.unwrap_or_default()
}

fn finding(facts: &Facts, summary: String, explains: f64, remedy: Remedy) -> Finding {
    let cited = facts.cite(&fact_ids! {
        cpu_per_request_us, answer_bytes_mean, service_cpu_cores, usable_busy_fraction, usable_cores, cpu_busy_fraction,
        cores, response_time_mean_us, rate,
    });
    Finding {
        id: LimitId::Compression.into(),
        summary,
        confidence: CONFIDENCE,
        explains_fraction: Some(significant(explains, 3)),
        facts: cited
            .into_iter()
            .chain(processor_time::cite(facts, FactId::processor_time_fraction))
            .collect(),
        remedies: vec![Remedy { predicted: expected::predicted(facts, explains, &remedy), ..remedy }],
    }
}

fn remedy(facts: &Facts, request_us: f64) -> Option<Remedy> {
    if processors::cpu_shortage(facts).is_some() {
        return deflate::remedy(facts).or_else(|| gzip::remedy(facts));
    }
    single_thread_saturated::finding::check(facts)?;
    gzip::remedy_at(facts, request_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{add_samples, facts, scoped_setting, with_changes};
    use crate::settings::effective::RequestTarget;
    use webdyno_model::service::SettingValue;

    /// nginx compresses files at level 9.
    fn with(changes: &[(FactId, f64)], compressed: bool) -> Option<Finding> {
        check(&of(changes, compressed))
    }

    fn of(changes: &[(FactId, f64)], compressed: bool) -> Facts {
        let base = [
            (FactId::service_cpu_cores, 1.96),
            (FactId::cores, 2.0),
            (FactId::usable_cores, 2.0),
            (FactId::cpu_busy_fraction, 0.99),
            (FactId::pressure_group_cpu_some_fraction, 0.9),
            (FactId::cpu_per_request_us, 13_000.0),
            (FactId::answer_bytes_mean, 90_000.0),
            (FactId::in_flight_mean, 16.0),
        ];
        let mut facts = facts(&with_changes(&base, changes), &[("gzip_comp_level", 9)]);
        let service = facts.service.as_mut().unwrap();
        service.service = "nginx".into();
        service.scoped = vec![scoped_setting("gzip", "on", &[])];
        let target = RequestTarget::of("http://h/layer.csv").unwrap();
        facts.request_targets = vec![RequestTarget { share: 1.0, compressed, ..target }];
        facts
    }

    // What is measured counts, whatever a request costs and whoever stands behind.
    #[test]
    fn where_samples_tell_the_share_it_decides() {
        let with = |compressing: u64, changes: &[(FactId, f64)]| {
            let mut facts = of(changes, true);
            let places = [("nginx;libz.so.1", compressing), ("nginx;[kernel];tcp_ack", 1000 - compressing)];
            add_samples(&mut facts, &places);
            check(&facts)
        };
        let found = with(700, &[(FactId::cpu_per_request_us, 400.0)]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_SAMPLED, Some(0.7)));
        assert!(
            found
                .summary
                .contains(" 70% compression (libz.so.1), 30% network (kernel). gzip_comp_level is 9."),
            "{}",
            found.summary
        );
        let part = with(300, &[]).unwrap();
        assert_eq!((part.confidence, part.explains_fraction), (CONFIDENCE_PART, Some(0.3)));
        assert!(part.summary.starts_with("Compression takes a part of the CPU. The service's"));
        assert!(with(100, &[]).is_none(), "a small part of it, however dear a request is");
        assert!(with(700, &[(FactId::service_cpu_cores, 0.3), (FactId::cpu_busy_fraction, 0.2)]).is_none());
    }

    #[test]
    fn memory_for_compressing_small_responses_counts_with_it() {
        let with = |places: &[(&str, u64)]| {
            let mut facts = of(&[], true);
            let service = facts.service.as_mut().unwrap();
            service.service = "apache".into();
            service.modules = vec!["deflate_module".into()];
            service.scoped = vec![scoped_setting("DeflateCompressionLevel", "9", &[])];
            let rest: u64 = 1000 - places.iter().map(|(_, count)| count).sum::<u64>();
            add_samples(&mut facts, &[places, &[("apache2;[kernel];tcp_ack", rest)]].concat());
            check(&facts)
        };
        let memory = ("apache2;[kernel];clear_page_erms", 200);
        let found = with(&[("apache2;libz.so.1", 30), memory]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_PART, Some(0.03)));
        let settings: Vec<_> = found.remedies.iter().map(|remedy| remedy.setting.full_name()).collect();
        assert_eq!(settings, ["apache DeflateCompressionLevel", "application compression"]);
        assert!(with(&[("apache2;libz.so.1", 5), memory]).is_none(), "hardly anything is compressed");
        let php = ("apache2;libphp8.2.so", 300);
        assert!(with(&[("apache2;libz.so.1", 30), memory, php]).is_none(), "PHP takes memory");
    }

    #[test]
    fn the_level_of_gzip_is_not_lowered_where_brotli_compresses() {
        let setting = |places: &[(&str, u64)]| {
            let mut facts = of(&[], true);
            add_samples(&mut facts, &[places, &[("nginx;[kernel];tcp_ack", 300)]].concat());
            check(&facts).map(|finding| finding.remedies[0].setting.full_name())
        };
        let (brotli, gzip) = ("nginx brotli_comp_level".to_owned(), "nginx gzip_comp_level".to_owned());
        assert_eq!(setting(&[("nginx;libbrotlienc.so.1", 600), ("nginx;libz.so.1", 100)]), Some(brotli));
        assert_eq!(setting(&[("nginx;libbrotlienc.so.1", 100), ("nginx;libz.so.1", 600)]), Some(gzip));
    }

    // 70% that compresses: a lower level gives half as much again, and two cores in the place of a quota of 0.25 eight times as much.
    #[test]
    fn under_a_quota_what_gives_more_comes_first() {
        let ids = |quota: f64| {
            let stopped = [
                (FactId::cpu_quota_cores, quota),
                (FactId::group_cpu_cores, quota),
                (FactId::service_cpu_cores, quota),
                (FactId::throttled_fraction, 0.98),
                (FactId::pressure_group_cpu_full_fraction, 0.9),
                (FactId::cpu_busy_fraction, 0.5 * quota),
            ];
            let mut facts = of(&stopped, true);
            add_samples(&mut facts, &[("nginx;libz.so.1", 700), ("nginx;[kernel];tcp_ack", 300)]);
            let found = crate::diagnosis::ranking::findings(&facts);
            found.into_iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(0.25), ["cpu-throttled"]);
        assert_eq!(ids(1.5), ["compression", "cpu-throttled"]);
    }

    #[test]
    fn a_high_level_costs_several_times_as_much_as_a_low_one() {
        let saved = |level: Option<i64>| {
            let setting = manual(SettingId::of_service("nginx", "gzip_comp_level"), "", "");
            saved_by_level(&Remedy { from: level.map(SettingValue::Integer), ..setting })
        };
        assert_eq!(
            [Some(9), Some(6), None].map(saved),
            [SAVED_BY_HIGH_LEVEL, SAVED_BY_LEVEL, SAVED_BY_LEVEL]
        );
    }

    #[test]
    fn a_program_of_the_site_that_compresses_is_told_without_a_setting() {
        let with = |places: &[(&str, u64)]| {
            let mut facts = of(&[], false);
            add_samples(&mut facts, places);
            check(&facts)
        };
        let found = with(&[("node;node;deflate_fast", 600), ("nginx;[kernel];tcp_ack", 400)]).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE_SAMPLED, Some(0.6)));
        assert_eq!(found.remedies[0].setting.full_name(), "application compression");
        assert!(found.summary.ends_with("(kernel)."), "{}", found.summary);
        let few = [("node;node;deflate_fast", 300), ("node;node", 700)];
        let of_nginx = [("nginx;libz.so.1", 600), ("nginx;[kernel];tcp_ack", 400)];
        assert!(with(&few).is_none() && with(&of_nginx).is_none());
    }

    #[test]
    fn lighttpd_keeps_what_it_compressed() {
        let with = |service: &str, settings: &[&str]| {
            let mut facts = of(&[], true);
            let front = facts.service.as_mut().unwrap();
            front.service = service.into();
            for setting in settings {
                front.settings.entry((*setting).into()).or_default().configured =
                    Some(SettingValue::parse("text/"));
            }
            let places = [("lighttpd;libz.so.1", 700), ("lighttpd;[kernel];tcp_ack", 300)];
            add_samples(&mut facts, &places);
            check(&facts).map(|finding| finding.remedies[0].setting.full_name())
        };
        let kept = Some("lighttpd deflate.cache-dir".to_owned());
        assert_eq!(with("lighttpd", &["deflate.mimetypes"]), kept);
        assert_eq!(with("lighttpd", &["deflate.cache-dir", "deflate.mimetypes"]), None, "it keeps them");
        assert_eq!(with("lighttpd", &[]), None, "it compresses nothing");
        assert_eq!(with("unknown", &["deflate.mimetypes"]), None);
    }

    #[test]
    fn of_a_server_that_is_only_watched_samples_tell_alone() {
        let mut watched = of(&[], true);
        (watched.loaded, watched.request_targets) = (false, vec![]);
        assert!(check(&watched).is_none(), "nobody knows what the responses are");
        add_samples(&mut watched, &[("nginx;libz.so.1", 700), ("nginx;[kernel];tcp_ack", 300)]);
        assert_eq!(check(&watched).map(|finding| finding.confidence), Some(CONFIDENCE_SAMPLED));
    }

    #[test]
    fn cores_or_one_core_that_compress_with_care_are_named() {
        let found = with(&[], true).unwrap();
        assert_eq!((found.confidence, found.explains_fraction), (CONFIDENCE, Some(0.974)));
        assert_eq!(found.remedies[0].to, Some(SettingValue::Integer(1)));
        assert!(found.summary.ends_with("gzip_comp_level is 9."), "{}", found.summary);
        let one = [
            (FactId::service_cpu_cores, 0.99),
            (FactId::cpu_busy_fraction, 0.55),
            (FactId::pressure_group_cpu_some_fraction, 0.1),
            (FactId::busiest_thread_fraction, 0.98),
            (FactId::saturated_threads_mean, 1.0),
        ];
        assert!(with(&one, true).is_some());
        let idle = [&one[..], &[(FactId::busiest_thread_fraction, 0.4)]].concat();
        assert!(with(&idle, true).is_none() && with(&[], false).is_none());
        assert!(with(&[(FactId::cpu_per_request_us, 400.0)], true).is_none(), "as cheap as the file");
    }
}
