//! What a lower level gives: the processors are what is full, so that the rate grows as a request takes less of them (utilisation law).
//!
//! How much less: measured with zlib 1.2.13, eight texts of 18 to 220 kB (pages, scripts, JSON, CSV, logs), each level against the sixth:
//! the least and the most of them. What is not compressed at all any more costs nothing; that no remedy here does.

use crate::facts::{FactId, Facts};
use crate::resources::processors;
use webdyno_model::diagnosis::{Predicted, Remedy};
use webdyno_model::number::significant;
use webdyno_model::service::SettingValue;

/// The time that each level takes, from 1 on, as a multiple of that of level 6.
const TIMES: [[f64; 2]; 9] = [
    [0.14, 0.5],
    [0.16, 0.5],
    [0.3, 0.6],
    [0.23, 0.71],
    [0.51, 0.89],
    [1.0, 1.0],
    [1.04, 1.5],
    [1.15, 3.6],
    [1.14, 3.4],
];

/// The rate with the level of a remedy, where compressing takes this share of the service's time on processors; no more than is asked
/// for.
pub(super) fn predicted(facts: &Facts, share: f64, remedy: &Remedy) -> Option<Predicted> {
    let rate = facts.value(FactId::rate).filter(|_| facts.loaded)?;
    let of = |value: &Option<SettingValue>| {
        let level = value.as_ref()?.number()? as usize;
        TIMES.get(level.checked_sub(1)?).copied()
    };
    let ([from_least, from_most], [to_least, to_most]) = of(&remedy.from).zip(of(&remedy.to))?;
    // A load generator on the same processors works as much more as the server does.
    let own = facts.value(FactId::service_cpu_cores).filter(|_| processors::cpu_shortage(facts).is_some());
    let client = facts.value(FactId::client_cpu_cores).unwrap_or(0.0);
    let part = share * own.map_or(1.0, |own| own / (own + client));
    let most = facts.value(FactId::offered_rate).unwrap_or(f64::INFINITY);
    let at = |from: f64, to: f64| {
        let saved = (1.0 - to / from).clamp(0.0, 1.0);
        significant((rate / (1.0 - part * saved).max(0.01)).min(most), 3)
    };
    let middle = |ends: [f64; 2]| (ends[0] * ends[1]).sqrt();
    Some(Predicted {
        rate: at(middle([from_least, from_most]), middle([to_least, to_most])),
        ci95: [at(from_least, to_most), at(from_most, to_least)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, with_changes};
    use crate::limits::manual_remedy::manual;
    use webdyno_model::setting::SettingId;

    #[test]
    fn less_work_is_more_answers_as_far_as_the_levels_tell() {
        let base = [
            (FactId::rate, 100.0),
            (FactId::cores, 2.0),
            (FactId::service_cpu_cores, 1.96),
            (FactId::cpu_busy_fraction, 0.99),
            (FactId::pressure_group_cpu_some_fraction, 0.9),
        ];
        let with = |changes: &[(FactId, f64)], from: i64, to: i64| {
            let remedy = manual(SettingId::of_service("nginx", "gzip_comp_level"), "", "");
            let of = |level| Some(SettingValue::Integer(level));
            let remedy = Remedy { from: of(from), to: of(to), ..remedy };
            predicted(&facts(&with_changes(&base, changes), &[]), 0.9, &remedy)
                .map(|told| (told.rate, told.ci95))
        };
        // 100 / (1 - 0.9 (1 - 0.14)) at most.
        assert_eq!(with(&[], 6, 1), Some((296.0, [182.0, 442.0])));
        assert_eq!(with(&[], 9, 6), Some((179.0, [112.0, 274.0])));
        assert_eq!(with(&[(FactId::offered_rate, 150.0)], 9, 6), Some((150.0, [112.0, 150.0])));
        // As much is taken by who asks.
        assert_eq!(with(&[(FactId::client_cpu_cores, 1.96)], 6, 1), Some((149.0, [129.0, 163.0])));
        for (from, to) in [(0, 1), (10, 6)] {
            assert_eq!(with(&[], from, to), None, "{from} {to}");
        }
    }
}
