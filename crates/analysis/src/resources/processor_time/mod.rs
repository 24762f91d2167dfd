//! Where the processors' time goes, by what it is for: told in a sentence, and as shares for rules.

use crate::facts::processor_time::word;
use crate::facts::{FactId, Facts};
use crate::resources::php_functions;
use webdyno_model::processor_time::{ProcessorTimePart, ProcessorWork};

/// A smaller share is not worth a word, and more of them are no sentence.
const TOLD_MIN: f64 = 0.05;
const TOLD_MAX: usize = 4;

/// The share of the service's time that one kind of work has; `None` where nobody looked. What was not met is zero of it.
pub(crate) fn share(facts: &Facts, work: ProcessorWork) -> Option<f64> {
    let time = facts.processor_time.as_ref()?;
    Some(time.parts.iter().find(|part| part.work == work).map_or(0.0, |part| part.fraction))
}

/// The same of several kinds together, where the kernel's part was seen, too: else it would be a share of the rest.
pub(crate) fn share_of_all(facts: &Facts, works: &[ProcessorWork]) -> Option<f64> {
    facts.processor_time.as_ref().filter(|time| time.with_kernel)?;
    works.iter().try_fold(0.0, |sum, work| Some(sum + share(facts, *work)?))
}

/// From this share of PHP on its scripts are worth a word, and so many of them.
const SCRIPTS_TOLD_FROM: f64 = 0.2;
const SCRIPTS_TOLD_MAX: usize = 3;

/// Encrypting more for a request may be a good part of the cryptography: a megabyte takes a millisecond and less.
const ANSWER_BYTES_SMALL: f64 = 100_000.0;

/// The share that handshakes of TLS have. Where answers are small all cryptography is theirs, whatever its functions are called.
pub(crate) fn handshakes(facts: &Facts) -> Option<f64> {
    let is_small = facts.value(FactId::answer_bytes_mean).is_some_and(|bytes| bytes <= ANSWER_BYTES_SMALL);
    let works = [ProcessorWork::TlsHandshakes, ProcessorWork::Cryptography];
    share_of_all(facts, if is_small { &works } else { &works[..1] })
}

/// ` The service's CPU time: 46% compression (libz.so.1), 9% network (kernel).`; nothing where nobody looked.
pub(crate) fn sentence(facts: &Facts) -> String {
    let Some(time) = &facts.processor_time else { return String::new() };
    let one = |part: &ProcessorTimePart| {
        let at = part.mostly.trim_matches(['[', ']']);
        format!("{:.0}% {} ({at})", part.fraction * 100.0, word(part.work))
    };
    let told = time.parts.iter().filter(|part| part.fraction >= TOLD_MIN).take(TOLD_MAX).map(one);
    let without =
        if time.with_kernel { "" } else { ", without the kernel's part, which may not be seen here" };
    format!(" The service's CPU time: {}{without}.", told.collect::<Vec<_>>().join(", "))
}

/// ` Of PHP's processes at work 72% executed /srv/report.php. PHP's CPU time: 61% in md5, called by page.php.`; nothing where
/// nobody saw it, or PHP is no good part of it.
pub(crate) fn scripts_sentence(facts: &Facts, of_php: &[ProcessorWork]) -> String {
    if share_of_all(facts, of_php).is_some_and(|share| share < SCRIPTS_TOLD_FROM) {
        return String::new();
    }
    let mut scripts: Vec<(&str, f64)> = facts.each(FactId::php_script_fraction).collect();
    scripts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told = scripts.iter().take(SCRIPTS_TOLD_MAX);
    let told: Vec<String> =
        told.map(|(script, share)| format!("{:.0}% executed {script}", share * 100.0)).collect();
    let scripts = match told.is_empty() {
        true => String::new(),
        false => format!(" Of PHP's processes at work {}.", told.join(", ")),
    };
    let functions = php_functions::text(facts, php_functions::COMPUTING);
    functions.map_or(scripts.clone(), |told| format!("{scripts} PHP's CPU time: {told}."))
}

/// The facts that it rests on, by kind of work: of `processor_time_fraction`, which the rule names.
pub(crate) fn cite(facts: &Facts, fraction: FactId) -> Vec<webdyno_model::fact::Fact> {
    let told =
        facts.processor_time.iter().flat_map(|time| &time.parts).filter(|part| part.fraction >= TOLD_MIN);
    let told: Vec<ProcessorWork> = told.take(TOLD_MAX).map(|part| part.work).collect();
    cite_works(facts, fraction, &told)
}

/// The same of these kinds of work.
pub(crate) fn cite_works(
    facts: &Facts,
    fraction: FactId,
    works: &[ProcessorWork],
) -> Vec<webdyno_model::fact::Fact> {
    works.iter().flat_map(|work| facts.cite_of(&[fraction], word(*work))).collect()
}

#[cfg(test)]
mod tests;
