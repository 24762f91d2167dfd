//! Where a measurement was made: without it a figure cannot be compared.

use serde::{Deserialize, Serialize};

/// A machine, as far as it could be read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// The version of webdyno that measured.
    pub webdyno: String,
    /// `PRETTY_NAME` of os-release.
    pub os: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Model name of the processor.
    pub cpu_model: Option<String>,
    /// Cores that may be used.
    pub cores: Option<u32>,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// Host name.
    pub hostname: Option<String>,
}
