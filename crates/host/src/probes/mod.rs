//! Small clients that ask running programs: FastCGI, status pages, the site itself.

pub mod apache_status;
pub mod fastcgi;
pub mod site;
pub mod status_page;
