//! Trees of files to be served: how large their files are, their contents, how often each is requested. All of it is
//! a function of a seed; nothing here touches a disk.

mod content;
mod popularity;
mod sizes;
mod spread;

pub use content::{Content, Filler};
pub use popularity::{Popularity, weights};
pub use sizes::{Sizes, sizes};
pub use spread::{PERCENTILES, Spread, share_by_count, spread};
