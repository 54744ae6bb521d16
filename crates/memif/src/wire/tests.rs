//! Test offsets of fields, which are written out here again from the protocol.
//!
//! So a field that moves is seen.

use proptest::prelude::*;

use super::*;

fn bytes_with(fields: &[(usize, &[u8])]) -> MessageBytes {
    let mut bytes = [0; MESSAGE_LEN];
    for (at, field) in fields {
        bytes[*at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

#[test]
fn every_field_lies_where_the_protocol_has_it() {
    let hello = Message::Hello(Hello {
        name: Text::new("app").unwrap(),
        min_version: 0x0200,
        max_version: 0x0201,
        max_region: 1,
        max_s2c_ring: 2,
        max_c2s_ring: 3,
        max_log2_ring_size: 14,
    });
    let expected = bytes_with(&[
        (0, &2_u16.to_ne_bytes()),
        (2, b"app"),
        (34, &0x0200_u16.to_ne_bytes()),
        (36, &0x0201_u16.to_ne_bytes()),
        (38, &1_u16.to_ne_bytes()),
        (40, &2_u16.to_ne_bytes()),
        (42, &3_u16.to_ne_bytes()),
        (44, &[14]),
    ]);
    assert_eq!(hello.encode(), expected);

    let init = Message::Init(Init {
        version: VERSION,
        id: 0x0102_0304,
        mode: 0,
        secret: Secret::new("psst").unwrap(),
        name: Text::new("client").unwrap(),
    });
    let expected = bytes_with(&[
        (0, &3_u16.to_ne_bytes()),
        (2, &VERSION.to_ne_bytes()),
        (4, &0x0102_0304_u32.to_ne_bytes()),
        (9, b"psst"),
        (33, b"client"),
    ]);
    assert_eq!(init.encode(), expected);

    let region = Message::AddRegion(AddRegion {
        index: 7,
        size: 1 << 40,
    });
    let expected = bytes_with(&[
        (0, &4_u16.to_ne_bytes()),
        (2, &7_u16.to_ne_bytes()),
        (4, &(1_u64 << 40).to_ne_bytes()),
    ]);
    assert_eq!(region.encode(), expected);

    let ring = Message::AddRing(AddRing {
        from_client: true,
        index: 2,
        region: 3,
        offset: 0x0005_0640,
        log2_ring_size: 10,
        private_hdr_size: 9,
    });
    let expected = bytes_with(&[
        (0, &5_u16.to_ne_bytes()),
        (2, &1_u16.to_ne_bytes()),
        (4, &2_u16.to_ne_bytes()),
        (6, &3_u16.to_ne_bytes()),
        (8, &0x0005_0640_u32.to_ne_bytes()),
        (12, &[10]),
        (13, &9_u16.to_ne_bytes()),
    ]);
    assert_eq!(ring.encode(), expected);

    let name = Text::new("memif0/0").unwrap();
    let expected = bytes_with(&[(0, &6_u16.to_ne_bytes()), (2, b"memif0/0")]);
    assert_eq!(Message::Connect(name).encode(), expected);
    let expected = bytes_with(&[(0, &7_u16.to_ne_bytes()), (2, b"memif0/0")]);
    assert_eq!(Message::Connected(name).encode(), expected);
    assert_eq!(
        Message::Ack.encode(),
        bytes_with(&[(0, &1_u16.to_ne_bytes())])
    );
    let end = Message::Disconnect(Disconnect {
        code: 5,
        reason: Text::new("bye").unwrap(),
    });
    let expected = bytes_with(&[
        (0, &8_u16.to_ne_bytes()),
        (2, &5_u32.to_ne_bytes()),
        (6, b"bye"),
    ]);
    assert_eq!(end.encode(), expected);
}

#[test]
fn a_message_of_any_other_length_is_refused() {
    for len in [0, 1, 2, 127, 129, 4096] {
        let datagram = vec![1; len];
        assert_eq!(
            Message::decode(&datagram).unwrap_err(),
            WireError::Length(len)
        );
    }
}

#[test]
fn unknown_types_are_refused() {
    for kind in [0, 9, 0x0100, u16::MAX] {
        let datagram = bytes_with(&[(0, &u16::to_ne_bytes(kind))]);
        assert_eq!(
            Message::decode(&datagram).unwrap_err(),
            WireError::Type(kind)
        );
    }
}

proptest! {
    #[test]
    fn whatever_is_read_is_written_the_same(kind in 1_u16..9, rest in prop::collection::vec(any::<u8>(), MESSAGE_LEN - 2)) {
        let mut datagram = kind.to_ne_bytes().to_vec();
        datagram.extend(&rest);
        let once = Message::decode(&datagram).unwrap().encode();
        let twice = Message::decode(&once).unwrap().encode();
        prop_assert_eq!(once, twice);
    }
}
