//! Refuse frames of pods that would pass for tunnels of nodes.
//!
//! Such pods are on the segment that the tunnels go by. Other nodes get what a pod sends there as it is, with
//! any source that the pod may have.

use crate::packet::{
    ETH_HLEN, ETH_P_IP, ETH_P_IPV6, Frame, IPPROTO_UDP, L3, PORTS_LEN, ipv6_payload,
};
use crate::port::{PORT_L3, Port};

/// Tells a frame of an L2 port that passes for a tunnel of a node.
///
/// A node on the segment of the port's uplink would take it for one. What is too short to tell counts too.
#[inline(always)]
pub fn forges_tunnel<F: Frame + ?Sized>(frame: &F, port: &Port) -> bool {
    if port.flags & PORT_L3 != 0 || port.tunnel_port == 0 {
        return false;
    }
    let Some(at) = udp_of(frame) else {
        return false;
    };
    match frame.load::<PORTS_LEN>(at) {
        Some([_, _, q0, q1]) => u16::from_be_bytes([q0, q1]) == port.tunnel_port,
        None => true,
    }
}

/// Finds the UDP header of a datagram or of its first fragment.
#[inline(always)]
fn udp_of<F: Frame + ?Sized>(frame: &F) -> Option<usize> {
    // The EtherType, and as far as the protocol of IPv4.
    let [t0, t1, first, _, _, _, _, _, a, b, _, protocol] = frame.load::<12>(ETH_HLEN - 2)?;
    match u16::from_be_bytes([t0, t1]) {
        ETH_P_IP if protocol == IPPROTO_UDP && u16::from_be_bytes([a, b]) & 0x1fff == 0 => {
            Some(L3 + (first & 0x0f) as usize * 4)
        }
        ETH_P_IPV6 => {
            let payload = ipv6_payload(frame, a)?;
            let is_udp = payload.protocol == IPPROTO_UDP && !payload.later_fragment;
            is_udp.then_some(payload.offset)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Ip16, MacAddr};
    use crate::port::PORT_WIRE;

    const TUNNELS: u16 = 4789;

    fn port(flags: u32, tunnel_port: u16) -> Port {
        Port {
            network: 1,
            flags,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            ip4: [0; 4],
            port_id: 1,
            tunnel_port,
            ip6: Ip16::NONE,
            link_local: Ip16::NONE,
            home: 1,
            shaper: 0,
        }
    }

    fn frame(ether_type: u16, header: &[u8], udp_to: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(ether_type.to_be_bytes());
        frame.extend(header);
        frame.extend(9_u16.to_be_bytes());
        frame.extend(udp_to.to_be_bytes());
        frame.extend([0, 8, 0, 0]);
        frame
    }

    /// Builds an IPv4 header with `options` words of options.
    ///
    /// `protocol` and `fragment` are the values of these fields.
    fn v4(protocol: u8, fragment: u16, options: u8) -> Vec<u8> {
        let [a, b] = fragment.to_be_bytes();
        let mut header = vec![0x45 + options, 0, 0, 0, 0, 0, a, b, 64, protocol];
        header.resize(20 + usize::from(options) * 4, 0);
        header
    }

    fn v6(next: u8, chain: &[u8]) -> Vec<u8> {
        let mut header = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        header.resize(40, 0);
        header.extend(chain);
        header
    }

    #[test]
    fn udp_to_the_port_is_one_wherever_its_header_is() {
        let wire = port(PORT_WIRE, TUNNELS);
        let options = [17, 0, 1, 4, 0, 0, 0, 0];
        let first = [17, 0, 0, 1, 0, 0, 0, 7];
        for (ether_type, header) in [
            (ETH_P_IP, v4(17, 0, 0)),
            (ETH_P_IP, v4(17, 0x2000, 0)),
            (ETH_P_IP, v4(17, 0, 10)),
            (ETH_P_IPV6, v6(17, &[])),
            (ETH_P_IPV6, v6(60, &options)),
            (ETH_P_IPV6, v6(44, &first)),
        ] {
            let is = |to| forges_tunnel(frame(ether_type, &header, to).as_slice(), &wire);
            assert!(is(TUNNELS), "{ether_type:x} {header:?}");
            assert!(!is(TUNNELS + 1), "{ether_type:x} {header:?}");
            let whole = frame(ether_type, &header, TUNNELS);
            let cut = &whole[..whole.len() - 6];
            assert!(forges_tunnel(cut, &wire), "too short to tell");
            let routed = port(PORT_WIRE | PORT_L3, TUNNELS);
            assert!(!forges_tunnel(whole.as_slice(), &routed));
            assert!(!forges_tunnel(whole.as_slice(), &port(PORT_WIRE, 0)));
        }
    }

    #[test]
    fn what_is_no_udp_or_no_beginning_is_none() {
        let wire = port(PORT_WIRE, TUNNELS);
        for (ether_type, header) in [
            (ETH_P_IP, v4(6, 0, 0)),
            (ETH_P_IP, v4(17, 4, 0)),
            (ETH_P_IPV6, v6(6, &[])),
            (ETH_P_IPV6, v6(44, &[17, 0, 0, 9, 0, 0, 0, 7])),
            (0x0806, v4(17, 0, 0)),
        ] {
            let frame = frame(ether_type, &header, TUNNELS);
            assert!(!forges_tunnel(frame.as_slice(), &wire), "{header:?}");
        }
    }
}
