//! `spec.interface`: what the port of a pod on a network is.

use std::fmt;

use kube_core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most queues a port has.
pub const QUEUES_MAX: u16 = 8;

/// The kind of port in the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum InterfaceKind {
    /// A network interface of the kernel.
    #[default]
    Veth,
    /// A network interface whose packets go to AF_XDP sockets.
    ///
    /// They do so once a program of the pod has opened sockets.
    #[serde(rename = "AFXDP")]
    AfXdp,
    /// A memif socket and no interface: packets go through memory shared with the node.
    Memif,
}

impl InterfaceKind {
    /// The word in a manifest's `spec.interface.type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Veth => "Veth",
            Self::AfXdp => "AFXDP",
            Self::Memif => "Memif",
        }
    }
}

impl fmt::Display for InterfaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `spec.interface` as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("!has(self.queues) || self.type != 'Veth'")
        .message("a Veth interface has one queue; write type AFXDP or Memif, or remove queues"),
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InterfaceSpec {
    /// Kind of port: `Veth`, `AFXDP` or `Memif`.
    ///
    /// `Veth`: a network interface of the kernel. `AFXDP`: one whose packets AF_XDP sockets of the pod
    /// get and send. `Memif`: a memif socket, and no interface.
    #[serde(rename = "type")]
    pub kind: InterfaceKind,
    /// Queues of the interface (`AFXDP`) or rings in each direction (`Memif`).
    ///
    /// `AFXDP` has one socket for each queue, `Memif` at most so many rings. Default 1.
    #[schemars(range(min = 1, max = QUEUES_MAX))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<i64>,
}

/// A port, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Kind of port in the pod.
    #[serde(rename = "type")]
    pub kind: InterfaceKind,
    /// Its queues, 1 to [`QUEUES_MAX`]; 1 for a `Veth`.
    pub queues: u16,
}

impl Interface {
    /// One interface of the kernel, what a pod has that asks for nothing else.
    pub const VETH: Self = Self {
        kind: InterfaceKind::Veth,
        queues: 1,
    };

    /// True for an interface that the kernel alone serves.
    #[must_use]
    pub fn is_veth(&self) -> bool {
        self.kind == InterfaceKind::Veth
    }
}

impl Default for Interface {
    fn default() -> Self {
        Self::VETH
    }
}
