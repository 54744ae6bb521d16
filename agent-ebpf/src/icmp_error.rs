//! Sends a pod the ICMP error about its packet. The packet was counted as dropped.

use agent_common::addr::{GATEWAY_V4, GATEWAY_V6, Ip16, MacAddr};
use agent_common::icmp_error::{self as message, ICMP_ERROR_V4, ICMP_ERROR_V6, IcmpError, QUOTED};
use agent_common::packet::{
    ETH_HLEN, ETH_P_IP, ETH_P_IPV6, Frame as _, ICMP_HLEN, IPV4_HLEN, IPV6_HLEN, L3,
};
use agent_common::port::{PORT_L3, Port};

use crate::maps::{self, PortCounter};
use crate::service::tell_sender;
use crate::skb::Skb;
use crate::verdict::Verdict;

/// Turns the packet into the error about it. The cursor has its kind, packed.
#[inline(always)]
pub(crate) fn run(skb: &Skb<'_>) -> Verdict {
    let [kind, mtu, _] = skb.cursor();
    let error = IcmpError::unpack([kind, mtu]);
    // A pod gets errors no more often than it may flood.
    let Some(port) = maps::port(skb.ifindex()).filter(|port| maps::may_tell(port.port_id)) else {
        return Verdict::Consumed;
    };
    let written = match skb.protocol() {
        ETH_P_IP => v4(skb, port, error),
        ETH_P_IPV6 => v6(skb, port, error),
        _ => false,
    };
    skb.clear_mark();
    if !written || !turn(skb) {
        return Verdict::Consumed;
    }
    // The packet may have been translated; where there are no Services, nor is that program.
    tell_sender(skb, port);
    if skb.send(port.home) {
        maps::count_port(port.port_id, PortCounter::ToPod, 1, skb.length() as u32);
        return Verdict::Redirected;
    }
    Verdict::Consumed
}

/// Back to whoever it came from, by whomever it was for.
#[inline(always)]
fn turn(skb: &Skb<'_>) -> bool {
    let Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5]) = skb.load::<12>(0) else {
        return false;
    };
    let (to, from) = (
        MacAddr([s0, s1, s2, s3, s4, s5]),
        MacAddr([d0, d1, d2, d3, d4, d5]),
    );
    skb.swap_in_macs(to, from)
}

#[inline(always)]
fn v4(skb: &Skb<'_>, port: &Port, error: IcmpError) -> bool {
    let Some(header) = skb.load::<IPV4_HLEN>(L3) else {
        return false;
    };
    let Some(data) = skb.load::<QUOTED>(L3 + IPV4_HLEN) else {
        return false;
    };
    // On an L3 network the gateway says it, else the tunnel speaks for who is at its end.
    let [.., d0, d1, d2, d3] = header;
    let from = if port.flags & PORT_L3 != 0 {
        GATEWAY_V4.octets()
    } else {
        [d0, d1, d2, d3]
    };
    let (ip, icmp) = message::v4(error, from, &header, &data);
    const MESSAGE: usize = ETH_HLEN + IPV4_HLEN;
    message::may_answer_v4(&header, &data)
        && skb.resize(ICMP_ERROR_V4 as u32)
        && skb.store(L3, &ip)
        && skb.store(MESSAGE, &icmp)
        && skb.store(MESSAGE + ICMP_HLEN, &header)
        && skb.store(MESSAGE + ICMP_HLEN + IPV4_HLEN, &data)
}

#[inline(always)]
fn v6(skb: &Skb<'_>, port: &Port, error: IcmpError) -> bool {
    let Some(header) = skb.load::<IPV6_HLEN>(L3) else {
        return false;
    };
    let Some(data) = skb.load::<QUOTED>(L3 + IPV6_HLEN) else {
        return false;
    };
    let [_, _, _, _, _, _, _, _, addresses @ ..] = header;
    let (source, destination) = Ip16::pair(addresses);
    let from = if port.flags & PORT_L3 != 0 {
        Ip16(GATEWAY_V6.octets())
    } else {
        destination
    };
    let (ip, icmp) = message::v6(error, &from, &source, &header, &data);
    const MESSAGE: usize = ETH_HLEN + IPV6_HLEN;
    message::may_answer_v6(&header, &data)
        && skb.resize(ICMP_ERROR_V6 as u32)
        && skb.store(L3, &ip)
        && skb.store(L3 + 8, &from.0)
        && skb.store(L3 + 24, &source.0)
        && skb.store(MESSAGE, &icmp)
        && skb.store(MESSAGE + ICMP_HLEN, &header)
        && skb.store(MESSAGE + ICMP_HLEN + IPV6_HLEN, &data)
}
