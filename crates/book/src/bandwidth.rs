//! How fast an attachment may send and receive, and who said so. Pure.
//!
//! Ingress and egress are as seen from the pod, as in CNI's conventions: ingress is what it receives.

use std::fmt;
use std::num::NonZeroU64;

use agent_common::shape::{FLOW_MAJOR, FLOW_OTHER, FLOW_QUEUES};
use netdev::{Discipline, Flows, Shape, ShapeState};
use serde::{Deserialize, Serialize};

/// The classes that the programs choose among.
pub const FLOWS: Flows = Flows::new(FLOW_MAJOR, FLOW_QUEUES, FLOW_OTHER);

/// Which way, as seen from the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Into the pod.
    Ingress,
    /// Out of the pod.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The word in output and in labels of metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// Sources of a rate; the first one that sets a direction decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// `runtimeConfig.bandwidth`.
    Runtime,
    /// The element of the pod's list.
    Pod,
    /// The NetworkAttachmentDefinition that the element names.
    Definition,
    /// The AttachmentParameters of the PodNetworkAttachment.
    Attachment,
    /// The PodNetworkParameters.
    Network,
}

impl Source {
    /// Where the rate of this direction is written.
    pub const fn key(self, direction: Direction) -> &'static str {
        match (self, direction) {
            (Self::Runtime, Direction::Ingress) => "runtimeConfig.bandwidth.ingressRate",
            (Self::Runtime, Direction::Egress) => "runtimeConfig.bandwidth.egressRate",
            (Self::Pod, Direction::Ingress) => "bandwidth.ingressRate in the pod's list",
            (Self::Pod, Direction::Egress) => "bandwidth.egressRate in the pod's list",
            (Self::Definition, Direction::Ingress) => {
                "ingressRate in podnet.dev/config of the NetworkAttachmentDefinition"
            }
            (Self::Definition, Direction::Egress) => {
                "egressRate in podnet.dev/config of the NetworkAttachmentDefinition"
            }
            (Self::Attachment, Direction::Ingress) => {
                "spec.ingressRate of the AttachmentParameters"
            }
            (Self::Attachment, Direction::Egress) => "spec.egressRate of the AttachmentParameters",
            (Self::Network, Direction::Ingress) => "spec.ingressRate of the PodNetworkParameters",
            (Self::Network, Direction::Egress) => "spec.egressRate of the PodNetworkParameters",
        }
    }
}

/// The limit of one direction, as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// bit/s on the wire, Ethernet headers included; not 0.
    pub rate: u64,
    /// Bits; chosen from the rate when absent.
    pub burst: Option<u64>,
    /// Source of the rate.
    pub source: Source,
}

impl Limit {
    /// Computes the kernel's shape, for a network with packets of at most `mtu` bytes.
    pub fn shape(&self, mtu: u16) -> Shape {
        Shape::new(self.rate, self.burst, mtu)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", Bits(self.rate))?;
        out.write_str("/s")?;
        match self.burst {
            Some(burst) => write!(out, ", burst {} asked", Bits(burst)),
            None => Ok(()),
        }
    }
}

/// A number of bits in the largest unit that shows it exactly.
#[derive(Debug, Clone, Copy)]
pub struct Bits(pub u64);

impl fmt::Display for Bits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000_000, "Tbit"),
            (1_000_000_000, "Gbit"),
            (1_000_000, "Mbit"),
            (1_000, "kbit"),
        ];
        let fitting = units
            .into_iter()
            .find(|(unit, _)| self.0 > 0 && self.0.is_multiple_of(*unit));
        match fitting {
            Some((unit, name)) => write!(out, "{} {name}", self.0 / unit),
            None => write!(out, "{} bit", self.0),
        }
    }
}

/// Limits of both directions; absent is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Into the pod.
    pub ingress: Option<Limit>,
    /// Out of the pod.
    pub egress: Option<Limit>,
}

impl Limits {
    /// Reads the limits that the runtime asks for; 0 is `None` there already.
    ///
    /// Runtimes send 0 for a direction that has no limit, so it must not lift the limit that an object
    /// sets.
    pub fn asked(bandwidth: Option<&cni_spec::Bandwidth>) -> Self {
        let Some(asked) = bandwidth else {
            return Self::default();
        };
        let limit = |rate: Option<NonZeroU64>, burst: Option<NonZeroU64>| {
            Some(Limit {
                rate: rate?.get(),
                burst: burst.map(NonZeroU64::get),
                source: Source::Runtime,
            })
        };
        Self {
            ingress: limit(asked.ingress_rate, asked.ingress_burst),
            egress: limit(asked.egress_rate, asked.egress_burst),
        }
    }

    /// Reads the limits that a pod's list or the definition it names asks for.
    ///
    /// Unlike in a `runtimeConfig`, 0 was written by a person there; it asks for no limit, which an
    /// object's can still be.
    pub fn wished(bandwidth: &api::Bandwidth, source: Source) -> Self {
        let limit = |limit: api::Limit| {
            Some(Limit {
                rate: limit.rate.filter(|rate| *rate > 0)?,
                burst: limit.burst,
                source,
            })
        };
        Self {
            ingress: limit(bandwidth.ingress),
            egress: limit(bandwidth.egress),
        }
    }

    /// These limits, and for a direction without one those.
    #[must_use]
    pub fn or_else(self, other: Self) -> Self {
        Self {
            ingress: self.ingress.or(other.ingress),
            egress: self.egress.or(other.egress),
        }
    }

    /// Merges the limits, each direction by itself.
    ///
    /// These limits of the runtime come first, then the attachment's own, then the network's.
    #[must_use]
    pub fn or(self, own: &api::Bandwidth, network: &api::Bandwidth) -> Self {
        Self {
            ingress: self
                .ingress
                .or_else(|| of_objects(own.ingress, network.ingress)),
            egress: self
                .egress
                .or_else(|| of_objects(own.egress, network.egress)),
        }
    }

    /// The limit of one direction.
    pub const fn of(&self, direction: Direction) -> Option<Limit> {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }

    /// True when nothing is limited.
    pub const fn is_unlimited(&self) -> bool {
        self.ingress.is_none() && self.egress.is_none()
    }
}

/// In an object 0 is written by a person, who means it.
fn of_objects(own: api::Limit, network: api::Limit) -> Option<Limit> {
    let merged = own.or(network);
    Some(Limit {
        rate: merged.rate.filter(|rate| *rate > 0)?,
        burst: merged.burst,
        source: if own.rate.is_some() {
            Source::Attachment
        } else {
            Source::Network
        },
    })
}

/// Limit and queue of one direction, as `get` shows them.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// bit/s, as asked.
    pub rate: u64,
    /// Burst of the kernel's queue, bits; none without a queue.
    pub burst: Option<u64>,
    /// Mechanism of the kernel, as `tbf+htb`; none without a queue that works.
    pub mechanism: Option<String>,
    /// Source of the rate.
    pub source: &'static str,
    /// Interface whose queue it is.
    pub interface: String,
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Packets that left.
    pub sent_packets: u64,
    /// Packets that found no room.
    pub dropped_packets: u64,
}

impl Shown {
    /// `state` is what the kernel has at `interface`, if that is ours.
    pub fn new(
        limit: &Limit,
        direction: Direction,
        interface: String,
        state: Option<&ShapeState>,
    ) -> Self {
        let number = |read: fn(&ShapeState) -> u64| state.map_or(0, read);
        Self {
            rate: limit.rate,
            burst: state.map(|state| u64::from(state.shape.burst) * 8),
            mechanism: state.and_then(|state| state.discipline.map(mechanism)),
            source: limit.source.key(direction),
            interface,
            backlog_bytes: number(|state| state.backlog_bytes),
            sent_packets: number(|state| state.sent_packets),
            dropped_packets: number(|state| state.dropped_packets),
        }
    }
}

/// The word for how the kernel limits.
pub fn mechanism(discipline: Discipline) -> String {
    discipline.to_string()
}

#[cfg(test)]
mod tests;
