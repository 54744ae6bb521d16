//! Pods: a namespace each, and the interfaces podnet puts into it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use agent_common::addr::MacAddr;
use netdev::{AddressState, Connection, Link, LinkChange, NamedNetns, Netns, Route};
use serde_json::Value;

use crate::cni::{Call, Outcome};
use crate::host::connection;
use crate::node::Node;
use crate::residue;
use crate::tap::Tap;

/// A container's sandbox.
#[derive(Debug)]
pub struct Pod<'a> {
    node: &'a Node,
    container: String,
    named: Option<NamedNetns>,
}

impl<'a> Pod<'a> {
    pub(crate) fn create(node: &'a Node, container: &str) -> Self {
        let path = node.path("netns").join(container);
        let named = NamedNetns::create(&path).expect("a network namespace for the pod");
        let mut here = connection(named.netns());
        let lo = here.by_name("lo").expect("links can be read");
        let lo = lo.expect("a loopback interface").ifindex;
        here.reconfigure(lo, &LinkChange::updown(true))
            .expect("the loopback goes up");
        Self {
            node,
            container: container.to_owned(),
            named: Some(named),
        }
    }

    fn named(&self) -> &NamedNetns {
        self.named.as_ref().expect("the namespace was not removed")
    }

    /// The container ID.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// Writes `CNI_ARGS` as a runtime of Kubernetes does (RT-CD-04).
    pub fn kubernetes_args(&self, namespace: &str, name: &str, uid: &str) -> String {
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};\
             K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={uid}",
            self.container
        )
    }

    /// The namespace.
    pub fn netns(&self) -> &Netns {
        self.named().netns()
    }

    /// Where the namespace is bound to.
    pub fn path(&self) -> &Path {
        self.named().path()
    }

    /// Takes the namespace away, as a reboot or an impatient runtime does.
    pub fn remove_netns(&mut self) {
        let named = self.named.take().expect("the namespace was not removed");
        named.delete().expect("the namespace can be removed");
    }

    /// A call for this container, to be given a configuration.
    pub fn call(&self, command: &str, ifname: &str) -> Call<'a> {
        let call = self.node.cni(command).container(&self.container);
        let call = call.ifname(ifname);
        match &self.named {
            Some(named) => call.netns(named.path()),
            None => call.env("CNI_NETNS", ""),
        }
    }

    /// `ADD` with the plain configuration of a network.
    pub fn add(&self, network: &str, ifname: &str) -> Outcome {
        self.add_conf(&self.node.conf(network), ifname)
    }

    /// `ADD` with this configuration.
    pub fn add_conf(&self, conf: &Value, ifname: &str) -> Outcome {
        self.call("ADD", ifname).conf(conf).run()
    }

    /// `DEL`.
    pub fn del(&self, network: &str, ifname: &str) -> Outcome {
        self.call("DEL", ifname)
            .conf(&self.node.conf(network))
            .run()
    }

    /// `CHECK` against a result of `ADD`.
    pub fn check(&self, network: &str, ifname: &str, result: &Value) -> Outcome {
        let mut conf = self.node.conf(network);
        conf["prevResult"] = result.clone();
        self.call("CHECK", ifname).conf(&conf).run()
    }

    /// A successful `ADD`.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn attach(&self, network: &str, ifname: &str) -> Port {
        let result = self.add(network, ifname).result();
        Port::new(self, network, ifname, result)
    }

    /// A successful `ADD` with this configuration.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn attach_conf(&self, conf: &Value, ifname: &str) -> Port {
        let result = self.add_conf(conf, ifname).result();
        let network = conf["name"].as_str().unwrap_or_default();
        Port::new(self, network, ifname, result)
    }

    /// Makes a port of this pod from a result of another runtime's `ADD`.
    ///
    /// # Panics
    /// If it does not name the interface.
    #[track_caller]
    pub fn port(&self, network: &str, ifname: &str, result: Value) -> Port {
        Port::new(self, network, ifname, result)
    }

    /// A successful `DEL` after which the interface is gone.
    ///
    /// # Panics
    /// Otherwise.
    #[track_caller]
    pub fn detach(&self, network: &str, ifname: &str) {
        self.del(network, ifname).silent();
        assert!(
            !self.links().iter().any(|name| name == ifname),
            "{ifname} is still there"
        );
    }

    /// Names of the pod's links, without the loopback.
    pub fn links(&self) -> Vec<String> {
        residue::links_of_pod(self.netns())
    }

    /// Netlink in the pod.
    pub fn netlink(&self) -> Connection {
        connection(self.netns())
    }
}

/// An attachment as `ADD` described it.
#[derive(Debug, Clone)]
pub struct Port {
    /// The pod's namespace.
    pub netns: Netns,
    /// The pod's container ID.
    pub container: String,
    /// The network.
    pub network: String,
    /// Name of the interface in the pod.
    pub ifname: String,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its addresses with their prefix lengths, in the order of the result.
    pub ips: Vec<(IpAddr, u8)>,
    /// The result that `ADD` printed.
    pub result: Value,
}

impl Port {
    /// Reads a result of version 0.3.0 or newer.
    #[track_caller]
    fn new(pod: &Pod<'_>, network: &str, ifname: &str, result: Value) -> Self {
        let interfaces = result["interfaces"].as_array().cloned().unwrap_or_default();
        let path = pod.path().to_str();
        let index = interfaces
            .iter()
            .position(|i| i["name"] == ifname && i["sandbox"].as_str() == path)
            .expect("an interface of that name in that sandbox (CNI-ADD-09)");
        let mac = interfaces[index]["mac"].as_str();
        let mac = mac.expect("the interface has a MAC").parse();
        let ips = result["ips"].as_array().cloned().unwrap_or_default();
        let ips = ips
            .iter()
            .filter(|ip| ip["interface"].as_u64() == u64::try_from(index).ok())
            .map(|ip| {
                let (ip, length) = ip["address"]
                    .as_str()
                    .and_then(|text| text.split_once('/'))
                    .expect("an address with its prefix length");
                (
                    ip.parse().expect("an IP address"),
                    length.parse().expect("a prefix length"),
                )
            })
            .collect();
        Self {
            netns: pod.netns().clone(),
            container: pod.container().to_owned(),
            network: network.to_owned(),
            ifname: ifname.to_owned(),
            mac: mac.expect("a MAC address"),
            ips,
            result,
        }
    }

    /// The first IPv4 address.
    ///
    /// # Panics
    /// If there is none.
    pub fn v4(&self) -> Ipv4Addr {
        let mut ips = self.ips.iter();
        ips.find_map(|(ip, _)| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        })
        .expect("the port has an IPv4 address")
    }

    /// The first IPv6 address.
    ///
    /// # Panics
    /// If there is none.
    pub fn v6(&self) -> Ipv6Addr {
        let mut ips = self.ips.iter();
        ips.find_map(|(ip, _)| match ip {
            IpAddr::V6(ip) => Some(*ip),
            IpAddr::V4(_) => None,
        })
        .expect("the port has an IPv6 address")
    }

    /// The interface as the kernel has it now.
    pub fn link(&self) -> Option<Link> {
        connection(&self.netns)
            .by_name(&self.ifname)
            .expect("links can be read")
    }

    /// The interface's addresses as the kernel has them now.
    ///
    /// # Panics
    /// If the interface is gone.
    pub fn addresses(&self) -> Vec<AddressState> {
        let ifindex = self.link().expect("the interface is there").ifindex;
        connection(&self.netns)
            .addresses(ifindex)
            .expect("addresses can be read")
    }

    /// The interface's routes as the kernel has them now.
    ///
    /// # Panics
    /// If the interface is gone.
    pub fn routes(&self) -> Vec<Route> {
        let ifindex = self.link().expect("the interface is there").ifindex;
        connection(&self.netns)
            .routes(ifindex)
            .expect("routes can be read")
    }

    /// Index of the host end.
    ///
    /// # Panics
    /// If the interface is gone.
    pub fn host_ifindex(&self) -> u32 {
        let link = self.link().expect("the interface is there");
        link.peer_ifindex.expect("a veth has a peer")
    }

    /// Raw frames of the interface.
    pub fn tap(&self) -> Tap {
        Tap::on(&self.netns, &self.ifname)
    }
}
