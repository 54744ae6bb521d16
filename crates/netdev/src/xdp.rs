//! XDP programs of a link, of any process.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use rustix::io::Errno;

use crate::connection::{Connection, Request};
use crate::error::Error;
use crate::wire;

/// `sizeof(struct ifinfomsg)`.
const IFINFOMSG: usize = 16;
// linux/if_link.h
const IFLA_XDP: u16 = 43;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;

/// Ids of the XDP programs of a link, by where they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpPrograms {
    /// In the driver, before there is an skb.
    pub native: Option<u32>,
    /// In the kernel's stack, for any driver.
    pub generic: Option<u32>,
    /// In the device.
    pub offloaded: Option<u32>,
}

impl XdpPrograms {
    /// Any of them.
    pub fn any(&self) -> Option<u32> {
        self.native.or(self.generic).or(self.offloaded)
    }

    fn parse(body: &[u8]) -> Self {
        let mut found = Self::default();
        let attributes = wire::attributes(body.get(IFINFOMSG..).unwrap_or_default());
        for (_, nest) in attributes.filter(|(kind, _)| *kind == IFLA_XDP) {
            for (kind, value) in wire::attributes(nest) {
                let id = wire::u32_at(value, 0).filter(|id| *id != 0);
                match kind {
                    IFLA_XDP_DRV_PROG_ID => found.native = id,
                    IFLA_XDP_SKB_PROG_ID => found.generic = id,
                    IFLA_XDP_HW_PROG_ID => found.offloaded = id,
                    _ => {}
                }
            }
        }
        found
    }
}

impl Connection {
    /// The XDP programs of a link; none for a link that is gone.
    ///
    /// # Errors
    /// [`Error::GetLink`].
    pub fn xdp_programs(&mut self, ifindex: u32) -> Result<XdpPrograms, Error> {
        let mut message = LinkMessage::default();
        message.header.index = ifindex;
        let request = Request::new(RouteNetlinkMessage::GetLink(message), 0);
        match self.ask(request)? {
            Ok(messages) => messages
                .first()
                .map(|message| XdpPrograms::parse(&message.body))
                .ok_or(Error::Malformed {
                    what: "RTM_NEWLINK",
                }),
            Err(refusal) if refusal.errno() == Errno::NODEV => Ok(XdpPrograms::default()),
            Err(source) => Err(Error::GetLink {
                link: ifindex.into(),
                source,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::attribute;

    /// As net/core/rtnetlink.c writes it, `rtnl_xdp_fill`.
    #[test]
    fn each_program_is_found_by_where_it_runs() {
        let nest = [
            attribute(2, &[4]),
            attribute(IFLA_XDP_DRV_PROG_ID, &7_u32.to_ne_bytes()),
            attribute(IFLA_XDP_SKB_PROG_ID, &0_u32.to_ne_bytes()),
            attribute(IFLA_XDP_HW_PROG_ID, &9_u32.to_ne_bytes()),
        ]
        .concat();
        let body = [
            vec![0; IFINFOMSG],
            attribute(3, b"eth0\0"),
            attribute(IFLA_XDP, &nest),
        ]
        .concat();
        let expected = XdpPrograms {
            native: Some(7),
            generic: None,
            offloaded: Some(9),
        };
        assert_eq!(XdpPrograms::parse(&body), expected);
        assert_eq!(expected.any(), Some(7));
        let none = XdpPrograms::parse(&[0; IFINFOMSG]);
        assert_eq!(none, XdpPrograms::default());
    }
}
