//! Where the processors' time goes: shares of samples that were taken at regular moments.

use serde::{Deserialize, Serialize};

/// What the processors did for the service and what stands behind it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessorTime {
    /// Samples that met it.
    pub samples_count: u64,
    /// Samples that met other programs, the load generator among them; `None` where only the service's may be seen.
    pub others_count: Option<u64>,
    /// Samples that found no room to be kept.
    pub lost_count: u64,
    /// Whether what the kernel did for it was seen, too: else all shares are of the time in the programs alone.
    pub with_kernel: bool,
    /// By what it was for, the largest share first; together they are all of it.
    pub parts: Vec<ProcessorTimePart>,
    /// By program, shared object and function, outermost first and joined by semicolons, in the order of their names: what
    /// flame graphs are drawn from. What was met rarely stands without its function; `~NAME` is a function without a name that
    /// lies behind NAME in its object.
    pub stacks: Vec<StackSamples>,
}

/// A share of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessorTimePart {
    /// What for.
    pub work: ProcessorWork,
    /// Share of the samples, 0 to 1.
    pub fraction: f64,
    /// 95% interval.
    pub ci95: [f64; 2],
    /// The program or shared object that has most of it; `[kernel]` for the kernel.
    pub mostly: String,
}

/// Samples of one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackSamples {
    /// `apache2;libz.so.1.3.1;deflate`.
    pub frames: String,
    /// Samples that met it.
    pub samples_count: u64,
}

/// What processors work for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessorWork {
    /// Compressing responses.
    Compression,
    /// TLS, and other cryptography and hashes, but for handshakes.
    Cryptography,
    /// Handshakes of TLS: signatures and the exchange of keys.
    TlsHandshakes,
    /// Scripts of PHP; compiling them, too, where that could not be told apart.
    Php,
    /// Compiling scripts of PHP.
    PhpCompilation,
    /// A database.
    Database,
    /// Rewriting URLs, and matching patterns.
    Rewriting,
    /// Reading settings for a request: `.htaccess`.
    Settings,
    /// Log lines.
    Logging,
    /// The server's own code.
    Server,
    /// Any other program: an application and its interpreter.
    Application,
    /// Copying bytes.
    Copy,
    /// Getting memory, and giving it back.
    Memory,
    /// The kernel's network: sockets, TCP, packets.
    Network,
    /// The kernel's file systems and disks.
    FileSystem,
    /// Starting and ending processes, and choosing who runs.
    Scheduling,
    /// The rest of the kernel, or all of it where its functions have no names.
    Kernel,
}
