//! Settings of a service as they were read: which value holds where, and which backends it names.

pub mod backends;
pub mod effective;
