//! Networks that cannot leave the node.

use api::Clash;
use book::BookError;
use datapath::DatapathError;
use host::HostError;
use node_stack::egress::EgressError;
use node_stack::routing::NotRouting;
use reach::ReachError;
use reach::overlay::OverlayError;
use reach::uplink_networks::UplinkNetworkError;
use reach::uplinks::UplinkError;

use super::{Case, text};
use crate::error::AgentError;

fn reach(error: impl Into<ReachError>) -> AgentError {
    error.into().into()
}

pub(super) fn all() -> Vec<Case> {
    let mut all: Vec<Case> = overlay()
        .into_iter()
        .map(|(name, it)| (name, reach(it)))
        .collect();
    all.extend(wires());
    all.extend([
        (
            "egress: refused",
            reach(EgressError::Refused {
                network: 7,
                source: netdev::Error::ShuttingDown,
            }),
        ),
        (
            "egress: full",
            reach(EgressError::Full {
                network: 7,
                max: 4096,
            }),
        ),
        (
            "egress: kernel",
            reach(EgressError::from(netdev::Error::ShuttingDown)),
        ),
        (
            "not routing",
            reach(NotRouting::new(
                "blue",
                text("the nodes of the cluster were not read yet"),
            )),
        ),
        (
            "uplinks",
            reach(UplinkError::Several {
                errors: vec![
                    netdev::Error::ShuttingDown.into(),
                    DatapathError::NoMap { name: "UPLINKS" }.into(),
                ],
            }),
        ),
        (
            "reach: kernel",
            reach(HostError::from(netdev::Error::ShuttingDown)),
        ),
        (
            "reach: one-sided",
            reach(HostError::OneSided { ifindex: 7 }),
        ),
        (
            "uplinks: kernel",
            reach(UplinkError::from(netdev::Error::ShuttingDown)),
        ),
        (
            "overlay: kernel",
            reach(OverlayError::from(netdev::Error::ShuttingDown)),
        ),
        (
            "uplink: interfaces",
            reach(UplinkNetworkError::from(UplinkError::from(
                DatapathError::NoMap { name: "UPLINKS" },
            ))),
        ),
        (
            "uplink: kernel",
            reach(UplinkNetworkError::from(netdev::Error::ShuttingDown)),
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

fn wires() -> Vec<Case> {
    let (network, uplink) = (|| text("blue"), || text("eth1"));
    let taken = |clash| {
        AgentError::from(BookError::UplinkTaken {
            network: text("blue"),
            owner: text("red"),
            uplink: text("eth1"),
            clash,
        })
    };
    vec![
        (
            "uplink: no interface",
            reach(UplinkNetworkError::NoInterface {
                network: network(),
                uplink: uplink(),
            }),
        ),
        (
            "uplink: podnet's own",
            reach(UplinkNetworkError::Own {
                network: network(),
                uplink: uplink(),
            }),
        ),
        (
            "uplink: no Ethernet",
            reach(UplinkNetworkError::NoEthernet {
                network: network(),
                uplink: uplink(),
            }),
        ),
        (
            "uplink: too big",
            reach(UplinkNetworkError::TooBig {
                network: network(),
                mtu: 9000,
                uplink: uplink(),
                underlay: 1500,
            }),
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
            reach(UplinkNetworkError::NodeAddress {
                network: network(),
                prefix: "10.10.0.0/24".parse().unwrap(),
                address: "10.10.0.1".parse().unwrap(),
            }),
        ),
    ]
}
