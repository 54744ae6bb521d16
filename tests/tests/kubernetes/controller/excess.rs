//! A node that takes more blocks of a network than its pods can need.

use std::sync::OnceLock;

use api::IpBlock;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Error, ResourceExt as _};
use serde_json::json;

use super::super::agent_scene::{self, AgentScene};
use super::objects::{Cluster, until};
use super::set;

/// A node of the cluster that the controller watches, with the rights of `deploy`.
fn node(test: &str, name: &str) -> Option<AgentScene> {
    if testbed::skip::without_root(test) {
        return None;
    }
    let scene = set(test)?;
    static GRANTED: OnceLock<()> = OnceLock::new();
    GRANTED.get_or_init(|| agent_scene::grant(scene.server));
    Some(AgentScene::prepare_on(scene, name, &[]))
}

/// UIDs of the blocks of a network that a node has, by their names.
async fn blocks(client: &Client, network: &str, node: &str) -> Vec<(String, String)> {
    let all: Api<IpBlock> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("spec.network={network},spec.node={node}"));
    let found = all.list(&params).await.expect("blocks can be listed");
    let name = |block: IpBlock| (block.name_any(), block.uid().unwrap_or_default());
    found.items.into_iter().map(name).collect()
}

/// ATT-06e: a node keeps no more blocks than its pods can need.
///
/// With the credentials of its agent a node takes all blocks of a network that are left. Those that its
/// pods cannot need are taken back, so the pods of another node get addresses; that one's own blocks
/// stay.
#[test]
fn a_node_keeps_no_more_blocks_of_a_network_than_its_pods_can_need() {
    let test = testbed::test_name!();
    let (Some(honest), Some(attacker)) = (node(test, "excess-honest"), node(test, "excess-taker"))
    else {
        return;
    };
    let network = "excess";
    honest.run(async |client| {
        let cluster = Cluster::new(client);
        // These nodes have no addresses for tunnels.
        let local = json!({"subnets": ["10.60.0.0/22"], "transport": {"type": "Local"}});
        cluster.parameters(network, local).await;
        cluster.network(network).await;
        let name = ("PodNetwork", "", network);
        cluster.wait_condition(name, "Ready", "True", "Ready").await;
    });
    honest.node.start_agent();
    let list = json!([{"name": network}]).to_string();
    let annotations = [("podnet.dev/networks", list.as_str())];
    let sandboxes: Vec<_> = (0..20)
        .map(|index| honest.node.pod(&format!("c{index}")))
        .collect();
    let attach = |index: usize| {
        let name = format!("web{index}");
        let uid = honest.make_pod(&name, &annotations);
        honest.add_in_time(&sandboxes[index], &name, &uid);
    };
    attach(0);
    let before = honest.run(async |client| blocks(&client, network, &honest.name).await);
    assert!(!before.is_empty());

    let uid = attacker.node_uid();
    let take_all = || {
        attacker.run(async |_| {
            let all: Api<IpBlock> = Api::all(attacker.as_agent().await);
            let (mut taken, mut refused) = (0, 0);
            for index in 0..64 {
                let cidr = format!("10.60.{}.{}/28", index / 16, index % 16 * 16);
                let cidr = cidr.parse().expect("a block");
                let block = IpBlock::take(network, cidr, &attacker.name, &uid).expect("a block");
                match all.create(&PostParams::default(), &block).await {
                    Ok(_) => taken += 1,
                    Err(Error::Api(status)) if status.code == 409 => {}
                    Err(Error::Api(status)) if status.message.contains("no further block") => {
                        refused += 1;
                    }
                    Err(error) => panic!("{cidr}: {error}"),
                }
            }
            (taken, refused)
        })
    };
    let (taken, _) = take_all();
    assert!(taken >= 50, "{taken}");

    // More than fit into the block that it had, while the other takes what becomes free.
    let mut refused = 0;
    std::thread::scope(|scope| {
        let attached = scope.spawn(|| (1..20).for_each(attach));
        while !attached.is_finished() {
            refused += take_all().1;
        }
        attached.join().expect("the pods are attached");
    });
    assert!(refused > 0);
    attacker.run(async |client| {
        until(
            "the node without pods to have no more than three",
            async || {
                let left = blocks(&client, network, &attacker.name).await.len();
                (left <= 3).then_some(())
            },
        )
        .await;
        let after = blocks(&client, network, &honest.name).await;
        assert!(
            before.iter().all(|block| after.contains(block)),
            "{before:?} {after:?}"
        );
        assert!(after.len() > before.len(), "{after:?}");
        let cluster = Cluster::new(client);
        let words = [network, attacker.name.as_str(), "may have 3"];
        until("an Event of the node", async || {
            let events = cluster.list("Event", "default").await;
            let is_it = |event: &serde_json::Value| {
                let note = event["note"].as_str().unwrap_or_default();
                event["reason"] == "TooManyBlocks" && words.iter().all(|word| note.contains(word))
            };
            events.iter().any(is_it).then_some(())
        })
        .await;
    });
    proof::of!("ATT-06e");
}
