use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pool(prefix: &str) -> Pool {
    Pool::new(prefix.parse().unwrap(), &[], &[]).unwrap()
}

fn allocator(prefixes: &[&str]) -> Allocator {
    Allocator::new(prefixes.iter().map(|prefix| pool(prefix)).collect()).unwrap()
}

fn requests(texts: &[&str]) -> Vec<Request> {
    texts.iter().map(|text| ip(text).into()).collect()
}

fn given(leases: Result<Vec<Lease>, IpamError>) -> Vec<String> {
    leases.unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn one_address_of_each_family_in_the_order_of_the_subnets() {
    let mut dual = allocator(&["fd00::/64", "10.0.0.0/24", "10.0.1.0/24"]);
    assert_eq!(
        given(dual.allocate(&[], &|_| false)),
        ["fd00::1/64", "10.0.0.1/24"]
    );
    assert_eq!(
        given(dual.allocate(&[], &|_| false)),
        ["fd00::2/64", "10.0.0.2/24"]
    );
}

#[test]
fn a_network_without_subnets_gives_no_address() {
    let mut none = allocator(&[]);
    assert_eq!(none.allocate(&[], &|_| false), Ok(Vec::new()));
    assert!(matches!(
        none.allocate(&requests(&["10.0.0.1"]), &|_| false),
        Err(IpamError::OutOfSubnets { .. })
    ));
}

#[test]
fn the_next_subnet_of_the_family_is_used_when_the_first_is_full() {
    let mut two = allocator(&["10.0.0.0/31", "10.1.0.0/31"]);
    let mut held = HashSet::new();
    for want in ["10.0.0.0/31", "10.0.0.1/31", "10.1.0.0/31", "10.1.0.1/31"] {
        let leases = two.allocate(&[], &|address| held.contains(&address));
        held.extend(leases.iter().flatten().map(|lease| lease.address));
        assert_eq!(given(leases), [want]);
    }
    assert_eq!(
        two.allocate(&[], &|address| held.contains(&address)),
        Err(IpamError::Exhausted {
            family: Family::V4,
            subnets: vec![
                "10.0.0.0/31".parse().unwrap(),
                "10.1.0.0/31".parse().unwrap()
            ],
            in_use: 4,
        })
    );
}

#[test]
fn a_request_covers_its_family_and_the_other_stays_dynamic() {
    let mut dual = allocator(&["10.0.0.0/24", "fd00::/64"]);
    let leases = dual.allocate(&requests(&["10.0.0.42", "10.0.0.41"]), &|_| false);
    assert_eq!(
        given(leases),
        ["10.0.0.42/24", "10.0.0.41/24", "fd00::1/64"]
    );
    let leases = dual.allocate(&requests(&["fd00::42"]), &|_| false);
    assert_eq!(given(leases), ["10.0.0.1/24", "fd00::42/64"]);
}

#[test]
fn a_request_that_cannot_be_met_says_why() {
    let pools = vec![
        Pool::new("10.0.0.0/24".parse().unwrap(), &[ip("10.0.0.1")], &[]).unwrap(),
        pool("fd00::/64"),
    ];
    let mut network = Allocator::new(pools).unwrap();
    let mut refusal = |requests: &[Request]| {
        network
            .allocate(requests, &|address| address == ip("10.0.0.9"))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal(&requests(&["10.0.1.4"])),
        "10.0.1.4 is in none of the network's subnets (10.0.0.0/24, fd00::/64); request one inside"
    );
    assert_eq!(
        refusal(&requests(&["10.0.0.1"])),
        "10.0.0.1 is the gateway; request another address"
    );
    assert_eq!(
        refusal(&requests(&["10.0.0.9"])),
        "10.0.0.9 is held by another attachment; request another address"
    );
    assert_eq!(
        refusal(&requests(&["10.0.0.4", "10.0.0.4"])),
        "10.0.0.4 is requested twice; remove one"
    );
    let wide = Request {
        address: ip("10.0.0.4"),
        prefix_len: Some(16),
    };
    assert_eq!(
        refusal(&[wide]),
        "10.0.0.4/16 is not how the network has it; write 10.0.0.4/24, or leave the length out"
    );
}

#[test]
fn the_length_of_the_subnet_or_of_one_address_passes() {
    let mut network = allocator(&["10.0.0.0/24"]);
    for prefix_len in [None, Some(24), Some(32)] {
        let request = Request {
            address: ip("10.0.0.4"),
            prefix_len,
        };
        assert_eq!(
            given(network.allocate(&[request], &|_| false)),
            ["10.0.0.4/24"]
        );
    }
}

#[test]
fn a_failed_call_does_not_move_the_search() {
    let mut dual = allocator(&["10.0.0.0/24", "fd00::/127"]);
    assert!(dual.allocate(&[], &|address| address.is_ipv6()).is_err());
    assert_eq!(
        given(dual.allocate(&[], &|_| false)),
        ["10.0.0.1/24", "fd00::/127"]
    );
}

#[test]
fn pools_of_one_network_do_not_overlap() {
    let made = Allocator::new(vec![
        pool("10.0.0.0/24"),
        pool("fd00::/64"),
        pool("10.0.0.0/8"),
    ]);
    assert!(matches!(made, Err(IpamError::PoolsOverlap { .. })));
}

#[test]
fn a_lease_carries_the_gateway_of_its_subnet() {
    let gateway = ip("10.0.0.1");
    let pool = Pool::new("10.0.0.0/24".parse().unwrap(), &[gateway], &[]).unwrap();
    let leases = Allocator::new(vec![pool])
        .unwrap()
        .allocate(&[], &|_| false)
        .unwrap();
    assert_eq!(leases[0].gateway, Some(gateway));
}

#[derive(Clone, Debug)]
enum Step {
    /// Attach, with a request for the address of this low byte.
    Attach(Option<u8>),
    /// Detach the attachment of this place, modulo their number.
    Detach(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let attach = proptest::option::weighted(0.3, 0_u8..20).prop_map(Step::Attach);
    let detach = any::<usize>().prop_map(Step::Detach);
    proptest::collection::vec(prop_oneof![3 => attach, 2 => detach], 0..80)
}

proptest! {
    /// Any history over 13 IPv4 and 14 IPv6 addresses, against a list of holders.
    #[test]
    fn no_history_gives_an_address_to_two_holders(steps in steps()) {
        let gateway = ip("10.0.0.1");
        let pools = vec![
            Pool::new("10.0.0.0/28".parse().unwrap(), &[gateway], &[]).unwrap(),
            Pool::new("fd00::/124".parse().unwrap(), &[], &["fd00::8/128".parse().unwrap()])
                .unwrap(),
        ];
        let mut network = Allocator::new(pools).unwrap();
        let mut attachments: Vec<Vec<Lease>> = Vec::new();
        let mut released: Option<Vec<Lease>> = None;
        for step in steps {
            let held: HashSet<_> =
                attachments.iter().flatten().map(|lease| lease.address).collect();
            match step {
                Step::Detach(index) if !attachments.is_empty() => {
                    let index = index % attachments.len();
                    released = Some(attachments.remove(index));
                }
                Step::Detach(_) => {}
                Step::Attach(request) => {
                    let request = request.map(|low| ip(&format!("10.0.0.{low}")));
                    let wishes: Vec<Request> = request.into_iter().map(Request::from).collect();
                    match network.allocate(&wishes, &|address| held.contains(&address)) {
                        Ok(leases) => {
                            prop_assert_eq!(leases.len(), 2);
                            for (lease, pool) in leases.iter().zip(network.pools()) {
                                prop_assert!(!held.contains(&lease.address));
                                prop_assert!(pool.prefix().contains(&lease.address));
                                prop_assert_eq!(pool.reserved(lease.address), None);
                            }
                            if let Some(address) = request {
                                prop_assert_eq!(leases[0].address, address);
                            }
                            attachments.push(leases);
                        }
                        Err(IpamError::Exhausted { family, in_use, .. }) => {
                            let count = held.iter().filter(|&&a| Family::of(a) == family).count();
                            prop_assert_eq!(in_use, u128::try_from(count).unwrap());
                        }
                        Err(IpamError::Held { ip }) => prop_assert!(held.contains(&ip)),
                        Err(IpamError::Reserved { ip, .. }) => {
                            prop_assert!(network.pools()[0].reserved(ip).is_some());
                        }
                        Err(IpamError::OutOfSubnets { ip, .. }) => {
                            prop_assert!(!network.pools()[0].prefix().contains(&ip));
                        }
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
            }
        }
        // What was released can be asked for again, by name.
        if let Some(leases) = released {
            let held: HashSet<_> =
                attachments.iter().flatten().map(|lease| lease.address).collect();
            if leases.iter().all(|lease| !held.contains(&lease.address)) {
                let wishes: Vec<Request> = leases.iter().map(|l| l.address.into()).collect();
                let again = network.allocate(&wishes, &|address| held.contains(&address));
                prop_assert_eq!(again, Ok(leases));
            }
        }
    }
}
