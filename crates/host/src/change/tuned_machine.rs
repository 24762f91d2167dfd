//! The machine that changes were kept on, as their journal has it: whoever looks later is told when it has become another one, so
//! that a setting may not fit any more.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use webdyno_model::number::prose::format_bytes;

/// Memory may differ by this share of itself: kernels of one machine count it differently.
const MEMORY_FRACTION: f64 = 0.1;

/// A worker that holds this many times what it held needs another number of workers.
const WORKER_RATIO: f64 = 1.25;

/// What settings depend on; what is not known says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedMachine {
    /// Cores that may be used.
    pub cores: Option<u32>,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// By its name.
    pub services: BTreeMap<String, TunedService>,
}

/// A service of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedService {
    /// With the language inside of it.
    pub version: Option<String>,
    /// What one worker holds of memory, on average.
    pub worker_memory_bytes: Option<u64>,
}

impl TunedMachine {
    /// What is different now, in words; what is known of one of both only is left out.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = vec![];
        if let (Some(then), Some(now)) = (self.cores, now.cores)
            && then != now
        {
            found.push(format!("{now} cores (then {then})"));
        }
        if let (Some(then), Some(now)) = (self.memory_bytes, now.memory_bytes)
            && (now as f64 / then.max(1) as f64 - 1.0).abs() > MEMORY_FRACTION
        {
            found.push(format!("{} memory (then {})", format_bytes(now as f64), format_bytes(then as f64)));
        }
        for (name, then) in &self.services {
            let Some(now) = now.services.get(name) else { continue };
            if let (Some(then), Some(now)) = (&then.version, &now.version)
                && then != now
            {
                found.push(format!("{name} {now} (then {then})"));
            }
            if let (Some(then), Some(now)) = (then.worker_memory_bytes, now.worker_memory_bytes)
                && now as f64 > WORKER_RATIO * then as f64
            {
                let (then, now) = (format_bytes(then as f64), format_bytes(now as f64));
                found.push(format!("{now} for a worker of {name} (then {then})"));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cores: u32, memory_gb: u64, version: &str, worker_mb: u64) -> TunedMachine {
        let service =
            TunedService { version: Some(version.into()), worker_memory_bytes: Some(worker_mb << 20) };
        TunedMachine {
            cores: Some(cores),
            memory_bytes: Some(memory_gb << 30),
            services: [("php_fpm".to_owned(), service)].into(),
        }
    }

    #[test]
    fn what_became_of_a_machine_is_told() {
        let then = machine(2, 16, "8.2.7", 40);
        for (now, expected) in [
            (then.clone(), &[][..]),
            (TunedMachine::default(), &[]),
            // Workers that are fresh hold less.
            (machine(2, 16, "8.2.7", 20), &[]),
            (machine(2, 17, "8.2.7", 45), &[]),
            (machine(4, 8, "8.2.7", 40), &["4 cores (then 2)", "memory (then "]),
            (machine(2, 16, "8.3.1", 64), &["php_fpm 8.3.1 (then 8.2.7)", "for a worker of php_fpm (then "]),
        ] {
            let found = then.differences(&now);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(expected.iter().zip(&found).all(|(part, text)| text.contains(part)), "{found:?}");
        }
    }
}
