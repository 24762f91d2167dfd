//! Where workloads come from: files, lists of URLs, trees of files, forms.

pub mod file;
pub mod forms;
pub mod tree;
pub mod urls;
