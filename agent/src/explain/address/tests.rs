use api::Mode;
use book::samples::{network, record};
use cni_spec::FollowRequest;

use super::*;
use crate::explain::question::{Named, Party};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_first_pair_of_one_family_is_taken() {
    let (sources, destinations) = (
        [ip("fd10::2"), ip("10.0.0.2")],
        [ip("10.0.0.9"), ip("fd10::9")],
    );
    let v4 = Some((ip("10.0.0.2"), ip("10.0.0.9")));
    let v6 = Some((ip("fd10::2"), ip("fd10::9")));
    for (family, expected) in [(None, v4), (Some(true), v4), (Some(false), v6)] {
        assert_eq!(pair(&sources, &destinations, family), expected);
    }
    assert_eq!(pair(&sources[..1], &destinations[..1], None), None);
    assert_eq!(pair(&sources[..1], &destinations, None), v6);
    assert_eq!(
        pair(&sources, &destinations, None).map(|it| it.0),
        Some(ip("10.0.0.2"))
    );
}

#[test]
fn a_pod_asks_for_the_neighbour_on_its_link_and_else_for_the_router() {
    let subnets = [("10.10.0.0/24", "10.10.0.1"), ("fd10:10::/64", "")];
    let switched = record(&network("blue", Mode::L2, &subnets), |_| {});
    let hop = |to: &str| next_hop(&switched, ip(to)).0;
    assert_eq!(hop("10.10.0.9"), ip("10.10.0.9"));
    assert_eq!(hop("fe80::9"), ip("fe80::9"));
    assert!(next_hop(&switched, ip("192.0.2.1")).1.contains("no route"));
    let leading = record(&network("blue", Mode::L2, &subnets), |wanted| {
        wanted.default_gateway = true.into();
    });
    assert_eq!(next_hop(&leading, ip("192.0.2.1")).0, ip("10.10.0.1"));
    let routed = record(&network("green", Mode::L3, &subnets), |_| {});
    for (to, gateway) in [
        ("10.10.0.9", "10.10.0.1"),
        ("192.0.2.1", "10.10.0.1"),
        ("fd10:10::9", "fe80::1"),
    ] {
        assert_eq!(next_hop(&routed, ip(to)).0, ip(gateway), "{to}");
    }
}

#[test]
fn the_last_address_of_a_switched_subnet_is_for_all() {
    let subnets = [("10.10.0.0/24", "")];
    let switched = record(&network("blue", Mode::L2, &subnets), |_| {});
    assert!(is_broadcast(&switched, ip("10.10.0.255")));
    assert!(!is_broadcast(&switched, ip("10.10.0.254")));
    let routed = record(&network("green", Mode::L3, &subnets), |_| {});
    assert!(!is_broadcast(&routed, ip("10.10.0.255")));
}

/// The ends of a packet of an attachment `10.10.0.1`, `fd10:10::1`.
fn asked(request: &FollowRequest, to: Option<Member>) -> Result<Ends, ExplainError> {
    let question = Question::read(request).unwrap();
    let on = network(
        "blue",
        Mode::L2,
        &[("10.10.0.0/24", ""), ("fd10:10::/64", "")],
    );
    let address = |place: &Party| match place.named {
        Named::Address(address) | Named::OnNetwork(_, address) => Some(address),
        Named::Container(_) | Named::Pair(..) => None,
    };
    let from = Found {
        network: Some(1001),
        member: Some(Member::Here(Box::new(record(&on, |_| {})))),
        address: address(&question.from),
    };
    let to = Found {
        network: None,
        member: to,
        address: address(&question.to),
    };
    ends(&question, &from, &to)
}

#[test]
fn a_packet_has_the_addresses_that_were_written_and_else_the_first_that_fit() {
    let on = network(
        "blue",
        Mode::L2,
        &[("10.10.0.0/24", ""), ("fd10:10::/64", "")],
    );
    let other = || Some(Member::Here(Box::new(record(&on, |_| {}))));
    let request = |from: &str, to: &str, proto: Option<&str>, source: Option<&str>| FollowRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        proto: proto.map(ToOwned::to_owned),
        source: source.map(ToOwned::to_owned),
        ..FollowRequest::default()
    };
    for (from, to, proto, source, expected) in [
        ("c1", "c2", None, None, ["10.10.0.1", "10.10.0.1"]),
        ("c1", "c2", Some("nd"), None, ["fd10:10::1", "fd10:10::1"]),
        (
            "blue/fd10:10::1",
            "c2",
            None,
            None,
            ["fd10:10::1", "fd10:10::1"],
        ),
        (
            "c1",
            "c2",
            None,
            Some("fd10:10::77"),
            ["fd10:10::77", "fd10:10::1"],
        ),
        ("c1", "10.10.0.9", None, None, ["10.10.0.1", "10.10.0.9"]),
        (
            "c1",
            "ff:ff:ff:ff:ff:ff",
            None,
            None,
            ["10.10.0.1", "255.255.255.255"],
        ),
    ] {
        let ends = asked(&request(from, to, proto, source), other()).unwrap();
        assert_eq!(ends.addresses, Some(expected.map(ip).into()), "{from} {to}");
    }
    let far = asked(&request("c1", "fe80::9", None, None), None).unwrap();
    let (source, _) = far.addresses.unwrap();
    assert_eq!(source, IpAddr::V6(far.mac.link_local()));
    let unknown = asked(&request("c1", "02:00:00:00:00:09", None, None), None).unwrap();
    assert_eq!(unknown.proto, Proto::Ether(EXPERIMENT));
    assert!(asked(&request("c1", "02:00:00:00:00:09", Some("tcp"), None), None).is_err());
    assert!(asked(&request("c1", "10.10.0.9", Some("nd"), None), None).is_err());
}
