use serde_json::json;

use super::*;

fn runtime(bandwidth: &serde_json::Value) -> Limits {
    let conf = json!({
        "cniVersion": "1.1.0", "name": "n", "type": "podnet", "podNetwork": "blue",
        "runtimeConfig": {"bandwidth": bandwidth},
    });
    let conf = cni_spec::NetConf::parse(&conf.to_string(), cni_spec::Command::Add).unwrap();
    Limits::asked(conf.runtime.bandwidth.as_ref())
}

fn object(rate: Option<u64>, burst: Option<u64>) -> api::Bandwidth {
    let limit = api::Limit { rate, burst };
    api::Bandwidth {
        ingress: limit,
        egress: limit,
    }
}

fn words(limit: Option<Limit>) -> Option<(u64, Option<u64>, Source)> {
    limit.map(|limit| (limit.rate, limit.burst, limit.source))
}

#[test]
fn the_first_that_sets_a_direction_decides_it_and_its_burst() {
    use Source::{Attachment, Network, Runtime};
    let nothing = (None, None);
    for (asked, own, network, expected) in [
        (json!({}), nothing, nothing, None),
        (
            json!({}),
            nothing,
            (Some(5000), Some(7)),
            Some((5000, Some(7), Network)),
        ),
        (json!({}), nothing, (Some(0), None), None),
        (
            json!({}),
            (Some(4000), None),
            (Some(5000), Some(7)),
            Some((4000, None, Attachment)),
        ),
        (
            json!({}),
            (Some(4000), Some(9)),
            nothing,
            Some((4000, Some(9), Attachment)),
        ),
        // A burst alone refines the rate it is with.
        (
            json!({}),
            (None, Some(9)),
            (Some(5000), Some(7)),
            Some((5000, Some(9), Network)),
        ),
        // 0 in an object is an answer, 0 from a runtime is none.
        (json!({}), (Some(0), None), (Some(5000), None), None),
        (
            json!({"egressRate": 0}),
            nothing,
            (Some(5000), None),
            Some((5000, None, Network)),
        ),
        (json!({"egressRate": 0}), nothing, nothing, None),
        (
            json!({"egressRate": 3000}),
            (Some(4000), Some(9)),
            (Some(5000), Some(7)),
            Some((3000, None, Runtime)),
        ),
        (
            json!({"egressRate": 3000, "egressBurst": 1}),
            (Some(0), None),
            nothing,
            Some((3000, Some(1), Runtime)),
        ),
    ] {
        let (own, network) = (object(own.0, own.1), object(network.0, network.1));
        let limits = runtime(&asked).or(&own, &network);
        assert_eq!(
            words(limits.egress),
            expected,
            "{asked} {own:?} {network:?}"
        );
        // The other direction is decided by itself.
        let other = Limits::default().or(&own, &network);
        assert_eq!(limits.ingress, other.ingress);
    }
}

/// containerd sends `IngressBurst` 2^32 - 1 for every rate.
///
/// It sends zeroes for the other direction.
#[test]
fn what_containerd_sends_limits_one_direction_and_does_not_overflow() {
    let asked = runtime(&json!({
        "IngressRate": 1_000_000, "IngressBurst": u32::MAX, "EgressRate": 0, "EgressBurst": 0,
    }));
    let limits = asked.or(&api::Bandwidth::default(), &object(Some(8000), None));
    assert_eq!(
        words(limits.egress),
        Some((8000, None, Source::Network)),
        "not lifted by a zero"
    );
    let shape = limits.ingress.unwrap().shape(1500);
    assert_eq!((shape.rate, shape.burst), (125_000, 125_000));
    for burst in [1, 200, u64::from(u32::MAX) * 8, u64::MAX] {
        let asked = runtime(&json!({"ingressRate": api::RATE_MAX, "ingressBurst": burst}));
        let shape = asked.ingress.unwrap().shape(1500);
        assert!(shape.burst >= 2 * 1514, "{burst}: {shape:?}");
        assert_eq!(shape.rate, Shape::RATE_MAX);
    }
}

/// Words of the same rank do not know each other, so somebody has to look.
#[test]
fn objects_and_runtimes_may_ask_for_the_same_rates() {
    assert_eq!(api::RATE_MIN, cni_spec::RATE_MIN);
    assert_eq!(api::RATE_MAX, cni_spec::RATE_MAX);
}

#[test]
fn numbers_of_bits_are_shown_exactly() {
    for (bits, text) in [
        (0, "0 bit"),
        (999, "999 bit"),
        (1000, "1 kbit"),
        (1500, "1500 bit"),
        (100_000_000, "100 Mbit"),
        (2_500_000_000, "2500 Mbit"),
        (5_000_000_000, "5 Gbit"),
        (1_000_000_000_000_000, "1000 Tbit"),
    ] {
        assert_eq!(Bits(bits).to_string(), text);
    }
    let limit = Limit {
        rate: 100_000_000,
        burst: Some(200),
        source: Source::Runtime,
    };
    assert_eq!(limit.to_string(), "100 Mbit/s, burst 200 bit asked");
}

#[test]
fn every_rate_says_where_it_is_written() {
    let keys: std::collections::BTreeSet<_> =
        [Source::Runtime, Source::Attachment, Source::Network]
            .into_iter()
            .flat_map(|source| Direction::ALL.map(|direction| source.key(direction)))
            .collect();
    assert_eq!(keys.len(), 6);
    assert!(keys.iter().all(|key| key.contains("gressRate")));
}
