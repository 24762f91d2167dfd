//! The run directory: where a session leaves its recording and its report.

use crate::cli::OutputArgs;
use std::path::{Path, PathBuf};

/// The directory that `--out` names, or a new one under `webdyno-runs`, named by time and command.
pub fn run_directory(output: &OutputArgs, command: &str) -> PathBuf {
    output.out.clone().unwrap_or_else(|| new_run_directory(command))
}

/// A new directory under `webdyno-runs`, named by time and command.
pub fn new_run_directory(command: &str) -> PathBuf {
    new_directory_in(Path::new("webdyno-runs"), &jiff::Timestamp::now().to_string(), command)
}

/// A new directory in `parent`, named by time and command.
pub fn new_directory_in(parent: &Path, now: &str, command: &str) -> PathBuf {
    // 2026-11-21T20:45:10.123Z becomes 20261121T204510Z: sorts by time, needs no quotes.
    let time: String =
        now.split('.').next().unwrap_or(now).chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let time = time.trim_end_matches('Z');
    let name = |n: u32| {
        if n == 1 { format!("{time}Z-{command}") } else { format!("{time}Z-{command}-{n}") }
    };
    let candidates = (1..).map(|n| parent.join(name(n)));
    candidates.into_iter().find(|path| !path.exists()).unwrap_or_else(|| parent.join(name(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_in_one_second_have_two_places() {
        let parent = tempfile::tempdir().unwrap();
        let now = "2026-11-21T20:45:10.123Z";
        let first = new_directory_in(parent.path(), now, "run");
        assert!(first.ends_with("20261121T204510Z-run"));
        std::fs::create_dir(&first).unwrap();
        assert!(new_directory_in(parent.path(), now, "run").ends_with("20261121T204510Z-run-2"));
    }
}
