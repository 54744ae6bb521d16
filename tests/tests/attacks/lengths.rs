//! Frames above the MTU, made of a packet that says it becomes several below it.

use std::net::Ipv6Addr;

use agent_common::addr::MacAddr;
use agent_common::drop::DropReason;
use agent_common::packet::ETH_HLEN;
use netdev::{LinkChange, Offloads};
use testbed::frame::{Ipv6, ethernet, extension, marker};
use testbed::host::{UPLINK, WORLD, connection};
use testbed::tap::contains;
use testbed::{Network, Setup, Tap, VirtioHeader, wait};

const IPV6: u16 = 0x86dd;
/// An address without an owner, whose frames leave by the uplink.
const NOBODY: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x99]);
const MTU: usize = 1500;
/// Payload of a segment.
const SEGMENT: u16 = 1400;

/// ATT-11c: headers that each segment repeats count for its length.
///
/// That is so wherever the kernel cuts the packet: a network card that is given more than its MTU may
/// stop for all.
#[test]
fn segments_behind_long_headers_do_not_leave_above_the_mtu() {
    let network = Network::l2("plain", &["fd10:10::/64"]).id(2002).native();
    let node = testbed::node!(Setup::empty().network(&network));
    let uplink = connection(node.netns()).by_name(UPLINK).expect("links");
    let uplink = uplink.expect("the uplink").ifindex;
    let offloads = node.netns().run_in(Offloads::open).expect("entered");
    let mut offloads = offloads.expect("a socket of ethtool");
    offloads.finish_packets(uplink).expect("a feature");
    let (mut world, link) = node.host().world();
    let large = LinkChange {
        mtu: Some(9000),
        ..LinkChange::updown(true)
    };
    world.reconfigure(link, &large).expect("an MTU");
    let pod = node.pod("mallory");
    let mallory = pod.attach("plain", "net1");
    let seen = Tap::on(node.host().outside(), WORLD);
    let sender = mallory.tap().with_headers();
    let dropped = || node.drops().of("plain", DropReason::TooBig);
    for long in [8, 2048_usize] {
        let before = dropped();
        let word = marker();
        let mut options = vec![1, 4, 0, 0, 0, 0];
        options.resize(long - 2, 0);
        let mut tcp = vec![0; 20];
        tcp[12] = 0x50;
        let mut payload = tcp;
        for _ in 0..4 {
            let end = payload.len() + usize::from(SEGMENT);
            payload.extend(word);
            payload.resize(end, 0);
        }
        let to = Ipv6Addr::new(0xfd10, 0x10, 0, 0, 0, 0, 0, 0x99);
        let behind = [&extension(6, &options)[..], &payload].concat();
        let packet = Ipv6::new(mallory.v6(), to, 60).packet(&behind);
        let frame = ethernet(NOBODY, mallory.mac, IPV6, &packet);
        let start = u16::try_from(ETH_HLEN + 40 + long).expect("short headers");
        let header = VirtioHeader {
            flags: 1,
            gso_type: 4,
            hdr_len: start + 20,
            gso_size: SEGMENT,
            csum_start: start,
            csum_offset: 16,
        };
        sender.try_send_with(header, &frame).expect("sent");
        if long == 8 {
            let whole = seen.wait_marker("segments below the MTU", &word);
            assert!(whole.len() <= MTU + ETH_HLEN, "{} bytes", whole.len());
            continue;
        }
        wait::until_true("a drop", || {
            while let Some(frame) = seen.next() {
                let length = frame.len();
                assert!(
                    !contains(&frame, &word) || length <= MTU + ETH_HLEN,
                    "{length} bytes left the node by an uplink with an MTU of {MTU}"
                );
            }
            dropped() > before
        });
    }
    pod.detach("plain", "net1");
    node.assert_empty();
    proof::of!("ATT-11c");
}
