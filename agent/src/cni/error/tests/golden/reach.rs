//! Networks that cannot leave the node.

use api::Clash;

use super::{Case, text};
use crate::egress::EgressError;
use crate::overlay::OverlayError;
use crate::routing::NotRouting;
use crate::wires::WireError;

pub(super) fn all() -> Vec<Case> {
    let mut all: Vec<Case> = overlay()
        .into_iter()
        .map(|(name, it)| (name, it.into()))
        .collect();
    all.extend(wires().into_iter().map(|(name, it)| (name, it.into())));
    all.extend([
        (
            "egress: refused",
            EgressError::Refused {
                network: 7,
                source: netdev::Error::ShuttingDown,
            }
            .into(),
        ),
        (
            "egress: full",
            EgressError::Full {
                network: 7,
                max: 4096,
            }
            .into(),
        ),
        (
            "not routing",
            NotRouting::new("blue", text("the nodes of the cluster were not read yet")).into(),
        ),
    ]);
    all
}

fn overlay() -> Vec<(&'static str, OverlayError)> {
    vec![
        (
            "overlay: no address",
            OverlayError::NoAddress {
                network: text("blue"),
            },
        ),
        (
            "overlay: not here",
            OverlayError::NotHere {
                address: "192.0.2.1".parse().unwrap(),
            },
        ),
        (
            "overlay: too big",
            OverlayError::TooBig {
                network: text("blue"),
                mtu: 1500,
                added: 50,
                interface: text("eth0"),
                underlay: 1500,
            },
        ),
        ("overlay: name taken", OverlayError::NameTaken),
        (
            "overlay: no fence",
            OverlayError::NoFence {
                source: netdev::Error::ShuttingDown,
            },
        ),
        (
            "overlay: port taken",
            OverlayError::PortTaken { port: 4789 },
        ),
    ]
}

fn wires() -> Vec<(&'static str, WireError)> {
    let (network, uplink) = (|| text("blue"), || text("eth1"));
    let unfit = |what| WireError::Unfit {
        network: text("blue"),
        uplink: text("eth1"),
        what,
    };
    let taken = |what| WireError::Taken {
        network: text("blue"),
        owner: text("red"),
        uplink: text("eth1"),
        what,
    };
    vec![
        (
            "uplink: no interface",
            WireError::NoInterface {
                network: network(),
                uplink: uplink(),
            },
        ),
        ("uplink: podnet's own", unfit("is podnet's own")),
        ("uplink: no Ethernet", unfit("is no Ethernet interface")),
        (
            "uplink: too big",
            WireError::TooBig {
                network: network(),
                mtu: 9000,
                uplink: uplink(),
                underlay: 1500,
            },
        ),
        ("uplink: VLAN taken", taken(Clash::Vlan(100))),
        ("uplink: untagged taken", taken(Clash::Untagged)),
        (
            "uplink: subnet taken",
            taken(Clash::Subnets(
                "10.10.0.0/24".parse().unwrap(),
                "10.10.0.0/16".parse().unwrap(),
            )),
        ),
        (
            "uplink: address of the node",
            WireError::NodeAddress {
                network: network(),
                prefix: "10.10.0.0/24".parse().unwrap(),
                address: "10.10.0.1".parse().unwrap(),
            },
        ),
    ]
}
