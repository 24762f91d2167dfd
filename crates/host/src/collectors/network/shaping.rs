//! The rate that a queueing discipline lets through at most.
//!
//! Facts: include/uapi/linux/pkt_sched.h, tc-tbf(8), tc-htb(8), tc-netem(8), tc-cake(8). Rates are in bytes per second;
//! those of 4 GB/s and more are in an attribute of their own, and the old field is full then.

use crate::os::netlink::{attribute, u32_at, u64_at};

/// `struct tc_ratespec` is 12 bytes long; the rate is its last field.
const RATESPEC_RATE: usize = 8;
const RATESPEC_LEN: usize = 12;

/// `struct tc_netem_qopt`, before the attributes.
const NETEM_OPTIONS_LEN: usize = 24;

/// The rate of a discipline, in bits per second; `None` for those without one.
pub(super) fn of_discipline(kind: &str, options: &[u8]) -> Option<f64> {
    let rate = match kind {
        // TCA_TBF_RATE64 4, TCA_TBF_PARMS 1: `tc_tbf_qopt` begins with the rate.
        "tbf" => wide(options, 4).or_else(|| narrow(attribute(options, 1)?, RATESPEC_RATE)),
        // TCA_NETEM_RATE64 8, TCA_NETEM_RATE 6.
        "netem" => {
            let attributes = options.get(NETEM_OPTIONS_LEN..)?;
            wide(attributes, 8).or_else(|| narrow(attribute(attributes, 6)?, 0))
        }
        // TCA_CAKE_BASE_RATE64 2.
        "cake" => wide(options, 2),
        _ => None,
    };
    rate.filter(|&rate| rate > 0).map(|rate| rate as f64 * 8.0)
}

/// The ceiling of a class, in bits per second.
pub(super) fn of_class(kind: &str, options: &[u8]) -> Option<f64> {
    let rate = match kind {
        // TCA_HTB_CEIL64 7, TCA_HTB_PARMS 1: `tc_htb_opt` is rate, ceiling..
        "htb" => wide(options, 7).or_else(|| narrow(attribute(options, 1)?, RATESPEC_LEN + RATESPEC_RATE)),
        _ => None,
    };
    rate.filter(|&rate| rate > 0).map(|rate| rate as f64 * 8.0)
}

fn wide(attributes: &[u8], kind: u16) -> Option<u64> {
    u64_at(attribute(attributes, kind)?, 0)
}

fn narrow(value: &[u8], offset: usize) -> Option<u64> {
    u32_at(value, offset).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::netlink::encoded;

    // 125 000 bytes per second are 1 Mbit/s.
    #[test]
    fn rates_are_bits_per_second() {
        let ratespec = |rate: u32| [&[0; RATESPEC_RATE][..], &rate.to_ne_bytes()].concat();
        let wide = |kind, rate: u64| encoded(kind, &rate.to_ne_bytes());
        let netem = |attributes: Vec<u8>| [vec![0; NETEM_OPTIONS_LEN], attributes].concat();
        for (kind, options, expected) in [
            ("tbf", encoded(1, &ratespec(125_000)), Some(1e6)),
            ("tbf", [encoded(1, &ratespec(u32::MAX)), wide(4, 12_500_000_000)].concat(), Some(1e11)),
            ("netem", netem(encoded(6, &[125_000u32, 0, 0, 0].map(u32::to_ne_bytes).concat())), Some(1e6)),
            ("netem", netem(vec![]), None),
            ("cake", wide(2, 125_000), Some(1e6)),
            // Cake without a limit says 0.
            ("cake", wide(2, 0), None),
            ("tbf", vec![1, 2], None),
            ("fq_codel", wide(2, 125_000), None),
        ] {
            assert_eq!(of_discipline(kind, &options), expected, "{kind} {options:?}");
        }
        let htb = encoded(1, &[ratespec(1), ratespec(250_000)].concat());
        assert_eq!(of_class("htb", &htb), Some(2e6));
        assert_eq!(of_class("drr", &htb), None);
    }
}
