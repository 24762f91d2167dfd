//! Loads: URLs of hosts of the scenario, flags that a shell could split, files that are there.

use super::{Check, below};
use crate::scenario::value_path::PathStep;
use crate::scenario::{ScenarioLoad, split_flags};
use url::Url;
use webdyno_model::Result;

/// Flags that name a file of the scenario's folder.
const OF_FILES: [&str; 3] = ["--workload", "--urls", "--body-file"];
/// Those that say what is asked for.
const OF_REQUESTS: [&str; 2] = ["--workload", "--urls"];

impl Check<'_> {
    pub(super) fn load(&self, at: &[PathStep<'_>], load: &ScenarioLoad) -> Result<()> {
        let flags = below(at, &["flags".into()]);
        let words = split_flags(&load.flags).map_err(|error| self.error_with_cause(&flags, error))?;
        let mut asks = !load.urls.is_empty();
        for (index, word) in words.iter().enumerate() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (word.as_str(), words.get(index + 1).map(String::as_str)),
            };
            if OF_FILES.contains(&flag) {
                let path = value.unwrap_or_default();
                self.file(&flags, "", path)?;
            }
            asks |= OF_REQUESTS.contains(&flag);
        }
        if !asks {
            let reported = self.wrong(at, "the load asks for nothing");
            return Err(reported.hint("as in: urls = [\"http://server/\"]"));
        }
        for (index, url) in load.urls.iter().enumerate() {
            self.url(&below(at, &["urls".into(), index.into()]), url)?;
        }
        Ok(())
    }

    fn url(&self, at: &[PathStep<'_>], url: &str) -> Result<()> {
        let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        match parsed.as_ref().and_then(Url::host_str) {
            Some(host) => self.host(at, host),
            None => {
                let reported = self.wrong(at, format!("`{url}` is no URL of a server"));
                Err(reported.hint("as in: http://server/"))
            }
        }
    }
}
