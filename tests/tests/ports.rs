//! Ports of type Memif: the same networks, isolation, addresses and rates as interfaces of the kernel
//! have. A program of the pod joins each to the stack of its namespace, so that what talks to a kernel
//! port can talk to it.

mod ports {
    mod cni;
    mod libmemif;
    mod metrics;
    mod rate;
    mod reach;
    mod spoof;
    mod switch;
}

/// The standard networks, and attachments to them that are memif: `memif-blue` and so on.
pub fn setup() -> tests::Setup {
    let networks = tests::Network::standard();
    let with_attachment = |setup: tests::Setup, network: &tests::Network| {
        let name = format!("memif-{}", network.name);
        let text = tests::manifest::attachment(&name, &network.name, "{interface: {type: Memif}}");
        setup.file(&format!("{name}.yaml"), &text)
    };
    networks
        .iter()
        .fold(tests::Setup::default(), with_attachment)
}

/// The configuration of an attachment to a network by memif.
pub fn conf(node: &tests::Node, network: &str) -> serde_json::Value {
    node.attachment_conf(network, &format!("default/memif-{network}"))
}
