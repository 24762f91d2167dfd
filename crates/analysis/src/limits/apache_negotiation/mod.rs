//! `apache-negotiation`: Apache reads the whole directory for each request.
//!
//! With `Options MultiViews`, a request for a name that is no file makes Apache look for files that start with that name
//! (`index.html.de`, `index.html.en`) and pick one by the client's Accept headers. It finds them by reading the whole
//! directory, each time. A `DirectoryIndex` without a file extension does the same for each request for the directory itself.
//!
//! ## How it is recognised
//! `MultiViews` is in force where requests name no file (a directory with such a `DirectoryIndex`, a name without an
//! extension), the service saturates its CPUs, it serves files, and yet a request costs several times the CPU time of sending a
//! file, most of it in the kernel. In a directory of a few dozen files it costs microseconds, and is no finding.
//!
//! ## What to do
//! A `DirectoryIndex` with the full file name; where clients get their own language, a type map (`AddHandler type-map .var`)
//! that lists the variants. `Options -MultiViews`. Or move the other files out of that directory.
//!
//! `tune --apply` puts the full name before the one without an extension if exactly one file matches. If several match, it
//! proposes a type map of them, provided that their types and languages are certain (`index.html.de` with an
//! `AddLanguage de .de`); it does not write into the document root. Responses stay the same, and if the file disappears the
//! search goes on. A language added later must be added to the map. Removing MultiViews is only proposed, too: URLs that were
//! not requested during the load would break.
//!
//! ## By hand
//! `strace -c -f -p PID` counts getdents64; `ls FOLDER | wc -l`; `grep -ri -e multiviews -e directoryindex /etc/apache2`.

pub(crate) mod finding;

use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitId, LimitKind, LimitWork};
use webdyno_model::processor_time::ProcessorWork;

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
    work: Some(LimitWork {
        certain: &[],
        possible: &[
            ProcessorWork::FileSystem,
            ProcessorWork::Server,
            ProcessorWork::Memory,
            ProcessorWork::Copy,
            ProcessorWork::Kernel,
        ],
    }),
    ..Limit::of(LimitId::ApacheNegotiation, "Content negotiation for each request", finding::check)
};
