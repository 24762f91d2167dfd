//! The conditions that are decided while a configuration is read: `<IfDefine>`, `<IfModule>`, `<IfVersion>`,
//! `<IfFile>`.
//!
//! `start_cond_section` in httpd's server/core.c and `start_ifversion` in modules/metadata/mod_version.c.

use super::syntax::words;
use crate::services::apache::config::{known, pattern, section_kind};

/// The program's version, as `<IfVersion>` compares it.
pub type Version = [u32; 3];

/// Reads `2.4.58`, also with something behind it.
pub fn parse_version(text: &str) -> Option<Version> {
    let mut version = [0; 3];
    let mut parts = text.split('.');
    for (at, slot) in version.iter_mut().enumerate() {
        let Some(part) = parts.next() else { break };
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        match digits.parse() {
            Ok(number) => *slot = number,
            Err(_) if at == 0 => return None,
            Err(_) => break,
        }
    }
    Some(version)
}

/// Whether `<IfVersion arguments>` holds; an error in words when it cannot be told.
pub fn version_holds(arguments: &str, version: Option<Version>) -> Result<bool, String> {
    let version = version.ok_or("the version of the program is not known")?;
    let words = words(arguments);
    let (operator, wanted) = match words.as_slice() {
        [wanted] => ("=", wanted.as_str()),
        [operator, wanted] => (operator.as_str(), wanted.as_str()),
        _ => return Err(format!("cannot read <IfVersion {arguments}>")),
    };
    let (negated, operator) = match operator.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, operator),
    };
    let expression = match wanted.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
        Some(inner) if matches!(operator, "=" | "==" | "") => Some(inner),
        _ if operator == "~" => Some(wanted),
        _ => None,
    };
    if let Some(expression) = expression {
        let [major, minor, patch] = version;
        let expression =
            pattern::expression(expression).map_err(|why| format!("<IfVersion {arguments}>: {why}"))?;
        return Ok(expression.is_match(&format!("{major}.{minor}.{patch}")) != negated);
    }
    let wanted = parse_version(wanted).ok_or_else(|| format!("cannot read <IfVersion {arguments}>"))?;
    let holds = match operator {
        "=" | "==" | "" => version == wanted,
        "<" => version < wanted,
        "<=" => version <= wanted,
        ">" => version > wanted,
        ">=" => version >= wanted,
        _ => return Err(format!("cannot read <IfVersion {arguments}>")),
    };
    Ok(holds != negated)
}

/// Whether `<IfDirective name>` or `<IfSection name>` holds; `None` for one of a module that is not known here.
pub fn exists(name: &str, is_section: bool, has_module: &dyn Fn(&str) -> bool) -> Option<bool> {
    if !is_section {
        return known::find(name).map(|known| known.module == "core_module" || has_module(known.module));
    }
    match section_kind::kind(name) {
        section_kind::Kind::Other => None,
        section_kind::Kind::Proxy => Some(has_module("proxy_module")),
        _ => Some(true),
    }
}

/// The first word of a condition without its `!`, and whether it is negated.
pub fn negatable(arguments: &str) -> (bool, String) {
    let (negated, rest) = match arguments.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, arguments),
    };
    (negated, words(rest).into_iter().next().unwrap_or_default())
}

/// The name of the C file that a module calls itself by in `<IfModule mod_x.c>`: `mod_x.so` is built from `mod_x.c`,
/// except for the MPMs and mod_ldap.
pub fn source_file(module: &str, path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split('.').next().unwrap_or(file);
    match stem.strip_prefix("mod_mpm_") {
        Some(mpm) => format!("{mpm}.c"),
        None if module == "ldap_module" => "util_ldap.c".into(),
        // libphp8.2.so calls itself mod_php.c, libphp7.4.so mod_php7.c.
        None if stem.starts_with("libphp") && module == "php_module" => "mod_php.c".into(),
        None if stem.starts_with("libphp") => format!("mod_{}.c", module.trim_end_matches("_module")),
        None => format!("{stem}.c"),
    }
}

/// The symbol of a module that is compiled in, from the file name that `-l` lists.
pub fn static_symbol(source: &str) -> String {
    let stem = source.trim_end_matches(".c");
    match stem {
        "prefork" | "worker" | "event" => format!("mpm_{stem}_module"),
        "http_core" => "http_module".into(),
        _ => format!("{}_module", stem.trim_start_matches("mod_")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_in_mod_version() {
        let version = parse_version("2.4.58");
        for (arguments, expected) in [
            ("2.4.58", Ok(true)),
            ("= 2.4", Ok(false)),
            (">= 2.4", Ok(true)),
            ("> 2.4.58", Ok(false)),
            ("!> 2.4.58", Ok(true)),
            ("< 2.5", Ok(true)),
            ("<= 2.4.58", Ok(true)),
            ("!= 2.4.58", Ok(false)),
        ] {
            assert_eq!(version_holds(arguments, version), expected, "{arguments}");
        }
        for (arguments, expected) in
            [("~ ^2.4", true), ("= /^2/", true), ("!~ ^2\\.2", true), ("/^2\\.2/", false)]
        {
            assert_eq!(version_holds(arguments, version), Ok(expected), "{arguments}");
        }
        for arguments in ["~ (?!2)", "", "? 2.4", "x"] {
            assert!(version_holds(arguments, version).is_err(), "{arguments}");
        }
        assert!(version_holds("2.4", None).is_err());
    }

    #[test]
    fn modules_have_two_names() {
        for (module, path, expected) in [
            ("mpm_prefork_module", "/usr/lib/apache2/modules/mod_mpm_prefork.so", "prefork.c"),
            ("ldap_module", "modules/mod_ldap.so", "util_ldap.c"),
            ("php_module", "modules/libphp8.2.so", "mod_php.c"),
            ("php7_module", "modules/libphp7.4.so", "mod_php7.c"),
            ("ssl_module", "modules/mod_ssl.so", "mod_ssl.c"),
        ] {
            assert_eq!(source_file(module, path), expected);
        }
        for (source, expected) in [
            ("core.c", "core_module"),
            ("mod_so.c", "so_module"),
            ("http_core.c", "http_module"),
            ("event.c", "mpm_event_module"),
        ] {
            assert_eq!(static_symbol(source), expected);
        }
    }
}
