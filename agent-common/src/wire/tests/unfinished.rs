//! Frames of an uplink into which a checksum is still to be written.

use super::*;

/// A frame with a checksum still to be written.
fn unfinished(bytes: &[u8], start: i32, offset: u16) -> Beside<'_> {
    Beside {
        bytes,
        tag: None,
        partial: Partial::new(start, offset),
    }
}

/// ATT-02a: only the transport's own checksum may be missing, as of pods' frames.
#[test]
fn an_uplink_brings_pods_no_frame_that_will_say_something_else() {
    let brought = |frame: &[u8], start, offset| {
        let frame = unfinished(frame, start, offset);
        incoming(&frame, &L2, BLUE, &Two::on(false))
    };
    let udp = v4(NEAR, STRANGER, STRANGER_V4);
    let group = v4(MacAddr::BROADCAST, STRANGER, STRANGER_V4);
    let v6 = Ipv6::new(STRANGER_V6, NEAR_V6).udp(NEAR, STRANGER, PORTS);
    let ping = Ipv6::new(STRANGER_V6, NEAR_V6).icmp(NEAR, STRANGER, 128, 0, &[0; 4]);
    for (frame, at) in [(&udp, 34), (&v6, 54)] {
        assert_eq!(brought(frame, at, 6), Incoming::Deliver(near()));
        assert_eq!(brought(frame, at + 8, 16), Incoming::Deliver(near()));
        for (start, offset) in [(at, 16), (at, 0), (20, 8), (at + 1, 6), (-4, 40)] {
            let refused = dropped(DropReason::Malformed);
            assert_eq!(brought(frame, start, offset), refused, "{start} {offset}");
        }
    }
    for start in [14, 22, 54, 60] {
        let refused = dropped(DropReason::Malformed);
        assert_eq!(brought(&ping, start, 0), refused, "ICMPv6, {start}");
    }
    // What is for all is the node's, whatever pods do not take.
    assert_eq!(brought(&group, 34, 6), Incoming::Flood);
    assert_eq!(brought(&group, 20, 8), Incoming::Leave);
    proof::of!("ATT-02a");
}

/// An ARP packet has no checksum at all.
#[test]
fn an_uplink_brings_pods_no_unfinished_arp() {
    let mut packet = vec![0, 1, 0x08, 0, 6, 4, 0, 1];
    packet.extend(STRANGER.0);
    packet.extend(STRANGER_V4.octets());
    packet.extend([0; 6]);
    packet.extend(NEAR_V4.octets());
    packet.extend([0; 18]);
    let frame = ethernet(NEAR, STRANGER, 0x0806, &packet);
    let whole = incoming(&frame[..], &L2, BLUE, &Two::on(false));
    assert_eq!(whole, Incoming::Deliver(near()));
    for start in [14, 20, 34, 42, 50] {
        let frame = unfinished(&frame, start, 2);
        let brought = incoming(&frame, &L2, BLUE, &Two::on(false));
        assert_eq!(brought, dropped(DropReason::Malformed), "{start}");
    }
}
