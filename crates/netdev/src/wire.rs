//! Reading what the kernel sends: headers and attributes, by offset.
//!
//! Requests are built with netlink-packet-route. Answers are read here instead, and only the
//! attributes we use: a link somebody else made may carry attributes no library version knows how
//! to decode, and one such link must not hide the others from a listing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Refusal;
use rustix::io::Errno;

/// `sizeof(struct nlmsghdr)`.
const HEADER: usize = 16;
/// `sizeof(struct nlattr)`.
const ATTRIBUTE_HEADER: usize = 4;
/// `NLA_TYPE_MASK`: the two top bits are flags.
const NLA_TYPE_MASK: u16 = 0x3fff;
/// `NLA_F_NESTED`: the value holds attributes.
const NLA_F_NESTED: u16 = 0x8000;

/// `NLMSG_ERROR`: an acknowledgement or a refusal.
pub(crate) const NLMSG_ERROR: u16 = 2;
/// `NLMSG_DONE`: end of a dump.
pub(crate) const NLMSG_DONE: u16 = 3;
/// `RTM_NEWLINK`.
pub(crate) const RTM_NEWLINK: u16 = 16;
/// `RTM_DELLINK`.
pub(crate) const RTM_DELLINK: u16 = 17;
/// `RTM_NEWADDR`.
pub(crate) const RTM_NEWADDR: u16 = 20;
/// `RTM_NEWROUTE`.
pub(crate) const RTM_NEWROUTE: u16 = 24;
/// `RTM_NEWQDISC`.
pub(crate) const RTM_NEWQDISC: u16 = 36;
/// `RTM_DELQDISC`.
pub(crate) const RTM_DELQDISC: u16 = 37;
/// `RTM_DELTFILTER`.
pub(crate) const RTM_DELTFILTER: u16 = 45;
/// `NLMSG_MIN_TYPE`: lower types are netlink's own.
pub(crate) const NLMSG_MIN_TYPE: u16 = 16;
/// `NLM_F_DUMP_INTR`: the table changed during the dump.
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
/// `NLM_F_CAPPED`: the refused request is not repeated in full.
const NLM_F_CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: attributes follow.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`: the kernel's explanation.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// One netlink message as it lies in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// `n` rounded up to netlink's alignment of 4.
fn aligned(n: usize) -> usize {
    n.saturating_add(3) & !3
}

/// The messages of one datagram; stops at the first that is cut short.
pub(crate) fn messages(mut rest: &[u8]) -> impl Iterator<Item = Raw<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(rest, 0)?).ok()?;
        let body = rest.get(HEADER..length)?;
        let message = Raw {
            kind: u16_at(rest, 4)?,
            flags: u16_at(rest, 6)?,
            sequence: u32_at(rest, 8)?,
            body,
        };
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// Iterates over attributes: (type without flags, value); stops at a truncated one.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & NLA_TYPE_MASK;
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// An attribute, padded.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An attribute that holds others.
pub(crate) fn nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    attribute(kind | NLA_F_NESTED, attributes)
}

/// Reads `NLMSG_ERROR` and `NLMSG_DONE`: `None` if cut short, else the outcome.
pub(crate) fn outcome(message: Raw<'_>) -> Option<Result<(), Refusal>> {
    let code = i32_at(message.body, 0)?;
    if code == 0 {
        return Some(Ok(()));
    }
    let after_code = message.body.get(4..).unwrap_or_default();
    // An error repeats the request, or just its header when capped; a DONE repeats nothing.
    let repeated = if message.kind == NLMSG_DONE {
        0
    } else if message.flags & NLM_F_CAPPED != 0 {
        HEADER
    } else {
        u32_at(after_code, 0)
            .and_then(|n| usize::try_from(n).ok())
            .map_or(HEADER, aligned)
    };
    let text = (message.flags & NLM_F_ACK_TLVS != 0)
        .then(|| {
            attributes(after_code.get(repeated..).unwrap_or_default())
                .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
                .and_then(|(_, value)| string(value))
        })
        .flatten();
    let errno = Errno::from_raw_os_error(code.checked_neg().unwrap_or(i32::MAX));
    Some(Err(Refusal::new(errno, text)))
}

/// A NUL-terminated string attribute.
pub(crate) fn string(value: &[u8]) -> Option<String> {
    let text = value.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

/// An address attribute, 4 or 16 bytes.
pub(crate) fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(value)
        .ok()
        .map(|v6| Ipv6Addr::from(v6).into())
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

/// A `u16` in host order.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes_at(bytes, offset).map(u16::from_ne_bytes)
}

/// A `u32` in host order.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes_at(bytes, offset).map(u32::from_ne_bytes)
}

/// A `u64` in host order.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes_at(bytes, offset).map(u64::from_ne_bytes)
}

/// An `i32` in host order.
pub(crate) fn i32_at(bytes: &[u8], offset: usize) -> Option<i32> {
    bytes_at(bytes, offset).map(i32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + body.len()).expect("a short body");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn attributes_are_read_across_padding_and_without_their_flag_bits() {
        let bytes = [5, 0, 3, 0x80, b'x', 0, 0, 0, 8, 0, 4, 0, 1, 2, 3, 4];
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(3, &b"x"[..]), (4, &[1, 2, 3, 4][..])]);
    }

    #[test]
    fn a_truncated_attribute_ends_the_list() {
        assert_eq!(attributes(&[8, 0, 1, 0, 1]).count(), 0);
        assert_eq!(attributes(&[0, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[3]).count(), 0);
    }

    #[test]
    fn several_messages_in_one_datagram_are_all_read() {
        let mut bytes = message(16, 0, &[1, 2, 3]);
        bytes.push(0);
        bytes.extend(message(20, 2, &[]));
        let read: Vec<_> = messages(&bytes)
            .map(|m| (m.kind, m.flags, m.sequence, m.body.len()))
            .collect();
        assert_eq!(read, [(16, 0, 7, 3), (20, 2, 7, 0)]);
    }

    #[test]
    fn a_refusal_carries_the_kernels_words() {
        let mut body = (-17i32).to_ne_bytes().to_vec();
        body.extend([0; HEADER]);
        body.extend([8, 0, 1, 0, b'b', b'a', b'd', 0]);
        let bytes = message(NLMSG_ERROR, NLM_F_CAPPED | NLM_F_ACK_TLVS, &body);
        let raw = messages(&bytes).next().expect("one message");
        let refusal = outcome(raw).expect("readable").expect_err("a refusal");
        assert_eq!(refusal.errno(), Errno::EXIST);
        assert_eq!(refusal.message(), Some("bad"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_to_an_end(bytes: Vec<u8>) {
            for raw in messages(&bytes) {
                let _ = outcome(raw);
                let _ = crate::link::Link::parse(raw.body);
                assert!(raw.body.len() + HEADER <= bytes.len());
            }
            assert!(attributes(&bytes).count() <= bytes.len() / ATTRIBUTE_HEADER);
            let _ = crate::link::Link::parse(&bytes);
        }
    }

    #[test]
    fn error_zero_is_an_acknowledgement() {
        let bytes = message(NLMSG_ERROR, 0, &[0; 4 + HEADER]);
        let raw = messages(&bytes).next().expect("one message");
        assert_eq!(outcome(raw), Some(Ok(())));
    }
}
