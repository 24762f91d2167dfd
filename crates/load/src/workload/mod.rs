//! Where workloads come from: files, lists of URLs, trees of files, forms, recordings of browsers, walks along the links of a site.

pub mod file;
pub mod forms;
pub mod har;
pub mod site;
pub mod tree;
pub mod urls;
