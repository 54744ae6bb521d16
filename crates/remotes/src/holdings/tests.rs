//! Attacks of a node that is not honest, on what other nodes know.

use api::{Endpoint, NetworkId, Transport};
use book::record::SubnetFacts;
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;

use super::super::{Remotes, SKEW, Served, Slice};
use super::*;

/// When everything is heard.
const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn mac(last: u8) -> api::MacAddr {
    api::MacAddr::new([2, 0, 0, 0, 0, last])
}

fn vtep(node: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, node])
}

fn name(node: u8) -> String {
    format!("n{node}")
}

fn endpoint(last: u8, ips: &[IpAddr], second: i64) -> Endpoint {
    Endpoint {
        mac: mac(last),
        ips: ips.to_vec(),
        since: at(second),
        pod: None,
    }
}

fn slice(node: u8, vteps: &[IpAddr], endpoints: &[Endpoint]) -> Slice {
    Slice {
        network: "blue".to_owned(),
        id: NetworkId::new(7).unwrap(),
        node: name(node),
        vteps: vteps.to_vec(),
        endpoints: endpoints.to_vec(),
    }
}

/// Makes the remotes of node `n1`, which serves `blue`, a network with a subnet.
///
/// The cluster has the nodes `n1` to `n4`.
fn remotes(routed: bool) -> Remotes {
    let remotes = Remotes::judged("n1");
    let blue = Served {
        id: 7,
        transport: Transport::Vxlan,
        routed,
        subnets: vec![SubnetFacts {
            prefix: "10.0.0.0/24".parse().unwrap(),
            gateway: Some(ip(1)),
        }],
    };
    remotes.serve([("blue".to_owned(), blue)].into());
    remotes.set_nodes((1..=4).map(|node| facts(node, &[vtep(node)], 0)).collect());
    remotes
}

fn facts(node: u8, addresses: &[IpAddr], made: i64) -> (String, NodeFacts) {
    let facts = NodeFacts {
        made: at(made),
        addresses: addresses.iter().copied().collect(),
    };
    (name(node), facts)
}

fn take(remotes: &Remotes, cidr: &str, node: u8, second: i64) {
    let cidr: Prefix = cidr.parse().unwrap();
    let block = Block {
        cidr,
        node: name(node),
        taken: at(second),
    };
    remotes.set_block("blue", cidr.addr(), Some(block));
}

fn grant(remotes: &Remotes, last: u8, node: Option<u8>, by: u8, second: i64) {
    let reservation = Reservation {
        node: node.map(name),
        granted_by: name(by),
        made: at(second),
    };
    remotes.set_reservation("blue", ip(last), Some(reservation));
}

fn say(remotes: &Remotes, node: u8, endpoints: &[Endpoint]) {
    let said = slice(node, &[vtep(node)], endpoints);
    remotes.replace_at(&name(node), Some(said), at(NOW));
}

/// Where an address is.
fn holder(remotes: &Remotes, ip: IpAddr) -> Option<String> {
    let endpoints = remotes.endpoints(7);
    let mut found = endpoints.iter().filter(|it| it.ips.contains(&ip));
    let holder = found.next().map(|it| it.peer.node.clone());
    assert_eq!(found.count(), 0, "{ip} has two holders");
    holder
}

fn refusals(remotes: &Remotes) -> Vec<(String, Refusal, usize)> {
    let refused = remotes.refused().into_iter();
    refused.map(|it| (it.node, it.why, it.count)).collect()
}

/// ATT-06a: no tunnel leads to another node's address, nor out of the cluster.
#[test]
fn a_tunnel_leads_to_addresses_of_the_node_that_says_so_only() {
    let remotes = remotes(false);
    take(&remotes, "10.0.0.32/28", 3, 1);
    let members = [endpoint(3, &[ip(33)], 10)];
    for foreign in [vtep(2), vtep(1), IpAddr::from([203, 0, 113, 9])] {
        let said = slice(3, &[foreign], &members);
        remotes.replace_at("n3", Some(said), at(NOW));
        assert!(remotes.endpoints(7).is_empty(), "a tunnel to {foreign}");
        assert!(remotes.all_peers().is_empty(), "a tunnel to {foreign}");
        assert_eq!(refusals(&remotes), [(name(3), Refusal::Vtep, 1)]);
    }
    let said = slice(3, &[vtep(3), "2001:db8::9".parse().unwrap()], &members);
    remotes.replace_at("n3", Some(said), at(NOW));
    assert_eq!(remotes.endpoints(7)[0].peer.vteps, [vtep(3)]);

    // The Node has it later.
    let far = IpAddr::from([198, 51, 100, 3]);
    let said = slice(3, &[far], &members);
    remotes.replace_at("n3", Some(said), at(NOW));
    assert!(remotes.endpoints(7).is_empty());
    let nodes = [facts(2, &[vtep(2)], 0), facts(3, &[vtep(3), far], 0)];
    assert_eq!(remotes.set_nodes(nodes.into()), [7].into());
    assert_eq!(remotes.endpoints(7)[0].peer.vteps, [far]);
    assert!(refusals(&remotes).is_empty());
    proof::of!("ATT-06a");
}

/// ATT-06a: a kubelet writes the addresses of its Node.
#[test]
fn of_two_nodes_that_say_they_have_an_address_the_older_one_has_it() {
    let remotes = remotes(false);
    take(&remotes, "10.0.0.16/28", 2, 1);
    take(&remotes, "10.0.0.32/28", 3, 1);
    say(&remotes, 2, &[endpoint(2, &[ip(17)], 10)]);
    let stolen = slice(3, &[vtep(2)], &[endpoint(3, &[ip(33)], 10)]);
    remotes.replace_at("n3", Some(stolen), at(NOW));
    let nodes = [facts(2, &[vtep(2)], 5), facts(3, &[vtep(2)], 6)];
    remotes.set_nodes(nodes.into());
    assert_eq!(holder(&remotes, ip(17)), Some(name(2)));
    assert_eq!(holder(&remotes, ip(33)), None);
    // One that is gone for a moment is where it was, and is no reason to lose its members.
    remotes.set_nodes([facts(3, &[vtep(3)], 6)].into());
    assert_eq!(holder(&remotes, ip(17)), Some(name(2)));
    remotes.replace_at("n2", None, at(NOW));
    remotes.set_nodes([facts(3, &[vtep(2)], 6)].into());
    assert_eq!(holder(&remotes, ip(33)), Some(name(3)));
    proof::of!("ATT-06a");
}

/// ATT-06b: the attack of the review, with the date of the year 9999.
#[test]
fn an_address_is_the_holders_of_its_block_whatever_another_node_says_and_when() {
    let remotes = remotes(false);
    take(&remotes, "10.0.0.16/28", 2, 1);
    take(&remotes, "10.0.0.32/28", 3, 1);
    say(&remotes, 2, &[endpoint(2, &[ip(17)], 10)]);
    for second in [5, NOW, 250_000_000_000] {
        let members = [
            endpoint(3, &[ip(17)], second),
            endpoint(4, &[ip(33), ip(18), ip(200)], second),
        ];
        say(&remotes, 3, &members);
        assert_eq!(holder(&remotes, ip(17)), Some(name(2)));
        assert_eq!(holder(&remotes, ip(33)), Some(name(3)));
        assert_eq!(holder(&remotes, ip(18)), None);
        assert_eq!(holder(&remotes, ip(200)), None);
        assert_eq!(refusals(&remotes), [(name(3), Refusal::NotHeld, 3)]);
        assert_eq!(remotes.endpoints(7).len(), 2);
    }
    // Its own date is not dragged along by that of the attacker.
    let id = NetworkId::new(7).unwrap();
    let next = remotes.date_of_claim(id, mac(9), &[ip(17)]);
    assert!(next <= Timestamp::now(), "{next}");
    proof::of!("ATT-06b");
}

/// ATT-06b: what this node holds is nobody else's, also while no pod has it.
#[test]
fn an_address_of_a_block_of_this_node_is_no_other_nodes() {
    let remotes = remotes(false);
    take(&remotes, "10.0.0.48/28", 1, 1);
    say(&remotes, 3, &[endpoint(3, &[ip(50)], NOW)]);
    assert_eq!(holder(&remotes, ip(50)), None);
    // Unless it has granted it to a pod there.
    grant(&remotes, 50, Some(3), 1, 20);
    assert_eq!(holder(&remotes, ip(50)), Some(name(3)));
    remotes.set_reservation("blue", ip(50), None);
    assert_eq!(holder(&remotes, ip(50)), None);
    proof::of!("ATT-06b");
}

/// ATT-06b: a gateway or an address outside of the subnets is no member's.
///
/// That holds even where somebody has taken a block there: the API server checks nothing but the names of
/// blocks.
#[test]
fn the_gateway_and_the_outside_are_no_members() {
    let remotes = remotes(true);
    take(&remotes, "10.0.0.0/28", 3, 1);
    take(&remotes, "203.0.113.0/28", 3, 1);
    let outside = IpAddr::from([203, 0, 113, 9]);
    let members = [
        endpoint(3, &[ip(1)], 10),
        endpoint(4, &[outside], 10),
        endpoint(5, &[], 10),
        endpoint(6, &[ip(2)], 10),
    ];
    say(&remotes, 3, &members);
    let known = remotes.endpoints(7);
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].ips, [ip(2)]);
    let expected = [Refusal::Outside, Refusal::Gateway, Refusal::NoAddress];
    assert_eq!(refusals(&remotes), expected.map(|why| (name(3), why, 1)));
    proof::of!("ATT-06b");
}

/// ATT-06b: a proof that comes later than the claim is in time.
#[test]
fn a_slice_that_comes_before_its_block_counts_when_the_block_comes() {
    let remotes = remotes(false);
    let mut changes = remotes.changes();
    say(
        &remotes,
        2,
        &[endpoint(2, &[ip(17)], 10), endpoint(3, &[ip(40)], 10)],
    );
    assert!(remotes.endpoints(7).is_empty());
    changes.mark_unchanged();
    take(&remotes, "10.0.0.16/28", 2, 20);
    assert!(changes.has_changed().unwrap());
    assert_eq!(holder(&remotes, ip(17)), Some(name(2)));
    grant(&remotes, 40, Some(2), 3, 20);
    assert_eq!(holder(&remotes, ip(40)), Some(name(2)));
    // The same again is no change; one of another network is not this one's.
    changes.mark_unchanged();
    take(&remotes, "10.0.0.16/28", 2, 20);
    let block = Block {
        cidr: "10.9.0.0/28".parse().unwrap(),
        node: name(2),
        taken: at(1),
    };
    remotes.set_block("red", block.cidr.addr(), Some(block));
    assert!(!changes.has_changed().unwrap());
    // And with its block the address goes.
    remotes.set_blocks(ByAddress::new());
    assert_eq!(holder(&remotes, ip(17)), None);
    assert_eq!(holder(&remotes, ip(40)), Some(name(2)));
    proof::of!("ATT-06b");
}

/// ATT-06b: an attacker's reservation that it granted itself takes nothing away.
///
/// The attacker may make it for a pod of its own.
#[test]
fn a_grant_of_another_than_the_holder_of_the_block_does_not_take_an_address_away() {
    let remotes = remotes(false);
    take(&remotes, "10.0.0.16/28", 2, 10);
    say(&remotes, 2, &[endpoint(2, &[ip(17)], 10)]);
    for node in [Some(3), None] {
        grant(&remotes, 17, node, 3, 20);
        say(&remotes, 3, &[endpoint(3, &[ip(17)], NOW)]);
        assert_eq!(holder(&remotes, ip(17)), Some(name(2)));
    }
    // The holder of the block has granted it: then it is not its own any more.
    grant(&remotes, 17, Some(3), 2, 20);
    say(&remotes, 2, &[endpoint(2, &[ip(17)], NOW)]);
    assert_eq!(holder(&remotes, ip(17)), Some(name(3)));
    // A later holder of the block keeps to what was granted before.
    take(&remotes, "10.0.0.16/28", 4, 30);
    say(&remotes, 4, &[endpoint(4, &[ip(17)], NOW)]);
    assert_eq!(holder(&remotes, ip(17)), Some(name(3)));
    // Reserved for a pod of another node: nothing for this one.
    grant(&remotes, 18, Some(2), 4, 40);
    say(&remotes, 3, &[endpoint(3, &[ip(18)], NOW)]);
    assert_eq!(holder(&remotes, ip(18)), None);
    proof::of!("ATT-06b");
}

/// ATT-06b: who takes a part of another's block afterwards has nothing of it.
#[test]
fn of_two_blocks_with_one_address_the_first_counts() {
    let remotes = remotes(false);
    take(&remotes, "10.0.0.16/28", 2, 10);
    take(&remotes, "10.0.0.18/32", 3, 11);
    say(&remotes, 2, &[endpoint(2, &[ip(18)], 10)]);
    say(&remotes, 3, &[endpoint(3, &[ip(18)], NOW)]);
    assert_eq!(holder(&remotes, ip(18)), Some(name(2)));
    remotes.replace_at("n2", None, at(NOW));
    assert_eq!(holder(&remotes, ip(18)), None);
    proof::of!("ATT-06b");
}

/// ATT-06b: of an `IPAMClaim` the later claim holds, but no date in the future.
///
/// Its pod may be on any node. Such a date is no reason to lose an address that no other claims.
#[test]
fn a_claim_of_the_future_holds_against_no_other() {
    let remotes = remotes(false);
    grant(&remotes, 40, None, 4, 1);
    let skew = SKEW.as_secs();
    say(&remotes, 2, &[endpoint(2, &[ip(40)], 10)]);
    say(&remotes, 3, &[endpoint(3, &[ip(40)], NOW + skew + 1)]);
    assert_eq!(holder(&remotes, ip(40)), Some(name(2)));
    let id = NetworkId::new(7).unwrap();
    let next = remotes.date_of_claim(id, mac(9), &[ip(40)]);
    assert!(next <= Timestamp::now(), "{next}");
    remotes.replace_at("n2", None, at(NOW));
    assert_eq!(holder(&remotes, ip(40)), Some(name(3)));
    // A clock may be ahead by less, and a date that was too early then is not any more.
    say(&remotes, 2, &[endpoint(2, &[ip(40)], 10)]);
    say(&remotes, 3, &[endpoint(3, &[ip(40)], NOW + skew)]);
    assert_eq!(holder(&remotes, ip(40)), Some(name(3)));
    let late = slice(3, &[vtep(3)], &[endpoint(3, &[ip(40)], NOW + 2 * skew)]);
    remotes.replace_at("n3", Some(late.clone()), at(NOW));
    assert_eq!(holder(&remotes, ip(40)), Some(name(2)));
    let later = at(NOW)
        .checked_add(SignedDuration::from_secs(skew))
        .unwrap();
    remotes.replace_at("n3", Some(late), later);
    assert_eq!(holder(&remotes, ip(40)), Some(name(3)));
    proof::of!("ATT-06b");
}

/// ATT-06b: a claim to a MAC address takes nothing away on a routed network.
///
/// A MAC address leads nowhere there.
#[test]
fn the_mac_address_of_another_takes_no_address_away_on_a_routed_network() {
    let remotes = remotes(true);
    take(&remotes, "10.0.0.16/28", 2, 1);
    take(&remotes, "10.0.0.32/28", 3, 1);
    say(&remotes, 2, &[endpoint(2, &[ip(17)], 10)]);
    say(&remotes, 3, &[endpoint(2, &[ip(33)], NOW)]);
    assert_eq!(holder(&remotes, ip(17)), Some(name(2)));
    assert_eq!(holder(&remotes, ip(33)), Some(name(3)));
    proof::of!("ATT-06b");
}

/// A network without subnets has members with MAC addresses only.
///
/// Nothing could prove one, so the later claim holds.
#[test]
fn on_a_network_without_subnets_the_later_claim_to_a_mac_address_holds() {
    let remotes = remotes(false);
    let plain = Served {
        id: 7,
        transport: Transport::Vxlan,
        routed: false,
        subnets: Vec::new(),
    };
    remotes.serve([("blue".to_owned(), plain)].into());
    say(&remotes, 2, &[endpoint(2, &[], 10)]);
    say(
        &remotes,
        3,
        &[endpoint(2, &[], 11), endpoint(3, &[ip(9)], 250_000_000_000)],
    );
    let known = remotes.endpoints(7);
    let nodes: Vec<&str> = known.iter().map(|it| it.peer.node.as_str()).collect();
    assert_eq!(nodes, ["n3", "n3"]);
    assert!(known.iter().all(|it| it.ips.is_empty()));
}

/// Nothing of other nodes leaves the tables before it is known what proves it.
#[test]
fn all_is_known_when_slices_and_what_proves_them_have_been_read() {
    let remotes = remotes(false);
    remotes.set_complete();
    assert!(!remotes.is_complete());
    remotes.set_blocks(ByAddress::new());
    assert!(!remotes.is_complete());
    remotes.take_changed();
    remotes.set_reservations(ByAddress::new());
    assert!(remotes.is_complete());
    assert_eq!(remotes.take_changed(), [7].into());
}

/// Ten thousand members of forty nodes are all known here.
///
/// Their cost is read in the code.
#[test]
fn ten_thousand_members_are_judged() {
    let remotes = remotes(true);
    let wide = Served {
        id: 7,
        transport: Transport::Vxlan,
        routed: true,
        subnets: vec![SubnetFacts {
            prefix: "10.0.0.0/16".parse().unwrap(),
            gateway: None,
        }],
    };
    remotes.serve([("blue".to_owned(), wide)].into());
    remotes.set_nodes((0..40).map(|node| facts(node, &[vtep(node)], 0)).collect());
    let mut blocks = ByAddress::new();
    let of_blue: &mut HashMap<_, _> = blocks.entry("blue".to_owned()).or_default();
    for node in 0..40 {
        let mut members = Vec::new();
        for low in 1..=250_u8 {
            let address = IpAddr::from([10, 0, node, low]);
            let cidr = Prefix::new(address, 28).unwrap().trunc();
            let block = Block {
                cidr,
                node: name(node),
                taken: at(1),
            };
            of_blue.insert(cidr.addr(), block);
            members.push(Endpoint {
                mac: api::MacAddr::new([2, 0, 0, 0, node, low]),
                ips: vec![address],
                since: at(10),
                pod: None,
            });
        }
        say(&remotes, node, &members);
    }
    assert!(remotes.endpoints(7).is_empty());
    remotes.set_blocks(blocks);
    // Those of this node are its own matter.
    assert_eq!(remotes.endpoints(7).len(), 39 * 250);
}

/// A step of a history.
#[derive(Debug, Clone)]
enum Step {
    Say(u8, Vec<(u8, u8, i64)>),
    Take(u8, Option<(u8, i64)>),
    Grant(u8, Option<(Option<u8>, u8, i64)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let second = prop::sample::select(vec![1, 2, 3, NOW, NOW + 1000, 250_000_000_000]);
    let members = prop::collection::vec((2..8_u8, 0..40_u8, second.clone()), 0..6);
    let said = (2..5_u8, members).prop_map(|(node, members)| Step::Say(node, members));
    let taken = (0..3_u8, prop::option::weighted(0.8, (1..5_u8, 1..4_i64)));
    let taken = taken.prop_map(|(block, by)| Step::Take(block, by));
    let by = (prop::option::of(1..5_u8), 1..5_u8, 1..4_i64);
    let granted = (0..40_u8, prop::option::weighted(0.8, by));
    let granted = granted.prop_map(|(last, by)| Step::Grant(last, by));
    prop::collection::vec(prop_oneof![said, taken, granted], 0..40)
}

fn carry_out(remotes: &Remotes, step: &Step) {
    match step {
        Step::Say(node, members) => {
            let members: BTreeMap<u8, Endpoint> = members
                .iter()
                .map(|(last, low, second)| (*last, endpoint(*last, &[ip(*low)], *second)))
                .collect();
            let members: Vec<Endpoint> = members.into_values().collect();
            say(remotes, *node, &members);
        }
        Step::Take(block, Some((node, second))) => {
            take(
                remotes,
                &format!("10.0.0.{}/28", block * 16),
                *node,
                *second,
            );
        }
        Step::Take(block, None) => {
            remotes.set_block("blue", ip(block * 16), None);
        }
        Step::Grant(last, Some((node, by, second))) => {
            grant(remotes, *last, *node, *by, *second);
        }
        Step::Grant(last, None) => {
            remotes.set_reservation("blue", ip(*last), None);
        }
    }
}

proptest! {
    /// ATT-06b: an address has one holder at most, in any order of events.
    ///
    /// That holder has a block or a reservation of it. Where the holder of the block says that it has the
    /// address, and it was granted to no other node, it is there.
    #[test]
    fn an_address_is_where_a_proof_says_in_any_order(steps in steps()) {
        let (with_history, anew) = (remotes(false), remotes(false));
        let mut last: BTreeMap<(u8, u8), &Step> = BTreeMap::new();
        for step in &steps {
            carry_out(&with_history, step);
            let key = match step {
                Step::Say(node, _) => (0, *node),
                Step::Take(block, _) => (1, *block),
                Step::Grant(low, _) => (2, *low),
            };
            last.insert(key, step);
        }
        // Backwards, so proofs come before claims.
        for step in last.values().rev() {
            carry_out(&anew, step);
        }
        prop_assert_eq!(with_history.endpoints(7), anew.endpoints(7));
        let block_of = |low: u8| match last.get(&(1, low / 16)) {
            Some(Step::Take(_, Some((node, _)))) => Some(*node),
            _ => None,
        };
        let reserved = |low: u8| match last.get(&(2, low)) {
            Some(Step::Grant(_, Some((node, ..)))) => Some(*node),
            _ => None,
        };
        for low in 0..40 {
            let Some(found) = holder(&anew, ip(low)) else { continue };
            let of_block = block_of(low).map(name);
            let of_reservation = reserved(low);
            let is_reserved = of_reservation.is_some_and(|node| node.is_none_or(|it| name(it) == found));
            prop_assert!(of_block.as_ref() == Some(&found) || is_reserved, "{low} at {found}");
            if of_reservation.is_none() {
                prop_assert_eq!(of_block, Some(found));
            }
        }
        proof::of!("ATT-06b");
    }
}
