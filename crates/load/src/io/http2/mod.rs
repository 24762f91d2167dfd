//! HTTP/2 below the engine: RFC 9113. How slots share its connections is in [`multiplexed`](super::multiplexed).

pub(crate) mod blocking;
pub(crate) mod connection;
mod frames;
pub(crate) mod hpack;
#[cfg(test)]
mod request_tests;
#[cfg(test)]
pub(crate) mod scripted;
#[cfg(test)]
mod tests;
