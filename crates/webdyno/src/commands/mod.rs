//! The commands: one file or folder each, thin: arguments in, a session between, an exit code out. None uses another; what
//! they share is in `measuring`.

pub mod capacity;
pub mod check;
pub mod compare;
pub mod diagnose;
pub mod explain;
pub mod export;
pub mod fit;
pub mod history;
pub mod lab;
pub mod logs;
pub mod observe;
pub mod predict;
pub mod quickstart;
pub mod report;
pub mod resume;
pub mod rollback;
pub mod run;
pub mod schema;
pub mod serve;
pub mod size;
pub mod sweep;
pub mod tune;
pub mod worker;
pub mod workload;
