//! Requests about queueing disciplines that `netdev` has no reason to make.

use std::io;

use netdev::Netns;
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Makes a change; panics when the kernel refuses.
pub(crate) fn change(netns: &Netns, message: RouteNetlinkMessage, flags: u16) {
    match ask(netns, message, flags | NLM_F_ACK) {
        NetlinkPayload::Error(outcome) => assert_eq!(outcome.code, None, "{outcome:?}"),
        other => unreachable!("no acknowledgement but {other:?}"),
    }
}

/// The first answer to a request.
pub(crate) fn ask(
    netns: &Netns,
    message: RouteNetlinkMessage,
    flags: u16,
) -> NetlinkPayload<RouteNetlinkMessage> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    let answer = netns.run_in(|| -> io::Result<Vec<u8>> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.send(&bytes, 0)?;
        Ok(socket.recv_from_full()?.0)
    });
    let answer = answer.expect("entered").expect("an answer");
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer);
    answer.expect("netlink").payload
}
