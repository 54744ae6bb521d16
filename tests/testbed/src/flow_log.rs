//! The flow log of a node: its options and its lines.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::node::{Node, Setup};
use crate::pod::Port;
use crate::wait;

/// A flow log in a directory of its own, with intervals of a second.
#[derive(Debug)]
pub struct FlowLog {
    directory: TempDir,
}

impl Default for FlowLog {
    /// Makes the directory.
    ///
    /// # Panics
    /// If the kernel refuses.
    fn default() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { directory }
    }
}

impl FlowLog {
    /// Has the agent write it, of one in `one_of` frames.
    ///
    /// # Panics
    /// If the path is not UTF-8.
    #[must_use]
    pub fn of(&self, setup: Setup, one_of: u32) -> Setup {
        let (path, one_of) = (self.path(), one_of.to_string());
        let path = path.to_str().expect("a path in UTF-8");
        setup
            .args(&["--flow-log", path, "--flow-sample", &one_of])
            .args(&["--flow-interval", "1"])
    }

    /// Path of the file.
    pub fn path(&self) -> PathBuf {
        Path::join(self.directory.path(), "flows.jsonl")
    }

    /// Waits until the log samples as many ports.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn wait_for_ports(node: &Node, ports: u64) {
        wait::until_true("the flow log to sample these ports", || {
            Self::metric(node, "podnet_flow_log_ports") == Some(ports)
        });
    }

    /// A number of the agent's page of metrics, with its labels.
    ///
    /// # Panics
    /// If the agent does not answer.
    pub fn metric(node: &Node, name: &str) -> Option<u64> {
        let (_, page) = node.http("/metrics").expect("the agent answers");
        let mut lines = page.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// The lines that are there by now, each an object.
    ///
    /// # Panics
    /// If one is none.
    pub fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        // The last one may be in the middle of its writing.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("each line is JSON"))
            .collect()
    }

    /// The lines of a port's flows in a direction.
    pub fn flows(&self, port: &Port, direction: &str) -> Vec<Value> {
        let lines = self.lines().into_iter();
        lines
            .filter(|line| line["kind"] == "flow" && line["direction"] == direction)
            .filter(|line| line["container"] == port.container.as_str())
            .filter(|line| line["interface"] == port.ifname.as_str())
            .collect()
    }

    /// Waits until the packets of these lines of a port are as many.
    ///
    /// # Panics
    /// If they are not.
    #[track_caller]
    pub fn wait_for(
        &self,
        port: &Port,
        direction: &str,
        packets: u64,
        wanted: impl Fn(&Value) -> bool,
    ) -> Vec<Value> {
        wait::until("flows of the flow log", || {
            let flows = self.flows(port, direction).into_iter();
            let flows: Vec<Value> = flows.filter(|line| wanted(line)).collect();
            let sum: u64 = flows.iter().filter_map(|it| it["packets"].as_u64()).sum();
            (sum >= packets).then_some(flows)
        })
    }
}
