//! Test ports of type Memif on the networks of kernel interfaces.
//!
//! They have the same networks, isolation, addresses and rates. A program of the pod joins each to the
//! stack of its namespace, so that what talks to a kernel port can talk to it.

mod ports {
    mod capture;
    mod cni;
    mod flow_log;
    mod libmemif;
    mod metrics;
    mod rate;
    mod reach;
    mod spoof;
    mod switch;
    mod trains;
}

/// Returns the standard networks, with memif attachments `memif-blue` and so on.
pub fn setup() -> testbed::Setup {
    let networks = testbed::Network::standard();
    let with_attachment = |setup: testbed::Setup, network: &testbed::Network| {
        let name = format!("memif-{}", network.name);
        let text =
            testbed::manifest::attachment(&name, &network.name, "{interface: {type: Memif}}");
        setup.file(&format!("{name}.yaml"), &text)
    };
    networks
        .iter()
        .fold(testbed::Setup::default(), with_attachment)
}

/// The configuration of an attachment to a network by memif.
pub fn conf(node: &testbed::Node, network: &str) -> serde_json::Value {
    node.attachment_conf(network, &format!("default/memif-{network}"))
}
