//! Networks, requests and records for unit tests.
//!
//! Tests of the crates above have them by the feature `samples`.
#![expect(
    clippy::unwrap_used,
    reason = "what a test gives is valid, and where it is not the test fails"
)]

use api::{Mode, Network, NetworkId, Prefix, RawJson, Subnet};
use cni_spec::{AttachmentKey, ContainerId, IfName};
use delegate::{Delegation, PluginConf};
use host::host_name;

use crate::ledger::{Ledger, Wanted};
use crate::pods::record::PodRecord;
use crate::record::{Attachment, HostEnd, Sandbox, State};

/// A subnet as in a manifest; the gateway may be empty.
pub fn subnet(prefix: &str, gateway: &str) -> Subnet {
    let prefix: Prefix = prefix.parse().unwrap();
    let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
    Subnet {
        prefix,
        gateway,
        exclude: Vec::new(),
    }
}

/// A network of 1500 bytes with these subnets and gateways.
pub fn network(name: &str, mode: Mode, subnets: &[(&str, &str)]) -> Network {
    Network {
        name: name.to_owned(),
        mode,
        routing: api::Routing::Isolated,
        transport: api::Transport::Local,
        wire: None,
        masquerade: false,
        subnets: subnets
            .iter()
            .map(|(prefix, gateway)| subnet(prefix, gateway))
            .collect(),
        routes: Vec::new(),
        service_cidrs: Vec::new(),
        cluster_services: Vec::new(),
        egress: api::Egress::None,
        node_access: api::NodeAccess::None,
        mtu: 1500,
        id: None,
        interface: api::Interface::VETH,
        vpc: None,
        vpc_cidrs: Vec::new(),
        bandwidth: api::Bandwidth::default(),
        scheduling: api::SchedulingSpec::default(),
        written: api::Written::default(),
    }
}

/// The same network with a number of its own choice.
pub fn numbered(network: Network, id: u32) -> Network {
    Network {
        id: NetworkId::new(id),
        ..network
    }
}

/// Identity of an attachment.
pub fn key(container: &str, ifname: &str) -> AttachmentKey {
    AttachmentKey {
        container: ContainerId::new(container).unwrap(),
        ifname: IfName::new(ifname).unwrap(),
    }
}

/// A pod without attachments, whose first interface is `eth0`.
pub fn pod(container: &str, state: State) -> PodRecord {
    PodRecord {
        key: key(container, "eth0"),
        state,
        cni_network: "podnet".to_owned(),
        request_digest: "d".to_owned(),
        pod: None,
        sandbox: Sandbox {
            path: "/run/netns/p".to_owned(),
            dev: 4,
            ino: 5,
        },
        members: Vec::new(),
        host_ports: None,
        attempts: 0,
    }
}

/// A delegation to a plugin of another, with its answer.
pub fn delegation() -> Delegation {
    Delegation {
        network: "lan".to_owned(),
        version: cni_spec::CniVersion::V1_0_0,
        disable_check: false,
        disable_gc: true,
        plugins: vec![PluginConf {
            plugin: "bridge".to_owned(),
            config: RawJson::parse(r#"{"type":"bridge","big":12345678901234567890,"f":1.10}"#)
                .unwrap(),
            settled: false,
        }],
        args: "IgnoreUnknown=1".to_owned(),
        path: "/opt/cni/bin".to_owned(),
        device_info_file: Some("/var/run/k8s.cni.cncf.io/devinfo/cni/lan-c1_net1".into()),
        device_plugin_file: None,
        device_info: Some(RawJson::parse(r#"{"type":"pci"}"#).unwrap()),
        result: Some(RawJson::parse(r#"{"cniVersion":"1.0.0","x":1.0}"#).unwrap()),
    }
}

/// An attachment that asks for nothing in particular.
pub fn wanted(container: &str) -> Wanted {
    let sandbox = Sandbox {
        path: format!("/run/netns/{container}"),
        dev: 4,
        ino: 4_026_532_000,
    };
    Wanted {
        cni_network: "conf".to_owned(),
        ..Wanted::plain(key(container, "net1"), "0".to_owned(), sandbox)
    }
}

/// The host end as `ADD` names it, with this index.
pub fn host(wanted: &Wanted, ifindex: u32) -> HostEnd {
    HostEnd {
        name: host_name(&wanted.key),
        ifindex,
    }
}

/// The record of an attachment to `network`, made by a book of its own.
pub fn record(network: &Network, change: impl FnOnce(&mut Wanted)) -> Attachment {
    let mut wanted = wanted("c1");
    change(&mut wanted);
    let host = host(&wanted, 7);
    Ledger::new(16).reserve(wanted, network, host).unwrap()
}
