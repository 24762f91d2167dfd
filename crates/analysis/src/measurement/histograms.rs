//! Histograms of several intervals as one.

use webdyno_model::Result;
use webdyno_model::histogram::{EncodedHistogram, TimeHistogram};

/// One histogram from the encoded ones of several intervals.
pub fn merged<'a>(encoded: impl Iterator<Item = &'a EncodedHistogram>) -> Result<TimeHistogram> {
    let mut all = TimeHistogram::new();
    for histogram in encoded {
        all.merge_encoded(histogram)?;
    }
    Ok(all)
}
