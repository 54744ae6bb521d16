use std::sync::Arc;

use api::Mode;
use book::record::PodIdentity;
use book::samples::{key, network, numbered, record};
use cni_spec::FollowRequest;

use super::*;
use crate::explain::question::Question;

const SUBNETS: [(&str, &str); 2] = [("10.10.0.0/24", ""), ("fd10:10::/64", "")];

fn attached(name: &str, id: u32, container: &str, ifname: &str, pod: &str) -> Attachment {
    let on = numbered(network(name, Mode::L2, &SUBNETS), id);
    let mut made = record(&on, |wanted| wanted.key = key(container, ifname));
    made.mac = MacAddr([2, 0, 0, 0, 0, u8::try_from(id % 100).unwrap()]);
    made.pod = Some(PodIdentity {
        namespace: "shop".to_owned(),
        name: pod.to_owned(),
        uid: None,
    });
    made
}

/// Two attachments of one pod, one of another, and a member elsewhere.
fn known() -> Directory {
    let peer = Peer {
        node: "node-2".to_owned(),
        vteps: vec!["192.0.2.2".parse().unwrap()],
    };
    let far = RemoteEndpoint {
        mac: MacAddr([2, 0, 0, 0, 9, 9]),
        ips: vec!["10.10.0.99".parse().unwrap()],
        peer: Arc::new(peer.clone()),
        pod: None,
    };
    Directory {
        here: vec![
            attached("blue", 1001, "0123456789ab", "net1", "web"),
            attached("red", 1002, "0123456789ab", "net2", "web"),
            attached("blue", 1001, "fedcba987654", "net1", "db"),
        ],
        there: vec![(1001, far)],
        peers: vec![peer],
        networks: [("blue".to_owned(), 1001), ("red".to_owned(), 1002)].into(),
    }
}

fn find(text: &str) -> Result<Found, ExplainError> {
    let request = FollowRequest {
        from: text.to_owned(),
        to: "10.0.0.1".to_owned(),
        ..FollowRequest::default()
    };
    known().find(&Question::read(&request).unwrap().from)
}

fn name(text: &str) -> String {
    known().name(&find(text).unwrap())
}

#[test]
fn whoever_is_meant_is_found_by_every_form() {
    for (text, expected) in [
        ("fedcba987654", "fedcba987654/net1 (shop/db) on this node"),
        ("fedcba", "fedcba987654/net1 (shop/db) on this node"),
        (
            "0123456789ab/net2",
            "0123456789ab/net2 (shop/web) on this node",
        ),
        ("shop/db", "fedcba987654/net1 (shop/db) on this node"),
        ("shop/web:net2", "0123456789ab/net2 (shop/web) on this node"),
        ("red/10.10.0.1", "0123456789ab/net2 (shop/web) on this node"),
        (
            "red/02:00:00:00:00:02",
            "0123456789ab/net2 (shop/web) on this node",
        ),
        (
            "red/fe80::ff:fe00:2",
            "0123456789ab/net2 (shop/web) on this node",
        ),
        ("blue/10.10.0.99", "02:00:00:00:09:09 on node-2"),
        ("blue/10.10.0.77", "10.10.0.77"),
        ("10.10.0.1", "10.10.0.1"),
    ] {
        assert_eq!(name(text), expected, "{text}");
    }
    let found = find("blue/10.10.0.77").unwrap();
    assert!(found.member.is_none() && found.network == Some(1001));
}

#[test]
fn whoever_is_not_meant_clearly_is_an_error_with_what_could_be() {
    for (text, words) in [
        (
            "shop/web",
            &[
                "--from shop/web is several",
                "0123456789ab/net1",
                "0123456789ab/net2",
            ][..],
        ),
        ("0123456789ab", &["several", "0123456789ab/net2"]),
        ("01234", &["no attachment", "fedcba987654/net1"]),
        ("shop/cart", &["no attachment", "known here", "shop/db"]),
        ("green/10.10.0.1", &["no network", "blue, red"]),
    ] {
        let error = find(text).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}

#[test]
fn an_address_is_looked_for_on_other_networks_too() {
    let known = known();
    let address = Address::read("10.10.0.99").unwrap();
    let said = known.elsewhere(1002, address);
    assert_eq!(
        said.as_deref(),
        Some("on blue it is 02:00:00:00:09:09 on node-2")
    );
    assert_eq!(known.elsewhere(1001, address), None);
}

#[test]
fn an_endpoint_is_told_by_who_is_there() {
    let known = known();
    let at = |ifindex, flags| {
        let endpoint = Endpoint {
            ifindex,
            flags,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            port_id: 0,
        };
        let vtep = Vtep::new(&known.peers[0].vteps[0].into(), 3);
        known.endpoint(&endpoint, (ifindex == 5).then_some(&vtep))
    };
    for (text, words) in [
        (at(7, 0), "0123456789ab/net1"),
        (at(8, 0), "no attachment"),
        (at(0, ENDPOINT_GATEWAY), "the virtual gateway"),
        (at(5, ENDPOINT_REMOTE), "node-2 (192.0.2.2)"),
        (at(6, ENDPOINT_REMOTE), "number 6, which no node has"),
    ] {
        assert!(text.contains(words), "{text}");
    }
}
