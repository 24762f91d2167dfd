//! What several limits cite in the same way.

use crate::facts::{FactId, Facts};

/// What is explained by first packets that are dropped: the share of the time in which connections are begun in vain.
pub(crate) fn connect_time_share(facts: &Facts) -> Option<f64> {
    facts.value(FactId::connecting_fraction).map(|share| webdyno_model::number::significant(share, 3))
}
