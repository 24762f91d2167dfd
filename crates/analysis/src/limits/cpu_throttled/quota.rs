//! What raises a quota, where it was set.
//!
//! Facts: systemd.resource-control(5), docker-container-update(1), cgroup-v2.rst.

use webdyno_model::number::significant;

/// So many cores in two digits, and no more than there are: rounded, all of 104 would be less than a quota of 102, and all of 128 more
/// than `docker` takes.
pub(super) fn rounded(cpus: f64, most: f64) -> f64 {
    significant(cpus, 2).min(most)
}

/// The commands that give so many cores.
pub(super) fn by_who_set_it(cpus: f64) -> String {
    format!(
        "raise it where it was set: `systemctl set-property UNIT CPUQuota={:.0}%`, `docker update --cpus {cpus} CONTAINER`, \
         `limits.cpu` in Kubernetes, \
         or `{:.0} 100000` in cpu.max of the control group (version 1: cpu.cfs_quota_us)",
        ((cpus * 1000.0).round() / 10.0).ceil(),
        (cpus * 100_000.0).round()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_rounded_to_no_more_than_there_are_and_to_no_less_than_today() {
        for (wanted, most, expected) in
            [(0.2786, 2.0, 0.28), (204.0, 104.0, 104.0), (254.0, 128.0, 128.0), (25.3, f64::INFINITY, 25.0)]
        {
            assert_eq!(rounded(wanted, most), expected, "{wanted} of {most}");
        }
    }
}
