//! Measure traffic of another node to socket ports, with and without XDP steering.

use std::time::Duration;

use anyhow::{Context, Result};
use netdev::{Netns, Offloads};
use tempfile::TempDir;
use testbed::host::{UPLINK, connection};
use testbed::{Fabric, Network, Node, Setup};

use super::sockets::{NETWORK, alternate, ask, to_application, with_sockets};
use super::{Bench, Known, Run, names, wait_promoted};
use crate::peers::{Spot, meet};
use crate::report::Case;
use crate::sandbox::Side;

/// The gain of the way past the node's stack.
pub(super) const CASE: Known = Known {
    name: "steer",
    title: "From another node to ports that are sockets",
    about: "Two nodes on a veth link that gives finished packets, as a wire does; VXLAN over IPv4, MTU 1450 \
            inside. A UDP socket of a kernel's pod on one node sends as fast as it goes to an application \
            on the other CPU, in a pod on the other node, or asks it and waits for the answer. XDP on the \
            uplink gives it the frame (`--xdp-steer always`), or leaves it to the node's stack and \
            the kernel's tunnel device, with native XDP and without. On a veth the kernel makes an skb \
            of every packet before XDP sees it; hardware does not.",
    run: Run::Alone(run),
};

const MTU: u16 = 1450;
/// For tables, and bytes of payload.
const SIZES: [(&str, usize); 2] = [("64 B", 18), ("1450 B", 1450 - 28)];
/// Names of the ways, with the options of their agents.
const WAYS: [(&str, [&str; 4]); 3] = [
    ("steered", ["--xdp", "native", "--xdp-steer", "always"]),
    (
        "by the stack, native XDP",
        ["--xdp", "native", "--xdp-steer", "never"],
    ),
    (
        "by the stack, no XDP",
        ["--xdp", "off", "--xdp-steer", "never"],
    ),
];
/// Kinds of ports, and their applications.
const KINDS: [(&str, &str, &str); 2] = [("AF_XDP", "afxdp", "af-xdp"), ("memif", "memif", "memif")];

fn run(bench: &Bench<'_>, case: &mut Case) -> Result<()> {
    let subjects = KINDS.map(|(kind, ..)| format!("{kind}, {}", WAYS[0].0));
    case.subjects = names(&subjects.each_ref().map(String::as_str));
    bench.progress.stage("setting up");
    let mut grounds = Vec::new();
    for (_, options) in WAYS {
        grounds.push(Ground::start(&options)?);
    }
    let mut pods = Vec::new();
    let mut spots = Vec::new();
    for ((way, _), Ground { nodes, .. }) in WAYS.iter().zip(&grounds) {
        let [here, there] = nodes;
        let (asker, probe) = (here.pod("asker"), there.pod("probe"));
        let kernel = asker.attach(NETWORK, "net1");
        for (kind, object, application) in KINDS {
            let pod = there.pod(object);
            let port = pod.attach_conf(&there.attachment_conf(NETWORK, object), "net1");
            let who = format!("{kind}, {way}");
            spots.push(Spot::of_podnet(&who, application, &port, &kernel));
            pods.push(pod);
        }
        // Who is heard of last has been told of last.
        let probed = probe.attach(NETWORK, "net1");
        meet(&Side::of_port(&kernel), &Side::of_port(&probed))?;
        wait_promoted(here)?;
        wait_promoted(there)?;
        pods.extend([asker, probe]);
    }
    let time = Duration::from_millis(bench.size(800, 150));
    alternate(bench, case, &spots, |spot, round, case| {
        for size in SIZES {
            to_application(spot, round, time, size, case)?;
        }
        ask(spot, round, time, SIZES[0].1, case)
    })
}

/// Two nodes that tell each other of their pods.
struct Ground {
    nodes: [Node; 2],
    _files: TempDir,
}

impl Ground {
    fn start(options: &[&str]) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let shared = files.path().to_str().context("a path in UTF-8")?;
        let mut number = 0;
        let nodes = Fabric::pair().map(|host| {
            number += 1;
            let vtep = Fabric::v4_of_pair(number).to_string();
            // Each node gives half of the addresses.
            let others = if number == 1 { 128 } else { 0 };
            let network = Network::l2(NETWORK, &["10.10.0.0/24"])
                .exclude(&[&format!("10.10.0.{others}/25")])
                .id(2001)
                .mtu(MTU.into())
                .vxlan();
            let setup = Setup::empty()
                .named(&format!("node-{number}"))
                .args(&["--vtep", &vtep, "--endpoints", shared])
                .args(options)
                .network(&network);
            Node::start_on(with_sockets(setup), host)
        });
        for node in &nodes {
            finish_packets(node.netns())?;
        }
        Ok(Self {
            nodes,
            _files: files,
        })
    }
}

/// Has a node's end of the link give what it sends as a wire would have it.
fn finish_packets(netns: &Netns) -> Result<()> {
    let uplink = connection(netns).by_name(UPLINK)?.context("the uplink")?;
    netns.run_in(|| Offloads::open()?.finish_packets(uplink.ifindex))??;
    Ok(())
}
