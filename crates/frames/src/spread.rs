//! Choose a ring of a client by the frame's flow, so that its frames stay in order.

use agent_common::packet::{ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP};

/// Returns a hash that is the same for all frames of a flow.
///
/// It is over the fields that are constant between two addresses, and their ports where every packet
/// has them.
#[inline]
pub fn of(frame: &[u8]) -> usize {
    let kind = u16::from_be_bytes(part(frame, 12));
    let mut hash = 0_u32;
    let mut mix = |word: [u8; 4]| {
        hash = (hash ^ u32::from_ne_bytes(word)).wrapping_mul(0x9e37_79b1);
        hash ^= hash >> 15;
    };
    let has_ports = |protocol: u8| matches!(protocol, IPPROTO_TCP | IPPROTO_UDP);
    match kind {
        ETH_P_IP => {
            mix(part(frame, 26));
            mix(part(frame, 30));
            let [version_ihl] = part(frame, 14);
            let fragment = u16::from_be_bytes(part(frame, 20)) & 0x3fff != 0;
            let [protocol] = part(frame, 23);
            if version_ihl == 0x45 && !fragment && has_ports(protocol) {
                mix(part(frame, 34));
            }
        }
        ETH_P_IPV6 => {
            for at in (22..54).step_by(4) {
                mix(part(frame, at));
            }
            let [protocol] = part(frame, 20);
            if has_ports(protocol) {
                mix(part(frame, 54));
            }
        }
        _ => {
            for at in [0, 4, 8] {
                mix(part(frame, at));
            }
        }
    }
    usize::try_from(hash).unwrap_or(0)
}

/// Returns the ring for a hash, or for the number of the ring that a frame came by.
#[inline]
pub fn ring(number: usize, rings: usize) -> usize {
    if number < rings {
        number
    } else {
        number.checked_rem(rings).unwrap_or(0)
    }
}

/// Bytes at this place, zeroes where the frame is shorter.
fn part<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    let bytes = frame.get(at..).and_then(|rest| rest.get(..N));
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(last: u8, port: u8, fragment: u8, ttl: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..16].copy_from_slice(&[0x08, 0, 0x45, 0]);
        frame[20] = fragment;
        frame[22] = ttl;
        frame[23] = IPPROTO_UDP;
        frame[33] = last;
        frame[35] = port;
        frame
    }

    #[test]
    fn frames_of_a_flow_have_one_number_and_flows_have_many() {
        assert_eq!(of(&udp(1, 1, 0, 64)), of(&udp(1, 1, 0, 3)));
        let flows: std::collections::HashSet<usize> =
            (0..64).map(|port| of(&udp(1, port, 0, 64)) % 4).collect();
        assert_eq!(flows.len(), 4);
        // The parts of a packet stay together: only one of them has the ports.
        assert_eq!(of(&udp(1, 1, 0x20, 64)), of(&udp(1, 2, 0x20, 64)));
        assert_ne!(of(&udp(1, 1, 0x20, 64)), of(&udp(2, 1, 0x20, 64)));
        assert_eq!(of(&[]), of(&[0; 14]));
    }
}
