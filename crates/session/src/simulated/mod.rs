//! Whole tuning sessions against a modelled server on a modelled machine, with seeded faults. The rounds of tuning and
//! the code that changes and rolls back are the real ones; disk, processes, clock, service and load are models behind
//! their seams. A session takes milliseconds, and its seed replays it.

mod capacity;
mod checks;
mod disk;
mod faults;
mod files;
mod layout;
mod load;
mod machine;
mod operator;
mod queue;
mod random;
mod recovery;
mod seams;
mod server;
mod service;
mod session;
mod shadow;
mod sweep;
mod target;
mod tests;
mod two_hosts;
