//! What several limits cite or say in the same way.

use crate::facts::{FactId, Facts};
use crate::wording::format_time;

/// What is explained by first packets that are dropped: the share of the time in which connections are begun in vain.
pub(crate) fn connect_time_share(facts: &Facts) -> Option<f64> {
    facts.value(FactId::connecting_fraction).map(|share| webdyno_model::number::significant(share, 3))
}

/// How long a request takes alone and how long under this load, as a sentence after others; empty where it is not known.
pub(crate) fn alone_words(times: Option<(f64, f64)>) -> String {
    times.map_or(String::new(), |(alone, usual)| {
        format!(" A request alone takes {}, under this load {}.", format_time(alone), format_time(usual))
    })
}
