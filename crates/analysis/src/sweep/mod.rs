//! Sweeps: which point is measured next, which load does not count, and what the points come to.
//!
//! The values of a list are all measured. Of a range a coarse grid is, and then values where the curve bends: in the plateau around its
//! peak, at the edges of it, at the peak itself ([`Planner`]). The order is drawn, and every other pass goes through it backwards: a
//! server that becomes slower with time makes all points slower alike, and no curve.
//!
//! A study is a sweep of several knobs whose points are all measured; what it comes to is the effect of each of them (`effects`).

mod axis;
mod conditions;
mod effects;
mod harm;
mod planner;
mod points;
mod refine;
mod report;
#[cfg(test)]
mod study_tests;
#[cfg(test)]
mod tests;

pub use axis::{AxisValues, NumberRange, POINTS_MAX};
pub use conditions::{Discard, discard};
pub use planner::{NextPoint, Planner, PointSpec, SweepEnd, SweepOptions, combinations};
pub use points::{load_point, merged_points};
pub use report::{chosen_curve, sweep_report};
