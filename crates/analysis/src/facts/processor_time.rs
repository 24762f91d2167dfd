//! Facts of where the processors' time goes: what samples of the collector `profile` met, by what it is for.

use super::{Derivation, FactBuilder, FactId};
use crate::resources::processor_time::{Places, processor_time, word};
use webdyno_model::processor_time::ProcessorTime;

fact_table! {
    "fraction": processor_time_fraction;
}

/// Metrics of the samples of the service, and of all others.
const SERVICE: &str = "profile.service.*.samples_count";
const OTHERS: &str = "profile.others.*.samples_count";

impl FactBuilder<'_> {
    /// `processor_time_fraction`, of each kind of work; `None` where nobody looked or hardly anything was met.
    pub(super) fn processor_time(&mut self) -> Option<ProcessorTime> {
        let flag = |name: &str| self.series.latest(name).map(|value| value > 0.0);
        let (with_kernel, of_machine) = (flag("profile.with_kernel_bool")?, flag("profile.of_machine_bool")?);
        let others = self.sampled(OTHERS).values().sum();
        let lost: f64 = self.series.levels("profile.lost_count").iter().sum();
        let time = ProcessorTime {
            others_count: of_machine.then_some(others),
            lost_count: lost as u64,
            with_kernel,
            ..processor_time(self.sampled(SERVICE))?
        };
        let source = self.instances(SERVICE).first().map(|(_, metric)| *metric)?;
        for part in &time.parts {
            let from = (source, Derivation::Mean);
            self.add_of(FactId::processor_time_fraction, Some(part.fraction), from, word(part.work));
        }
        Some(time)
    }

    /// What was met in the window: a reading has what was met since the one before it.
    fn sampled(&self, template: &str) -> Places {
        let sum = |metric: &str| self.series.levels(metric).iter().sum::<f64>() as u64;
        let all = self.instances(template).into_iter().map(|(place, metric)| (place.to_owned(), sum(metric)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}
