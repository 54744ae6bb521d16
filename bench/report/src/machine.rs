//! The machine of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Kernel, processor and versions, as far as they can be found out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// How many of them.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory: u64,
    /// Congestion control of every TCP stream.
    pub congestion: String,
    /// Programs and their versions.
    pub versions: BTreeMap<String, String>,
}

impl Machine {
    /// One line.
    pub fn line(&self) -> String {
        let mut line = format!(
            "Linux {}, {} x {}, {} GiB, TCP {}",
            self.kernel,
            self.cpus,
            self.cpu,
            self.memory.div_ceil(1024),
            self.congestion
        );
        for (name, version) in &self.versions {
            line.push_str("; ");
            // Most say their own name.
            if !version.starts_with(name) {
                line.push_str(name);
                line.push(' ');
            }
            line.push_str(version);
        }
        line
    }
}
