use std::{cell::Cell, collections::HashSet};

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn pool(prefix: &str, gateways: &[&str], excludes: &[&str]) -> Pool {
    let gateways: Vec<_> = gateways.iter().map(|text| ip(text)).collect();
    let excludes: Vec<_> = excludes.iter().map(|text| text.parse().unwrap()).collect();
    Pool::new(prefix.parse().unwrap(), &gateways, &excludes).unwrap()
}

/// Takes every address there is, in the order they are given.
fn drain(pool: &Pool) -> Vec<IpAddr> {
    let mut held = Vec::new();
    while let Some(address) = pool.next(&|address| held.contains(&address), held.last().copied()) {
        held.push(address);
    }
    held
}

fn texts(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

#[test]
fn an_ipv4_subnet_keeps_network_and_broadcast() {
    assert_eq!(
        texts(&drain(&pool("10.0.0.0/30", &[], &[]))),
        ["10.0.0.1", "10.0.0.2"]
    );
    let pool = pool("10.0.0.0/30", &[], &[]);
    assert_eq!(
        pool.reserved(ip("10.0.0.0")),
        Some(Reserved::NetworkAddress)
    );
    assert_eq!(pool.reserved(ip("10.0.0.3")), Some(Reserved::Broadcast));
    assert_eq!(pool.reserved(ip("10.0.0.1")), None);
}

/// RFC 3021: both ends of a /31 are hosts.
#[test]
fn a_31_has_two_addresses_and_a_32_has_one() {
    assert_eq!(
        texts(&drain(&pool("10.0.0.0/31", &[], &[]))),
        ["10.0.0.0", "10.0.0.1"]
    );
    assert_eq!(texts(&drain(&pool("10.0.0.7/32", &[], &[]))), ["10.0.0.7"]);
    assert_eq!(
        texts(&drain(&pool("255.255.255.254/31", &[], &[]))).len(),
        2
    );
}

/// RFC 4291 §2.6.1, RFC 6164 §5.
#[test]
fn an_ipv6_subnet_keeps_the_router_anycast_and_has_no_broadcast() {
    assert_eq!(
        texts(&drain(&pool("fd00::/126", &[], &[]))),
        ["fd00::1", "fd00::2", "fd00::3"]
    );
    assert_eq!(
        texts(&drain(&pool("fd00::/127", &[], &[]))),
        ["fd00::", "fd00::1"]
    );
    assert_eq!(texts(&drain(&pool("fd00::9/128", &[], &[]))), ["fd00::9"]);
    let pool = pool("fd00::/126", &[], &[]);
    assert_eq!(pool.reserved(ip("fd00::")), Some(Reserved::RouterAnycast));
    assert_eq!(pool.reserved(ip("fd00::3")), None);
}

#[test]
fn gateway_and_excludes_are_never_given() {
    let pool = pool(
        "10.0.0.0/28",
        &["10.0.0.1"],
        &["10.0.0.4/30", "10.0.0.9/32"],
    );
    assert_eq!(
        texts(&drain(&pool)),
        [
            "10.0.0.2",
            "10.0.0.3",
            "10.0.0.8",
            "10.0.0.10",
            "10.0.0.11",
            "10.0.0.12",
            "10.0.0.13",
            "10.0.0.14"
        ]
    );
    assert_eq!(pool.capacity(), 8);
    for (address, why) in [
        ("10.0.0.1", Reserved::Gateway),
        ("10.0.0.5", Reserved::Excluded),
        ("10.0.0.0", Reserved::NetworkAddress),
    ] {
        assert_eq!(
            pool.request(ip(address), &|_| false),
            Err(IpamError::Reserved {
                ip: ip(address),
                why
            })
        );
    }
}

#[test]
fn excludes_may_nest_overlap_and_cover_everything() {
    let pool = pool(
        "10.0.0.0/29",
        &["10.0.0.1"],
        &["10.0.0.0/29", "10.0.0.2/31", "10.0.0.2/32"],
    );
    assert_eq!((pool.capacity(), drain(&pool).len()), (0, 0));
}

#[test]
fn the_search_goes_on_after_the_last_and_round_at_the_end() {
    let pool = pool("10.0.0.0/29", &[], &[]);
    let next = |after: &str| pool.next(&|_| false, Some(ip(after)));
    assert_eq!(next("10.0.0.3"), Some(ip("10.0.0.4")));
    assert_eq!(next("10.0.0.6"), Some(ip("10.0.0.1")));
    assert_eq!(next("10.0.0.7"), Some(ip("10.0.0.1")));
    assert_eq!(next("10.0.0.0"), Some(ip("10.0.0.1")));
    // Of another subnet or family: from the beginning.
    assert_eq!(next("10.0.1.3"), Some(ip("10.0.0.1")));
    assert_eq!(next("fd00::3"), Some(ip("10.0.0.1")));
}

#[test]
fn a_released_address_is_not_given_at_once() {
    let pool = pool("10.0.0.0/29", &[], &[]);
    let held = HashSet::from([ip("10.0.0.1"), ip("10.0.0.2")]);
    let in_use = |address| held.contains(&address);
    // .3 was given last and has been released.
    assert_eq!(
        pool.next(&in_use, Some(ip("10.0.0.3"))),
        Some(ip("10.0.0.4"))
    );
    // It is given again when nothing else is left.
    assert_eq!(
        pool.next(&|a| a != ip("10.0.0.3"), Some(ip("10.0.0.3"))),
        Some(ip("10.0.0.3"))
    );
}

#[test]
fn the_edges_of_the_address_space_do_not_overflow() {
    let all_v6 = pool("::/0", &[], &[]);
    assert_eq!(all_v6.capacity(), u128::MAX);
    assert_eq!(
        all_v6.next(&|_| false, Some(IpAddr::V6(Ipv6Addr::from(u128::MAX)))),
        Some(ip("::1"))
    );
    assert_eq!(pool("::/0", &[], &["8000::/1"]).capacity(), (1 << 127) - 1);
    let half = pool("::/0", &["::1"], &["::/1", "ffff::/16"]);
    assert_eq!(
        half.next(&|_| false, Some(ip("ffff::1"))),
        Some(ip("8000::"))
    );
    let top = pool("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127", &[], &[]);
    assert_eq!(drain(&top).len(), 2);
    let all_v4 = pool("0.0.0.0/0", &[], &["128.0.0.0/1"]);
    assert_eq!(all_v4.capacity(), (1 << 31) - 1);
    assert_eq!(
        all_v4.next(&|_| false, Some(ip("255.255.255.255"))),
        Some(ip("0.0.0.1"))
    );
}

#[test]
fn an_excluded_range_is_one_step() {
    let pool = pool("fd00::/64", &["fd00::1"], &["fd00::/65"]);
    let asked = Cell::new(0);
    let in_use = |_| {
        asked.set(asked.get() + 1);
        false
    };
    assert_eq!(
        pool.next(&in_use, Some(ip("fd00::1"))),
        Some(ip("fd00::8000:0:0:0"))
    );
    assert_eq!(asked.get(), 1);
}

#[test]
fn a_hundred_thousand_leases_cost_one_question_each_way() {
    let pool = pool("10.0.0.0/8", &[], &[]);
    let mut held = HashSet::new();
    let mut last = None;
    let asked = Cell::new(0_u64);
    for _ in 0..100_000 {
        let in_use = |address| {
            asked.set(asked.get() + 1);
            held.contains(&address)
        };
        let address = pool.next(&in_use, last).unwrap();
        assert!(held.insert(address));
        last = Some(address);
    }
    assert_eq!(asked.get(), 100_000);
}

#[test]
fn a_pool_of_nonsense_is_refused() {
    let new = |prefix: &str, gateway: &str, exclude: &str| {
        Pool::new(
            prefix.parse().unwrap(),
            &[ip(gateway)],
            &[exclude.parse().unwrap()],
        )
    };
    assert!(new("10.0.0.0/24", "10.0.0.1", "10.0.0.8/29").is_ok());
    assert!(matches!(
        new("10.0.0.1/24", "10.0.0.1", "10.0.0.8/29"),
        Err(IpamError::HostBits { .. })
    ));
    for gateway in ["10.0.1.1", "fd00::1"] {
        let made = new("10.0.0.0/24", gateway, "10.0.0.8/29");
        assert!(
            matches!(made, Err(IpamError::GatewayOutside { .. })),
            "{gateway}"
        );
    }
    for exclude in ["10.0.0.0/23", "10.0.1.0/29", "fd00::/64"] {
        let made = new("10.0.0.0/24", "10.0.0.1", exclude);
        assert!(
            matches!(made, Err(IpamError::ExcludeOutside { .. })),
            "{exclude}"
        );
    }
}

/// Generates pools of at most 256 addresses, with excludes, perhaps a gateway.
fn small_pool() -> impl Strategy<Value = Pool> {
    let excludes = proptest::collection::vec((any::<u8>(), 24_u8..=32), 0..5);
    (
        any::<bool>(),
        24_u8..=32,
        proptest::option::of(any::<u8>()),
        excludes,
    )
        .prop_map(|(v4, len, gateway, excludes)| {
            let base: IpNet = if v4 {
                IpNet::new(ip("10.9.8.0"), len).unwrap()
            } else {
                IpNet::new(ip("fd00::"), len + 96).unwrap()
            };
            let inside = |low: u8, len: u8| {
                let first = number(base.network());
                let size = number(base.broadcast()) - first + 1;
                let number = first + u128::from(low) % size;
                let address = if v4 {
                    IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap()))
                } else {
                    IpAddr::V6(Ipv6Addr::from(number))
                };
                let len = len.max(base.prefix_len() - if v4 { 0 } else { 96 });
                IpNet::new(address, if v4 { len } else { len + 96 })
                    .unwrap()
                    .trunc()
            };
            let gateways: Vec<_> = gateway.iter().map(|&low| inside(low, 32).addr()).collect();
            let excludes: Vec<_> = excludes
                .iter()
                .map(|&(low, len)| inside(low, len))
                .collect();
            Pool::new(base, &gateways, &excludes).unwrap()
        })
}

proptest! {
    /// The pool gives the same addresses as a walk over all of them, one by one.
    #[test]
    fn what_is_given_is_exactly_what_is_not_reserved(pool in small_pool()) {
        let all = Range::of(&pool.prefix());
        let want: Vec<_> = (all.first..=all.last)
            .map(|number| pool.address(number))
            .filter(|&address| pool.reserved(address).is_none())
            .collect();
        prop_assert_eq!(&drain(&pool), &want);
        prop_assert_eq!(pool.capacity(), u128::try_from(want.len()).unwrap());
    }

    #[test]
    fn next_is_the_first_free_in_round_order(
        pool in small_pool(),
        held in proptest::collection::hash_set(any::<u8>(), 0..256),
        after: u8,
    ) {
        let all = Range::of(&pool.prefix());
        let size = all.last - all.first + 1;
        let low = |address: IpAddr| u8::try_from((number(address) - all.first) & 0xff).unwrap();
        let in_use = |address| held.contains(&low(address));
        let start = u128::from(after) % size;
        let want = (1..=size)
            .map(|step| pool.address(all.first + (start + step) % size))
            .find(|&address| pool.reserved(address).is_none() && !in_use(address));
        prop_assert_eq!(pool.next(&in_use, Some(pool.address(all.first + start))), want);
    }
}
