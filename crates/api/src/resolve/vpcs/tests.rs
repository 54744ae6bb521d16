use super::*;
use crate::{NetworkId, parse_manifests, resolve};

/// A VPC with its prefixes and peers.
fn vpc(name: &str, cidrs: &str, peers: &[&str]) -> String {
    let peers: Vec<String> = peers.iter().map(|it| format!("{{vpc: {it}}}")).collect();
    format!(
        "---\napiVersion: podnet.dev/v1alpha1\nkind: Vpc\nmetadata: {{name: {name}}}\n\
         spec: {{cidrs: [{cidrs}], peers: [{}]}}\n",
        peers.join(", ")
    )
}

/// A network of a VPC, with more of its parameters.
fn network(name: &str, vpc: &str, subnet: &str, more: &str) -> String {
    format!(
        "---\napiVersion: podnet.dev/v1alpha1\nkind: PodNetwork\nmetadata: {{name: {name}}}\n\
         spec: {{provider: podnet.dev/ebpf, parametersRefs: [{{group: podnet.dev, \
         kind: PodNetworkParameters, name: {name}}}]}}\n---\n\
         apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\nmetadata: {{name: {name}}}\n\
         spec: {{mode: L3, subnets: [{subnet}], vpc: {vpc}{more}}}\n"
    )
}

fn resolved(documents: &[String]) -> Resolved {
    let objects = parse_manifests("a.yaml", &documents.concat()).into_iter();
    resolve(objects.map(Result::unwrap))
}

/// The routes of a network: prefix, and the name of the network that has it.
fn routes(resolved: &Resolved, network: &str) -> Vec<(String, String)> {
    let routes = resolved.routes_of(network).into_iter();
    routes
        .map(|it| {
            let name = it.network.map_or("-", |network| &network.name);
            (it.prefix.to_string(), name.to_owned())
        })
        .collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter()
        .map(|(prefix, name)| ((*prefix).to_owned(), (*name).to_owned()))
        .collect()
}

#[test]
fn networks_of_a_vpc_lead_to_each_other_and_to_no_other_vpc() {
    let resolved = resolved(&[
        vpc("one", "10.0.0.0/8", &[]),
        vpc("two", "10.0.0.0/8", &[]),
        network("a", "one", "10.1.0.0/16", ""),
        network("b", "one", "10.2.0.0/16", ""),
        network("c", "two", "10.2.0.0/16", ""),
    ]);
    assert_eq!(resolved.ready_networks().count(), 3);
    let of_a = [("10.0.0.0/8", "-"), ("10.2.0.0/16", "b")];
    assert_eq!(routes(&resolved, "a"), pairs(&of_a));
    let of_b = [("10.0.0.0/8", "-"), ("10.1.0.0/16", "a")];
    assert_eq!(routes(&resolved, "b"), pairs(&of_b));
    assert_eq!(routes(&resolved, "c"), pairs(&[("10.0.0.0/8", "-")]));
    let states: Vec<VpcState> = resolved.vpcs().collect();
    assert!(states.iter().all(|it| it.ready), "{states:?}");
    assert_eq!(states[0].networks, ["a", "b"]);
    // Pods get routes to the whole of it, as other networks may come later.
    let cidr: IpNet = "10.0.0.0/8".parse().unwrap();
    assert_eq!(resolved.network("a").unwrap().vpc_cidrs, [cidr]);
}

#[test]
fn a_network_outside_of_its_vpc_or_without_one_is_refused_with_what_mends_it() {
    let resolved = resolved(&[
        vpc("one", "10.0.0.0/8", &[]),
        network("a", "one", "10.1.0.0/16", ""),
        network("b", "one", "10.1.7.0/24", ""),
        network("c", "one", "192.168.0.0/24", ""),
        network("d", "none", "10.4.0.0/16", ""),
        network("e", "one", "10.5.0.0/16", ", serviceCIDRs: [10.96.0.0/16]"),
    ]);
    for (name, reason, words) in [
        ("b", "VpcOverlap", ["10.1.7.0/24", "PodNetwork a"]),
        ("c", "SubnetOutsideVpc", ["192.168.0.0/24", "10.0.0.0/8"]),
        ("d", "VpcNotFound", ["none", "spec.vpc"]),
        ("e", "VpcOverlap", ["10.96.0.0/16", "Vpc one"]),
    ] {
        let error = resolved.network(name).unwrap_err();
        assert_eq!(error.reason(), reason);
        for word in words {
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(routes(&resolved, name).is_empty(), "{name}");
    }
    // What is refused is reached by nobody.
    assert_eq!(routes(&resolved, "a"), pairs(&[("10.0.0.0/8", "-")]));
}

#[test]
fn peers_are_reached_when_both_name_each_other_and_not_their_own_peers() {
    let all = [
        vpc("one", "10.1.0.0/16", &["two", "four"]),
        vpc("two", "10.2.0.0/16", &["one", "three"]),
        vpc("three", "10.3.0.0/16", &["two"]),
        vpc("four", "10.4.0.0/16", &[]),
        network("a", "one", "10.1.0.0/24", ""),
        network("b", "two", "10.2.0.0/24", ""),
        network("c", "three", "10.3.0.0/24", ""),
        network("d", "four", "10.4.0.0/24", ""),
    ];
    let resolved = resolved(&all);
    let of_a = [
        ("10.1.0.0/16", "-"),
        ("10.2.0.0/16", "-"),
        ("10.2.0.0/24", "b"),
    ];
    assert_eq!(routes(&resolved, "a"), pairs(&of_a));
    let reached = routes(&resolved, "b");
    let reached: Vec<&str> = reached.iter().map(|(_, name)| name.as_str()).collect();
    assert!(reached.contains(&"a") && reached.contains(&"c") && !reached.contains(&"d"));
    assert_eq!(routes(&resolved, "d"), pairs(&[("10.4.0.0/16", "-")]));
    let one = resolved.vpcs().find(|it| it.name == "one").unwrap();
    assert_eq!((one.ready, one.reason), (false, "PeerPending"));
    assert!(one.message.contains("four"), "{one:?}");
}

#[test]
fn peers_that_share_addresses_reach_each_other_not_at_all() {
    let resolved = resolved(&[
        vpc("one", "10.1.0.0/16", &["three", "two"]),
        vpc("three", "10.1.128.0/17", &["one"]),
        vpc("two", "10.2.0.0/16", &["five", "four", "one"]),
        // It overlaps what two reaches already, and not two itself.
        vpc("four", "10.1.0.0/24", &["two"]),
        vpc("five", "10.5.0.0/16", &["two"]),
        network("a", "one", "10.1.0.0/24", ""),
        network("b", "two", "10.2.0.0/24", ""),
        network("c", "three", "10.1.128.0/24", ""),
        network("d", "four", "10.1.0.0/24", ""),
    ]);
    let state = |name: &str, peer: &str| {
        let vpc = resolved.vpcs().find(|it| it.name == name).unwrap();
        let peer = vpc.peers.into_iter().find(|it| it.vpc == peer).unwrap();
        (peer.state, peer.message)
    };
    for (one, other) in [("one", "three"), ("three", "one")] {
        let (state, why) = state(one, other);
        assert_eq!(state, PeerState::Overlap);
        assert!(
            why.contains("10.1.128.0/17") && why.contains("10.1.0.0/16"),
            "{why}"
        );
    }
    // Both ends decide the same: the pair of four was first by name, so one is not two's peer.
    assert_eq!(state("two", "four").0, PeerState::Active);
    assert_eq!(state("one", "two").0, PeerState::Overlap);
    assert_eq!(state("two", "one").0, PeerState::Overlap);
    assert!(routes(&resolved, "a").iter().all(|(_, name)| name == "-"));
    let of_b: BTreeSet<String> = routes(&resolved, "b").into_iter().map(|it| it.1).collect();
    assert_eq!(of_b, ["-", "d"].map(str::to_owned).into());
}

/// The objects as of an API server that made them in this order.
fn made_in_order(documents: &[String]) -> Resolved {
    let made = (0..).zip(documents).flat_map(|(second, text)| {
        let objects = parse_manifests("a.yaml", text).into_iter();
        objects.map(move |object| {
            let mut object = object.unwrap();
            match &mut object.resource {
                crate::Resource::PodNetwork(it) => it.metadata.created = Some(second),
                crate::Resource::Vpc(it) => it.metadata.created = Some(second),
                _ => {}
            }
            object
        })
    });
    resolve(made.collect::<Vec<_>>())
}

#[test]
fn a_new_object_takes_nothing_from_those_that_are_there() {
    let resolved = made_in_order(&[
        vpc("two", "10.2.0.0/16", &["one", "zoo"]),
        vpc("zoo", "10.1.0.0/16", &["two"]),
        network("web", "two", "10.2.0.0/24", ""),
        // They overlap, and come before by name.
        vpc("one", "10.1.0.0/24", &["two"]),
        network("aaa", "two", "10.2.0.0/25", ""),
    ]);
    assert_eq!(resolved.network("aaa").unwrap_err().reason(), "VpcOverlap");
    assert!(resolved.network("web").is_ok());
    let two = resolved.vpcs().find(|it| it.name == "two").unwrap();
    let states: Vec<_> = two
        .peers
        .iter()
        .map(|it| (it.vpc.as_str(), it.state))
        .collect();
    assert_eq!(
        states,
        [("one", PeerState::Overlap), ("zoo", PeerState::Active)]
    );
}

/// A number of two networks leads to neither of them.
#[test]
fn a_network_with_the_number_of_another_is_in_no_vpc() {
    let resolved = resolved(&[
        vpc("one", "10.0.0.0/8", &[]),
        network("a", "one", "10.1.0.0/16", ""),
        network("b", "one", "10.2.0.0/16", ", networkID: 7"),
        network("stranger", "none", "10.2.0.0/16", ", networkID: 7").replace(", vpc: none", ""),
    ]);
    assert_eq!(
        resolved.network("b").unwrap_err().reason(),
        "NetworkIDConflict"
    );
    assert_eq!(routes(&resolved, "a"), pairs(&[("10.0.0.0/8", "-")]));
    assert!(routes(&resolved, "b").is_empty());
}

#[test]
fn a_vpc_that_is_wrong_takes_no_network_and_is_told_of() {
    let resolved = resolved(&[
        vpc("one", "10.0.0.1/8", &[]),
        vpc("two", "10.0.0.0/8", &["one"]),
        network("a", "one", "10.1.0.0/16", ""),
    ]);
    let error = resolved.network("a").unwrap_err();
    assert_eq!(error.reason(), "VpcInvalid");
    assert!(error.to_string().contains("10.0.0.0/8"), "{error}");
    assert_eq!(resolved.problems().len(), 1);
    let two = resolved.vpcs().find(|it| it.name == "two").unwrap();
    assert_eq!(two.peers[0].state, PeerState::Invalid);
}

#[test]
fn a_network_of_a_vpc_is_behind_a_virtual_gateway() {
    for (spec, field, words) in [
        ("mode: L2, vpc: one", "spec.vpc", "subnets"),
        (
            "mode: L3, subnets: [10.1.0.0/16], routing: Node, vpc: one",
            "spec.vpc",
            "routing Isolated",
        ),
        (
            "mode: L3, subnets: [10.1.0.0/16], vpc: one, transport: {type: Native, uplink: eth1}",
            "spec.vpc",
            "Local or VXLAN",
        ),
        (
            "mode: L2, subnets: [10.1.0.0/16], vpc: one",
            "spec.gateway",
            "10.1.0.0/16",
        ),
        (
            "mode: L2, subnets: [10.1.0.0/16, \"fd10::/64\"], gateway: 10.1.0.1, vpc: one",
            "spec.gateway",
            "fd10::/64",
        ),
    ] {
        let text = format!(
            "apiVersion: podnet.dev/v1alpha1\nkind: PodNetworkParameters\nmetadata: {{name: a}}\n\
             spec: {{{spec}}}\n"
        );
        let problems = resolved(&[text]).problems().to_vec();
        let said = problems[0].to_string();
        assert!(said.contains(field) && said.contains(words), "{said}");
    }
    let switched = network("a", "one", "10.1.0.0/16", ", gateway: First");
    let switched = switched.replace("mode: L3", "mode: L2");
    let resolved = resolved(&[vpc("one", "10.0.0.0/8", &[]), switched]);
    assert!(resolved.network("a").is_ok());
}

/// The number may come later than the network, from the cluster.
#[test]
fn routes_lead_to_networks_with_the_numbers_of_the_cluster() {
    let mut resolved = resolved(&[
        vpc("one", "10.0.0.0/8", &[]),
        network("a", "one", "10.1.0.0/16", ""),
        network("b", "one", "10.2.0.0/16", ", mtu: 1400"),
    ]);
    let given =
        [("a", 7), ("b", 8)].map(|(name, id)| (name.to_owned(), NetworkId::new(id).unwrap()));
    resolved.number(&given.into());
    let routes = resolved.routes_of("a");
    let to = routes.iter().find_map(|it| it.network).unwrap();
    assert_eq!((to.id.unwrap().get(), to.mtu), (8, 1400));
}
