//! `IPBlock` and `IPReservation`: to create the object is to take the addresses.

use api::{ClaimHolder, Holder, IpBlock, IpReservation};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::objects::{self, Objects};

/// The fields besides the metadata.
fn rest(object: &impl serde::Serialize) -> Value {
    let value = serde_json::to_value(object).expect("an object is JSON");
    json!({ "spec": value["spec"] })
}

fn claim(uid: &str) -> Holder {
    Holder::Claim(ClaimHolder {
        namespace: "vms".to_owned(),
        name: "vm-a.blue".to_owned(),
        uid: uid.to_owned(),
    })
}

/// Addresses are unique in the cluster.
#[test]
fn of_two_nodes_that_want_a_block_one_gets_it() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let blocks: Api<IpBlock> = Api::all(client);
        let params = PostParams::default();
        for (first, second) in [
            ("10.20.0.1/28", "10.20.0.14/28"),
            ("fd20::1/124", "fd20::f/124"),
            ("10.20.0.16/28", "10.20.0.16/32"),
        ] {
            let of = |block: &str, node| {
                let block = block.parse().expect("a block");
                IpBlock::take("race", block, node, "u1").expect("a block")
            };
            let (one, other) = (of(first, "n1"), of(second, "n2"));
            let (one, other) =
                tokio::join!(blocks.create(&params, &one), blocks.create(&params, &other));
            let (winner, loser) = if one.is_ok() {
                (one, other)
            } else {
                (other, one)
            };
            let held = winner.expect("one node gets the block").spec.node;
            match loser {
                Err(kube::Error::Api(status)) => assert_eq!(status.reason, "AlreadyExists"),
                other => panic!("{held} holds the block, and: {other:?}"),
            }
        }
    });
    proof::of!("PAIN-IP-2");
}

/// A block has one name, or it could be taken twice.
#[test]
fn an_object_that_is_not_named_after_its_addresses_is_refused() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let blocks = Objects::all::<IpBlock>(&client);
        let spec =
            |cidr: &str| json!({"network": "a.b", "cidr": cidr, "node": "n1", "nodeUID": "u1"});
        for (name, cidr) in [
            ("a.b.10-0-0-16", "10.0.0.16/28"),
            ("a.b.fd00-0-0-0-0-0-0-10", "fd00::10/124"),
            // Of a small subnet.
            ("a.b.10-0-0-16", "10.0.0.16/32"),
            ("a.b.10-0-0-20", "10.0.0.20/30"),
            ("a.b.fd00-0-0-0-0-0-0-12", "fd00::12/127"),
        ] {
            blocks.try_spec(name, &spec(cidr)).await.unwrap();
        }
        for (name, cidr) in [
            ("a.b.10-0-0-17", "10.0.0.16/28"),
            ("a.10-0-0-16", "10.0.0.16/28"),
            ("a.b.c.10-0-0-16", "10.0.0.16/28"),
            ("a.b.10.0.0.16", "10.0.0.16/28"),
            ("a.b.10-0-0-016", "10.0.0.16/28"),
            ("a.b.fd00--10", "fd00::10/124"),
            ("a.b.fd00-0-0-0-0-0-0-010", "fd00::10/124"),
            ("a.b.fd00-0-0-0-0-0-0-20", "fd00::10/124"),
            ("a.b.fd00-0-0-0-0-0-16", "fd00::10/124"),
            ("a.b.10-0-0-0", "10.0.0.0/24"),
            ("a.b.10-0-0-0", "10.0.0.0/27"),
            ("a.b.10-0-0-17", "10.0.0.17/28"),
            ("a.b.10-0-0-16", "10.0.0.17/32"),
            ("a.b.fd00-0-0-0-0-0-0-0", "fd00::/123"),
            ("a.b.10-0-0-16", "10.0.0.16"),
        ] {
            let answer = blocks.try_spec(name, &spec(cidr)).await;
            assert!(answer.is_err(), "{name} was taken for {cidr}");
        }
    });
}

#[test]
fn the_longest_names_there_are_can_be_taken() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let blocks = Objects::all::<IpBlock>(&client);
        let reservations = Objects::all::<IpReservation>(&client);
        let network = "a".repeat(213);
        let address = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        let block = IpBlock::take(&network, api::Prefix::from(address), "n1", "u1").unwrap();
        let name = block.metadata.name.clone().unwrap();
        blocks.try_spec(&name, &rest(&block)["spec"]).await.unwrap();
        let reservation = IpReservation::ask(&network, address, claim("c1")).unwrap();
        let name = reservation.metadata.name.clone().unwrap();
        reservations
            .try_spec(&name, &rest(&reservation)["spec"])
            .await
            .unwrap();
    });
}

#[test]
fn a_node_finds_its_own_blocks_and_those_of_a_network() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let blocks = Objects::all::<IpBlock>(&client);
        for (network, address, node) in [
            ("select-1", "10.0.0.0/28", "select-n1"),
            ("select-1", "10.0.0.16/28", "select-n2"),
            ("select-2", "10.0.0.0/28", "select-n1"),
        ] {
            let block = IpBlock::take(network, address.parse().unwrap(), node, "u1").unwrap();
            let name = block.metadata.name.clone().unwrap();
            blocks.create(&name, rest(&block)).await.unwrap();
        }
        let of_network = blocks.names("spec.network=select-1").await;
        assert_eq!(of_network, ["select-1.10-0-0-0", "select-1.10-0-0-16"]);
        let of_node = blocks.names("spec.node=select-n1").await;
        assert_eq!(of_node, ["select-1.10-0-0-0", "select-2.10-0-0-0"]);
    });
}

#[test]
fn a_block_keeps_its_holder_and_its_status_is_separate() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let blocks = Objects::all::<IpBlock>(&client);
        let block = IpBlock::take("kept", "10.0.0.0/28".parse().unwrap(), "n1", "u1").unwrap();
        let name = block.metadata.name.clone().unwrap();
        blocks.create(&name, rest(&block)).await.unwrap();
        for change in [json!({"node": "n2"}), json!({"nodeUID": "u2"})] {
            let answer = blocks.merge(&name, json!({ "spec": change })).await;
            assert!(answer.expect_err("another holder").contains("is immutable"));
        }
        let status = json!({"used": 16, "reclaimAfter": "2026-01-02T03:04:05Z"});
        let now = blocks.merge_status(&name, status).await.unwrap();
        assert_eq!(now["status"]["used"], 16);
        assert!(
            blocks
                .merge_status(&name, json!({"used": 17}))
                .await
                .is_err()
        );
    });
}

/// NPWG-8.0: an address is the claim's, or one pod's.
#[test]
fn an_address_is_reserved_once_for_a_pod_or_a_claim() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let reservations = Objects::all::<IpReservation>(&client);
        let ask = |uid| IpReservation::ask("once", "fd00::7".parse().unwrap(), claim(uid)).unwrap();
        let name = "once.fd00-0-0-0-0-0-0-7";
        reservations.create(name, rest(&ask("c1"))).await.unwrap();
        let again = reservations.create(name, rest(&ask("c2"))).await;
        assert!(
            again
                .expect_err("held by another")
                .contains("already exists")
        );

        let pod = json!({"namespace": "a", "name": "p", "uid": "p1", "node": "n1"});
        let of = json!({"namespace": "a", "name": "c", "uid": "c1"});
        for (address, more, fits) in [
            ("10.0.0.7", json!({ "pod": pod }), true),
            ("10.0.0.7", json!({ "claim": of }), true),
            ("10.0.0.7", json!({"pod": pod, "claim": of}), false),
            ("10.0.0.7", json!({}), false),
            ("10.0.0.8", json!({ "pod": pod }), false),
            ("::ffff:10.0.0.7", json!({ "pod": pod }), false),
        ] {
            let mut spec = json!({"network": "one", "address": address});
            for (key, value) in more.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            let answer = reservations.try_spec("one.10-0-0-7", &spec).await;
            assert_eq!(answer.is_ok(), fits, "{spec}: {answer:?}");
        }
    });
    proof::of!("NPWG-8.0");
}
