//! The database: its settings and what it is filled with.

use super::Rendered;
use crate::draw::server::{Extra, Query, Server};

/// Rows of the table of notes; without an index a page reads all of them.
const ROWS: u32 = 120_000;

pub fn render(server: &Server, rendered: &mut Rendered) {
    let Some(query) = server.query else { return };
    let (site, settings) = (server.names.site, &server.settings);
    let threads =
        settings.thread_cache.map_or(String::new(), |threads| format!("thread_cache_size = {threads}\n"));
    let pool =
        settings.buffer_pool_mb.map_or(String::new(), |mb| format!("innodb_buffer_pool_size = {mb}M\n"));
    let has_disk = server.extras.contains(&Extra::DataDisk);
    let log = if has_disk { "innodb_log_file_size = 16M\n" } else { "" };
    rendered.file(
        format!("/etc/mysql/mariadb.conf.d/60-{site}.cnf"),
        format!(
            "[mysqld]\nmax_connections = {}\ninnodb_flush_log_at_trx_commit = 2\n{log}{threads}{pool}",
            settings.db_connections
        ),
    );
    let tables = match query {
        Query::Item => format!(
            "CREATE TABLE note (id INT PRIMARY KEY AUTO_INCREMENT, item INT NOT NULL, text VARCHAR(100) NOT NULL);\n\
             INSERT INTO note (item, text) SELECT 1 + seq MOD 1000, CONCAT('What somebody wrote as number ', seq) FROM seq_1_to_{ROWS};\n"
        ),
        Query::Number => "CREATE TABLE number (id INT PRIMARY KEY, last INT NOT NULL);\nINSERT INTO number VALUES (1, 0);\n".into(),
    };
    let state = match query {
        Query::Item if settings.index => Some("CREATE INDEX IF NOT EXISTS item ON note (item)"),
        Query::Item => Some("DROP INDEX IF EXISTS item ON note"),
        Query::Number if has_disk => Some(commits(server)),
        Query::Number => None,
    };
    rendered.sql_state = state.map(|state| format!("USE {site}; {state};"));
    rendered.sql = Some(format!(
        "CREATE DATABASE {site};\nUSE {site};\n{tables}{}\nCREATE USER {site}@localhost IDENTIFIED BY '{site}';\n\
         GRANT SELECT, INSERT, UPDATE ON {site}.* TO {site}@localhost;\n",
        state.map_or(String::new(), |state| format!("{state};"))
    ));
}

/// What a commit waits for. Without buffering the log would be written at once in any case (manual of MariaDB,
/// innodb_log_file_buffering).
fn commits(server: &Server) -> &'static str {
    match server.settings.flushes_commits {
        true => "SET GLOBAL innodb_flush_log_at_trx_commit = 1; SET GLOBAL innodb_log_file_buffering = OFF",
        false => "SET GLOBAL innodb_log_file_buffering = ON; SET GLOBAL innodb_flush_log_at_trx_commit = 2",
    }
}
