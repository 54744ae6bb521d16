//! Test the pins of AF_XDP ports.
//!
//! That frames get there is tested with the agent.

use std::io;

use datapath::Hook;
use netdev::{Connection, VethPair, VethSpec};

use super::scratch::{Scratch, scene};

const NAME: &str = "pn0a";

/// A pair of links with this many queues and MTU, both up.
fn link(queues: u32, mtu: u32) -> VethPair {
    let mut connection = Connection::open().expect("a socket");
    let mut spec = VethSpec::new(NAME, "net1");
    (spec.queues, spec.mtu) = (Some(queues), mtu);
    let pair = connection.create_veth(&spec).expect("a link");
    for ifindex in [pair.host_ifindex, pair.peer_ifindex] {
        connection.set_up(ifindex).expect("it goes up");
    }
    pair
}

fn hook(scratch: &Scratch) -> Hook {
    let datapath = datapath::Datapath::open(&scratch.options()).expect("programs that load");
    datapath.hook().clone()
}

fn native(ifindex: u32) -> Option<u32> {
    let mut connection = Connection::open().expect("a socket");
    connection.xdp_programs(ifindex).expect("programs").native
}

#[test]
fn a_port_is_pinned_whole_found_again_and_gone_when_forgotten() {
    scene(|scratch| {
        let hook = hook(scratch);
        let pair = link(2, 1500);
        assert_eq!(hook.xsk_ports().expect("a list"), [""; 0]);
        assert_eq!(hook.xsk_id(NAME).expect("an answer"), None);
        let refused = hook
            .attach_xsk(NAME, pair.peer_ifindex, 2)
            .expect("attached");
        assert!(refused.is_none(), "{refused:?}");
        let id = hook.xsk_id(NAME).expect("an answer");
        assert!(id.is_some());
        assert_eq!(native(pair.peer_ifindex), id);
        assert_eq!(hook.xsk_ports().expect("a list"), [NAME]);
        assert_eq!(hook.sockets(NAME).expect("its map").queues(), 2);
        // Nobody else takes the place, and a second attempt says so and leaves nothing.
        let busy = hook
            .attach_xsk("pn0b", pair.peer_ifindex, 2)
            .expect("no error");
        assert_eq!(busy.map(|it| it.kind()), Some(io::ErrorKind::ResourceBusy));
        assert_eq!(hook.xsk_ports().expect("a list"), [NAME]);
        hook.forget_xsk(NAME).expect("forgotten");
        hook.forget_xsk(NAME).expect("forgotten already");
        assert_eq!(hook.xsk_id(NAME).expect("an answer"), None);
        assert!(hook.sockets(NAME).is_err());
    });
}

#[test]
fn a_link_that_is_too_large_is_refused_and_nothing_is_left() {
    scene(|scratch| {
        let hook = hook(scratch);
        let pair = link(1, 9000);
        let refused = hook
            .attach_xsk(NAME, pair.peer_ifindex, 1)
            .expect("no error");
        let refused = refused.and_then(|it| it.raw_os_error());
        assert_eq!(refused, Some(rustix::io::Errno::RANGE.raw_os_error()));
        assert_eq!(hook.xsk_ports().expect("a list"), [""; 0]);
    });
}
