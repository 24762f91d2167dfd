//! What raises a quota, where it was set.
//!
//! Facts: systemd.resource-control(5), docker-container-update(1), cgroup-v2.rst.

/// The commands that give so many cores.
pub(super) fn by_who_set_it(cpus: f64) -> String {
    format!(
        "raise it where it was set: `systemctl set-property UNIT CPUQuota={:.0}%`, `docker update --cpus {cpus} CONTAINER`, \
         or `{:.0} 100000` in cpu.max of the control group",
        ((cpus * 1000.0).round() / 10.0).ceil(),
        (cpus * 100_000.0).round()
    )
}
