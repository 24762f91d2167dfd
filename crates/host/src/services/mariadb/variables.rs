//! The variables of a database that webdyno replaces while it runs.
//!
//! Facts: <https://mariadb.com/kb/en/server-system-variables/> (which are dynamic, their bounds),
//! <https://mariadb.com/kb/en/grant/#global-privileges> (who may set which since 10.5.2). What weakens how safely data is
//! written (`innodb_flush_log_at_trx_commit`, `sync_binlog`) is not among them.

use crate::services::common::shape::Shape;

/// A variable that takes effect at once.
#[derive(Debug)]
pub struct Variable {
    /// As `SHOW GLOBAL VARIABLES` gives it.
    pub name: &'static str,
    /// What a value may be.
    pub shape: Shape,
    /// The privilege that is enough to set it, beside SUPER and all.
    pub privilege: Option<&'static str>,
}

/// Who may administer connections may set what bounds them.
const CONNECTIONS: Option<&str> = Some("CONNECTION ADMIN");
const TIB: i64 = 1 << 40;

/// The digits of the largest number of 64 bits.
const DIGITS_MAX: usize = 20;

/// The cache of InnoDB's tables: it grows in steps, to a bound of its own.
pub const BUFFER_POOL: &str = "innodb_buffer_pool_size";

/// The cache of MyISAM's indexes: a server that has none gets one, and never has none again (ER_WARN_CANT_DROP_DEFAULT_KEYCACHE).
pub const KEY_BUFFER: &str = "key_buffer_size";

const fn row(name: &'static str, shape: Shape, privilege: Option<&'static str>) -> Variable {
    Variable { name, shape, privilege }
}

/// All that webdyno replaces.
#[rustfmt::skip] // a table, one a line
pub const VARIABLES: &[Variable] = &[
    row(BUFFER_POOL, Shape::Integer(5 << 20, TIB), None),
    row("join_buffer_size", Shape::Integer(128, 1 << 30), None),
    row(KEY_BUFFER, Shape::Integer(8, TIB), None),
    row("max_connections", Shape::Integer(10, 100_000), CONNECTIONS),
    row("max_heap_table_size", Shape::Integer(16_384, TIB), None),
    row("max_user_connections", Shape::Integer(1, 100_000), None),
    row("query_cache_size", Shape::Integer(0, 1 << 34), None),
    row("read_buffer_size", Shape::Integer(8192, 1 << 30), None),
    row("read_rnd_buffer_size", Shape::Integer(8200, 1 << 30), None),
    row("sort_buffer_size", Shape::Integer(1024, 1 << 30), None),
    row("table_open_cache", Shape::Integer(10, 1 << 20), None),
    row("thread_cache_size", Shape::Integer(0, 16_384), None),
    row("tmp_table_size", Shape::Integer(1024, TIB), None),
];

/// A variable by its name.
pub fn find(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|known| known.name == name)
}

/// Whether a text is a whole number, as a server tells all of these. The shapes bound what is proposed; an original may be beyond
/// them (`max_user_connections` 0 is no limit, and -1 lets nobody in), and goes back all the same.
pub fn is_whole_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (1..=DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_safe_to_put_into_a_statement() {
        let names: Vec<_> = VARIABLES.iter().map(|known| known.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        let is_plain = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        assert!(names.iter().all(is_plain), "{names:?}");
        for value in ["76", "0", "-1", "18446744073709551615"] {
            assert!(is_whole_number(value), "{value}");
        }
        for value in [
            "1; DROP TABLE x",
            "''",
            "",
            "-",
            "--1",
            "1 ",
            "+1",
            "1e3",
            "0x1",
            "\u{0661}",
            "184467440737095516150",
        ] {
            assert!(!is_whole_number(value), "{value}");
        }
    }
}
