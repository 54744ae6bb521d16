//! Nodes with AF_XDP ports.

use std::path::PathBuf;

use serde_json::Value;
use testbed::manifest::attachment;
use testbed::{Node, Pod, Setup, traffic};

pub(crate) use testbed::afxdp::{Echo, in_pod, open, open_by};

/// Returns the standard networks, with attachments whose ports are of AF_XDP.
///
/// `fast-blue` has one queue, `wide-blue` has four.
pub(crate) fn setup() -> Setup {
    let object = |name: &str, network: &str, queues: u16| {
        let spec = format!("{{interface: {{type: AFXDP, queues: {queues}}}}}");
        attachment(name, network, &spec)
    };
    Setup::default()
        .file("fast-blue.yaml", &object("fast-blue", "blue", 1))
        .file("fast-red.yaml", &object("fast-red", "red", 1))
        .file("fast-green.yaml", &object("fast-green", "green", 1))
        .file("wide-blue.yaml", &object("wide-blue", "blue", 4))
}

/// The configuration that names an attachment to a network.
pub(crate) fn conf(node: &Node, network: &str, object: &str) -> Value {
    node.attachment_conf(network, object)
}

/// A pod with a port of AF_XDP on a network.
pub(crate) fn attach(node: &Node, pod: &Pod<'_>, network: &str, object: &str) -> testbed::Port {
    pod.attach_conf(&conf(node, network, object), "net1")
}

/// The file of a port's control socket, as `ADD` said.
pub(crate) fn socket_path(port: &testbed::Port) -> PathBuf {
    let interfaces = port.result["interfaces"].as_array().expect("interfaces");
    let path = interfaces.iter().find_map(|it| it["socketPath"].as_str());
    path.expect("the result names the socket").into()
}

/// Asserts that a program on a port's only queue echoes a kernel pod's datagram.
#[track_caller]
pub(crate) fn assert_answers(open: xsk::Port, port: &testbed::Port, client: &testbed::Port) {
    let echo = Echo::start(vec![open]);
    let socket = traffic::udp(client, client.v4().into());
    socket.send_to(b"hello", (port.v4(), 4242)).expect("sent");
    let _ = socket.recv_from(&mut [0; 64]).expect("an answer");
    assert_eq!(echo.stop(), 1);
}
