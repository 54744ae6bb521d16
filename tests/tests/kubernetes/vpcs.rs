//! Have nodes of a cluster hear of the members that they are only routed to.

use serde_json::{Value, json};
use testbed::manifest::{Network, vpc};
use testbed::wait;

use super::agent_scene::AgentScene;
use super::slices;

/// A network of a VPC that spans nodes, of this number.
fn network(scene: &AgentScene, short: &str, subnet: &str, (vpc, number): (&str, u32)) -> String {
    let name = scene.network(short);
    scene.apply(&Network::l3(&name, &[subnet]).vxlan().vpc(vpc).yaml());
    scene.number(&name, number);
    name
}

/// The networks of a VPC, as an agent shows them.
fn networks(scene: &AgentScene, vpc: &str) -> Vec<String> {
    let rows = scene.node.get("vpcs").into_iter();
    let row = rows.into_iter().find(|row| row["name"] == vpc);
    let networks = row.map_or(json!([]), |row| row["networks"].clone());
    serde_json::from_value(networks).expect("names")
}

/// No node has ports of both, and each hears of the other's; of another VPC none.
#[test]
fn nodes_hear_of_members_of_the_networks_that_theirs_are_routed_to() {
    let Some(s) = slices::start(testbed::test_name!(), "vpcs", 29) else {
        return;
    };
    let (own, other) = (s.one.network("shop"), s.one.network("bank"));
    for name in [&own, &other] {
        s.one.apply(&vpc(name, &["10.64.0.0/12"], &[]));
    }
    let web = network(&s.one, "web", "10.65.0.0/24", (&own, 0x00b9_0001));
    let data = network(&s.one, "data", "10.66.0.0/24", (&own, 0x00b9_0002));
    let strange = network(&s.one, "strange", "10.66.0.0/24", (&other, 0x00b9_0003));
    for node in [&s.one, &s.two] {
        wait::until_true("the VPC to have its networks", || {
            let mut found = networks(node, &own);
            found.sort();
            let mut expected = vec![web.clone(), data.clone()];
            expected.sort();
            found == expected
        });
    }
    let web_uid = s.pod(&s.one, "web", &web, &json!({}));
    let data_uid = s.pod(&s.two, "data", &data, &json!({}));
    let strange_uid = s.pod(&s.two, "strange", &strange, &json!({}));
    let one = s.one.node.pod("c1");
    let (two, three) = (s.two.node.pod("c2"), s.two.node.pod("c3"));
    let of_web = s.add(&s.one, &one, "web", &web_uid);
    let of_data = s.add(&s.two, &two, "data", &data_uid);
    s.add(&s.two, &three, "strange", &strange_uid);
    let (node_1, node_2) = (s.one.name.as_str(), s.two.name.as_str());
    slices::wait_remote(&s.one, &[[&data, node_2, slices::plain(&of_data)]]);
    slices::wait_remote(&s.two, &[[&web, node_1, slices::plain(&of_web)]]);
    // With its last pod a node hears of nobody any more.
    s.del(&s.one, &one, "web", &web_uid);
    slices::wait_remote(&s.two, &[]);
    slices::wait_remote(&s.one, &[]);
    s.del(&s.two, &two, "data", &data_uid);
    s.del(&s.two, &three, "strange", &strange_uid);
}

/// ARK-01, ARKX-02, ARKX-03, ARKX-07: NICs of Arktos, with a Port for one of them.
#[test]
fn nics_of_a_pod_are_on_networks_of_its_vpc_and_one_may_be_a_port() {
    let Some(s) = AgentScene::prepare(testbed::test_name!(), "nics", &[]) else {
        return;
    };
    s.node.start_agent();
    let vpc_name = s.network("shop");
    s.apply(&vpc(&vpc_name, &["10.80.0.0/12"], &[]));
    let [web, data] = [("web", "10.81.0.0/24"), ("data", "10.82.0.0/24")].map(|(short, subnet)| {
        let name = s.network(short);
        s.apply_as(&Network::l3(&name, &[subnet]).vpc(&vpc_name));
        name
    });
    s.apply_network("strange", &["10.83.0.0/24"], true);
    let port = json!({
        "apiVersion": "podnet.dev/v1alpha1", "kind": "Port",
        "metadata": {"name": "db-0", "namespace": s.name},
        "spec": {"network": data, "macRequest": "02:00:00:00:0a:0a"},
    });
    s.apply(&port.to_string());
    let make = |name: &str, vpc: &str, nics: Value| {
        let nics = nics.to_string();
        s.make_pod(name, &[("podnet.dev/vpc", vpc), ("podnet.dev/nics", &nics)])
    };
    let nics = json!([{"subnetName": web, "ipAddress": "10.81.0.9"},
        {"name": "store", "subnetName": data, "portId": "db-0", "tag": "x"}]);
    let uid = make("web", &vpc_name, nics);
    let sandbox = s.node.pod("c1");
    s.add_in_time(&sandbox, "web", &uid);
    let mut found: Vec<Value> = s.node.get("attachments");
    found.sort_by_key(|it| it["ifname"].to_string());
    let shown: Vec<_> = found
        .iter()
        .map(|it| (it["ifname"].clone(), it["network"].clone()))
        .collect();
    assert_eq!(
        shown,
        [(json!("eth0"), json!(web)), (json!("store"), json!(data))]
    );
    assert_eq!(found[0]["ips"][0], "10.81.0.9/32");
    assert_eq!(found[1]["mac"], "02:00:00:00:0a:0a");
    s.del(&sandbox, "web", &uid).silent();

    for (name, vpc, network) in [
        ("outside", vpc_name.as_str(), s.network("strange")),
        ("another", "no-such-vpc", web),
    ] {
        let uid = make(name, vpc, json!([{"subnetName": network}]));
        let sandbox = s.node.pod(name);
        let refused = wait::until("the networks to be known", || {
            let refused = s.add(&sandbox, name, &uid).error();
            (refused.code == 7).then_some(refused)
        });
        refused.names(&[&network, "is not of Vpc", vpc]);
    }
    proof::of!("ARK-01", "ARKX-02", "ARKX-03", "ARKX-07");
}
