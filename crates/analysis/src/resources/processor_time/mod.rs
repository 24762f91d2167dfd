//! Where the processors' time goes, by what it is for: told in a sentence, and as shares for rules.

use crate::facts::processor_time::word;
use crate::facts::{FactId, Facts};
use webdyno_model::processor_time::{ProcessorTimePart, ProcessorWork};

/// A smaller share is not worth a word, and more of them are no sentence.
const TOLD_MIN: f64 = 0.05;
const TOLD_MAX: usize = 4;

/// The share of the service's time that one kind of work has; `None` where nobody looked. What was not met is zero of it.
pub(crate) fn share(facts: &Facts, work: ProcessorWork) -> Option<f64> {
    let time = facts.processor_time.as_ref()?;
    Some(time.parts.iter().find(|part| part.work == work).map_or(0.0, |part| part.fraction))
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

/// The facts that it rests on, by kind of work: of `processor_time_fraction`, which the rule names.
pub(crate) fn cite(facts: &Facts, fraction: FactId) -> Vec<webdyno_model::fact::Fact> {
    let told =
        facts.processor_time.iter().flat_map(|time| &time.parts).filter(|part| part.fraction >= TOLD_MIN);
    told.take(TOLD_MAX).flat_map(|part| facts.cite_of(&[fraction], word(part.work))).collect()
}

#[cfg(test)]
mod tests;
