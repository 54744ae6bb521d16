//! Packets for the addresses of Services, which no port has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::build::{Ipv4, Ipv6};
use super::{List, Pod, arp, nd};
use crate::addr::GATEWAY_MAC;
use crate::drop::DropReason;
use crate::policy::Decision;
use crate::world::{AMBER_A, AMBER_OUT, BLUE_A, GREEN_A, GREY_A, RED_A, SERVICE};

const PORTS: (u16, u16) = (40_000, 80);

pub(super) fn add(list: &mut List) {
    let [v4, v6] = SERVICE;
    let (IpAddr::V4(v4), IpAddr::V6(v6)) = (v4, v6) else {
        unreachable!("an address of each family")
    };
    for (names, pod) in [
        (
            ["UDP to a Service, L3", "UDP over IPv6 to a Service, L3"],
            &GREEN_A,
        ),
        (
            ["UDP to a Service, L2", "UDP over IPv6 to a Service, L2"],
            &BLUE_A,
        ),
        (
            [
                "UDP to a Service, egress",
                "UDP over IPv6 to a Service, egress",
            ],
            &AMBER_A,
        ),
    ] {
        let [first, second] = names;
        let frame = Ipv4::new(pod.ip4, v4).udp(GATEWAY_MAC, pod.mac, PORTS);
        list.translates(first, pod, frame);
        let frame = Ipv6::new(pod.ip6, v6).udp(GATEWAY_MAC, pod.mac, PORTS);
        list.translates(second, pod, frame);
    }
    refused(list, v4, v6);
    questions(list, v4, v6);
}

fn refused(list: &mut List, v4: Ipv4Addr, v6: Ipv6Addr) {
    let from = |ip: Ipv4Addr, pod: &Pod| Ipv4::new(ip, v4).udp(GATEWAY_MAC, pod.mac, PORTS);
    let somebody = Ipv4Addr::new(192, 0, 2, 1);
    for (name, pod, source, reason) in [
        (
            "to a Service, with the address of another",
            &GREEN_A,
            RED_A.ip4,
            DropReason::SpoofedIp,
        ),
        (
            "to a Service from outside",
            &AMBER_OUT,
            somebody,
            DropReason::NoEndpoint,
        ),
        (
            "to a Service of another network",
            &RED_A,
            RED_A.ip4,
            DropReason::NoEndpoint,
        ),
        (
            "to a Service, on a network without addresses",
            &GREY_A,
            GREY_A.ip4,
            DropReason::NoEndpoint,
        ),
    ] {
        list.drops(name, pod, from(source, pod), reason);
    }
    let pod = &GREEN_A;
    let link_local = Ipv6::new(pod.link_local(), v6).udp(GATEWAY_MAC, pod.mac, PORTS);
    list.drops(
        "to a Service from a link-local address",
        pod,
        link_local,
        DropReason::LinkLocal,
    );
}

/// The address of a Service is where the virtual gateway is.
fn questions(list: &mut List, v4: Ipv4Addr, v6: Ipv6Addr) {
    for (names, pod) in [
        (["ARP for a Service, L3", "ND for a Service, L3"], &GREEN_A),
        (["ARP for a Service, L2", "ND for a Service, L2"], &BLUE_A),
    ] {
        let [first, second] = names;
        let frames = arp::asked(pod, pod.ip4, v4, GATEWAY_MAC);
        list.answers(first, pod, frames, Decision::ArpReply(GATEWAY_MAC));
        let frames = nd::asked(pod, pod.ip6, v6, GATEWAY_MAC);
        list.answers(second, pod, frames, Decision::NdReply(GATEWAY_MAC));
    }
}
