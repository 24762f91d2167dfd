//! HTTP/1.1 responses as they arrive, and what is expected of them.

pub(crate) mod chunked;
pub(crate) mod content_check;
#[cfg(test)]
pub(crate) mod differential_tests;
pub(crate) mod response;
pub(crate) mod response_head;
