//! Apache's configuration: a lossless reader of files, and an evaluator that walks them as Apache does.

pub mod condition;
pub mod evaluate;
pub mod include;
pub mod syntax;
pub mod variables;

pub use evaluate::{Evaluation, Input, Module, Placed, Section, Source, evaluate};
pub use syntax::Document;

#[cfg(test)]
mod tests;
