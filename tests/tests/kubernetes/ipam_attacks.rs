//! Test attacks of a node on addresses of others.

use api::{IpBlock, IpReservation};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::wait;

use super::agent_scene::AgentScene;
use super::ipam_scene::Nodes;

/// ATT-06d: a grant of a node without the block gives no address.
///
/// Any node may write that it grants an address. The address may be in use where the block is.
#[test]
fn a_grant_of_a_node_that_does_not_hold_the_block_gives_no_address() {
    let Some(s) = Nodes::start(testbed::test_name!(), "ipam-forged") else {
        return;
    };
    let name = "ipam-forged-3";
    let Some(attacker) = AgentScene::prepare(testbed::test_name!(), name, &[]) else {
        return;
    };
    let network = s.network("blue", &["10.46.0.0/24"]);
    // The block is of a node that does not answer, for example because it is cut off.
    let block = "10.46.0.240/28".parse().expect("a block");
    let block = IpBlock::take(&network, block, "away", "u1").expect("a block");
    s.one.run(|client| async {
        let blocks: Api<IpBlock> = Api::all(client);
        let made = blocks.create(&PostParams::default(), &block).await;
        made.expect("the block of another node");
    });
    let (uid, sandbox) = (
        s.pod(&s.one, "web", &network, &json!({"ips": ["10.46.0.241"]})),
        s.one.node.pod("c1"),
    );
    let granted = json!({"status": {"conditions": [{
        "type": "Granted", "status": "True", "reason": "Granted",
        "message": format!("by node {name}"), "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]}});
    let reserved = ListParams::default().fields(&format!("spec.network={network}"));
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            wait::until("an ADD that is told of the forged grant", || {
                let outcome = s.call(&s.one, "ADD", &sandbox, "web", &uid);
                assert!(!outcome.success, "{outcome}");
                let told = outcome.error().msg;
                told.contains("holds the block").then_some(told)
            })
        });
        while !asked.is_finished() {
            attacker.run(|_| async {
                let all: Api<IpReservation> = Api::all(attacker.as_agent().await);
                let found = all.list(&reserved).await.expect("reservations can be read");
                for reservation in found.items {
                    let name = reservation.metadata.name.expect("a name");
                    let patch = Patch::Merge(&granted);
                    // It may have been given up meanwhile, and an answer is given once.
                    let _ = all
                        .patch_status(&name, &PatchParams::default(), &patch)
                        .await;
                }
            });
        }
        let told = asked.join().expect("the ADD was answered");
        assert!(told.contains(name) && told.contains("away"), "{told}");
    });
    s.one.node.assert_empty();
    proof::of!("ATT-06d");
}
