//! `apache-negotiation`: for each request the names of all files in a folder are read.
//!
//! With `Options MultiViews`, a request for a name that is no file makes Apache look for files that begin so
//! (`index.html.de`, `index.html.en`) and pick one by what the visitor asks for. It finds them by reading the whole folder,
//! each time. A `DirectoryIndex` whose name has no ending does the same for each request for the folder itself.
//!
//! ## How it is recognised
//! `MultiViews` is in force where requests go that name no file (a folder with such a `DirectoryIndex`, a name without an
//! ending), the service's processors are full, it sends files, and yet a request takes several times the processor time
//! that sending a file takes, most of it in the kernel. In a folder of a few dozen files it costs microseconds, and is no
//! finding.
//!
//! ## What to do
//! A `DirectoryIndex` that names a file in full; where visitors get their own language, a type map (`AddHandler type-map
//! .var`), which lists the choices. `Options -MultiViews`. Or move what else lies in that folder elsewhere.
//!
//! `tune --apply` puts a name in full before the one without an ending, where one file fits. Where several do, it proposes a type
//! map of them, if their types and languages are sure (`index.html.de` with an `AddLanguage de .de`): a file among the documents
//! is not its to write. Visitors get what they got before, and where the file is lost the search goes on. A language that is added
//! later has to be added to the map. Taking MultiViews away is only proposed, too: addresses that nobody asked for meanwhile would break.
//!
//! ## By hand
//! `strace -c -f -p PID` counts getdents64; `ls FOLDER | wc -l`; `grep -ri -e multiviews -e directoryindex /etc/apache2`.

pub(crate) mod finding;

use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&crate::resources::file_cost::FACTS],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::CpuThrottled,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::RequestCost),
    ..Limit::new(
        LimitId::ApacheNegotiation,
        "Content negotiation for each request",
        include_str!("mod.rs"),
        finding::check,
    )
};
