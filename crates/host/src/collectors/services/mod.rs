//! What services tell of themselves: status pages, logs, status queries.

pub mod access_log;
pub mod apache_log;
pub mod apache_status;
pub mod apache_writers;
pub mod lighttpd;
pub mod mariadb;
pub mod nginx;
pub mod nginx_log;
pub mod nginx_workers;
pub mod opcache;
pub mod opcache_in_apache;
pub mod php_fpm;
mod scripts;
