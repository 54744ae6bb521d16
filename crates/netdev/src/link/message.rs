//! Link requests, built without IO.

use std::os::fd::AsRawFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
    LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
};

use super::{AddrGenMode, LinkChange, Mac, VethSpec};

/// `sizeof(struct ifinfomsg)`.
pub(crate) const IFINFOMSG: usize = 16;
/// `IFF_UP`.
pub(super) const IFF_UP: u32 = 1;
/// `IFF_PROMISC`.
pub(super) const IFF_PROMISC: u32 = 0x100;

// linux/if_link.h: the attributes we read.
pub(super) const IFLA_ADDRESS: u16 = 1;
pub(super) const IFLA_IFNAME: u16 = 3;
pub(super) const IFLA_MTU: u16 = 4;
pub(super) const IFLA_LINK: u16 = 5;
pub(super) const IFLA_MASTER: u16 = 10;
pub(super) const IFLA_LINKINFO: u16 = 18;
pub(super) const IFLA_IFALIAS: u16 = 20;
pub(super) const IFLA_GROUP: u16 = 27;
pub(super) const IFLA_CARRIER: u16 = 33;
pub(super) const IFLA_LINK_NETNSID: u16 = 37;
pub(super) const IFLA_INFO_KIND: u16 = 1;

fn end(name: &str, mac: Option<Mac>, mtu: u32, queues: Option<u32>) -> LinkMessage {
    let mut message = LinkMessage::default();
    let attributes = &mut message.attributes;
    attributes.push(LinkAttribute::IfName(name.to_owned()));
    attributes.extend(mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    attributes.push(LinkAttribute::Mtu(mtu));
    attributes.extend(queues.map(LinkAttribute::NumTxQueues));
    attributes.extend(queues.map(LinkAttribute::NumRxQueues));
    message
}

/// `RTM_NEWLINK` of kind veth (drivers/net/veth.c, `veth_newlink`).
pub(super) fn create_veth(spec: &VethSpec) -> RouteNetlinkMessage {
    let mut peer = end(&spec.peer_name, spec.peer_mac, spec.mtu, spec.queues);
    peer.attributes.extend(
        spec.peer_netns
            .as_ref()
            .map(|n| LinkAttribute::NetNsFd(n.as_raw_fd())),
    );
    let mut host = end(&spec.host_name, spec.host_mac, spec.mtu, spec.queues);
    host.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    RouteNetlinkMessage::NewLink(host)
}

/// `RTM_SETLINK` by name: an index may be another link's by now.
pub(super) fn join_group(name: &str, group: u32) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Group(group),
    ];
    RouteNetlinkMessage::SetLink(message)
}

/// `RTM_NEWLINK` of a group, which has each link announced.
///
/// `rtnl_group_changelink`, net/core/rtnetlink.c.
///
/// A link that is down is announced only where something changes. This flag means nothing to Linux.
pub(super) fn mark_group(group: u32, marked: bool) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    let mark = LinkFlags::Notrailers;
    message.header.change_mask |= mark;
    message.header.flags.set(mark, marked);
    message.attributes.push(LinkAttribute::Group(group));
    RouteNetlinkMessage::NewLink(message)
}

/// `RTM_DELLINK` of all links of a group.
///
/// `rtnl_group_dellink`, net/core/rtnetlink.c.
pub(super) fn delete_group(group: u32) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::Group(group));
    RouteNetlinkMessage::DelLink(message)
}

/// `RTM_SETLINK`; the kernel's order is that of `do_setlink`.
pub(super) fn change(ifindex: u32, change: &LinkChange) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    if let Some(up) = change.up {
        message.header.change_mask |= LinkFlags::Up;
        message.header.flags.set(LinkFlags::Up, up);
    }
    if let Some(promiscuous) = change.promiscuous {
        message.header.change_mask |= LinkFlags::Promisc;
        message.header.flags.set(LinkFlags::Promisc, promiscuous);
    }
    let attributes = &mut message.attributes;
    attributes.extend(
        change
            .netns
            .as_ref()
            .map(|n| LinkAttribute::NetNsFd(n.as_raw_fd())),
    );
    attributes.extend(change.name.clone().map(LinkAttribute::IfName));
    attributes.extend(change.mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    attributes.extend(change.mtu.map(LinkAttribute::Mtu));
    attributes.extend(change.alias.clone().map(LinkAttribute::IfAlias));
    attributes.extend(change.addr_gen_mode.map(|mode| {
        let mode = match mode {
            AddrGenMode::Eui64 => In6AddrGenMode::Eui64,
            AddrGenMode::None => In6AddrGenMode::None,
        };
        let inet6 = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(mode)]);
        LinkAttribute::AfSpecUnspec(vec![inet6])
    }));
    RouteNetlinkMessage::SetLink(message)
}

pub(super) fn delete(ifindex: u32) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    RouteNetlinkMessage::DelLink(message)
}

pub(super) fn delete_by_name(name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    RouteNetlinkMessage::DelLink(message)
}

fn get() -> LinkMessage {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    message
}

pub(super) fn get_by_index(ifindex: u32) -> RouteNetlinkMessage {
    let mut message = get();
    message.header.index = ifindex;
    RouteNetlinkMessage::GetLink(message)
}

pub(super) fn get_by_name(name: &str) -> RouteNetlinkMessage {
    let mut message = get();
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    RouteNetlinkMessage::GetLink(message)
}

pub(super) fn list(kind: Option<&str>) -> RouteNetlinkMessage {
    let mut message = get();
    message.attributes.extend(kind.map(|kind| {
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Other(kind.to_owned()))])
    }));
    RouteNetlinkMessage::GetLink(message)
}
