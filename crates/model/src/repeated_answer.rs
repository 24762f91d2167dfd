//! What two anonymous requests for the same URL showed, more than a second apart: whether a cache in front could have answered
//! the second. What shared caches may keep: RFC 9111, section 3; `Vary`: section 4.1.

use serde::{Deserialize, Serialize};

/// The least time between the two: an answer with a clock in it has changed by then.
pub const APART_US: u64 = 1_100_000;
/// Headers that an answer may vary by and still be the same for everybody.
const HARMLESS_VARY: [&str; 3] = ["accept-encoding", "accept", "origin"];
/// Directives of `Cache-Control` that keep an answer out of a shared cache.
const FORBIDDING: [&str; 5] = ["private", "no-store", "no-cache", "max-age=0", "s-maxage=0"];

/// A request of the load that was sent twice before it, or why it was not.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RepeatedAnswer {
    /// Under which name its figures are reported.
    pub name: String,
    /// Its URL, the values of secret parameters replaced.
    pub url: String,
    /// Its share of the requests, as the load is planned; `None` where what visitors do decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_fraction: Option<f64>,
    /// Why it was not sent, or not twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_sent: Option<String>,
    /// Status of the first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u64>,
    /// What the quicker of the two took, sent alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_us: Option<u64>,
    /// Whether both answers have the same bytes; `None` where there were no two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_same: Option<bool>,
    /// Whether an answer sets a cookie.
    pub sets_cookie: bool,
    /// Whether it has what servers send with files: `Last-Modified` and `Accept-Ranges: bytes`.
    pub is_file: bool,
    /// Whether it says by `Expires` alone that it is old already.
    pub is_expired: bool,
    /// `Cache-Control`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    /// `Vary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vary: Option<String>,
}

impl RepeatedAnswer {
    /// Why no shared cache may keep it, in words; `None` where nothing that was seen speaks against it.
    pub fn obstacle(&self) -> Option<String> {
        let words = |text: &Option<String>| -> Vec<String> {
            let text = text.as_deref().unwrap_or_default().to_ascii_lowercase();
            text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
        };
        let varies = words(&self.vary).into_iter().find(|name| !HARMLESS_VARY.contains(&name.as_str()));
        let forbids = words(&self.cache_control)
            .into_iter()
            .find(|word| FORBIDDING.iter().any(|one| word == one || word.split('=').next() == Some(*one)));
        match self.status {
            Some(status) if status != 200 => Some(format!("answered with status {status}")),
            _ if self.sets_cookie => Some("sets a cookie".into()),
            _ if forbids.is_some() => forbids.map(|word| format!("Cache-Control: {word}")),
            _ if self.is_expired => Some("Expires is in the past".into()),
            _ if varies.is_some() => varies.map(|name| format!("varies by {name}")),
            _ if self.is_same == Some(false) => Some("two answers 1 s apart differ".into()),
            _ => None,
        }
    }

    /// Whether a cache of a second in front could answer it; `None` where that was not seen.
    pub fn is_cacheable(&self) -> Option<bool> {
        if self.obstacle().is_some() { Some(false) } else { self.is_same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_or_changes_is_not_cacheable() {
        let fine = RepeatedAnswer { status: Some(200), is_same: Some(true), ..RepeatedAnswer::default() };
        let text = |text: &str| Some(text.to_owned());
        for (seen, cacheable) in [
            (fine.clone(), Some(true)),
            (RepeatedAnswer { is_same: None, ..fine.clone() }, None),
            (RepeatedAnswer { is_same: Some(false), ..fine.clone() }, Some(false)),
            (RepeatedAnswer { status: Some(302), ..fine.clone() }, Some(false)),
            (RepeatedAnswer { sets_cookie: true, is_same: None, ..fine.clone() }, Some(false)),
            (RepeatedAnswer { is_expired: true, ..fine.clone() }, Some(false)),
            (RepeatedAnswer { cache_control: text("public, max-age=60"), ..fine.clone() }, Some(true)),
            (RepeatedAnswer { cache_control: text("Private"), ..fine.clone() }, Some(false)),
            (RepeatedAnswer { cache_control: text("private=\"x\""), ..fine.clone() }, Some(false)),
            (
                RepeatedAnswer { cache_control: text("max-age=0, must-revalidate"), ..fine.clone() },
                Some(false),
            ),
            (RepeatedAnswer { vary: text("Accept-Encoding"), ..fine.clone() }, Some(true)),
            (RepeatedAnswer { vary: text("Accept-Encoding, Cookie"), ..fine.clone() }, Some(false)),
            (RepeatedAnswer { vary: text("*"), ..fine.clone() }, Some(false)),
            (RepeatedAnswer { vary: text("User-Agent"), ..fine }, Some(false)),
        ] {
            assert_eq!(seen.is_cacheable(), cacheable, "{seen:?}");
        }
    }
}
