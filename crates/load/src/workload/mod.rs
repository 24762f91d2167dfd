//! Where workloads come from: files, lists of URLs, trees of files, forms, recordings of browsers.

pub mod file;
pub mod forms;
pub mod har;
pub mod tree;
pub mod urls;
