//! `ADD`, `CHECK` and `DEL` of memif ports, and what they leave.

use std::path::PathBuf;

use memif::Address;
use testbed::{MemifApp, Network, Pod, manifest, traffic};

use crate::{conf, setup};

fn socket(result: &serde_json::Value) -> PathBuf {
    let path = result["interfaces"][0]["socketPath"].as_str();
    path.expect("CNI 1.1 names the socket").into()
}

/// CNI SPEC 1.1 section 5, `socketPath`.
#[test]
fn the_result_names_the_socket_and_clients_are_let_in_there() {
    let node = testbed::node!(setup());
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let port = fast.attach_conf(&conf(&node, "blue"), "net1");
    assert_eq!(fast.links(), [""; 0], "no interface in the pod");
    let plain = plain.attach("blue", "net1");
    let app = MemifApp::start_at(&port, Address::Path(socket(&port.result)));
    traffic::assert_reaches(&port, &plain);
    drop(app);
    let check = conf(&node, "blue");
    let call = |command: &str| {
        let mut conf = check.clone();
        conf["prevResult"] = port.result.clone();
        fast.call(command, "net1").conf(&conf).run()
    };
    call("CHECK").silent();
    fast.del("blue", "net1").silent();
    assert!(!socket(&port.result).exists());
    // Nothing of it any more: not at the switch either.
    fast.del("blue", "net1").silent();
    call("CHECK").error();
}

#[test]
fn a_network_may_have_memif_ports_by_itself_and_attachments_that_are_not() {
    let setup = testbed::Setup::empty()
        .network(&Network::l2("fast", &["10.10.0.0/24"]).interface("Memif"))
        .file(
            "plain.yaml",
            &manifest::attachment("plain", "fast", "{interface: {type: Veth}}"),
        );
    let node = testbed::node!(setup);
    let (fast, plain) = (node.pod("fast"), node.pod("plain"));
    let port = fast.attach("fast", "net1");
    assert!(socket(&port.result).exists());
    let conf = node.attachment_conf("fast", "default/plain");
    let kernel = plain.attach_conf(&conf, "net1");
    assert_eq!(plain.links(), ["net1"]);
    assert_eq!(
        kernel.result["interfaces"][0]["socketPath"],
        serde_json::Value::Null
    );
    let _app = MemifApp::start(&port);
    traffic::assert_reaches(&port, &kernel);
}

#[test]
fn a_trunk_has_no_memif_ports() {
    let trunk = Network::new("trunk", "L2")
        .trunk("100,200")
        .id(7)
        .interface("Memif");
    let node = testbed::node!(testbed::Setup::empty().network(&trunk));
    let pod: Pod<'_> = node.pod("fast");
    pod.add("trunk", "net1").error().names(&["Memif", "trunk"]);
    assert!(node.get("attachments").is_empty());
}

/// A pod's own program may have the name already: nothing is half made then.
#[test]
fn an_add_that_cannot_have_its_socket_leaves_nothing() {
    let node = testbed::node!(setup());
    let pod = node.pod("fast");
    let taken = pod
        .netns()
        .run_in(|| Address::Abstract(b"podnet/net1".to_vec()).listen());
    let taken = taken.expect("entered").expect("a free name");
    pod.add_conf(&conf(&node, "blue"), "net1")
        .error()
        .names(&["podnet/net1"]);
    assert!(node.get("attachments").is_empty());
    let tuns = node
        .links()
        .into_iter()
        .filter(|link| link.kind.as_deref() == Some("tun"));
    assert_eq!(tuns.count(), 0);
    drop(taken);
    pod.attach_conf(&conf(&node, "blue"), "net1");
}
