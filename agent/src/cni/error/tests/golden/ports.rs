//! Ports that cannot be made.

use std::path::{Path, PathBuf};

use super::{Case, absent, denied, text};
use crate::afxdp::AfXdpError;
use crate::error::AgentError;
use crate::sockets::PlaceError;
use crate::switch::SwitchError;

pub(super) fn all() -> Vec<Case> {
    let place = |operation| PlaceError::of(operation, Path::new("/run/podnet/d/x.sock"))(denied());
    let mut all: Vec<Case> = vec![
        (
            "no shaping",
            AgentError::NoShaping {
                key: "spec.egressRate of the PodNetworkParameters",
                rate: 1_500_000,
            },
        ),
        ("place: make", place("make").into()),
        ("place: remove", place("remove").into()),
        ("place: write", place("write").into()),
        ("place: bind", place("bind").into()),
        (
            "AF_XDP: MTU",
            AfXdpError::Mtu {
                network: text("blue"),
                mtu: 9000,
            }
            .into(),
        ),
        (
            "AF_XDP: program",
            AfXdpError::Program {
                ifname: text("net1"),
                source: denied(),
            }
            .into(),
        ),
        (
            "AF_XDP: control",
            AfXdpError::Control {
                ifname: text("net1"),
                source: xsk::Error::Control {
                    operation: "wait on",
                    address: text("/run/podnet/x.sock"),
                    source: denied(),
                },
            }
            .into(),
        ),
        (
            "not its device",
            AgentError::NotItsDevice {
                resource: text("podnet.dev/blue"),
                device: text("blue-1"),
            },
        ),
        (
            "internal: AF_XDP port",
            AgentError::Internal {
                what: "mending an AF_XDP port",
            },
        ),
        (
            "internal: switch",
            AgentError::Internal {
                what: "watching the switch",
            },
        ),
    ];
    all.extend(switch().into_iter().map(|(name, it)| (name, it.into())));
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
