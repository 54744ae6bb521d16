//! Pods with labels on one network, and what they can tell each other.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use agent_common::drop::DropReason;
use serde_json::json;
use testbed::manifest::Network;
pub(crate) use testbed::talk::socket;
use testbed::wait::{self, PATIENCE};
use testbed::{Node, Pod, Port, Setup};

/// The networks of the tests, by their names.
pub(crate) fn setup() -> Setup {
    Setup::empty()
        .network(&Network {
            subnets: vec!["10.61.0.0/24".into(), "fd61::/64".into()],
            ..Network::new("routed", "L3")
        })
        .network(&Network {
            subnets: vec!["10.61.0.0/24".into(), "fd61::/64".into()],
            ..Network::new("switched", "L2")
        })
}

/// Attaches a pod with these labels, in namespace `default` or another.
pub(crate) fn attach<'a>(
    node: &'a Node,
    name: &str,
    network: &str,
    (namespace, labels): (&str, serde_json::Value),
) -> (Pod<'a>, Port) {
    let pod = node.pod(name);
    let mut conf = node.conf(network);
    conf["labels"] = labels;
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}");
    let call = pod.call("ADD", "net1").env("CNI_ARGS", &args).conf(&conf);
    let result = call.run().result();
    let port = pod.port(network, "net1", result);
    (pod, port)
}

/// A pod of namespace `default` with the label `app`.
pub(crate) fn app<'a>(node: &'a Node, app: &str, network: &str) -> (Pod<'a>, Port) {
    attach(node, app, network, ("default", json!({"app": app})))
}

/// A policy for a network: its pods, and the rest of its spec as flow YAML.
pub(crate) fn policy(name: &str, network: &str, app: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\n\
         kind: NetworkPolicy\n\
         metadata: {{name: {name}, namespace: default, annotations: {{podnet.dev/networks: {network}}}}}\n\
         spec: {{podSelector: {{matchLabels: {{app: {app}}}}}, {spec}}}\n"
    )
}

/// The addresses of both families at which two ports reach each other.
pub(crate) fn families(a: &Port, b: &Port) -> [(IpAddr, IpAddr); 2] {
    [
        (a.v4().into(), b.v4().into()),
        (a.v6().into(), b.v6().into()),
    ]
}

/// A question to this UDP port of the other pod and its answer, over both families.
#[track_caller]
pub(crate) fn answers(a: &Port, b: &Port, number: u16) {
    for (from, to) in families(a, b) {
        let there = socket(b, (to, number).into());
        let here = socket(a, (from, 0).into());
        let mut buffer = [0; 64];
        here.send_to(b"question", (to, number)).expect("a datagram");
        let asked = there.recv_from(&mut buffer);
        assert!(
            asked.is_ok(),
            "{from} does not reach {to} port {number}: {asked:?}"
        );
        let (_, asker) = asked.expect("a datagram");
        there.send_to(b"answer", asker).expect("a datagram");
        let answer = here.recv(&mut buffer);
        assert!(
            answer.is_ok(),
            "no answer of {to} port {number} to {from}: {answer:?}"
        );
        let length = answer.expect("a datagram");
        assert_eq!(buffer.get(..length), Some(b"answer".as_slice()));
    }
}

/// Asserts that datagrams of both families are dropped for this reason.
///
/// They are sent until one is, as addresses and members of another node may not be known yet.
#[track_caller]
pub(crate) fn denied(node: &Node, a: &Port, b: &Port, number: u16, reason: DropReason) {
    for (from, to) in families(a, b) {
        let there = socket(b, (to, number).into());
        let here = socket(a, (from, 0).into());
        let before = node.drops().of(&a.network, reason);
        wait::until_true(&format!("a drop for {reason}"), || {
            here.send_to(b"question", (to, number)).expect("a datagram");
            node.drops().of(&a.network, reason) > before
        });
        there.set_nonblocking(true).expect("a socket");
        let error = there.recv_from(&mut [0; 64]).expect_err("nothing arrives");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

/// True when a datagram to the other pod arrives; it is asked again by the caller.
pub(crate) fn arrives(a: &Port, b: &Port, number: u16) -> bool {
    let to = (IpAddr::from(b.v4()), number);
    let there = socket(b, to.into());
    let here = socket(a, (IpAddr::from(a.v4()), 0).into());
    here.send_to(b"question", to).expect("a datagram");
    let wait = Some(Duration::from_millis(20));
    there.set_read_timeout(wait).expect("a timeout");
    there.recv_from(&mut [0; 64]).is_ok()
}

/// Waits until a datagram to the other pod arrives, or until none does.
#[track_caller]
pub(crate) fn becomes(a: &Port, b: &Port, number: u16, arrived: bool) {
    // On a machine that has much to do one datagram may be late; none of a row is.
    let row = if arrived { 1 } else { 3 };
    wait::until_true("the policies to be in force", || {
        (0..row).all(|_| arrives(a, b, number) == arrived)
    });
}

/// A TCP connection from one pod to another.
pub(crate) fn connect(a: &Port, b: &Port, number: u16) -> (TcpStream, TcpStream) {
    let to = SocketAddr::from((b.v4(), number));
    let listener = b.netns.run_in(|| TcpListener::bind(to));
    let listener = listener.expect("a namespace").expect("a listener");
    let here = a.netns.run_in(|| TcpStream::connect_timeout(&to, PATIENCE));
    let here = here.expect("a namespace").expect("a connection");
    let (there, _) = listener.accept().expect("a connection");
    for stream in [&here, &there] {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
    }
    (here, there)
}
