//! Test members of two nodes in a cluster, by slices in a real API server.
//!
//! Packets to them are tested in `across`.

use std::net::IpAddr;

use api::{IpBlock, PodNetworkEndpointSlice};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use netdev::Address;
use serde_json::{Value, json};
use testbed::host::{UPLINK, connection};
use testbed::{Network, wait};

use super::agent_scene::AgentScene;
use super::ipam_scene::Nodes;

/// Starts two agents, which tunnels reach by addresses of their uplinks.
///
/// Their Nodes have these. An address of the underlay is one Node's in the cluster, so each test has its
/// own `underlay`.
pub(super) fn start(test: &str, name: &str, underlay: u8) -> Option<Nodes> {
    let start = |number: u8| {
        let vtep = IpAddr::from([198, 18, underlay, 10 + number]);
        let args = ["--keep-blocks=1", "--vtep", &vtep.to_string()];
        let scene = AgentScene::prepare(test, &format!("{name}-{number}"), &args)?;
        add_address(&scene, vtep);
        scene.be_reached_by(&[&vtep.to_string()]);
        scene.node.start_agent();
        Some(scene)
    };
    Some(Nodes {
        one: start(1)?,
        two: start(2)?,
    })
}

fn add_address(scene: &AgentScene, address: IpAddr) {
    let mut here = connection(scene.node.netns());
    let uplink = here.by_name(UPLINK).expect("links can be read");
    let uplink = uplink.expect("the uplink").ifindex;
    here.add_address(uplink, Address::new(address, 24))
        .expect("an address for the uplink");
}

/// Makes a network that spans nodes, of this number.
pub(super) fn vxlan(scene: &AgentScene, short: &str, subnet: &str, number: u32) -> String {
    let name = scene.network(short);
    scene.apply(&Network::l2(&name, &[subnet]).vxlan().yaml());
    scene.number(&name, number);
    name
}

/// The slices of a network, by name, as an administrator sees them.
pub(super) fn slices(scene: &AgentScene, network: &str) -> Vec<PodNetworkEndpointSlice> {
    let params = ListParams::default().fields(&format!("spec.network={network}"));
    let list = scene.run(|client| async move {
        let slices: Api<PodNetworkEndpointSlice> = Api::all(client);
        slices.list(&params).await
    });
    list.expect("slices can be listed").items
}

/// Nodes and addresses of what the slices of a network say.
fn said(scene: &AgentScene, network: &str) -> Vec<(String, String)> {
    let mut said: Vec<(String, String)> = slices(scene, network)
        .into_iter()
        .flat_map(|slice| {
            let (node, endpoints) = (slice.spec.node, slice.spec.endpoints);
            let ips = endpoints.into_iter().flat_map(|it| it.ips);
            ips.map(move |ip| (node.clone(), ip)).collect::<Vec<_>>()
        })
        .collect();
    said.sort();
    said
}

fn wait_said(scene: &AgentScene, network: &str, expected: &[(&str, &str)]) {
    wait::until_true(&format!("slices of {network} to say {expected:?}"), || {
        let said = said(scene, network);
        let said = said.iter().map(|(node, ip)| (node.as_str(), ip.as_str()));
        said.eq(expected.iter().copied())
    });
}

/// Members on other nodes, as an agent shows them: network, node and first address.
pub(super) fn remote(scene: &AgentScene) -> Vec<[String; 3]> {
    let all = scene.node.get("endpoints").into_iter();
    let mut remote: Vec<[String; 3]> = all
        .filter(|row| row["place"] == "remote")
        .map(|row| {
            [&row["network"], &row["node"], &row["ips"][0]]
                .map(|it| it.as_str().unwrap_or_default().to_owned())
        })
        .collect();
    remote.sort();
    remote
}

pub(super) fn wait_remote(scene: &AgentScene, expected: &[[&str; 3]]) {
    wait::until_true(&format!("{expected:?} to be known"), || {
        remote(scene)
            == expected
                .iter()
                .map(|it| it.map(str::to_owned))
                .collect::<Vec<_>>()
    });
}

/// An address without its length.
pub(super) fn plain(addresses: &[String]) -> &str {
    let first = addresses.first().expect("an address");
    first.split('/').next().unwrap_or(first)
}

/// Issue 5: each node publishes endpoints, and nodes of the network watch them.
#[test]
fn nodes_hear_of_each_others_members_and_of_those_who_left() {
    let Some(s) = start(testbed::test_name!(), "slices", 1) else {
        return;
    };
    let blue = vxlan(&s.one, "blue", "10.80.0.0/24", 0x00a1_0001);
    let red = vxlan(&s.one, "red", "10.81.0.0/24", 0x00a1_0002);
    let one_uid = s.pod(&s.one, "one", &blue, &json!({}));
    let two_uid = s.pod(&s.two, "two", &blue, &json!({}));
    let three_uid = s.pod(&s.one, "three", &red, &json!({}));
    let (one, two) = (s.one.node.pod("c1"), s.two.node.pod("c2"));
    let three = s.one.node.pod("c3");
    let of_one = s.add(&s.one, &one, "one", &one_uid);
    let of_three = s.add(&s.one, &three, "three", &three_uid);
    let (node_1, node_2) = (s.one.name.as_str(), s.two.name.as_str());
    wait_said(&s.one, &blue, &[(node_1, plain(&of_one))]);
    wait_said(&s.one, &red, &[(node_1, plain(&of_three))]);
    // No member here: of no use.
    assert!(remote(&s.two).is_empty());

    let of_two = s.add(&s.two, &two, "two", &two_uid);
    wait_remote(&s.two, &[[&blue, node_1, plain(&of_one)]]);
    wait_remote(&s.one, &[[&blue, node_2, plain(&of_two)]]);
    let slice = slices(&s.one, &blue)
        .into_iter()
        .find(|it| it.spec.node == node_2);
    let slice = slice.expect("a slice of the second node");
    assert_eq!(slice.spec.vteps, ["198.18.1.12"]);
    assert_eq!(slice.spec.network_id, 0x00a1_0001);
    let labels = slice.metadata.labels.expect("labels");
    assert_eq!(labels["podnet.dev/network"], blue);
    assert_eq!(labels["podnet.dev/node"], node_2);

    s.del(&s.two, &two, "two", &two_uid);
    wait_remote(&s.one, &[]);
    // The last member leaves no slice.
    wait::until_true("the slice to go", || {
        slices(&s.one, &blue)
            .iter()
            .all(|slice| slice.spec.node == node_1)
    });
    s.del(&s.one, &one, "one", &one_uid);
    s.del(&s.one, &three, "three", &three_uid);
    wait_said(&s.one, &blue, &[]);
    wait_said(&s.one, &red, &[]);
}

/// An agent restores its slices after others' writes and at its start.
#[test]
fn what_somebody_else_did_to_the_slices_of_a_node_is_put_right() {
    let Some(s) = start(testbed::test_name!(), "slices-mend", 2) else {
        return;
    };
    let blue = vxlan(&s.one, "blue", "10.82.0.0/24", 0x00a2_0001);
    let one_uid = s.pod(&s.one, "one", &blue, &json!({}));
    let two_uid = s.pod(&s.two, "two", &blue, &json!({}));
    let (one, two) = (s.one.node.pod("c1"), s.two.node.pod("c2"));
    let of_one = s.add(&s.one, &one, "one", &one_uid);
    let of_two = s.add(&s.two, &two, "two", &two_uid);
    let (node_1, node_2) = (s.one.name.clone(), s.two.name.clone());
    wait_remote(&s.two, &[[&blue, &node_1, plain(&of_one)]]);
    let slice = format!("{blue}.{node_1}.0");
    let own = || {
        let all = slices(&s.one, &blue);
        all.into_iter().find(|it| it.spec.node == node_1)
    };
    let claim = || own().map(|it| it.spec.endpoints).unwrap_or_default();
    let before = own().expect("the slice of the node");

    s.one
        .kubectl(&["delete", "podnetworkendpointslice", &slice]);
    let second =
        json!({"mac": "02:00:00:00:00:99", "ips": ["10.82.0.99"], "since": "2026-01-02T03:04:05Z"});
    wait::until_true("the slice to be made again", || {
        own().is_some_and(|now| now.metadata.uid != before.metadata.uid)
    });
    wait_remote(&s.two, &[[&blue, &node_1, plain(&of_one)]]);
    let patch = json!({"spec": {"endpoints": [second]}});
    s.run_patch(&slice, &patch);
    wait::until_true("the slice to say what is there", || {
        let (now, then) = (claim(), &before.spec.endpoints);
        now.iter()
            .map(|it| &it.mac)
            .eq(then.iter().map(|it| &it.mac))
    });
    wait_remote(&s.two, &[[&blue, &node_1, plain(&of_one)]]);

    // A start is no change: the claims are those of before.
    let before = claim();
    s.one.node.kill_9();
    s.one.node.start_agent();
    wait_remote(&s.one, &[[&blue, &node_2, plain(&of_two)]]);
    let three_uid = s.pod(&s.one, "three", &blue, &json!({}));
    let three = s.one.node.pod("c3");
    s.add(&s.one, &three, "three", &three_uid);
    wait::until_true("the third to be said", || claim().len() == 2);
    assert!(claim().contains(&before[0]));
    for (pod, sandbox, uid) in [("one", &one, &one_uid), ("three", &three, &three_uid)] {
        s.del(&s.one, sandbox, pod, uid);
    }
    s.del(&s.two, &two, "two", &two_uid);
}

impl Nodes {
    fn run_patch(&self, slice: &str, patch: &Value) {
        self.one.run(|client| async move {
            let slices: Api<PodNetworkEndpointSlice> = Api::all(client);
            let patch = Patch::Merge(patch);
            let patched = slices.patch(slice, &PatchParams::default(), &patch).await;
            patched.expect("a slice can be patched");
        });
    }
}

/// Issue 5: no window in which two nodes both claim it.
///
/// Here a finalizer keeps a slice from being removed, so its address is not free for other nodes; an
/// address of another network is, meanwhile.
#[test]
fn a_block_is_given_back_after_its_addresses_were_withdrawn() {
    let Some(s) = start(testbed::test_name!(), "slices-order", 3) else {
        return;
    };
    let held = vxlan(&s.one, "held", "10.83.0.0/28", 0x00a3_0001);
    let free = vxlan(&s.one, "free", "10.84.0.0/28", 0x00a3_0002);
    let held_uid = s.pod(&s.one, "held", &held, &json!({}));
    let free_uid = s.pod(&s.one, "free", &free, &json!({}));
    let (of_held, of_free) = (s.one.node.pod("c1"), s.one.node.pod("c2"));
    let addresses = s.add(&s.one, &of_held, "held", &held_uid);
    s.add(&s.one, &of_free, "free", &free_uid);
    let slice = format!("{held}.{}.0", s.one.name);
    wait::until_true("the slice", || slices(&s.one, &held).len() == 1);
    s.run_patch(
        &slice,
        &json!({"metadata": {"finalizers": ["tests.podnet.dev/held"]}}),
    );
    for (pod, sandbox, uid) in [("held", &of_held, &held_uid), ("free", &of_free, &free_uid)] {
        s.del(&s.one, sandbox, pod, uid);
        s.one.delete_pod(pod);
    }
    wait::until_true("the block of the other network to be given back", || {
        blocks(&s.one, &free).is_empty()
    });
    // Those that were taken ahead have no member, and go at any time.
    let block = addresses[0].replace("/28", "/32");
    let has_address = |it: &IpBlock| it.spec.cidr == block;
    assert!(
        blocks(&s.one, &held).iter().any(has_address),
        "others could have {block}"
    );
    s.run_patch(&slice, &json!({"metadata": {"finalizers": null}}));
    wait::until_true("the block to be given back", || {
        blocks(&s.one, &held).is_empty()
    });
    assert!(slices(&s.one, &held).is_empty());
}

fn blocks(scene: &AgentScene, network: &str) -> Vec<IpBlock> {
    let params = ListParams::default().fields(&format!("spec.network={network}"));
    let list = scene.run(|client| async move { Api::<IpBlock>::all(client).list(&params).await });
    list.expect("blocks can be listed").items
}

/// A `Node` that has its tunnel addresses needs no option for them.
#[test]
fn tunnels_reach_a_node_by_its_internal_addresses_and_without_any_the_network_is_refused() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "slices-node") else {
        return;
    };
    let blue = vxlan(&s, "blue", "10.85.0.0/24", 0x00a4_0001);
    let uid = s.make_pod_of("web", "blue");
    let sandbox = s.node.pod("c1");
    wait::until_true("the network to be refused for it", || {
        let refused = s.add(&sandbox, "web", &uid);
        assert!(!refused.success, "{refused}");
        refused.error().msg.contains("--vtep")
    });
    s.be_reached_by(&["192.0.2.1", "2001:db8::1"]);
    s.add_in_time(&sandbox, "web", &uid);
    wait::until_true("the slice", || slices(&s, &blue).len() == 1);
    assert_eq!(
        slices(&s, &blue)[0].spec.vteps,
        ["192.0.2.1", "2001:db8::1"]
    );
    s.del(&sandbox, "web", &uid).silent();
}

/// `deploy/base/agent-policy.yaml`: an agent writes slices of its own node only.
///
/// An attacker with its rights says nothing in the name of another node, and hides nothing that one says.
#[test]
fn an_agent_writes_slices_of_its_own_node_only() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "policy-slices", &[]) else {
        return;
    };
    let make = |node: &str| {
        let spec = json!({
            "network": "policy-slices", "networkID": 7, "node": node, "vteps": ["192.0.2.1"],
            "endpoints": [{"mac": "02:00:00:00:00:01", "since": "2026-01-02T03:04:05Z"}],
        });
        let spec = serde_json::from_value(spec).expect("a spec");
        PodNetworkEndpointSlice::numbered(0, spec).expect("a slice")
    };
    let refused = |what: &str, done: Result<(), kube::Error>, words: &str| match done {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            assert!(status.message.contains(words), "{what}: {status:?}");
        }
        other => panic!("{what}: {other:?}"),
    };
    const OWN: &str = "slices of its own node only";
    s.run(|admin| async {
        let agent: Api<PodNetworkEndpointSlice> = Api::all(s.as_agent().await);
        let admin: Api<PodNetworkEndpointSlice> = Api::all(admin);
        let params = PostParams::default();
        let (mut own, foreign) = (make(&s.name), make("another-node"));
        let probe = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        // A policy is in force a moment after it was made.
        let in_force = async {
            while agent.create(&probe, &foreign).await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let in_force = tokio::time::timeout(wait::PATIENCE, in_force).await;
        in_force.expect("the policy is in force");
        let stolen = agent.create(&params, &foreign).await.map(drop);
        refused("made for another", stolen, OWN);
        own.metadata.labels = None;
        let hidden = agent.create(&params, &own).await.map(drop);
        refused("made without labels", hidden, "labels");
        let own = agent
            .create(&params, &make(&s.name))
            .await
            .expect("its own");
        let foreign = admin.create(&params, &foreign).await.expect("another's");
        let change = |mut slice: PodNetworkEndpointSlice| {
            slice.spec.vteps = vec!["192.0.2.66".to_owned()];
            slice
        };
        let names = [&own, &foreign].map(|it| it.metadata.name.clone().expect("a name"));
        let written = agent
            .replace(&names[0], &params, &change(own.clone()))
            .await;
        let written = written.expect("its own is written");
        let mut unlabelled = written.clone();
        unlabelled.metadata.labels =
            Some([("podnet.dev/network".to_owned(), "x".to_owned())].into());
        let hidden = agent
            .replace(&names[0], &params, &unlabelled)
            .await
            .map(drop);
        refused("written with other labels", hidden, "labels");
        let stolen = agent
            .replace(&names[1], &params, &change(foreign))
            .await
            .map(drop);
        refused("written for another", stolen, OWN);
        let gone = agent
            .delete(&names[1], &DeleteParams::default())
            .await
            .map(drop);
        refused("deleted for another", gone, OWN);
        agent
            .delete(&names[0], &DeleteParams::default())
            .await
            .expect("its own goes");
        admin
            .delete(&names[1], &DeleteParams::default())
            .await
            .expect("another's goes");
    });
}
