use super::*;

const START: u64 = 1_000_000_000_000;

/// Ports, their networks and a node, and what each had copied.
struct Node {
    ports: Vec<StormBucket>,
    networks: Vec<StormBucket>,
    node: StormBucket,
    copies: Vec<u64>,
    limits: StormLimits,
}

impl Node {
    fn new(ports: usize, networks: u32) -> Self {
        Self {
            ports: vec![StormBucket::default(); ports],
            networks: vec![StormBucket::default(); networks as usize],
            node: StormBucket::default(),
            copies: vec![0; ports],
            limits: StormLimits {
                networks,
                ..StormLimits::DEFAULT
            },
        }
    }

    fn send(
        &mut self,
        port: usize,
        network: usize,
        flood: Flood,
        now: u64,
    ) -> Result<(), DropReason> {
        let buckets = Buckets {
            port: self.ports[port],
            network: self.networks[network],
            node: self.node,
        };
        let after = admit(buckets, flood, true, self.limits, now)?;
        self.ports[port] = after.port;
        self.networks[network] = after.network;
        self.node = after.node;
        self.copies[port] += flood.copies();
        Ok(())
    }

    fn all(&self) -> u64 {
        self.copies.iter().sum()
    }
}

const fn to_all(ports: u32) -> Flood {
    Flood {
        segments: 1,
        receivers: ports - 1,
        ports,
    }
}

#[test]
fn a_burst_passes_and_then_the_rate_holds() {
    let mut node = Node::new(1, 1);
    let few = to_all(3);
    let passed = (0..10_000)
        .filter(|_| node.send(0, 0, few, START).is_ok())
        .count();
    assert_eq!(passed as u64, STORM_BURST);
    let mut later = 0;
    for millisecond in 1..=3000_u64 {
        while node
            .send(0, 0, few, START + millisecond * 1_000_000)
            .is_ok()
        {
            later += 1;
        }
    }
    assert_eq!(later, 3 * STORM_RATE);
}

#[test]
fn a_packet_of_many_segments_counts_as_many() {
    let mut node = Node::new(1, 1);
    let large = Flood {
        segments: 40,
        ..to_all(3)
    };
    let passed = (0..10_000)
        .filter(|_| node.send(0, 0, large, START).is_ok())
        .count();
    assert_eq!(passed as u64, STORM_BURST / 40);
    let whole = Flood {
        segments: 60_000,
        ..large
    };
    assert_eq!(node.send(0, 0, whole, START * 2), Err(DropReason::Storm));
}

/// Four pods of a network of a thousand, as fast as they can, for ten seconds.
#[test]
fn a_network_has_no_more_copies_made_than_it_may_whoever_sends() {
    let mut node = Node::new(4, 1);
    for millisecond in 0..10_000_u64 {
        for port in 0..4 {
            for _ in 0..8 {
                let _ = node.send(port, 0, to_all(1000), START + millisecond * 1_000_000);
            }
        }
    }
    let most = u64::from(NETWORK_COPIES) * (10 + 2);
    // What shares add: four of a thousand ports.
    assert!(node.all() <= most + most / 50, "{} copies", node.all());
    assert!(node.all() > most / 2, "{} copies", node.all());
}

/// With as many others as there can be, frames that one sends now and then pass.
#[test]
fn a_port_keeps_its_share_of_a_network_that_others_flood() {
    let mut node = Node::new(9, 1);
    let mut lost = 0;
    for millisecond in 0..60_000_u64 {
        let now = START + millisecond * 1_000_000;
        for port in 0..8 {
            let _ = node.send(port, 0, to_all(1000), now);
        }
        // A question each six seconds.
        if millisecond % 6000 == 5999 && node.send(8, 0, to_all(1000), now).is_err() {
            lost += 1;
        }
    }
    assert_eq!(lost, 0, "of ten");
}

#[test]
fn a_network_keeps_its_share_of_a_node_that_others_flood() {
    let mut node = Node::new(41, 11);
    let (mut lost, mut sent) = (0, 0);
    for millisecond in 0..20_000_u64 {
        let now = START + millisecond * 1_000_000;
        for port in 0..40 {
            let _ = node.send(port, port / 4, to_all(500), now);
        }
        // A tenth of what its share is.
        if millisecond % 200 == 199 {
            sent += 1;
            lost += u32::from(node.send(40, 10, to_all(500), now).is_err());
        }
    }
    assert_eq!(lost, 0, "of {sent}");
    let most = u64::from(NODE_COPIES) * (20 + 2);
    assert!(node.all() <= most * 2, "{} copies", node.all());
}

/// Each pod of a thousand asks all others once in ten seconds.
///
/// By announcements, listener reports and questions for names.
#[test]
fn what_a_thousand_pods_ask_everybody_passes() {
    let mut node = Node::new(1000, 1);
    for second in 0..60_usize {
        for tenth in 0..100_usize {
            let port = (second % 10) * 100 + tenth;
            let now = START + (second * 1000 + tenth * 10) as u64 * 1_000_000;
            assert_eq!(
                node.send(port, 0, to_all(1000), now),
                Ok(()),
                "{second}.{tenth}"
            );
        }
    }
}

#[test]
fn frames_of_other_nodes_are_counted_for_network_and_node() {
    let limits = StormLimits::DEFAULT;
    let mut buckets = Buckets::default();
    let mut passed = 0_u64;
    let refused = loop {
        match admit(buckets, to_all(1000), false, limits, START) {
            Ok(after) => buckets = after,
            Err(reason) => break reason,
        }
        passed += 999;
    };
    assert_eq!(refused, DropReason::StormNetwork);
    assert_eq!(buckets.port, StormBucket::default());
    assert!(passed <= u64::from(NETWORK_COPIES) * 2);
}

#[test]
fn zeroes_are_defaults_and_the_largest_flood_is_known() {
    let zero = StormLimits {
        port_ns: 0,
        network_ns: 0,
        node_ns: 0,
        networks: 0,
    };
    assert_eq!(zero.or_default(), StormLimits::DEFAULT);
    assert_eq!(zero.most(), u64::from(PORT_COPIES) * 2);
    assert_eq!(StormLimits::new([1000, 500, 2000], 1).most(), 1000);
    assert_eq!(StormLimits::new([u32::MAX; 3], 1).port_ns, 1);
}
