//! Tables of a node that does not exist.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_common::addr::MacAddr;
use agent_common::endpoint::{Endpoint, EndpointKey, FdbKey};
use agent_common::flood::{FLOOD_CHUNK, FloodKey, FloodPorts};
use agent_common::port::Port;
use anyhow::Result;
use datapath::Entries;
use testbed::frame::{ethernet, udp4};
use zerocopy::FromZeros;

/// A test run's frames arrive by this interface.
const LOOPBACK: u32 = 1;

/// Builds L2 networks with the same subnet and as many ports each, and a frame.
///
/// The sender of the frame is on the last network.
pub(super) fn world(networks: usize, ports: usize) -> Result<(Entries, Vec<u8>)> {
    let mut entries = Entries::default();
    let each = ports / networks;
    let mut frame = Vec::new();
    for network in 0..networks {
        let mut first = None;
        let mut members = Vec::new();
        for place in 0..each {
            let number = u32::try_from(network * each + place)?;
            let is_sender = network + 1 == networks && place == 0;
            let ifindex = if is_sender { LOOPBACK } else { number + 10 };
            let [a, b, c, d] = number.to_be_bytes();
            let mac = MacAddr([2, 0, a, b, c, d]);
            let [.., high, low] = u32::try_from(place + 1)?.to_be_bytes();
            let ip4 = Ipv4Addr::new(10, 10, high, low);
            let ip6 = Ipv6Addr::new(0xfd10, 0x10, 0, 0, 0, 0, 0, u16::from_be_bytes([high, low]));
            let network = u32::try_from(network + 1)?;
            let port_id = u16::try_from(number % 4096)?;
            let port = Port {
                network,
                flags: 0,
                mac,
                mtu: 1500,
                ip4: ip4.octets(),
                port_id,
                ip6: IpAddr::V6(ip6).into(),
                link_local: IpAddr::V6(mac.link_local()).into(),
                home: ifindex,
                ..Port::new_zeroed()
            };
            let endpoint = Endpoint {
                ifindex,
                flags: 0,
                mac,
                port_id,
            };
            entries.ports.insert(ifindex, port);
            entries.fdb.insert(FdbKey::new(network, mac), endpoint);
            for ip in [IpAddr::V4(ip4).into(), IpAddr::V6(ip6).into()] {
                entries
                    .endpoints
                    .insert(EndpointKey { network, ip }, endpoint);
            }
            members.push(ifindex);
            if let Some((to, from)) = first.filter(|_| place + 1 == each) {
                frame = ethernet(mac, to, 0x0800, &udp4(from, ip4, (5000, 9), &[0; 18]));
            }
            first.get_or_insert((mac, ip4));
        }
        for (chunk, ports) in members.chunks(FLOOD_CHUNK).enumerate() {
            let mut ifindexes = [0; FLOOD_CHUNK];
            ifindexes[..ports.len()].copy_from_slice(ports);
            let key = FloodKey {
                network: u32::try_from(network + 1)?,
                chunk: u32::try_from(chunk)?,
            };
            let ports = FloodPorts {
                count: u16::try_from(ports.len())?,
                total: if chunk == 0 {
                    u16::try_from(members.len())?
                } else {
                    0
                },
                network: key.network,
                ifindexes,
                network_again: key.network,
            };
            entries.flood.insert(key, ports);
        }
    }
    Ok((entries, frame))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_world_has_the_ports_it_is_asked_for() {
        let (entries, frame) = world(20, 40).unwrap();
        assert_eq!((entries.ports.len(), entries.fdb.len()), (40, 40));
        assert_eq!(entries.endpoints.len(), 80);
        assert_eq!(entries.flood.len(), 20);
        let sender = &entries.ports[&LOOPBACK];
        assert_eq!(
            (sender.network, &frame[6..12]),
            (20, sender.mac.0.as_slice())
        );
    }
}
