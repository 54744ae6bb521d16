use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{Allocator, IpamError};

const LENGTH: BlockLength = BlockLength { v4: 28, v6: 124 };

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn pool(prefix: &str, gateways: &[&str], excludes: &[&str]) -> Pool {
    let gateways: Vec<_> = gateways.iter().map(|text| ip(text)).collect();
    let excludes: Vec<_> = excludes.iter().map(|text| net(text)).collect();
    Pool::new(net(prefix), &gateways, &excludes).unwrap()
}

fn order(pools: &[Pool], family: Family, seed: u64) -> Vec<String> {
    candidates(pools, family, LENGTH, seed, &|_| false)
        .map(|block| block.to_string())
        .collect()
}

#[test]
fn the_blocks_of_a_subnet_come_once_each_from_a_place_the_seed_says() {
    let pools = [pool("10.0.0.0/24", &[], &[])];
    let of = |seed| order(&pools, Family::V4, seed);
    let in_turn = of(0);
    let expected: Vec<String> = (0..16).map(|n| format!("10.0.0.{}/28", n * 16)).collect();
    assert_eq!(in_turn, expected);
    let mut later = of(6);
    later.rotate_right(6);
    assert_eq!(later, in_turn);
    assert_eq!(of(6), of(6 + 16));
}

/// A small subnet is no single node's.
#[test]
fn a_subnet_has_sixteen_blocks_or_more_where_it_has_as_many_addresses() {
    let of = |subnet: &str| {
        let pool = pool(subnet, &[], &[]);
        (LENGTH.of(&pool), LENGTH.size(&pool))
    };
    let cases = [
        ("10.0.0.0/8", 28, 16),
        ("10.0.0.0/24", 28, 16),
        ("10.0.0.0/25", 29, 8),
        ("10.0.0.0/26", 30, 4),
        ("10.0.0.0/27", 31, 2),
        ("10.0.0.0/28", 32, 1),
        ("10.0.0.0/31", 32, 1),
        ("10.0.0.7/32", 32, 1),
        ("fd00::/64", 124, 16),
        ("fd00::/120", 124, 16),
        ("fd00::/122", 126, 4),
        ("fd00::/126", 128, 1),
        ("fd00::1/128", 128, 1),
    ];
    for (subnet, length, size) in cases {
        assert_eq!(of(subnet), (length, size), "{subnet}");
    }
    // Network, broadcast and gateway are no pod's.
    let pools = [pool("10.0.0.0/28", &["10.0.0.1"], &[])];
    let blocks = order(&pools, Family::V4, 0);
    assert_eq!(blocks.len(), 13);
    assert_eq!(
        (blocks[0].as_str(), blocks[12].as_str()),
        ("10.0.0.2/32", "10.0.0.14/32")
    );
}

#[test]
fn blocks_overlap_when_one_has_the_other_in_it() {
    let case = |one: &str, other: &str| {
        let (one, other) = (net(one), net(other));
        assert_eq!(overlap(&one, &other), overlap(&other, &one));
        overlap(&one, &other)
    };
    assert!(case("10.0.0.16/28", "10.0.0.16/28"));
    assert!(case("10.0.0.16/28", "10.0.0.31/32"));
    assert!(case("10.0.0.16/28", "10.0.0.24/30"));
    assert!(!case("10.0.0.16/28", "10.0.0.32/28"));
    assert!(!case("10.0.0.16/28", "10.0.0.15/32"));
    assert!(!case("fd00::/124", "10.0.0.0/28"));
}

/// An address that no pod can have makes no block.
#[test]
fn a_block_without_an_address_to_give_is_left_out() {
    let pools = [pool(
        "10.0.0.0/24",
        &["10.0.0.1"],
        &["10.0.0.16/28", "10.0.0.128/25"],
    )];
    assert_eq!(order(&pools, Family::V4, 0).len(), 7);
    // All but one address of the block are reserved.
    let pools = [pool(
        "10.0.0.0/24",
        &[],
        &[
            "10.0.0.0/29",
            "10.0.0.8/30",
            "10.0.0.12/31",
            "10.0.0.14/32",
            "10.0.0.16/28",
        ],
    )];
    assert_eq!(
        order(&pools, Family::V4, 0)[..2],
        ["10.0.0.0/28", "10.0.0.32/28"]
    );
    assert_eq!(pools[0].capacity_in(&net("10.0.0.0/28")), 1);
}

#[test]
fn an_excluded_half_of_a_subnet_of_ipv6_is_one_step() {
    let pools = [pool("fd00::/64", &[], &["fd00::/65"])];
    let mut blocks = candidates(&pools, Family::V6, LENGTH, 0, &|_| false);
    assert_eq!(blocks.next(), Some(net("fd00::8000:0:0:0/124")));
    assert_eq!(blocks.next(), Some(net("fd00::8000:0:0:10/124")));
}

#[test]
fn addresses_of_a_large_subnet_stay_short() {
    let pools = [pool("fd00::/64", &[], &[])];
    for seed in [0, 1, 4095, u64::MAX] {
        let first = candidates(&pools, Family::V6, LENGTH, seed, &|_| false).next();
        let first = first.unwrap();
        assert!(net("fd00::/112").contains(&first), "{first}");
    }
    let whole = [Pool::new(net("::/0"), &[], &[]).unwrap()];
    assert!(
        candidates(&whole, Family::V6, LENGTH, 7, &|_| false)
            .next()
            .is_some()
    );
}

#[test]
fn of_a_block_larger_than_the_subnet_only_the_subnet_counts() {
    let pools = [pool("10.0.0.8/29", &[], &[])];
    assert_eq!(pools[0].capacity_in(&net("10.0.0.0/28")), 6);
    assert_eq!(pools[0].capacity_in(&net("10.0.0.16/28")), 0);
    assert_eq!(pools[0].capacity_in(&net("fd00::/124")), 0);
}

#[test]
fn subnets_are_used_up_in_their_order_and_families_apart() {
    let pools = [
        pool("10.0.0.0/32", &[], &[]),
        pool("fd00::/128", &[], &[]),
        pool("10.1.0.0/31", &[], &[]),
    ];
    assert_eq!(
        order(&pools, Family::V4, 1),
        ["10.0.0.0/32", "10.1.0.1/32", "10.1.0.0/32"]
    );
    assert_eq!(order(&pools, Family::V6, 1), ["fd00::/128"]);
}

#[test]
fn for_one_address_as_much_is_taken_as_nobody_has() {
    let pools = [pool("10.0.0.0/24", &[], &[])];
    let block = |taken: &[&str]| {
        let taken = Occupied::new(LENGTH, taken.iter().map(|text| net(text)));
        let block = LENGTH.free_block_of(&pools, ip("10.0.0.25"), &taken);
        block.map(|block| block.to_string())
    };
    assert_eq!(block(&[]).as_deref(), Some("10.0.0.16/28"));
    assert_eq!(block(&["10.0.0.17/32"]).as_deref(), Some("10.0.0.24/29"));
    assert_eq!(
        block(&["10.0.0.16/29", "10.0.0.24/32"]).as_deref(),
        Some("10.0.0.25/32")
    );
    assert_eq!(block(&["10.0.0.16/28"]), None);
    let none = Occupied::new(LENGTH, []);
    assert_eq!(LENGTH.free_block_of(&pools, ip("10.9.0.1"), &none), None);
}

proptest! {
    #[test]
    fn what_is_occupied_is_found_among_blocks_of_any_length(
        blocks in prop::collection::vec((0..256_u32, 28..=32_u8), 0..8),
        place in 0..256_u32,
        length in 28..=32_u8,
    ) {
        let block = |(offset, length): (u32, u8)| {
            let address = IpAddr::from((0x0a00_0000 + offset).to_be_bytes());
            IpNet::new(address, length).unwrap().trunc()
        };
        let blocks: Vec<IpNet> = blocks.into_iter().map(block).collect();
        let wanted = block((place, length));
        let expected = wanted.hosts().chain([wanted.network(), wanted.broadcast()]).any(|ip| {
            blocks.iter().any(|block| block.contains(&ip))
        });
        let occupied = Occupied::new(LENGTH, blocks);
        prop_assert_eq!(occupied.has_part_of(&wanted), expected);
    }
}

fn held(block: &str, room: u64, used: u64) -> Held {
    Held {
        block: net(block),
        room,
        used,
    }
}

#[test]
fn a_block_is_taken_before_the_last_address_is_needed() {
    assert_eq!(plan(&[], None, 16), Plan::Keep);
    assert_eq!(plan(&[], Some(0), 16), Plan::Take);
    let block = |used| [held("10.0.0.0/28", 14, used)];
    assert_eq!(plan(&block(10), Some(0), 16), Plan::Keep);
    assert_eq!(plan(&block(11), Some(0), 16), Plan::Take);
    assert_eq!(plan(&block(6), Some(4), 16), Plan::Keep);
    assert_eq!(plan(&block(6), Some(5), 16), Plan::Take);
    assert_eq!(plan(&block(0), Some(u64::MAX), 16), Plan::Take);
}

#[test]
fn a_block_is_given_back_when_it_is_empty_and_others_have_room() {
    let two = |first, second| {
        [
            held("10.0.0.0/28", 16, first),
            held("10.0.0.16/28", 16, second),
        ]
    };
    let back = Plan::GiveBack(net("10.0.0.16/28"));
    assert_eq!(plan(&two(1, 0), Some(0), 16), back);
    assert_eq!(plan(&two(4, 0), Some(0), 16), back);
    assert_eq!(
        plan(&two(5, 0), Some(0), 16),
        Plan::Keep,
        "the slack would be gone"
    );
    assert_eq!(plan(&two(1, 1), Some(0), 16), Plan::Keep, "none is empty");
    // Nobody uses the network here any more.
    assert_eq!(plan(&two(1, 0), None, 16), back);
    assert_eq!(
        plan(&[held("10.0.0.0/28", 16, 0)], None, 16),
        Plan::GiveBack(net("10.0.0.0/28"))
    );
    assert_eq!(plan(&[held("10.0.0.0/28", 16, 1)], None, 16), Plan::Keep);
    // The subnets have changed: nothing of it can be given.
    let useless = [held("10.0.0.0/28", 0, 0), held("10.0.0.16/28", 16, 0)];
    assert_eq!(
        plan(&useless, Some(0), 16),
        Plan::GiveBack(net("10.0.0.0/28"))
    );
}

#[test]
fn of_small_blocks_no_more_is_kept_ahead_than_one_has() {
    let single = |last: u8, used| held(&format!("10.0.0.{last}/32"), 1, used);
    assert_eq!(plan(&[], Some(0), 1), Plan::Take);
    assert_eq!(plan(&[single(2, 0)], Some(0), 1), Plan::Keep);
    assert_eq!(plan(&[single(2, 1)], Some(0), 1), Plan::Take);
    let three = [single(2, 1), single(3, 0), single(4, 0)];
    assert_eq!(plan(&three, Some(0), 1), Plan::Keep);
    let four = [single(2, 1), single(3, 0), single(4, 0), single(5, 0)];
    assert_eq!(plan(&four, Some(0), 1), Plan::GiveBack(net("10.0.0.3/32")));
}

/// The API server's part: of all nodes that create one object, one succeeds.
#[derive(Default)]
struct Registry(BTreeMap<IpNet, usize>);

/// One node: its blocks, and the addresses its pods have.
struct Node {
    seed: u64,
    allocator: Allocator,
    blocks: Vec<IpNet>,
    given: BTreeSet<IpAddr>,
}

impl Node {
    fn new(seed: u64, pools: &[Pool]) -> Self {
        Self {
            seed,
            allocator: Allocator::new(pools.to_vec()).unwrap(),
            blocks: Vec::new(),
            given: BTreeSet::new(),
        }
    }

    /// Which block to try, by what it knew of the registry at some time.
    fn choose(&self, seen: &BTreeSet<IpNet>) -> Option<IpNet> {
        let pools = self.allocator.pools();
        candidates(pools, Family::V4, LENGTH, self.seed, &|block| {
            seen.contains(&block)
        })
        .next()
    }

    fn attach(&mut self) -> Result<IpAddr, IpamError> {
        let given = &self.given;
        let leases = self
            .allocator
            .allocate_in(&self.blocks, &[], &|address| given.contains(&address))?;
        let address = leases[0].address;
        self.given.insert(address);
        Ok(address)
    }

    fn stock(&self) -> Vec<Held> {
        let room = |block: &IpNet| {
            let pools = self.allocator.pools().iter();
            pools.map(|pool| pool.capacity_in(block)).sum::<u128>()
        };
        let of = |block: &IpNet| Held {
            block: *block,
            room: u64::try_from(room(block)).unwrap(),
            used: self.given.iter().filter(|ip| block.contains(*ip)).count() as u64,
        };
        self.blocks.iter().map(of).collect()
    }

    fn follow_plan(&mut self, me: usize, registry: &mut Registry, seen: &mut BTreeSet<IpNet>) {
        let size = LENGTH.size(&self.allocator.pools()[0]);
        match plan(&self.stock(), Some(0), size) {
            Plan::Keep => {}
            Plan::Take => {
                let Some(block) = self.choose(seen) else {
                    return;
                };
                seen.insert(block);
                // Who is late hears that the object exists.
                if let std::collections::btree_map::Entry::Vacant(free) = registry.0.entry(block) {
                    free.insert(me);
                    self.blocks.push(block);
                }
            }
            Plan::GiveBack(block) => {
                self.blocks.retain(|held| *held != block);
                assert_eq!(registry.0.remove(&block), Some(me));
                seen.remove(&block);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Attach(usize),
    Detach(usize, usize),
    Plan(usize),
    Look(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Step::Attach),
        2 => (0..3_usize, 0..32_usize).prop_map(|(node, which)| Step::Detach(node, which)),
        3 => (0..3_usize).prop_map(Step::Plan),
        1 => (0..3_usize).prop_map(Step::Look),
    ]
}

proptest! {
    /// PAIN-IP-2: nodes read the registry at any time and act on it later.
    #[test]
    fn no_two_nodes_give_one_address_and_none_gives_a_reserved_one(
        seeds in any::<[u64; 3]>(),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let pools = [
            pool("10.0.0.0/26", &["10.0.0.1"], &["10.0.0.40/29"]),
            pool("10.9.0.0/29", &[], &[]),
        ];
        let mut registry = Registry::default();
        let mut nodes = seeds.map(|seed| Node::new(seed, &pools));
        let mut seen = [const { BTreeSet::new() }; 3];
        for step in steps {
            match step {
                Step::Attach(node) => {
                    if let Ok(address) = nodes[node].attach() {
                        let reserved = pools.iter().find_map(|pool| pool.reserved(address));
                        prop_assert_eq!(reserved, None);
                    }
                }
                Step::Detach(node, which) => {
                    let address = nodes[node].given.iter().nth(which).copied();
                    if let Some(address) = address {
                        nodes[node].given.remove(&address);
                    }
                }
                Step::Plan(node) => nodes[node].follow_plan(node, &mut registry, &mut seen[node]),
                Step::Look(node) => seen[node] = registry.0.keys().copied().collect(),
            }
            let all: Vec<IpAddr> = nodes.iter().flat_map(|node| node.given.iter().copied()).collect();
            let different: BTreeSet<IpAddr> = all.iter().copied().collect();
            prop_assert_eq!(all.len(), different.len());
            for (me, node) in nodes.iter().enumerate() {
                for address in &node.given {
                    let of = pools.iter().find(|pool| pool.prefix().contains(address));
                    let block = LENGTH.block_of(of.unwrap(), *address);
                    prop_assert_eq!(registry.0.get(&block), Some(&me));
                }
            }
        }
        proof::of!("PAIN-IP-2");
    }

    #[test]
    fn a_node_that_needs_all_addresses_gets_all(seed: u64) {
        let pools = [
            pool("10.0.0.0/26", &["10.0.0.1"], &["10.0.0.40/29"]),
            pool("10.9.0.0/29", &[], &[]),
        ];
        let (mut registry, mut seen) = (Registry::default(), BTreeSet::new());
        let mut node = Node::new(seed, &pools);
        loop {
            node.follow_plan(0, &mut registry, &mut seen);
            if node.attach().is_err() && node.choose(&seen).is_none() {
                break;
            }
        }
        let capacity: u128 = pools.iter().map(Pool::capacity).sum();
        prop_assert_eq!(node.given.len() as u128, capacity);
        prop_assert_eq!(
            node.attach(),
            Err(IpamError::NoRoom { family: Family::V4, blocks: node.blocks.len() })
        );
    }

    #[test]
    fn the_capacity_of_all_blocks_is_that_of_the_pool(
        length in 20..=32_u8,
        excludes in prop::collection::vec((0..4096_u32, 24..=32_u8), 0..6),
    ) {
        let prefix = IpNet::new(ip("10.0.0.0"), length).unwrap();
        let excludes: Vec<IpNet> = excludes
            .into_iter()
            .map(|(offset, length)| {
                let address = IpAddr::from((0x0a00_0000 + offset).to_be_bytes());
                IpNet::new(address, length).unwrap().trunc()
            })
            .filter(|exclude| prefix.contains(exclude))
            .collect();
        let pools = [Pool::new(prefix, &[], &excludes).unwrap()];
        let blocks: Vec<IpNet> = candidates(&pools, Family::V4, LENGTH, 5, &|_| false).collect();
        let sum: u128 = blocks.iter().map(|block| pools[0].capacity_in(block)).sum();
        prop_assert_eq!(sum, pools[0].capacity());
        prop_assert!(blocks.iter().all(|block| pools[0].capacity_in(block) > 0));
    }
}
