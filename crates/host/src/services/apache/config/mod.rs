//! Apache's configuration: a lossless reader of files, and an evaluator that walks them as Apache does.

pub mod condition;
pub mod evaluate;
pub mod include;
pub mod known;
pub mod macros;
pub mod model;
pub mod pattern;
pub mod section_kind;
pub mod syntax;
pub mod variables;

pub use evaluate::evaluate;
pub use model::{Evaluation, Input, Module, Placed, Section, Source};
pub use syntax::Document;

#[cfg(test)]
mod tests;
