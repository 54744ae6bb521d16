//! Define the protocol of the agent and the switch.
//!
//! It runs over one `SOCK_SEQPACKET` socket, with messages in JSON and descriptors attached to them.
//! Each request has one reply, in order.
//!
//! Only root, and the user that the switch runs as, are served.

mod client;
mod datagram;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::client::Client;
pub(crate) use self::client::unexpected;
pub(crate) use self::datagram::{Received, receive, send};
use crate::handover::HandedPort;
use crate::port::{PortConfig, PortStatus};

/// Version of this protocol, changed when a message would be misunderstood.
///
/// New fields are ignored by a peer that does not know them.
pub const VERSION: u32 = 3;
/// The oldest version that is understood.
pub const OLDEST: u32 = 1;
/// The first version in which a device may have a header in front of each frame.
pub(crate) const DEVICE_HEADERS: u32 = 2;
/// The first version with [`Request::Judge`].
pub(crate) const JUDGES: u32 = 3;
/// Bytes of the longest message.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Descriptors that come with a message at most.
pub const DESCRIPTORS_MAX: usize = 64;
/// Bytes of ports in a reply to [`Request::List`] after which the next page begins.
///
/// A port has less than a quarter of a message.
pub(crate) const PAGE: usize = MESSAGE_MAX / 2;

/// Request to the switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The first message of a connection.
    Hello {
        /// The version that the asker speaks.
        version: u32,
    },
    /// Adds or updates a port.
    ///
    /// Descriptors: its device, then one or two listening sockets; or none, if the switch has them
    /// already.
    AddPort {
        /// The port's configuration.
        port: PortConfig,
        /// A `struct virtio_net_hdr` is in front of each frame of the device.
        #[serde(default)]
        headers: bool,
    },
    /// A port is to be no more. That it is not there is success.
    RemovePort {
        /// Key of the port.
        key: String,
    },
    /// Lists the ports, in the order of their keys.
    List {
        /// Only those behind this key.
        #[serde(default)]
        after: Option<String>,
    },
    /// Connections and stamps of ports are shown in maps that come as descriptors.
    ///
    /// They are `SWITCH_FLOWS` and `SWITCH_STAMPS`, in the place of those that came before.
    Judge {
        /// Ports that the stamps are of.
        ports: u32,
    },
    /// The process is to end; clients are told.
    Stop,
    /// Everything is to be given to the asker, who is the switch from then on.
    ///
    /// It has said hello with a version in which all devices are understood.
    HandOver,
    /// The asker has put all together that it was given.
    HaveAll,
}

/// Reply of the switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Hello`].
    Hello {
        /// The version that is spoken from now on.
        version: u32,
        /// Of the software.
        software: String,
        /// Workers that move packets.
        workers: usize,
    },
    /// It is as it was asked to be.
    Done {
        /// It was not so before.
        changed: bool,
    },
    /// To [`Request::List`].
    Ports {
        /// The ports.
        ports: Vec<PortStatus>,
        /// There are more behind the last.
        more: bool,
        /// Counters of the workers, in their order.
        #[serde(default)]
        workers: Vec<WorkerStatus>,
    },
    /// It cannot be.
    Refused(Refusal),
    /// Reply to [`Request::HandOver`], with the listening socket of this protocol.
    ///
    /// The ports follow, one in each message.
    HandingOver {
        /// How many.
        ports: usize,
    },
    /// A port that is handed over, with its descriptors.
    Handed(Box<HandedPort>),
    /// To [`Request::HaveAll`]: the asking process is the switch now.
    Yours,
}

impl Reply {
    /// Its name, without what is in it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Done { .. } => "done",
            Self::Ports { .. } => "ports",
            Self::Refused(_) => "refused",
            Self::HandingOver { .. } => "handing_over",
            Self::Handed(_) => "handed",
            Self::Yours => "yours",
        }
    }
}

/// Counters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Looks at all of its ports.
    pub rounds: u64,
    /// Times that it went to sleep.
    pub sleeps: u64,
}

/// Why the switch does not do what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// No version is spoken by both.
    Version,
    /// The message is not one that may come now, or none at all.
    Malformed,
    /// A field has a value that it cannot have.
    Invalid,
    /// The port is not here, so its descriptors are needed.
    NeedsDescriptors,
    /// Descriptors that came are not those of a port.
    BadDescriptors,
    /// Of what it is not to be changed: remove the port, and add it again.
    Fixed,
    /// The switch lacks what it needs, or is being replaced.
    Unable,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub struct Refusal {
    /// Of which kind.
    pub code: RefusalCode,
    /// For a person.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }
}
