//! Ports that cannot be made.

use std::path::PathBuf;

use book::BookError;
use ports::PortError;
use ports::afxdp::AfXdpError;
use ports::sockets::PlaceError;
use ports::switch::SwitchError;
use store::StoreError;

use super::{Case, absent, denied, text};
use crate::error::AgentError;

fn port(error: impl Into<PortError>) -> AgentError {
    error.into().into()
}

pub(super) fn all() -> Vec<Case> {
    let path = || PathBuf::from("/run/podnet/d/x.sock");
    let source = denied;
    let mut all: Vec<Case> = vec![
        (
            "no shaping",
            AgentError::from(PortError::NoShaping {
                key: "spec.egressRate of the PodNetworkParameters",
                rate: 1_500_000,
            }),
        ),
        (
            "place: make",
            port(PlaceError::Make {
                path: path(),
                source: source(),
            }),
        ),
        (
            "place: remove",
            port(PlaceError::Remove {
                path: path(),
                source: source(),
            }),
        ),
        (
            "place: write",
            port(PlaceError::Write {
                path: path(),
                source: source(),
            }),
        ),
        (
            "AF_XDP: MTU",
            port(AfXdpError::Mtu {
                network: text("blue"),
                mtu: 9000,
            }),
        ),
        (
            "AF_XDP: program",
            port(AfXdpError::Program {
                ifname: text("net1"),
                source: denied(),
            }),
        ),
        (
            "AF_XDP: control",
            port(AfXdpError::Control {
                ifname: text("net1"),
                source: xsk::Error::Control {
                    operation: "wait on",
                    address: text("/run/podnet/x.sock"),
                    source: denied(),
                },
            }),
        ),
        (
            "not its device",
            AgentError::NotItsDevice {
                resource: text("podnet.dev/blue"),
                device: text("blue-1"),
            },
        ),
        ("internal: AF_XDP port", PortError::MendingDied.into()),
        ("internal: switch", PortError::SwitchUnwatched.into()),
    ];
    let stopped = BookError::from(StoreError::Stopped);
    all.push(("port: store stopped", port(stopped)));
    let exists = netdev::Error::NameTaken {
        name: text("net1"),
        ifindex: 3,
    };
    all.push(("port: name taken", port(exists)));
    all.extend(switch().into_iter().map(|(name, it)| (name, port(it))));
    all
}

fn switch() -> Vec<(&'static str, SwitchError)> {
    let socket = || PathBuf::from("/run/podnet/switch.sock");
    let listen = || memif::Error::Socket {
        operation: "bind",
        address: text("@x"),
        source: denied(),
    };
    vec![
        (
            "switch: absent",
            SwitchError::Absent {
                socket: socket(),
                source: uswitch::Error::Timeout,
            },
        ),
        (
            "switch: start",
            SwitchError::Start {
                program: PathBuf::from("/usr/bin/podnet-agent"),
                source: absent(),
            },
        ),
        ("switch: silent", SwitchError::Silent { socket: socket() }),
        (
            "switch: port",
            SwitchError::Port {
                source: uswitch::Error::Hangup,
            },
        ),
        ("switch: listen", SwitchError::Listen { source: listen() }),
    ]
}
