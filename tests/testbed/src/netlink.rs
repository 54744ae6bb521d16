//! Requests that `netdev` has no reason to make.

use std::io;

use netdev::Netns;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkMessage,
};
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

/// Makes a bridge.
pub(crate) fn make_bridge(netns: &Netns, name: &str) {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    let request = RouteNetlinkMessage::NewLink(message);
    change(netns, request, NLM_F_CREATE | NLM_F_EXCL);
}

/// Makes a link a port of a bridge.
pub(crate) fn enslave(netns: &Netns, ifindex: u32, bridge: u32) {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.attributes = vec![LinkAttribute::Controller(bridge)];
    change(netns, RouteNetlinkMessage::SetLink(message), 0);
}

/// Makes the kernel's own interface of a VLAN; false where the kernel has no such.
pub fn make_vlan(netns: &Netns, parent: u32, name: &str, id: u16) -> bool {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Link(parent),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::Id(id)])),
        ]),
    ];
    let request = RouteNetlinkMessage::NewLink(message);
    match ask(netns, request, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK) {
        NetlinkPayload::Error(outcome) => outcome.code.is_none(),
        other => unreachable!("no acknowledgement but {other:?}"),
    }
}
