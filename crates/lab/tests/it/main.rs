//! Tests of the lab that need nothing but its files.

mod corpus;
mod rivals;
