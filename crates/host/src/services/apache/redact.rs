//! Apache's configuration without its secrets, for the diff that a plan shows.

use super::config::syntax::{Document, words};
use webdyno_model::workload::body::REDACTED;
use webdyno_model::workload::is_secret_name;

/// A configuration without its secrets; it has as many lines as before.
pub fn redacted(text: &str) -> String {
    let document = Document::parse(text.as_bytes());
    let mut out = String::with_capacity(text.len());
    for line in &document.lines {
        let raw = String::from_utf8_lossy(&line.raw);
        match secret(&line.text) {
            None => out.push_str(&raw),
            Some(shown) => {
                out.push_str(&format!("{shown} {REDACTED}\n"));
                // The lines that continued it held nothing but the rest of the secret.
                for _ in line.number..line.number_last {
                    out.push_str(REDACTED);
                    out.push('\n');
                }
            }
        }
    }
    out
}

/// What of a line may be shown when it holds a secret: everything up to the word that says so.
fn secret(line: &str) -> Option<String> {
    let words = words(line.trim_start_matches('#'));
    let is_secret = |word: &String| is_secret_name(word) || word.to_ascii_lowercase().contains("passphrase");
    let at = words.iter().position(is_secret)?;
    // `NAME=value` in one word is cut to its name; other words that follow are gone anyway.
    let last = words[at].split(['=', ':']).next().unwrap_or_default().to_owned();
    let mut shown = words[..at].to_vec();
    shown.push(last);
    Some(shown.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::common::diff::unified;

    #[test]
    fn a_diff_shows_the_change_and_no_secret() {
        let before = "SetEnv DB_PASSWORD hunter2\nAuthLDAPBindPassword \\\n  hunter2\n#SetEnv API_TOKEN=hunter2\nMaxRequestWorkers 5\n\
                      RequestHeader set Authorization \"Basic hunter2\"\n";
        let after = before.replace("Workers 5", "Workers 50");
        let diff = unified("/a.conf", Some(before), &after, redacted);
        assert!(!diff.contains("hunter2"), "{diff}");
        assert!(diff.starts_with("--- /a.conf\n+++ /a.conf\n@@ -2,5 +2,5 @@\n"), "{diff}");
        assert!(diff.contains("-MaxRequestWorkers 5\n+MaxRequestWorkers 50\n"), "{diff}");
        assert!(diff.contains(" RequestHeader set Authorization [redacted]\n"), "{diff}");
    }
}
