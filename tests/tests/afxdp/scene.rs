//! Nodes with AF_XDP ports.

use std::path::PathBuf;

use serde_json::Value;
use tests::manifest::attachment;
use tests::{Node, Pod, Setup};

pub(crate) use tests::afxdp::{Echo, in_pod, open, open_by};

/// The standard networks, and attachments to them whose ports are of AF_XDP: `fast-blue` with one queue,
/// `wide-blue` with four.
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
    let mut conf = node.conf(network);
    let fields = conf.as_object_mut().expect("an object");
    fields.remove("podNetwork");
    fields.insert("podNetworkAttachment".to_owned(), object.into());
    conf
}

/// A pod with a port of AF_XDP on a network.
pub(crate) fn attach(node: &Node, pod: &Pod<'_>, network: &str, object: &str) -> tests::Port {
    pod.attach_conf(&conf(node, network, object), "net1")
}

/// The file of a port's control socket, as `ADD` said.
pub(crate) fn socket_path(port: &tests::Port) -> PathBuf {
    let interfaces = port.result["interfaces"].as_array().expect("interfaces");
    let path = interfaces.iter().find_map(|it| it["socketPath"].as_str());
    path.expect("the result names the socket").into()
}
