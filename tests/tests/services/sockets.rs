//! Clients and endpoints whose ports are sockets: memif and AF_XDP.

use serde_json::json;
use testbed::manifest::attachment;
use testbed::memif_app::MemifApp;
use testbed::{Node, Pod, Port};

use super::scene::{
    Echo, NETWORKS, addresses, app, ask, client, connect, service, setup, slices, talk, wait_served,
};

fn attach<'a>(node: &'a Node, app: &str, network: &str) -> (Pod<'a>, Port) {
    let pod = node.pod(app);
    let mut conf = node.attachment_conf(network, &format!("memif-{network}"));
    conf["labels"] = json!({"app": app});
    let port = pod.attach_conf(&conf, "net1");
    (pod, port)
}

#[test]
fn memif_ports_are_clients_and_endpoints_of_services() {
    if testbed::skip::without_root(testbed::test_name!()) {
        return;
    }
    for network in NETWORKS {
        let name = format!("memif-{network}");
        let text = attachment(&name, network, "{interface: {type: Memif}}");
        let node = Node::start(setup().file("memif.yaml", &text));
        let (_one, one) = attach(&node, "one", network);
        let (_web, web) = attach(&node, "web", network);
        let (_kernel, kernel) = app(&node, "kernel", network);
        let _apps = [&one, &web].map(MemifApp::start);
        for (endpoint, clients) in [(&one, [&web, &kernel]), (&kernel, [&web, &one])] {
            let text = [
                service("web", network, addresses(10), ""),
                slices("web", network, node.name(), &[(endpoint, "")]),
            ]
            .concat();
            node.write_manifest("services.yaml", &text);
            wait_served(&node, network, 4);
            for ip in addresses(10) {
                for from in clients {
                    let echo = Echo::at(&[endpoint], ip);
                    testbed::wait::until_true("the endpoint that is meant", || {
                        connect(from, ip, &[endpoint]).is_ok()
                    });
                    ask(&client(from, ip), &echo, b"question");
                    let (mut here, mut there, _) =
                        connect(from, ip, &[endpoint]).expect("a connection");
                    talk(&mut here, &mut there);
                }
            }
        }
    }
}
