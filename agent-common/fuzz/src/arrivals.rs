//! Judge frames that arrive on an uplink, as a compromised node sends them.
//!
//! Tunnels of other nodes are among them.
//!
//! Input: a byte of switches, a byte for the length of segments, two bytes that say which node each
//! pod of the table of packets is on, then the outer frame. What is accepted is judged by a reader of
//! its own, which shares no code with the policy: it takes the bytes as the receiving pod's stack does,
//! and asks the list of pods.

#[path = "arrivals/oracle.rs"]
mod oracle;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use agent_common::addr::{Ip16, MacAddr};
use agent_common::arrival::{Arrival, Origin, arrive};
use agent_common::cases::{
    AMBER, BLUE, GREEN, GREY, OCHRE, OLIVE, PODS, Pod, RED, STEEL, TEAL, View, WHITE, World,
};
use agent_common::endpoint::{ENDPOINT_REMOTE, Endpoint};
use agent_common::network::{NETWORK_ANY_IP, NETWORK_L3, Network};
use agent_common::outer::{self, Flaw, Outer};
use agent_common::packet::{Frame, Start};
use agent_common::policy::Tables;
use agent_common::uplink::Uplink;
use agent_common::vtep::{ADDED_V4, ADDED_V6};

/// UDP port of tunnels.
pub(crate) const PORT: u16 = 4789;
/// This node.
pub(crate) const HERE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The same.
pub(crate) const HERE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// The other nodes: 1, 2 and 3.
pub(crate) const NODES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8)),
];
/// Largest L3 packet of the networks.
pub(crate) const MTU: u32 = 700;

static WORLD: LazyLock<World> = LazyLock::new(World::new);

/// Which node each pod is on.
#[derive(Clone, Copy)]
pub(crate) struct Places(u16);

impl Places {
    /// 0 for this node, else the number of another one.
    pub(crate) fn of(self, pod: &Pod) -> u32 {
        let index = PODS.iter().position(|one| *one == pod).expect("a pod");
        // A way to the outside is no pod, and each node has its own.
        if pod.name.ends_with("out") || pod.name.ends_with("outside") {
            return 0;
        }
        u32::from(self.0 >> (index % 8 * 2)) & 3
    }
}

/// The tables of this node.
struct Here {
    view: View<'static>,
    places: Places,
}

impl Here {
    /// The table of packets has all pods on one node: some are on others.
    fn place(&self, network: u32, found: Option<Endpoint>) -> Option<Endpoint> {
        let found = found?;
        let pod = PODS
            .iter()
            .find(|pod| pod.network == network && pod.endpoint() == found);
        match pod.map_or(0, |pod| self.places.of(pod)) {
            0 => Some(found),
            node => Some(Endpoint {
                ifindex: node,
                flags: ENDPOINT_REMOTE,
                mac: found.mac,
                port_id: u16::MAX,
            }),
        }
    }
}

impl Tables for Here {
    fn is_further_address(&self, ip: &Ip16) -> bool {
        self.view.is_further_address(ip)
    }

    fn endpoint(&self, network: u32, ip: &Ip16) -> Option<Endpoint> {
        self.place(network, self.view.endpoint(network, ip))
    }

    fn station(&self, network: u32, mac: MacAddr) -> Option<Endpoint> {
        self.place(network, self.view.station(network, mac))
    }
}

/// Returns an entry of `NETWORKS`.
fn network(number: u32) -> Option<Network> {
    let flags = match number {
        BLUE | RED => 0,
        GREY => NETWORK_ANY_IP,
        GREEN | WHITE | AMBER => NETWORK_L3,
        TEAL | STEEL | OCHRE | OLIVE => return WORLD.networks.get(&number).copied(),
        _ => return None,
    };
    Some(Network::new(flags, MTU))
}

/// The inner frame, and how long its segments are.
struct Inner<'a> {
    bytes: &'a [u8],
    segment: usize,
}

impl Frame for Inner<'_> {
    fn length(&self) -> usize {
        self.bytes.len()
    }

    fn segment_length(&self) -> usize {
        self.segment
    }

    fn has_vlan_tag(&self) -> bool {
        false
    }

    fn load<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes.load(offset)
    }

    fn start(&self) -> Start {
        self.bytes.start()
    }
}

/// Opens a tunnel as the programs do.
///
/// Returns the outer headers, and where the inner frame begins, bytes.
fn open(frame: &[u8]) -> Option<(Outer, usize)> {
    let uplink = Uplink {
        port: PORT.to_be_bytes(),
        v4: IpAddr::V4(HERE_V4).into(),
        v6: IpAddr::V6(HERE_V6).into(),
        ..Uplink::NOTHING
    };
    match frame.load::<2>(12).map(u16::from_be_bytes)? {
        0x0800 => {
            let bytes = frame.load::<ADDED_V4>(0)?;
            Some((outer::v4(&bytes, frame.len(), &uplink)?, ADDED_V4))
        }
        0x86dd => {
            let bytes = frame.load::<ADDED_V6>(0)?;
            Some((outer::v6(&bytes, frame.len(), &uplink)?, ADDED_V6))
        }
        _ => None,
    }
}

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [switches, unit, low, high, frame @ ..] = input else {
        return;
    };
    let places = Places(u16::from_le_bytes([*low, *high]));
    let mut frame = frame.to_vec();
    // Else hardly a change of length gets past the first check.
    if switches & 1 != 0 {
        oracle::finish(&mut frame, switches & 2 != 0);
    }
    let opened = open(&frame);
    let read = oracle::tunnel(&frame);
    let seen = opened.map(|(outer, at)| oracle::Tunnel {
        source: outer.source.into(),
        network: outer.network,
        congested: outer.congested,
        at,
        is_odd: outer.flaw == Some(Flaw::Header),
        has_checksum: outer.flaw == Some(Flaw::Checksum),
    });
    assert_eq!(seen, read, "the outer headers");
    let Some(tunnel) = read.filter(|tunnel| !tunnel.is_odd) else {
        return;
    };
    let vtep = NODES.iter().position(|node| *node == tunnel.source);
    let (Some(vtep), Some(facts)) = (vtep, network(tunnel.network)) else {
        return;
    };
    let vtep = u32::try_from(vtep + 1).expect("one of three");
    let bytes = &frame[tunnel.at..];
    let segment = match usize::from(*unit) * 8 {
        0 => bytes.len(),
        some => some.min(bytes.len()),
    };
    let origin = Origin {
        network: tunnel.network,
        vtep,
    };
    let tables = Here {
        view: WORLD.seen_by(0),
        places,
    };
    let arrival = arrive(&Inner { bytes, segment }, &facts, origin, &tables);
    let judge = oracle::Judge {
        network: tunnel.network,
        node: vtep,
        places,
        bytes,
        segment,
    };
    match arrival {
        Arrival::Drop(_) => {}
        Arrival::Deliver(to) => judge.accepted(Some(&to)),
        Arrival::Flood => judge.accepted(None),
    }
}
