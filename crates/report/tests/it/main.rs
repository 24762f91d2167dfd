//! What the renderings promise: the texts themselves, and what must hold for any figures and any strings.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on must say where

mod ablation;
mod compare;
mod exports;
mod history;
mod invented;
mod pages;
mod promises;
mod records;
mod sample;
mod screens;
mod texts;
