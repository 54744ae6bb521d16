//! Turn questions into answers in place; checksums stay, as sums have no order.

use super::checksum;

const IPV4: [u8; 2] = [8, 0];
const ICMP: u8 = 1;
const UDP: u8 = 17;
/// Ethernet, IPv4 without options, and the eight bytes that UDP and echo both have.
const HEADERS: usize = 14 + 20 + 8;

fn protocol(frame: &[u8]) -> Option<u8> {
    let is_plain = frame.len() >= HEADERS && frame[12..14] == IPV4 && frame[14] == 0x45;
    is_plain.then(|| frame[23])
}

/// Turns a UDP datagram or an echo request over IPv4 into an answer.
///
/// MAC addresses, addresses and ports change places. False when it is neither, and nothing was changed.
pub fn reflect(frame: &mut [u8]) -> bool {
    match protocol(frame) {
        Some(UDP) => frame[34..38].rotate_left(2),
        Some(ICMP) if frame[34] == 8 => {
            frame[34] = 0;
            // The word before the sum got smaller by 0x0800, so the sum gets larger by that (RFC 1624).
            let sum = u16::from_be_bytes([frame[36], frame[37]]);
            let (sum, over) = sum.overflowing_add(0x0800);
            frame[36..38].copy_from_slice(&(sum + u16::from(over)).to_be_bytes());
        }
        _ => return false,
    }
    frame[..12].rotate_left(6);
    frame[26..34].rotate_left(4);
    true
}

/// True of a UDP datagram over IPv4 whose checksum is right.
pub fn has_udp_checksum(frame: &[u8]) -> bool {
    if protocol(frame) != Some(UDP) {
        return false;
    }
    let length = [frame[38], frame[39]];
    let end = 34 + usize::from(u16::from_be_bytes(length));
    let Some(udp) = frame.get(34..end) else {
        return false;
    };
    checksum(&[&frame[26..34], &[0, UDP], &length, udp]) == [0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Ipv4, ethernet, icmp_echo, udp4};
    use agent_common::addr::MacAddr;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
    const IP: u16 = 0x0800;

    #[test]
    fn an_answer_is_what_the_other_side_would_have_sent() {
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut frame = ethernet(B, A, IP, &udp4(a, b, (5000, 7), b"odd"));
        assert!(has_udp_checksum(&frame));
        assert!(reflect(&mut frame));
        assert_eq!(frame, ethernet(A, B, IP, &udp4(b, a, (7, 5000), b"odd")));
        frame[36] ^= 1;
        assert!(!has_udp_checksum(&frame));

        for fill in 0..=255 {
            let request = Ipv4::new(a, b, 1).packet(&icmp_echo(&[fill; 33]));
            let mut frame = ethernet(B, A, IP, &request);
            assert!(reflect(&mut frame));
            assert_eq!(
                (frame[34], checksum(&[&frame[34..]])),
                (0, [0, 0]),
                "{fill}"
            );
            assert!(!reflect(&mut frame), "a reply is no request");
        }
    }

    #[test]
    fn what_is_neither_stays_as_it_is() {
        for frame in [
            vec![0xff; 20],
            vec![0xff; 80],
            ethernet(A, B, 0x0806, &[0; 50]),
        ] {
            let mut changed = frame.clone();
            assert!(!reflect(&mut changed));
            assert_eq!(changed, frame);
        }
    }
}
