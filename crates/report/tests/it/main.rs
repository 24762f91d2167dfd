//! What the renderings promise: the texts themselves, and what must hold for any figures and any strings.

mod exports;
mod invented;
mod pages;
mod promises;
mod records;
mod sample;
mod texts;
