//! Test the status of `Vpc`s.

use serde_json::json;

use super::super::objects::kubectl;
use super::objects::{Cluster, Name, until};
use super::set;

#[test]
fn a_vpc_tells_how_many_networks_it_has_and_which_peer_is_not_in_force() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let vpc: Name<'_> = ("Vpc", "", "vpc-status");
        let spec = json!({"cidrs": ["10.64.0.0/12"], "peers": [{"vpc": "vpc-status-peer"}]});
        cluster.create(vpc, json!({ "spec": spec })).await;
        cluster
            .wait_condition(vpc, "Ready", "False", "PeerNotFound")
            .await;
        let peer: Name<'_> = ("Vpc", "", "vpc-status-peer");
        let spec = json!({"cidrs": ["10.80.0.0/16"], "peers": [{"vpc": "vpc-status"}]});
        cluster.create(peer, json!({ "spec": spec })).await;
        for name in [vpc, peer] {
            cluster.wait_condition(name, "Ready", "True", "Ready").await;
        }
        let name = "vpc-status-web";
        let subnet = json!({"mode": "L3", "subnets": ["10.65.0.0/24"], "vpc": "vpc-status"});
        cluster.parameters(name, subnet).await;
        cluster.network(name).await;
        until("the VPC to have the network", async || {
            let found = cluster.get(vpc).await?;
            (found["status"]["networks"] == 1).then_some(())
        })
        .await;
        let output = kubectl(server, &["get", "vpcs", "vpc-status"]);
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        let heads: Vec<&str> = table
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            heads[..4],
            ["NAME", "CIDRS", "NETWORKS", "READY"],
            "{table}"
        );
        // A network that is outside of its VPC says so itself.
        let name = "vpc-status-outside";
        let outside = json!({"mode": "L3", "subnets": ["192.168.0.0/24"], "vpc": "vpc-status"});
        cluster.parameters(name, outside).await;
        cluster.network(name).await;
        cluster
            .wait_condition(("PodNetwork", "", name), "Ready", "False", "ParamsNotReady")
            .await;
        let said = cluster.get(("PodNetwork", "", name)).await;
        let said = said.expect("the network")["status"].to_string();
        assert!(said.contains("SubnetOutsideVpc"), "{said}");
    });
    proof::of!("DES-02");
}
