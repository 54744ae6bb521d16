//! Plans the node's settings for the network that it routes for. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::{Network, Prefix};
use netdev::Masquerade;

/// The nodes of a cluster, as far as pods on them are concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    /// `spec.podCIDRs` of this node.
    pub own: Vec<Prefix>,
    /// The others, by name.
    pub others: BTreeMap<String, Peer>,
    /// Where the addresses of Services are: `spec.cidrs` of ServiceCIDRs.
    pub services: Vec<Prefix>,
}

impl Nodes {
    /// Where pods and Services of the cluster are: prefixes of neighbours as one.
    pub fn prefixes(&self) -> Vec<Prefix> {
        let others = self.others.values().flat_map(|peer| &peer.pods);
        let all = self.own.iter().chain(others).chain(&self.services);
        Prefix::aggregate(&all.copied().collect())
    }
}

/// Another node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its `spec.podCIDRs`.
    pub pods: Vec<Prefix>,
    /// Its `InternalIP`s.
    pub addresses: Vec<IpAddr>,
}

/// Where pods of another node are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeRoute {
    /// Name of the node.
    pub(super) node: String,
    /// The pods.
    pub(super) pods: Prefix,
    /// The node's address of their family.
    pub(super) via: IpAddr,
}

/// Settings, routes and masquerade that the node shall have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RoutingPlan {
    /// It forwards IPv4.
    pub(super) v4: bool,
    /// It forwards IPv6.
    pub(super) v6: bool,
    /// Packets to masquerade.
    pub(super) masquerade: Option<Masquerade>,
    /// To which nodes it has routes.
    pub(super) routes: Vec<NodeRoute>,
    /// Nodes without a way to them, and why.
    pub(super) unrouted: BTreeMap<String, String>,
}

impl RoutingPlan {
    /// All of the network is on this node.
    pub(super) fn alone(network: &Network) -> Self {
        let subnets: Vec<Prefix> = network.subnets.iter().map(|it| it.prefix).collect();
        Self::of(network, &subnets)
    }

    /// # Errors
    /// What is missing, and what to do.
    pub(super) fn in_cluster(network: &Network, nodes: &Nodes) -> Result<Self, String> {
        let own = within(&nodes.own, network);
        for v4 in [true, false] {
            let of_family = |prefix: &Prefix| prefix.addr().is_ipv4() == v4;
            let subnets: Vec<String> = network
                .subnets
                .iter()
                .filter(|subnet| of_family(&subnet.prefix))
                .map(|subnet| subnet.prefix.to_string())
                .collect();
            if subnets.is_empty() || own.iter().any(of_family) {
                continue;
            }
            return Err(format!(
                "this node's spec.podCIDRs ({}) has nothing inside {}: let kube-controller-manager \
                 give the nodes prefixes of it (--allocate-node-cidrs --cluster-cidr), or correct \
                 spec.subnets of the network",
                if nodes.own.is_empty() {
                    "empty".to_owned()
                } else {
                    list(&nodes.own)
                },
                subnets.join(", "),
            ));
        }
        let mut plan = Self::of(network, &own);
        for (node, peer) in &nodes.others {
            for pods in within(&peer.pods, network) {
                let of_family = |ip: &&IpAddr| ip.is_ipv4() == pods.addr().is_ipv4();
                match peer.addresses.iter().find(of_family) {
                    Some(via) => plan.routes.push(NodeRoute {
                        node: node.clone(),
                        pods,
                        via: *via,
                    }),
                    None => {
                        let why = format!("it has no InternalIP of the family of {pods}");
                        plan.unrouted.insert(node.clone(), why);
                    }
                }
            }
        }
        Ok(plan)
    }

    /// For pods with addresses of `own`.
    fn of(network: &Network, own: &[Prefix]) -> Self {
        let pairs = |prefixes: &[Prefix]| {
            let pair = |prefix: &Prefix| (prefix.addr(), prefix.prefix_len());
            prefixes.iter().map(pair).collect()
        };
        let subnets: Vec<Prefix> = network.subnets.iter().map(|it| it.prefix).collect();
        Self {
            v4: own.iter().any(|prefix| prefix.addr().is_ipv4()),
            v6: own.iter().any(|prefix| prefix.addr().is_ipv6()),
            masquerade: network.masquerade.then(|| Masquerade {
                from: pairs(own),
                inside: pairs(&subnets),
                fixed: Vec::new(),
            }),
            ..Self::default()
        }
    }
}

/// Prefixes that are inside a subnet of the network.
pub(super) fn within(prefixes: &[Prefix], network: &Network) -> Vec<Prefix> {
    let inside = |prefix: &&Prefix| {
        let mut subnets = network.subnets.iter();
        subnets.any(|subnet| subnet.prefix.contains(*prefix))
    };
    prefixes.iter().filter(inside).copied().collect()
}

/// Splits a prefix into parts without its first address, and IPv4's last.
///
/// Some programs take the first for the network itself, and IPv6 has it for its routers (RFC 4291
/// section 2.6.1). Some take the last for a broadcast address.
pub(super) fn inner(prefix: &Prefix) -> Vec<Prefix> {
    let last = prefix.addr().is_ipv4().then(|| prefix.broadcast());
    let edges: Vec<IpAddr> = [prefix.network()].into_iter().chain(last).collect();
    let is_small = prefix.max_prefix_len().saturating_sub(prefix.prefix_len()) < 2;
    let (mut inner, mut cut) = (Vec::new(), vec![*prefix]);
    while let Some(part) = cut.pop() {
        if is_small || !edges.iter().any(|edge| part.contains(edge)) {
            inner.push(part);
        } else if let Ok(halves) = part.subnets(part.prefix_len() + 1) {
            // The lower half first.
            let mut halves: Vec<Prefix> = halves.collect();
            halves.reverse();
            cut.extend(halves);
        }
    }
    inner
}

fn list(prefixes: &[Prefix]) -> String {
    let texts: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use api::{Mode, Routing};
    use book::samples;

    use super::*;

    fn network(subnets: &[(&str, &str)]) -> Network {
        Network {
            routing: Routing::Node,
            transport: api::Transport::Local,
            masquerade: true,
            ..samples::network("default", Mode::L3, subnets)
        }
    }

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn peer(pods: &[&str], addresses: &[&str]) -> Peer {
        Peer {
            pods: prefixes(pods),
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn alone_all_subnets_are_this_nodes_and_nothing_leads_elsewhere() {
        let plan = RoutingPlan::alone(&network(&[("10.0.0.0/24", ""), ("fd10::/64", "")]));
        let masquerade = plan.masquerade.unwrap();
        assert_eq!(masquerade.from, masquerade.inside);
        assert_eq!((plan.v4, plan.v6, plan.routes.len()), (true, true, 0));
        let mut own = network(&[("10.0.0.0/24", "")]);
        own.masquerade = false;
        let plan = RoutingPlan::alone(&own);
        assert_eq!((plan.v4, plan.v6, plan.masquerade), (true, false, None));
    }

    #[test]
    fn in_a_cluster_pods_of_the_node_are_masqueraded_for_all_but_the_pods_of_the_network() {
        let network = network(&[("10.244.0.0/16", ""), ("fd00:244::/48", "")]);
        let nodes = Nodes {
            own: prefixes(&["10.244.1.0/24", "fd00:244:0:1::/64", "192.168.0.0/24"]),
            services: Vec::new(),
            others: BTreeMap::from([
                (
                    "n2".to_owned(),
                    peer(
                        &["10.244.2.0/24", "fd00:244:0:2::/64", "192.168.2.0/24"],
                        &["172.16.0.2", "fd16::2"],
                    ),
                ),
                ("n3".to_owned(), peer(&["10.244.3.0/24"], &["fd16::3"])),
            ]),
        };
        let plan = RoutingPlan::in_cluster(&network, &nodes).unwrap();
        let masquerade = plan.masquerade.unwrap();
        let text = |pairs: &[(IpAddr, u8)]| -> Vec<String> {
            pairs
                .iter()
                .map(|(ip, bits)| format!("{ip}/{bits}"))
                .collect()
        };
        assert_eq!(
            text(&masquerade.from),
            ["10.244.1.0/24", "fd00:244:0:1::/64"]
        );
        assert_eq!(text(&masquerade.inside), ["10.244.0.0/16", "fd00:244::/48"]);
        let routes: Vec<String> = plan
            .routes
            .iter()
            .map(|way| format!("{} {} {}", way.node, way.pods, way.via))
            .collect();
        let expected = [
            "n2 10.244.2.0/24 172.16.0.2",
            "n2 fd00:244:0:2::/64 fd16::2",
        ];
        assert_eq!(routes, expected);
        let missing = plan.unrouted.get("n3").unwrap();
        assert!(missing.contains("InternalIP"), "{missing}");
    }

    #[test]
    fn pods_get_neither_the_first_nor_the_last_address_of_their_node_and_all_others() {
        for (prefix, missing) in [
            ("10.0.0.0/24", vec!["10.0.0.0", "10.0.0.255"]),
            ("10.0.0.0/30", vec!["10.0.0.0", "10.0.0.3"]),
            ("10.0.0.0/31", vec![]),
        ] {
            let prefix: Prefix = prefix.parse().unwrap();
            let parts = inner(&prefix);
            assert!(parts.is_sorted(), "the lowest first: {parts:?}");
            let all = prefix.subnets(32).unwrap().map(|one| one.addr());
            let without: Vec<String> = all
                .filter(|ip| parts.iter().filter(|part| part.contains(ip)).count() != 1)
                .map(|ip| ip.to_string())
                .collect();
            assert_eq!(without, missing, "{prefix}");
        }
        let v6: Prefix = "fd10::/64".parse().unwrap();
        let parts = inner(&v6);
        let has = |text: &str| {
            let ip: IpAddr = text.parse().unwrap();
            parts.iter().filter(|part| part.contains(&ip)).count()
        };
        assert_eq!(has("fd10::"), 0);
        for ip in [
            "fd10::1",
            "fd10::2",
            "fd10::ff:0",
            "fd10::ffff:ffff:ffff:ffff",
        ] {
            assert_eq!(has(ip), 1, "{ip}");
        }
    }

    #[test]
    fn a_node_without_a_prefix_of_each_family_of_the_network_is_not_ready_and_says_what_to_do() {
        let network = network(&[("10.244.0.0/16", ""), ("fd00:244::/48", "")]);
        for (own, missing) in [
            (vec![], "10.244.0.0/16"),
            (prefixes(&["10.245.1.0/24"]), "10.244.0.0/16"),
            (prefixes(&["10.244.1.0/24"]), "fd00:244::/48"),
        ] {
            let nodes = Nodes {
                own,
                ..Nodes::default()
            };
            let why = RoutingPlan::in_cluster(&network, &nodes).unwrap_err();
            assert!(
                why.contains("spec.podCIDRs") && why.contains(missing),
                "{why}"
            );
            assert!(why.contains("--allocate-node-cidrs"), "{why}");
        }
    }
}
