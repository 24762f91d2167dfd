//! Servers of our own to load. So far one: the private Apache of the quickstart; scenarios in network namespaces and
//! control groups have their place beside it.

pub mod quickstart;
