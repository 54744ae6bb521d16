//! Test the network that the nodes route for, in a cluster.
//!
//! Addresses are by `spec.podCIDRs`, and routes lead to the pods of other nodes. One test, because a
//! cluster has one such network.

use api::IpBlock;
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::host::connection;
use testbed::{Network, wait};

use super::agent_scene::{AgentScene, object};

/// Our number among those who make routes.
const PROTOCOL: u8 = 112;

impl AgentScene {
    fn patch_node(&self, name: &str, patch: &Value) {
        let patch = Patch::Merge(patch);
        self.run(|client| async move {
            let nodes: Api<ApiNode> = Api::all(client);
            let done = nodes.patch(name, &PatchParams::default(), &patch).await;
            done.expect("a node can be patched");
        });
    }

    /// The node has this `InternalIP` alone.
    fn move_node(&self, name: &str, address: &str) {
        let patch = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        let patch = Patch::Merge(&patch);
        self.run(|client| async move {
            let nodes: Api<ApiNode> = Api::all(client);
            let params = PatchParams::default();
            let done = nodes.patch_status(name, &params, &patch).await;
            done.expect("a node can be patched");
        });
    }

    /// Destination and next hop of each route to another node.
    fn routes(&self) -> Vec<String> {
        let routes = connection(self.node.netns()).routes_by(PROTOCOL);
        let routes = routes.expect("routes can be listed").into_iter();
        routes
            .filter_map(|it| Some(format!("{}/{} {}", it.dst, it.prefix_len, it.gateway?)))
            .collect()
    }

    #[track_caller]
    fn wait_routes(&self, expected: &[&str]) {
        wait::until_true(&format!("the routes {expected:?}"), || {
            self.routes() == expected
        });
    }

    fn unrouted(&self) -> bool {
        let (_, page) = self.node.http("/metrics").expect("a page of metrics");
        !page.lines().any(|line| line == "podnet_nodes_unrouted 0")
    }
}

/// Issue 4, default network `native`: each node gives addresses of its own part.
///
/// Others have routes to that part and to no single pod; routes follow the nodes.
#[test]
fn a_node_gives_addresses_of_its_pod_cidr_and_has_routes_to_those_of_the_other_nodes() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "routes") else {
        return;
    };
    let network = Network::l3(&s.network("white"), &["10.50.0.0/16"]).by_node();
    s.apply(&network.yaml());
    s.number(&network.name, 0x00a0_0001);

    // Nobody has given the node a part yet.
    let uid = s.make_pod_of("web", "white");
    let sandbox = s.node.pod("c1");
    let failure = wait::until("the agent to know of the network", || {
        let failure = s.add(&sandbox, "web", &uid).error();
        failure
            .msg
            .contains("routed by the node")
            .then_some(failure)
    });
    assert_eq!(failure.code, 11, "{failure:?}");
    failure.names(&["spec.podCIDRs", "10.50.0.0/16", "--allocate-node-cidrs"]);
    assert_eq!(sandbox.links(), Vec::<String>::new());

    let own = json!({"spec": {"podCIDR": "10.50.1.0/24", "podCIDRs": ["10.50.1.0/24"]}});
    s.patch_node(&s.name, &own);
    let result = s.add_in_time(&sandbox, "web", &uid);
    assert_eq!(result["ips"][0]["address"], "10.50.1.1/32", "not the first");
    let blocks = s.run(|client| async move {
        let params = ListParams::default().fields(&format!("spec.network={}", network.name));
        Api::<IpBlock>::all(client).list(&params).await
    });
    assert!(
        blocks.expect("a list").items.is_empty(),
        "blocks are not asked for"
    );
    // Others would not find it here.
    let asking = s.node.pod("c2");
    let mut conf = s.node.conf(&s.network("white"));
    conf["runtimeConfig"] = json!({"ips": ["10.50.2.9"]});
    let failure = asking.add_conf(&conf, "eth0").fails_with(102);
    failure.names(&["10.50.2.9", "10.50.1.0/24"]);

    let second = object::<ApiNode>(json!({
        "metadata": {"name": "routes-second"},
        "spec": {"podCIDR": "10.50.2.0/24", "podCIDRs": ["10.50.2.0/24", "fd00:50:2::/64"]},
    }));
    s.run(|client| async move {
        let nodes: Api<ApiNode> = Api::all(client);
        let made = nodes.create(&PostParams::default(), &second).await;
        made.expect("a node can be made");
    });
    wait::until_true("the node without an address to be noticed", || s.unrouted());
    assert_eq!(s.routes(), Vec::<String>::new());
    // A neighbour on the uplink.
    s.move_node("routes-second", "192.0.2.77");
    s.wait_routes(&["10.50.2.0/24 192.0.2.77"]);
    s.move_node("routes-second", "192.0.2.78");
    s.wait_routes(&["10.50.2.0/24 192.0.2.78"]);
    wait::until_true("all nodes to be reached", || !s.unrouted());
    // Behind a router, which knows no pods.
    s.move_node("routes-second", "198.51.100.7");
    s.wait_routes(&[]);
    wait::until_true("the distant node to be noticed", || s.unrouted());
    s.move_node("routes-second", "192.0.2.78");
    s.wait_routes(&["10.50.2.0/24 192.0.2.78"]);
    // What somebody removed is there again after a start, and with the node it goes.
    s.node.kill_9();
    let mut here = connection(s.node.netns());
    let routes = here.routes_by(PROTOCOL).expect("a list");
    let ours = routes.iter().find(|it| it.gateway.is_some());
    here.remove_route(ours.expect("a route")).expect("removed");
    s.node.start_agent();
    s.wait_routes(&["10.50.2.0/24 192.0.2.78"]);
    s.run(|client| async move {
        let nodes: Api<ApiNode> = Api::all(client);
        let gone = nodes
            .delete("routes-second", &DeleteParams::default())
            .await;
        gone.expect("a node can be deleted");
    });
    s.wait_routes(&[]);

    s.del(&sandbox, "web", &uid).silent();
    s.node.assert_empty();
    s.kubectl(&["delete", "podnetwork", &s.network("white"), "--wait=false"]);
}
