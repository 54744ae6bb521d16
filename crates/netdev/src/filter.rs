//! Traffic control filters, read only: who filters what comes in by a link.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcMessage};

use crate::connection::Connection;
use crate::error::Error;
use crate::wire;

/// `sizeof(struct tcmsg)`.
const TCMSG: usize = 20;
/// `RTM_NEWTFILTER`.
const RTM_NEWTFILTER: u16 = 44;
/// `TC_H_CLSACT` with `TC_H_MIN_INGRESS` (linux/pkt_sched.h).
const INGRESS: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0xfff2,
};
// linux/rtnetlink.h, linux/pkt_cls.h
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_ID: u16 = 11;

/// A BPF filter on the ingress side of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngressFilter {
    /// `tcm_handle`.
    pub handle: u32,
    /// Preference; the lowest runs first.
    pub priority: u16,
    /// The program's id.
    pub program: Option<u32>,
}

impl Connection {
    /// The BPF filters in the clsact qdisc of a link, ingress side; none without such a qdisc.
    ///
    /// # Errors
    /// [`Error::List`].
    pub fn ingress_filters(&mut self, ifindex: u32) -> Result<Vec<IngressFilter>, Error> {
        let mut message = TcMessage::default();
        message.header.index = i32::try_from(ifindex).unwrap_or(0);
        message.header.parent = INGRESS;
        let messages = self.dump("filters", &RouteNetlinkMessage::GetTrafficFilter(message))?;
        Ok(messages
            .iter()
            .filter(|message| message.kind == RTM_NEWTFILTER)
            .filter_map(|message| parse(&message.body))
            .collect())
    }
}

fn parse(body: &[u8]) -> Option<IngressFilter> {
    // struct tcmsg: family and padding, ifindex, handle, parent, info (priority and protocol).
    let handle = wire::u32_at(body, 8)?;
    let priority = u16::try_from(wire::u32_at(body, 16)? >> 16).ok()?;
    let mut is_bpf = false;
    let mut program = None;
    for (kind, value) in wire::attributes(body.get(TCMSG..)?) {
        match kind {
            TCA_KIND => is_bpf = wire::string(value).as_deref() == Some("bpf"),
            TCA_OPTIONS => {
                program = wire::attributes(value)
                    .find(|(kind, _)| *kind == TCA_BPF_ID)
                    .and_then(|(_, value)| wire::u32_at(value, 0));
            }
            _ => {}
        }
    }
    // The chain itself is listed too, without a handle.
    (is_bpf && handle != 0).then_some(IngressFilter {
        handle,
        priority,
        program,
    })
}
