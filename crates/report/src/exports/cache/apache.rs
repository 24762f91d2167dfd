//! For mod_cache with mod_cache_disk: <https://httpd.apache.org/docs/2.4/mod/mod_cache.html>.
//!
//! `CacheQuickHandler off` lets conditions of a request decide, `CacheIgnoreNoLastMod` and `CacheDefaultExpire` keep what says nothing
//! of its age, and no kept answer has a cookie. `CacheDisable` does
//! not go into `<If>`. What has a query is kept only where the answer itself says how long.

use super::Kept;
use std::fmt::Write as _;
use webdyno_model::{Result, UserError};

/// The file. An error where all URLs have queries.
pub(super) fn config(kept: &Kept<'_>) -> Result<String> {
    let (queries, paths): (Vec<&String>, Vec<&String>) =
        kept.targets.iter().partition(|target| target.contains('?'));
    if paths.is_empty() {
        return Err(UserError::cannot_run(
            "mod_cache keeps answers to URLs with a query only where they say for how long, and all cacheable URLs have one",
        )
        .hint("take a cache in front: --cache-for nginx, or varnish"));
    }
    let place = "In the virtual host of the site, so that others keep nothing; modules: a2enmod cache cache_disk headers.";
    let mut out = kept.head("#", place);
    for target in queries {
        let _ = writeln!(
            out,
            "# Not kept, as mod_cache keeps no answer to a query that does not say for how long: {target}"
        );
    }
    out.push_str(
        "CacheQuickHandler off\nCacheRoot /var/cache/apache2/mod_cache_disk\nCacheDefaultExpire 1\nCacheMaxExpire 1\n\
         CacheIgnoreNoLastMod on\nCacheIgnoreHeaders Set-Cookie\nCacheLock on\nCacheLockMaxAge 5\n",
    );
    for path in paths {
        let _ =
            writeln!(out, "<LocationMatch \"^{}$\">\n    CacheEnable disk\n</LocationMatch>", escaped(path));
    }
    // What asks for no kept answer, and for none to be kept: mod_cache heeds both, and Apache lets answers vary by what is looked at.
    out.push_str(
        "RequestHeader set Cache-Control \"no-cache, no-store\" \"expr=-n req('Cookie') || -n req('Authorization')\"\n",
    );
    Ok(out)
}

/// A path as a regular expression that matches it alone. Apache matches it decoded.
fn escaped(path: &str) -> String {
    path.chars().flat_map(|c| ".+*?()[]".contains(c).then_some('\\').into_iter().chain([c])).collect()
}
