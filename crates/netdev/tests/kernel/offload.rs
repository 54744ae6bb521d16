//! Test offloads of a link to its other end.

use netdev::{Error, Offloads};
use rustix::io::Errno;

use crate::{Scene, pair};

/// A socket in the node's namespace.
fn offloads(scene: &Scene) -> Offloads {
    let open = scene.node.run_in(Offloads::open);
    open.expect("entered").expect("a socket")
}

#[test]
fn a_link_that_shall_finish_its_packets_does_and_its_other_end_stays_as_it_was() {
    let Some(scene) = Scene::set() else { return };
    let pair = pair(&mut scene.node());
    let mut node = offloads(&scene);
    let finishes = |it: &mut Offloads, ifindex| it.finishes_packets(ifindex).expect("an answer");
    assert!(!finishes(&mut node, pair.host_ifindex));
    for _ in 0..2 {
        node.finish_packets(pair.host_ifindex).expect("turned off");
        assert!(finishes(&mut node, pair.host_ifindex));
    }
    assert!(!finishes(&mut node, pair.peer_ifindex));
    assert!(!finishes(&mut node, 0x7fff_fff0), "there is none");
    let error = node.finish_packets(0x7fff_fff0).expect_err("there is none");
    let Error::Offload { source, .. } = error else {
        unreachable!("{error}")
    };
    assert_eq!(source.errno(), Errno::NODEV);
}

#[test]
fn who_takes_vlan_tags_off_is_known_and_who_is_gone_is_not_trusted() {
    let Some(scene) = Scene::set() else { return };
    let pair = pair(&mut scene.node());
    let mut node = offloads(&scene);
    let mut hides = |ifindex| node.hides_vlan_tags(ifindex).expect("an answer");
    assert!(hides(pair.host_ifindex), "a veth has them beside the frame");
    assert!(!hides(1), "loopback has no such feature");
    assert!(hides(0x7fff_fff0), "there is none");
}
