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
    /// How many repetitions of a SYN come a second apart before their distance doubles (`tcp_syn_linear_timeouts`);
    /// unknown where the kernel has no such setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syn_linear_timeouts: Option<u32>,
    /// What the quickest of many calls into the kernel took that asks for a file (lstat(2) of the root folder); unknown in
    /// recordings of before it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_call_us: Option<f64>,
    /// What each further part of a path adds to that, once the kernel knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_part_us: Option<f64>,
    /// Host name.
    pub hostname: Option<String>,
    /// By how much the times of its samples may be off on the generator's clock; unknown in recordings of before it was
    /// kept, and of the generator itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_error_us: Option<u64>,
}
