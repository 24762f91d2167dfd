//! The scripts that PHP executes at the moment of a reading, by how many processes: over many readings where its time goes.
//!
//! PHP-FPM tells the script of each process, and of PHP in Apache's workers the path of the request stands for it. What is in a
//! request's query is nobody's business, and is not told, nor what may be a token in its path.

use crate::collectors::Reading;
use crate::collectors::secrets::without_secrets;
use std::collections::BTreeMap;

/// Scripts that are told in one reading; of more, those that most processes execute.
const SCRIPTS_MAX: usize = 20;
/// Letters of a path: of a longer one its end.
const LETTERS_MAX: usize = 100;

/// How many processes execute each script.
pub(super) type Running = BTreeMap<String, u64>;

/// Adds a process that executes a script; of a pool of PHP-FPM `POOL:PATH` names it.
pub(super) fn add(pool: Option<&str>, path: &str, to: &mut Running) {
    let path = without_secrets(path, 0);
    let cut = path.chars().count().saturating_sub(LETTERS_MAX);
    let allowed = |letter: char| if letter.is_ascii_graphic() && letter != '*' { letter } else { '_' };
    let pool = pool.map_or(String::new(), |pool| format!("{pool}:"));
    let name = pool.chars().chain(path.chars().skip(cut));
    *to.entry(name.map(allowed).collect()).or_default() += 1;
}

/// A value for each script that is executed, and none for the others: readings add up. `metric` has a `*` for the script.
pub(super) fn push(metric: &str, scripts: Running, reading: &mut Reading) {
    let mut by_count: Vec<(String, u64)> = scripts.into_iter().collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (script, count) in by_count.into_iter().take(SCRIPTS_MAX) {
        reading.push(metric.replace('*', &script), count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_counted_by_the_ends_of_their_paths() {
        let (mut found, mut reading) = (Running::new(), Reading::default());
        for path in ["/srv/a.php", "/srv/b.php", "/srv/b.php", &format!("/srv/{}*.php", "x".repeat(200))] {
            add(None, path, &mut found);
        }
        let mut of_token = Running::new();
        add(None, "/reset/0123456789abcdef0123/new", &mut of_token);
        assert_eq!(of_token, Running::from([("/reset/.../new".to_owned(), 1)]));
        push("scripts.*.running_count", found, &mut reading);
        assert_eq!(reading.values[0], ("scripts./srv/b.php.running_count".to_owned(), 2.0));
        assert_eq!(reading.values.len(), 3);
        let mut of_pools = Running::new();
        ["www", "shop"].iter().for_each(|pool| add(Some(pool), "/srv/a.php", &mut of_pools));
        assert_eq!(of_pools.into_keys().collect::<Vec<_>>(), ["shop:/srv/a.php", "www:/srv/a.php"]);
        let is_cut = |name: &str| name.ends_with("x_.php.running_count") && name.len() < 130;
        assert!(reading.values.iter().any(|(name, _)| is_cut(name)));
    }
}
