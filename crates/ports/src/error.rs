//! Failures of ports: their links, sockets, queues and rates.

use book::BookError;
use book::bandwidth::Bits;
use datapath::DatapathError;
use host::HostError;

use super::afxdp::error::AfXdpError;
use super::sockets::error::PlaceError;
use super::switch::error::SwitchError;

/// A port cannot be made, mended or removed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A rate is asked for, and this kernel cannot limit one.
    #[error(
        "{key} is {}/s and this kernel cannot limit rates: load its module sch_tbf and restart the \
         agent, or remove the rate", Bits(*rate)
    )]
    NoShaping {
        /// Place where the rate is written.
        key: &'static str,
        /// bit/s.
        rate: u64,
    },
    /// The port cannot be one of AF_XDP.
    #[error(transparent)]
    AfXdp(#[from] AfXdpError),
    /// No switch serves a port of type Memif.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// A port of type Memif is asked for on a trunk.
    #[error(
        "unsupported interface.type: Memif: the switch carries no VLAN tags, which pods of a trunk \
         send: write Veth"
    )]
    MemifOnTrunk,
    /// A port that is a socket cannot have its file.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The record of a port could not be written.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The thread that watches new links is gone.
    #[error("an internal task failed: watching the links; {}", telemetry::FAULT)]
    LinksUnwatched,
    /// The task that mends a port died.
    #[error(
        "an internal task failed: mending an AF_XDP port; {}",
        telemetry::FAULT
    )]
    MendingDied,
    /// The connection to the switch cannot be watched.
    #[error("an internal task failed: watching the switch; {}", telemetry::FAULT)]
    SwitchUnwatched,
}

impl From<netdev::Error> for PortError {
    fn from(error: netdev::Error) -> Self {
        HostError::from(error).into()
    }
}

impl From<DatapathError> for PortError {
    fn from(error: DatapathError) -> Self {
        HostError::from(error).into()
    }
}
