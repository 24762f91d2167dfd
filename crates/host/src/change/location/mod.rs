//! Where a session was at work, and whether what it did can be undone from here: its files, its processes and its network
//! may be those of a container or of a network namespace. Decided before anything is touched.
//!
//! A journal is undone where its session was. Where that is not here it is entered, by a helper process of our own program
//! ([`crate::change::seams::helper::Helper`]); where it cannot be entered nothing is touched, and the command is named that can.
//!
//! What counts as here (pure, [`location_match()`]): the *files* are those by device and inode of the directories that differ
//! between roots, and of the folders that were written to. *Process ids* mean something in their pid namespace, as long as
//! its first process is the same. The *network* is a namespace of which the inode number proves nothing alone, as it is
//! given away again: process 1 is in it then and now, or a process is in it that is as old as the session, or it still
//! has the name that it had (`/run/netns/NAME`). After a boot, or when a container was started anew, the same names and
//! process 1 tell which one took its place; where nothing did, only files are left to be reverted.
//!
//! Facts: namespaces(7), mount_namespaces(7), pid_namespaces(7), network_namespaces(7), ip-netns(8), proc_pid_ns(5).

mod here;
mod location_match;
#[cfg(test)]
mod tests;

pub use crate::change::location::location_match::{LocationMatch, MachineView, location_match};
pub use here::of_journal;
