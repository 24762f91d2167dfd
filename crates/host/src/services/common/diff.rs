//! The unified diff that a plan shows.

use similar::TextDiff;

/// The diff of one file; `path` stands in its head. `shown` replaces what must not be seen.
pub fn unified(path: &str, before: Option<&str>, after: &str, shown: fn(&str) -> String) -> String {
    let old = before.map(shown).unwrap_or_default();
    let from = if before.is_some() { path } else { "/dev/null" };
    TextDiff::from_lines(&old, &shown(after)).unified_diff().context_radius(3).header(from, path).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_comes_from_nothing() {
        let diff = unified("/n.conf", None, "Timeout 5\n", str::to_owned);
        assert_eq!(diff, "--- /dev/null\n+++ /n.conf\n@@ -0,0 +1 @@\n+Timeout 5\n");
    }
}
