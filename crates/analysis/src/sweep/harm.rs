//! What is left out after a load that did harm: points that would do more.

use webdyno_model::sweep::{KnobValue, SweepPoint};

/// Whether a point lies beyond one that did harm: it differs from it only in knobs of which it has what is worse. `load_axes` says
/// which knobs are of the load.
pub(super) fn is_beyond_harm(values: &[KnobValue], loads: &[SweepPoint], load_axes: &[bool]) -> bool {
    loads.iter().filter(|load| load.harm.is_some()).any(|harmful| {
        let is_load = |axis: usize| load_axes.get(axis).is_some_and(|is_load| *is_load);
        let is_beyond = |axis: usize| {
            values[axis] == harmful.values[axis] || is_worse(axis, values, (harmful, loads), is_load(axis))
        };
        harmful.values != values && (0..values.len()).all(is_beyond)
    })
}

/// Of the load more is worse; of a setting what lies behind the harm, as seen from a value that did none.
fn is_worse(
    axis: usize,
    values: &[KnobValue],
    (harmful, loads): (&SweepPoint, &[SweepPoint]),
    is_load: bool,
) -> bool {
    let Some((value, limit)) = values[axis].number().zip(harmful.values[axis].number()) else { return false };
    if is_load {
        return value > limit;
    }
    let differs_here = |load: &&SweepPoint| {
        let mut pairs = load.values.iter().zip(&harmful.values).enumerate();
        pairs.all(|(place, (one, other))| (one != other) == (place == axis))
    };
    let harmless = loads.iter().filter(|load| load.failed.is_none() && load.rate.is_some());
    let harmless = harmless.filter(differs_here).filter_map(|load| load.values[axis].number());
    let sides: Vec<bool> = harmless.map(|one| (one < limit) == (value < limit)).collect();
    !sides.is_empty() && sides.iter().all(|is_same_side| !is_same_side)
}
