//! The scripts that PHP executes at the moment of a reading, by how many processes: over many readings where its time goes.
//!
//! Facts: <https://www.php.net/manual/en/fpm.status.php>: `state` and `script` of each process on the status page in full. A process
//! is told once a second, so that a script shows by as much as requests for it are under way.

use super::status::Status;
use crate::collectors::Reading;
use std::collections::BTreeMap;

/// Of more processes the page is not asked in full: some 450 bytes of each.
pub(super) const PROCESSES_MAX: u64 = 256;
pub(super) const METRIC: &str = "php_scripts.*.running_count";
/// Scripts that are told in one reading; of more, those that most processes execute.
const SCRIPTS_MAX: usize = 20;
/// Letters of a path: of a longer one its end.
const LETTERS_MAX: usize = 100;

/// Adds what the processes of a pool execute, but for the page itself.
pub(super) fn add(status: &Status, page: Option<&str>, to: &mut BTreeMap<String, u64>) {
    for script in status.running_scripts().filter(|script| page.is_none_or(|page| !script.ends_with(page))) {
        *to.entry(plain(script)).or_default() += 1;
    }
}

/// A path as it may be a part of a metric's name.
fn plain(path: &str) -> String {
    let cut = path.chars().count().saturating_sub(LETTERS_MAX);
    let allowed = |letter: char| if letter.is_ascii_graphic() && letter != '*' { letter } else { '_' };
    path.chars().skip(cut).map(allowed).collect()
}

/// A value for each script that is executed, and none for the others: readings add up.
pub(super) fn push(scripts: BTreeMap<String, u64>, reading: &mut Reading) {
    let mut by_count: Vec<(String, u64)> = scripts.into_iter().collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (script, count) in by_count.into_iter().take(SCRIPTS_MAX) {
        reading.push(METRIC.replace('*', &script), count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::services::php_fpm::status::ProcessStatus;

    #[test]
    fn scripts_are_counted_by_their_paths_without_the_page_itself() {
        let process = |script: &str| ProcessStatus { state: "Running".into(), script: script.into() };
        let long = format!("/srv/{}*.php", "x".repeat(200));
        let scripts = ["/srv/a.php", "/srv/a.php", "/srv/b.php", "/status", &long];
        let status = Status { processes: scripts.map(process).into(), ..Status::default() };
        let (mut found, mut reading) = (BTreeMap::new(), Reading::default());
        add(&status, Some("/status"), &mut found);
        push(found, &mut reading);
        let told: Vec<(&str, f64)> =
            reading.values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(told[0], ("php_scripts./srv/a.php.running_count", 2.0));
        assert_eq!(told.len(), 3);
        assert!(told.iter().any(|(name, _)| name.ends_with("x_.php.running_count") && name.len() < 130));
    }
}
