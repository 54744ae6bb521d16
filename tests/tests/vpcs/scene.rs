//! VPCs with two networks each, and pods on them.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;

use agent_common::drop::DropReason;
use serde_json::json;
use testbed::manifest::{Network, vpc};
pub(crate) use testbed::talk::socket;
use testbed::wait;
use testbed::{Node, Pod, Port, Setup, traffic};

/// Prefixes of each VPC: they are the same.
pub(crate) const CIDRS: [&str; 2] = ["10.64.0.0/12", "fd64::/16"];
/// Subnets of the first network of each VPC.
pub(crate) const FIRST: [&str; 2] = ["10.65.0.0/24", "fd64:65::/64"];
/// Subnets of the second one.
pub(crate) const SECOND: [&str; 2] = ["10.66.0.0/24", "fd64:66::/64"];

/// Datagrams that have to be dropped all.
const SENT: u64 = 20;

/// The networks of a VPC: `NAME-1` and `NAME-2`.
pub(crate) fn networks(name: &str) -> [Network; 2] {
    [(1, FIRST), (2, SECOND)]
        .map(|(number, subnets)| Network::l3(&format!("{name}-{number}"), &subnets).vpc(name))
}

/// The same with its first network in mode L2.
pub(crate) fn switched(name: &str) -> [Network; 2] {
    let [first, second] = networks(name);
    [
        Network {
            mode: "L2",
            ..first
        },
        second,
    ]
}

/// A node with these VPCs and their networks.
pub(crate) fn setup(vpcs: &[&str]) -> Setup {
    setup_of(vpcs, networks)
}

/// A node with these VPCs, and these networks of each.
pub(crate) fn setup_of(vpcs: &[&str], networks: fn(&str) -> [Network; 2]) -> Setup {
    let setup = Setup::empty().with_audits_logged();
    vpcs.iter().fold(setup, |setup, name| {
        let setup = setup.file(&format!("vpc-{name}.yaml"), &vpc(name, &CIDRS, &[]));
        networks(name).iter().fold(setup, Setup::network)
    })
}

/// A pod of namespace `default` with the label `app`.
pub(crate) fn app<'a>(node: &'a Node, app: &str, network: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(app);
    let mut conf = node.conf(network);
    conf["labels"] = json!({"app": app});
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={app}");
    let call = pod.call("ADD", "net1").env("CNI_ARGS", &args).conf(&conf);
    let result = call.run().result();
    let port = pod.port(network, "net1", result);
    (pod, port)
}

/// Waits until two pods reach each other: objects take a moment to be in force.
#[track_caller]
pub(crate) fn wait_reaches(a: &Port, b: &Port) {
    for (from, to) in traffic::pairs(a, b) {
        let there = socket(b, (to, 0).into());
        let here = socket(a, (from, 0).into());
        let to = there.local_addr().expect("an address");
        there
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a timeout");
        wait::until_true("the route to be in force", || {
            here.send_to(b"question", to).expect("a datagram");
            there.recv(&mut [0; 64]).is_ok()
        });
    }
    traffic::assert_reaches(a, b);
}

/// Asserts that datagrams of both families are dropped for this reason.
///
/// They are sent until one is, and none of them may arrive at `at`.
#[track_caller]
pub(crate) fn dropped(node: &Node, from: &Port, at: &Port, reason: DropReason) {
    for (own, to) in traffic::pairs(from, at) {
        let there = socket(at, (to, 0).into());
        let here = socket(from, (own, 0).into());
        let to = there.local_addr().expect("an address");
        let before = node.drops().of(&from.network, reason);
        wait::until_true(&format!("a drop for {reason}"), || {
            here.send_to(b"question", to).expect("a datagram");
            node.drops().of(&from.network, reason) > before
        });
        // Those before may have arrived, and no later one does.
        there.set_nonblocking(true).expect("a socket");
        while there.recv_from(&mut [0; 64]).is_ok() {}
        let before = node.drops().of(&from.network, reason);
        for _ in 0..SENT {
            here.send_to(b"question", to).expect("a datagram");
        }
        wait::until_true("all of them to be dropped", || {
            node.drops().of(&from.network, reason) >= before + SENT
        });
        let error = there.recv_from(&mut [0; 64]).expect_err("nothing arrives");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

/// Asserts that a datagram to an address that no member has is dropped.
#[track_caller]
pub(crate) fn dropped_at(node: &Node, from: &Port, to: IpAddr, reason: DropReason) {
    let own = if to.is_ipv4() {
        IpAddr::from(from.v4())
    } else {
        from.v6().into()
    };
    let here = socket(from, (own, 0).into());
    let before = node.drops().of(&from.network, reason);
    wait::until_true(&format!("a drop for {reason}"), || {
        here.send_to(b"question", (to, 9)).expect("a datagram");
        node.drops().of(&from.network, reason) > before
    });
}
