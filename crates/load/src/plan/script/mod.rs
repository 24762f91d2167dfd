//! The parts of visits: texts with variables, values captured from responses, cookies, the browser cache, resources
//! that a page embeds, think times, weighted choices and rows of tables.
//!
//! All of it is pure: bytes in, bytes out. Nothing here knows of sockets, and of clocks only cookies do, whose library
//! reads the time of day itself.

pub(crate) mod cache;
pub(crate) mod capture;
pub(crate) mod cookies;
pub(crate) mod discover;
pub(crate) mod rows;
pub(crate) mod text;
pub(crate) mod think;
pub(crate) mod variables;
pub(crate) mod weighted;
