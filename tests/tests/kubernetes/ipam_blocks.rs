//! Blocks of addresses: how long a node keeps them, and how small ones are shared.

use std::collections::BTreeSet;

use api::{IpBlock, Prefix};
use kube::api::{Api, DeleteParams, PostParams};
use testbed::{Pod, wait};

use super::agent_scene::AgentScene;
use super::ipam::add_all;
use super::ipam_scene::Nodes;

fn sandboxes<'a>(scene: &'a AgentScene, first: &str, count: usize) -> Vec<Pod<'a>> {
    let names = (0..count).map(|n| format!("{first}{n}"));
    names.map(|name| scene.node.pod(&name)).collect()
}

fn different(addresses: &[String]) -> usize {
    addresses.iter().collect::<BTreeSet<_>>().len()
}

/// How many blocks the agent says it has taken and given back since it began.
fn changes(scene: &AgentScene) -> [u64; 2] {
    let (_, metrics) = scene.node.http("/metrics").expect("the agent answers");
    ["taken", "given_back"].map(|change| {
        let name = format!("podnet_ipam_blocks_total{{change=\"{change}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |count| count.parse().expect("a number"))
    })
}

/// Waits until the agent has taken a block for a network whose name sorts last.
///
/// Then it has looked at the others after now.
fn after_a_round(scene: &AgentScene, short: &str) {
    scene.apply_network(short, &["10.59.0.0/24"], true);
    let before = changes(scene)[0];
    scene.make_pod_of(short, short);
    wait::until_true("another block", || changes(scene)[0] > before);
}

/// Purpose: the pod that comes next waits for no block.
///
/// A node that has just lost its only pod, or is just attaching its first, keeps the block.
#[test]
fn a_block_is_taken_once_while_pods_come_and_go() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "blocks-stay") else {
        return;
    };
    s.apply_network("blue", &["10.50.0.0/24"], true);
    for n in 0..4 {
        let name = format!("web-{n}");
        let uid = s.make_pod_of(&name, "blue");
        let sandbox = s.node.pod(&name);
        s.add_in_time(&sandbox, &name, &uid);
        s.del(&sandbox, &name, &uid).silent();
        s.delete_pod(&name);
        after_a_round(&s, &format!("z{n}"));
        assert_eq!(changes(&s), [2 + n, 0], "after pod {name}");
    }
}

/// Purpose: a block is there before the pod is, and its `ADD` needs no API server.
#[test]
fn the_first_pod_of_a_network_is_attached_without_the_api_server() {
    let Some(mut s) = AgentScene::start(testbed::test_name!(), "blocks-first") else {
        return;
    };
    s.apply_network("blue", &["10.51.0.0/24"], true);
    let uid = s.make_pod_of("web", "blue");
    after_a_round(&s, "z");
    assert_eq!(changes(&s)[0], 2);
    // The other half of taking it: the reservations were read.
    after_a_round(&s, "zz");
    s.door.close();
    let sandbox = s.node.pod("c1");
    s.add(&sandbox, "web", &uid).result();
    s.del(&sandbox, "web", &uid).silent();
    s.door.open_again();
}

/// Purpose: a node's spare block is no reason to refuse the pod of another.
#[test]
fn a_node_leaves_what_it_does_not_need_to_one_that_finds_nothing() {
    let test = testbed::test_name!();
    let start = |name| {
        let scene = AgentScene::prepare(test, name, &["--keep-blocks=40"])?;
        scene.node.start_agent();
        Some(scene)
    };
    let Some((one, two)) = start("blocks-leave-1").zip(start("blocks-leave-2")) else {
        return;
    };
    let s = Nodes { one, two };
    // Two addresses for pods.
    let network = s.network("blue", &["10.52.0.0/30"]);
    let here = sandboxes(&s.one, "c", 2);
    add_all(&s.one, &here, &network);
    for sandbox in here {
        sandbox.del(&network, "eth0").silent();
    }
    assert_eq!(s.holders(&network), [s.one.name.clone()].into());
    // This waits 30 s at most.
    let there = s.two.node.pod("d1");
    add_all(&s.two, std::slice::from_ref(&there), &network);
    there.del(&network, "eth0").silent();
}

/// Purpose: a small subnet is no single node's.
#[test]
fn two_nodes_attach_pods_to_a_subnet_of_sixteen_addresses() {
    let Some(s) = Nodes::start(testbed::test_name!(), "blocks-small") else {
        return;
    };
    let network = s.network("blue", &["10.53.0.0/28", "fd53::/124"]);
    let (here, there) = (sandboxes(&s.one, "a", 5), sandboxes(&s.two, "b", 5));
    let mut given = add_all(&s.one, &here, &network);
    given.extend(add_all(&s.two, &there, &network));
    assert_eq!((given.len(), different(&given)), (20, 20), "{given:?}");
    assert_eq!(
        s.holders(&network),
        [s.one.name.clone(), s.two.name.clone()].into()
    );
    for sandbox in here.into_iter().chain(there) {
        sandbox.del(&network, "eth0").silent();
    }
    for node in [&s.one, &s.two] {
        node.node.assert_empty();
    }
}

/// Purpose: blocks of another length remain from before a change of subnets.
///
#[test]
fn a_subnet_that_grows_and_shrinks_gives_no_address_twice() {
    let Some(s) = Nodes::start(testbed::test_name!(), "blocks-grow") else {
        return;
    };
    let network = s.network("blue", &["10.54.0.0/28"]);
    let first = sandboxes(&s.one, "a", 3);
    let mut given = add_all(&s.one, &first, &network);
    s.network("blue", &["10.54.0.0/24"]);
    for node in [&s.one, &s.two] {
        wait::until_true("the agent to know of the change", || {
            let networks = node.node.get("networks");
            let mut networks = networks.iter();
            networks.any(|it| it["name"] == network && it["subnets"][0] == "10.54.0.0/24")
        });
    }
    let (second, third) = (sandboxes(&s.one, "b", 15), sandboxes(&s.two, "c", 15));
    given.extend(add_all(&s.one, &second, &network));
    given.extend(add_all(&s.two, &third, &network));
    // An address beside those of the time before.
    s.network("blue", &["10.54.0.0/28"]);
    for node in [&s.one, &s.two] {
        wait::until_true("the agent to know of the change", || {
            let networks = node.node.get("networks");
            let mut networks = networks.iter();
            networks.any(|it| it["name"] == network && it["subnets"][0] == "10.54.0.0/28")
        });
    }
    let last = sandboxes(&s.two, "d", 2);
    given.extend(add_all(&s.two, &last, &network));
    let plain: Vec<String> = given
        .iter()
        .filter_map(|address| address.split('/').next().map(str::to_owned))
        .collect();
    assert_eq!((plain.len(), different(&plain)), (35, 35), "{given:?}");
    for sandbox in [first, second, third, last].into_iter().flatten() {
        sandbox.del(&network, "eth0").silent();
    }
    proof::of!("PAIN-IP-2");
}

/// Purpose: of two blocks with a common address the earlier one counts.
#[test]
fn a_block_with_a_part_of_anothers_is_not_given_from_and_goes() {
    let Some(s) = AgentScene::start(testbed::test_name!(), "blocks-part") else {
        return;
    };
    s.apply_network("blue", &["10.55.0.0/28"], true);
    let network = s.network("blue");
    let block = |cidr: &str, node: &str, uid: &str| {
        let cidr: Prefix = cidr.parse().expect("a block");
        let block = IpBlock::take(&network, cidr, node, uid).expect("a block");
        s.run(|client| async move {
            let blocks: Api<IpBlock> = Api::all(client);
            let made = blocks.create(&PostParams::default(), &block).await;
            made.expect("a block can be made").metadata
        })
    };
    // As an agent of the time before would take it.
    let all = block("10.55.0.0/28", "another-node", "u1");
    let sandbox = s.node.pod("c1");
    let refused = wait::until("the agent to look for a block", || {
        let outcome = sandbox.add(&network, "eth0");
        assert!(!outcome.success, "{outcome}");
        Some(outcome.error()).filter(|failure| failure.msg.contains("another-node"))
    });
    assert_eq!(refused.code, 11);
    // In the name of this node, as if both had been taken at the same moment.
    let uid = s.node_uid();
    let part = block("10.55.0.5/32", &s.name, &uid);
    let gone = |name: Option<String>| {
        let name = name.expect("a name");
        wait::until_true("a block to go", || {
            let name = name.as_str();
            let found =
                s.run(|client| async move { Api::<IpBlock>::all(client).get_opt(name).await });
            found.expect("blocks can be read").is_none()
        });
    };
    gone(part.name);
    let name = all.name.expect("a name");
    s.run(|client| async move {
        let blocks: Api<IpBlock> = Api::all(client);
        let deleted = blocks.delete(&name, &DeleteParams::default()).await;
        deleted.expect("a block can be deleted");
    });
    add_all(&s, std::slice::from_ref(&sandbox), &network);
    sandbox.del(&network, "eth0").silent();
}
