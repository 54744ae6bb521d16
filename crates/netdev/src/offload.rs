//! Offloads of a link to its hardware (ethtool's features), by generic netlink.

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, protocols::NETLINK_GENERIC};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::connection;
use crate::error::{Error, Refusal};
use crate::wire::{self, attribute, nested};

/// As of a connection: only ends a wait for an answer that was lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// As of a connection.
const RECEIVE_BUFFER: usize = 32 * 1024;
// linux/netlink.h
const NLM_F_REQUEST_ACK: u16 = 5;
/// `sizeof(struct nlmsghdr)` and `sizeof(struct genlmsghdr)`.
const HEADERS: usize = 20;
const GENLMSGHDR: usize = 4;
// linux/genetlink.h
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// linux/ethtool_netlink.h
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_OMIT_REPLY: u32 = 2;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
/// The kernel's name of the offload of checksums (`NETIF_F_HW_CSUM`).
///
/// Without it there is no scatter-gather either, and without that no segmentation.
const CHECKSUM: &str = "tx-checksum-ip-generic";
/// The kernel's names of the features that take VLAN tags off received frames.
///
/// `NETIF_F_HW_VLAN_CTAG_RX`, `NETIF_F_HW_VLAN_STAG_RX`. The tag is kept outside the frame.
const TAGS_OFF: [&str; 2] = ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"];

/// A socket for features, in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Offloads {
    socket: Socket,
    family: u16,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Offloads {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::OpenSocket`], [`Error::Offload`] where the kernel has no netlink for ethtool.
    pub fn open() -> Result<Self, Error> {
        let open = || -> io::Result<Socket> {
            let socket = Socket::new(NETLINK_GENERIC)?;
            socket.set_ext_ack(true)?;
            socket.set_cap_ack(true)?;
            set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
            Ok(socket)
        };
        let mut offloads = Self {
            socket: open().map_err(|source| Error::OpenSocket { source })?,
            family: GENL_ID_CTRL,
            sequence: 0,
            buffer: Vec::with_capacity(RECEIVE_BUFFER),
        };
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        let answer = offloads.ask(CTRL_CMD_GETFAMILY, &name)?;
        let refused = |source| Error::Offload {
            ifindex: 0,
            operation: "find ethtool in the kernel of",
            source,
        };
        let answer = answer.map_err(refused)?.unwrap_or_default();
        let id = wire::attributes(&answer).find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID);
        offloads.family =
            id.and_then(|(_, value)| wire::u16_at(value, 0))
                .ok_or(Error::Malformed {
                    what: "number of ethtool",
                })?;
        Ok(offloads)
    }

    /// Makes a link finish checksums and segments of packets for its other end.
    ///
    /// A reader there without a network stack needs it.
    ///
    /// # Errors
    /// [`Error::Offload`].
    pub fn finish_packets(&mut self, ifindex: u32) -> Result<(), Error> {
        // A bit that is named without a value is to be off.
        let name = attribute(ETHTOOL_A_BITSET_BIT_NAME, &text(CHECKSUM));
        let bit = nested(ETHTOOL_A_BITSET_BITS_BIT, &name);
        let wanted = nested(
            ETHTOOL_A_FEATURES_WANTED,
            &nested(ETHTOOL_A_BITSET_BITS, &bit),
        );
        let message = [header(ifindex, ETHTOOL_FLAG_OMIT_REPLY), wanted].concat();
        let answer = self.ask(ETHTOOL_MSG_FEATURES_SET, &message)?;
        answer.map(|_| ()).map_err(|source| Error::Offload {
            ifindex,
            operation: "turn off checksum offload of",
            source,
        })
    }

    /// Reports whether a link gives only finished packets to its other end.
    ///
    /// False of a missing link.
    ///
    /// # Errors
    /// [`Error::Offload`].
    pub fn finishes_packets(&mut self, ifindex: u32) -> Result<bool, Error> {
        let features = self.features(ifindex)?;
        Ok(features.is_some_and(|it| !is_active(&it, CHECKSUM)))
    }

    /// Reports whether a link takes VLAN tags off received frames.
    ///
    /// Frames then do not show them. True of a missing link.
    ///
    /// # Errors
    /// [`Error::Offload`].
    pub fn hides_vlan_tags(&mut self, ifindex: u32) -> Result<bool, Error> {
        let features = self.features(ifindex)?;
        Ok(features.is_none_or(|it| TAGS_OFF.iter().any(|name| is_active(&it, name))))
    }

    /// The features of a link, as the kernel answers. `None` of one that is gone.
    fn features(&mut self, ifindex: u32) -> Result<Option<Vec<u8>>, Error> {
        match self.ask(ETHTOOL_MSG_FEATURES_GET, &header(ifindex, 0))? {
            Ok(answer) => Ok(Some(answer.unwrap_or_default())),
            Err(refusal) if refusal.errno() == Errno::NODEV => Ok(None),
            Err(source) => Err(Error::Offload {
                ifindex,
                operation: "look at offloads of",
                source,
            }),
        }
    }

    /// Sends a request; the attributes of the answer, if there was one besides the yes.
    fn ask(
        &mut self,
        command: u8,
        attributes: &[u8],
    ) -> Result<Result<Option<Vec<u8>>, Refusal>, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADERS + attributes.len()).unwrap_or(u32::MAX);
        let mut request = length.to_ne_bytes().to_vec();
        request.extend(self.family.to_ne_bytes());
        request.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend([0; 4]);
        request.extend([command, 1, 0, 0]);
        request.extend(attributes);
        connection::send(&self.socket, &request)?;
        let mut answer = None;
        loop {
            connection::receive(&self.socket, &mut self.buffer)?;
            for raw in wire::messages(&self.buffer).filter(|it| it.sequence == self.sequence) {
                if raw.kind != wire::NLMSG_ERROR {
                    answer = raw.body.get(GENLMSGHDR..).map(<[u8]>::to_vec);
                    continue;
                }
                let outcome = wire::outcome(raw).ok_or(Error::Malformed {
                    what: "acknowledgement",
                })?;
                return Ok(outcome.map(|()| answer));
            }
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn header(ifindex: u32, flags: u32) -> Vec<u8> {
    let parts = [
        attribute(ETHTOOL_A_HEADER_DEV_INDEX, &ifindex.to_ne_bytes()),
        attribute(ETHTOOL_A_HEADER_FLAGS, &flags.to_ne_bytes()),
    ];
    nested(ETHTOOL_A_FEATURES_HEADER, &parts.concat())
}

/// Reports whether the active features of an answer, by name, include this one.
fn is_active(answer: &[u8], name: &str) -> bool {
    let inside = |bytes: &[u8], wanted: u16| -> Vec<Vec<u8>> {
        let of_kind = wire::attributes(bytes).filter(|(kind, _)| *kind == wanted);
        of_kind.map(|(_, value)| value.to_vec()).collect()
    };
    let bits = inside(answer, ETHTOOL_A_FEATURES_ACTIVE)
        .into_iter()
        .flat_map(|set| inside(&set, ETHTOOL_A_BITSET_BITS))
        .flat_map(|list| inside(&list, ETHTOOL_A_BITSET_BITS_BIT));
    bits.flat_map(|bit| inside(&bit, ETHTOOL_A_BITSET_BIT_NAME))
        .any(|value| wire::string(&value).is_some_and(|it| it == name))
}
