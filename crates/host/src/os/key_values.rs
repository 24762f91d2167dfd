//! Texts of the kernel with a key and a number in each line.

/// The value of the line `key value` or `key: value unit` in a text of such lines (vmstat, memory.stat, meminfo).
pub(crate) fn value_of(text: &str, key: &str) -> Option<u64> {
    let rest_of = |line: &'_ str| -> Option<u64> {
        let rest = line.strip_prefix(key)?;
        let rest = rest.strip_prefix(':').or_else(|| rest.starts_with([' ', '\t']).then_some(rest))?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    };
    text.lines().find_map(rest_of)
}

/// The value of a line of `/proc/meminfo`, in bytes.
pub fn meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    value_of(meminfo, key)?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_key_and_value_parse() {
        for (text, key, expected) in [
            ("pswpin 5\npswpout 6\n", "pswpout", Some(6)),
            ("pswpin_x 5\n", "pswpin", None),
            ("MemTotal:       24684096 kB\n", "MemTotal", Some(24_684_096)),
            ("MemTotal: x kB\n", "MemTotal", None),
            ("MemTotal", "MemTotal", None),
        ] {
            assert_eq!(value_of(text, key), expected, "{text}");
        }
    }
}
