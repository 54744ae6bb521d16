//! Test a server with messages that no client sends.
//!
//! Each test is a row of the table of attacks (facts 1.6).

use super::*;

#[test]
fn attack_message_of_another_length() {
    for len in [0, 1, 127, 129, 256] {
        let mut server = admitted();
        let step = server.receive(&vec![0; len], vec![]);
        assert!(matches!(ended(step), Violation::Wire(_)), "{len}");
    }
}

#[test]
fn attack_unknown_message() {
    let mut datagram = [0; 128];
    datagram[0] = 9;
    let violation = ended(admitted().receive(&datagram, vec![]));
    assert_eq!(violation.to_string(), "unknown message type 9");
}

#[test]
fn attack_message_out_of_order() {
    let hello = Hello {
        name: name("x"),
        min_version: VERSION,
        max_version: VERSION,
        max_region: 0,
        max_s2c_ring: 0,
        max_c2s_ring: 0,
        max_log2_ring_size: 14,
    };
    let before_init = [
        Message::Ack,
        Message::Hello(hello),
        region(0, 4096),
        Message::AddRing(ring(true, 0, 0)),
        Message::Connect(name("x")),
        Message::Connected(name("x")),
    ];
    for message in before_init {
        let step = hears(&mut server(config()), message);
        assert_eq!(ended(step), Violation::Unexpected(message.name()));
    }
    for message in [
        Message::Ack,
        Message::Hello(hello),
        Message::Init(init()),
        Message::Connected(name("x")),
    ] {
        let step = hears(&mut admitted(), message);
        assert_eq!(ended(step), Violation::Unexpected(message.name()));
    }
}

#[test]
fn attack_message_after_connected() {
    for message in [region(1, 4096), Message::Connect(name("x")), Message::Ack] {
        let mut server = with_region(4096);
        hears(&mut server, Message::AddRing(ring(true, 0, 0)));
        hears(&mut server, Message::Connect(name("x")));
        server.accept().expect("the setup was good");
        let step = hears(&mut server, message);
        assert_eq!(ended(step), Violation::Unexpected(message.name()));
        assert!(!server.is_connected());
    }
}

#[test]
fn attack_missing_extra_and_foreign_descriptors() {
    let cases = [
        (
            region(0, 4096),
            vec![],
            "ADD_REGION without a file descriptor",
        ),
        (
            region(0, 4096),
            vec![MEMORY, MEMORY],
            "ADD_REGION with 2 file descriptors",
        ),
        (region(0, 4096), vec![FOREIGN], "region 0 is not a memfd"),
        (region(0, 4096), vec![EVENT], "region 0 is not a memfd"),
        (
            Message::AddRing(ring(true, 0, 0)),
            vec![],
            "ADD_RING without a file descriptor",
        ),
        (
            Message::AddRing(ring(true, 0, 0)),
            vec![MEMORY],
            "ring 0 has no eventfd",
        ),
        (
            Message::AddRing(ring(true, 0, 0)),
            vec![FOREIGN],
            "ring 0 has no eventfd",
        ),
        (
            Message::Connect(name("x")),
            vec![EVENT],
            "CONNECT with 1 file descriptors",
        ),
    ];
    for (message, descriptors, text) in cases {
        let violation = ended(admitted().receive(&message.encode(), descriptors));
        assert_eq!(violation.to_string(), text);
    }
    let step = server(config()).receive(&Message::Init(init()).encode(), vec![FOREIGN]);
    assert_eq!(ended(step).to_string(), "INIT with 1 file descriptors");
}

#[test]
fn attack_many_and_huge_regions() {
    let mut server = admitted();
    for index in 0..4 {
        assert!(acknowledged(&hears(&mut server, region(index, 4096))));
    }
    let step = hears(&mut server, region(4, 4096));
    assert_eq!(ended(step), Violation::Regions(4));

    for size in [1 << 40, u64::MAX, (128 << 20) + 1] {
        let step = hears(&mut admitted(), region(0, size));
        assert!(matches!(ended(step), Violation::Memory { .. }));
    }
    // The sum of two that are allowed alone, and one that overflows.
    for second in [64 << 20, u64::MAX] {
        let mut server = with_region(65 << 20);
        let step = hears(&mut server, region(1, second));
        assert!(matches!(ended(step), Violation::Memory { .. }));
    }
    let step = hears(&mut admitted(), region(0, 0));
    assert_eq!(ended(step), Violation::RegionEmpty(0));
}

/// ATT-03a: registered regions count by size, for the port, the pod and the switch.
#[test]
fn attack_regions_of_several_interfaces_together() {
    let switch = Budget::new("switch", 3 << 20);
    let pods = [
        Budget::within("pod", 2 << 20, &switch),
        Budget::within("pod", 2 << 20, &switch),
    ];
    let admitted = |pod: usize| {
        let mut config = config();
        config.budget = Some(Arc::clone(&pods[pod]));
        config.limits.bytes = 1 << 20;
        config.limits.overhead = 0;
        let mut server = server(config);
        assert!(acknowledged(&hears(&mut server, Message::Init(init()))));
        server
    };
    let refused = |server: &mut Server, size| match ended(hears(server, region(0, size))) {
        Violation::Memory { of, .. } => of,
        other => panic!("{other}"),
    };
    assert_eq!(refused(&mut admitted(0), (1 << 20) + 1), "port");
    let mut of_pod = [admitted(0), admitted(0)];
    assert!(acknowledged(&hears(&mut of_pod[0], region(0, 1 << 20))));
    // Page tables count too.
    assert_eq!(refused(&mut of_pod[1], 1 << 20), "pod");
    let mut small = admitted(0);
    assert!(acknowledged(&hears(&mut small, region(0, 1))));
    let mut others = [admitted(1), admitted(1)];
    assert!(acknowledged(&hears(&mut others[0], region(0, 1 << 20))));
    assert!(acknowledged(&hears(&mut others[1], region(0, 768 << 10))));
    assert_eq!(refused(&mut admitted(0), 256 << 10), "switch");
    // Whatever ends them gives it back.
    ended(hears(&mut others[0], Message::Ack));
    assert!(acknowledged(&hears(&mut admitted(0), region(0, 256 << 10))));
    drop((of_pod, small, others));
    assert_eq!(switch.used(), 0);
    proof::of!("ATT-03a");
}

#[test]
fn attack_indices_that_are_not_the_next() {
    for index in [1, 255, u16::MAX] {
        let step = hears(&mut admitted(), region(index, 4096));
        assert_eq!(ended(step).to_string(), "Invalid region index");
        for from_client in [true, false] {
            let ring = Message::AddRing(ring(from_client, index, 0));
            let step = hears(&mut admitted(), ring);
            assert_eq!(ended(step).to_string(), "Invalid ring index");
        }
    }
}

#[test]
fn attack_more_rings_than_offered() {
    for from_client in [true, false] {
        let mut server = with_region(1 << 20);
        for index in 0..8 {
            let ring = Message::AddRing(ring(from_client, index, u32::from(index) * RING));
            assert!(acknowledged(&hears(&mut server, ring)));
        }
        let one_more = Message::AddRing(ring(from_client, 8, 8 * RING));
        assert_eq!(ended(hears(&mut server, one_more)), Violation::Rings(8));
    }
}

#[test]
fn attack_ring_of_a_wild_size() {
    for log2 in [0, 15, 16, 30, 31, 32, 64, 255] {
        let ring = AddRing {
            log2_ring_size: log2,
            ..ring(true, 0, 0)
        };
        let step = hears(&mut with_region(1 << 20), Message::AddRing(ring));
        assert_eq!(ended(step), Violation::RingSize { log2, max: 14 });
    }
    let ring = AddRing {
        private_hdr_size: 1,
        ..ring(true, 0, 0)
    };
    let step = hears(&mut with_region(1 << 20), Message::AddRing(ring));
    assert_eq!(ended(step), Violation::PrivateHeader(1));
}

#[test]
fn attack_ring_outside_unaligned_or_in_no_region() {
    let size = u64::from(RING);
    assert!(matches!(
        connect(size, &[ring(true, 0, 0)]).event,
        Some(ServerEvent::Connect(_))
    ));
    for offset in [16, 1, 8, RING, u32::MAX, u32::MAX - 127, !15] {
        let step = connect(size, &[ring(true, 0, offset)]);
        let expected = Violation::RingPlace { region: 0, offset };
        assert_eq!(ended(step), expected);
    }
    for unknown in [1, 255, u16::MAX] {
        let ring = AddRing {
            region: unknown,
            ..ring(false, 0, 0)
        };
        let expected = Violation::RingPlace {
            region: unknown,
            offset: 0,
        };
        assert_eq!(ended(connect(size, &[ring])), expected);
    }
    assert_eq!(ended(connect(size, &[])), Violation::NoRing);
}

#[test]
fn attack_rings_in_one_place() {
    for offset in [0, 16, RING - 16] {
        let rings = [ring(true, 0, 0), ring(false, 0, offset)];
        let step = connect(1 << 20, &rings);
        assert_eq!(ended(step), Violation::RingsOverlap(0));
        let rings = [ring(false, 0, offset), ring(true, 0, 0)];
        let step = connect(1 << 20, &rings);
        assert_eq!(ended(step), Violation::RingsOverlap(0));
    }
}

#[test]
fn attack_slow_handshake() {
    let now = Instant::now();
    let (mut server, _) = ServerHandshake::<Fake>::new(Arc::new(config()), now);
    let deadline = server.deadline().expect("a handshake has a deadline");
    assert_eq!(deadline, now + Duration::from_secs(10));
    // Messages do not push it away.
    hears(&mut server, Message::Init(init()));
    assert_eq!(server.deadline(), Some(deadline));
    assert!(
        server
            .expire(deadline - Duration::from_nanos(1))
            .event
            .is_none()
    );
    assert_eq!(ended(server.expire(deadline)), Violation::Deadline);

    let mut client = ClientHandshake::<Fake>::new(ClientConfig::new(name("client")), now);
    let step = client.expire(deadline);
    assert!(matches!(
        step.event,
        Some(ClientEvent::Closed(Closed::Violation(Violation::Deadline)))
    ));
}
