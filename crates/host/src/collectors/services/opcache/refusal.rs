//! Why a pool cannot be asked about OPcache, and what helps.
//!
//! Facts: <https://www.php.net/manual/en/ini.core.php> (open_basedir, auto_prepend_file, disable_functions),
//! <https://www.php.net/manual/en/install.fpm.configuration.php> (chroot, security.limit_extensions), and the answers of
//! sapi/fpm/fpm/fpm_main.c of PHP 8.2: 403 for an extension that is not allowed, 404 for a script that is not found.

use crate::collectors::services::php_fpm::pool_value;
use crate::probes::fastcgi::Answer;
use webdyno_model::service::ServiceSnapshot;

/// Why, and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In words.
    pub why: String,
    /// What the operator can do.
    pub how: &'static str,
}

/// What always helps.
const BY_HAND: &str = "look at opcache_get_status() in a page of the site";

fn because(why: impl Into<String>) -> Refusal {
    Refusal { why: why.into(), how: BY_HAND }
}

/// The function is switched off.
pub fn disabled() -> Refusal {
    let how = "take opcache_get_status out of disable_functions, or look at it in phpinfo()";
    Refusal { why: "disable_functions has opcache_get_status".into(), how }
}

/// The function is kept from scripts elsewhere.
pub fn restricted() -> Refusal {
    because("opcache.restrict_api keeps the status from scripts in other folders")
}

/// No script can be put anywhere.
pub fn no_folder(error: &std::io::Error) -> Refusal {
    let why = format!("no temporary folder can be made where php-fpm sees it: {error}");
    Refusal { why, how: crate::visibility::listeners::NEEDS_RIGHTS }
}

/// Why a pool is not asked at all: it could not answer, or the site's own code would run.
pub fn beforehand(service: &ServiceSnapshot, pool: &str) -> Option<Refusal> {
    let own = |name: &str| pool_value(service, pool, name).map(str::to_owned);
    let value = |name: &str| {
        let of_all = || {
            let setting = service.settings.get(name)?;
            Some(setting.configured.as_ref().or(setting.default.as_ref())?.to_string())
        };
        own(name).or_else(of_all).filter(|value| !value.is_empty() && value != "none")
    };
    if own("chroot").is_some() {
        return Some(because("the pool is in a chroot, which the temporary folder is not in"));
    }
    if let Some(setting) =
        ["auto_prepend_file", "auto_append_file"].into_iter().find(|name| value(name).is_some())
    {
        return Some(because(format!("{setting} would run the site's code with the question")));
    }
    let may_open = |bases: &str| bases.split(':').any(|base| ["/", "/tmp", "/tmp/"].contains(&base));
    if value("open_basedir").is_some_and(|bases| !may_open(&bases)) {
        return Some(because("open_basedir keeps scripts to folders without /tmp"));
    }
    let switched_off = |list: String| list.split(',').any(|name| name.trim() == "opcache_get_status");
    if value("disable_functions").is_some_and(switched_off) {
        return Some(disabled());
    }
    value("opcache.restrict_api").map(|_| restricted())
}

/// A name that the pool runs as a script, by its security.limit_extensions; an empty one allows all.
pub fn script_name(extensions: Option<&str>) -> String {
    let allowed: Vec<&str> = extensions.unwrap_or(".php").split_ascii_whitespace().collect();
    let usual = allowed.is_empty() || allowed.contains(&".php");
    format!("opcache{}", if usual { ".php" } else { allowed[0] })
}

/// What an answer means that is not that of the script.
pub fn of_answer(answer: &Answer) -> Refusal {
    let stderr = String::from_utf8_lossy(&answer.stderr);
    let body = String::from_utf8_lossy(&answer.body);
    if [&stderr, &body].iter().any(|text| text.contains("open_basedir")) || body.contains("No input file") {
        return because("open_basedir keeps scripts to other folders than /tmp");
    }
    match answer.status {
        403 => because("security.limit_extensions does not allow the script"),
        404 => {
            because("php-fpm does not find a script in /tmp: chroot, or another /tmp than it seemed to have")
        }
        status => because(format!("the pool answers {status} instead of the status")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use webdyno_model::service::{ScopedSetting, SettingInForce, SettingValue};

    fn fpm(of_pool: &[(&str, &str)], of_all: &[(&str, &str)]) -> ServiceSnapshot {
        let scoped = |(name, value): &(&str, &str)| ScopedSetting {
            setting: (*name).into(),
            value: (*value).into(),
            scope: vec!["pool www".into()],
            ..ScopedSetting::default()
        };
        let setting = |(name, value): &(&str, &str)| {
            let configured = Some(SettingValue::Text((*value).into()));
            ((*name).to_owned(), SettingInForce { configured, ..SettingInForce::default() })
        };
        ServiceSnapshot {
            scoped: of_pool.iter().map(scoped).collect(),
            settings: of_all.iter().map(setting).collect(),
            ..ServiceSnapshot::default()
        }
    }

    #[test]
    fn who_could_not_answer_is_not_asked() {
        for (of_pool, of_all, expected) in [
            (vec![], vec![], None),
            (vec![("chroot", "/srv")], vec![], Some("chroot")),
            (vec![("open_basedir", "/srv:/var")], vec![], Some("open_basedir")),
            (vec![("open_basedir", "/srv:/tmp")], vec![], None),
            (vec![], vec![("open_basedir", "/srv")], Some("open_basedir")),
            (vec![("open_basedir", "/")], vec![("open_basedir", "/srv")], None),
            (vec![], vec![("auto_prepend_file", "/srv/x.php")], Some("auto_prepend_file")),
            (vec![("auto_prepend_file", "none")], vec![("auto_prepend_file", "/srv/x.php")], None),
            (vec![("disable_functions", "exec, opcache_get_status")], vec![], Some("disable_functions")),
            (vec![], vec![("opcache.restrict_api", "/srv")], Some("restrict_api")),
        ] {
            let refused = beforehand(&fpm(&of_pool, &of_all), "www");
            let why = refused.map(|refusal| refusal.why);
            assert_eq!(why.is_some(), expected.is_some(), "{of_pool:?} {of_all:?}: {why:?}");
            assert!(why.unwrap_or_default().contains(expected.unwrap_or_default()));
        }
    }

    #[test]
    fn the_script_has_an_extension_that_is_allowed() {
        for (extensions, expected) in [
            (None, "opcache.php"),
            (Some(".php .phar"), "opcache.php"),
            (Some(".php7 .html"), "opcache.php7"),
            (Some(" "), "opcache.php"),
        ] {
            assert_eq!(script_name(extensions), expected);
        }
    }

    #[test]
    fn answers_of_fpm_are_understood() {
        let answer =
            |status, body: &str, stderr: &str| Answer { status, body: body.into(), stderr: stderr.into() };
        for (answer, expected) in [
            (answer(403, "Access denied.\n", ""), "limit_extensions"),
            (answer(404, "File not found.\n", "Primary script unknown"), "does not find"),
            (answer(404, "No input file specified.\n", ""), "open_basedir"),
            (answer(200, "", "PHP message: PHP Warning: open_basedir restriction in effect"), "open_basedir"),
            (answer(500, "", ""), "answers 500"),
        ] {
            assert!(of_answer(&answer).why.contains(expected), "{answer:?}");
        }
    }
}
