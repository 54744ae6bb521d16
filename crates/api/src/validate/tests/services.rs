use super::*;

fn with(subnets: &[&str], prefixes: &[&str]) -> PodNetworkParametersSpec {
    PodNetworkParametersSpec {
        service_cidrs: prefixes.iter().map(ToString::to_string).collect(),
        ..l2(subnets)
    }
}

#[test]
fn prefixes_of_services_are_those_that_are_written() {
    let spec = with(
        &["10.1.0.0/16", "fd00::/64"],
        &["10.96.0.0/12", "fd96::/108"],
    );
    let network = network("blue", &spec).unwrap();
    let found: Vec<String> = network
        .service_cidrs
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, ["10.96.0.0/12", "fd96::/108"]);
}

#[test]
fn prefixes_of_services_that_pods_could_not_reach_are_refused() {
    for (subnets, prefixes, expected) in [
        (
            &[][..],
            &["10.96.0.0/12"][..],
            "spec.serviceCIDRs: the field is for networks with subnets",
        ),
        (
            &["10.1.0.0/16"],
            &["fd96::/108"],
            "spec.serviceCIDRs[0]: pods have no address of the family of fd96::/108",
        ),
        (
            &["10.1.0.0/16"],
            &["10.1.8.0/24"],
            "spec.serviceCIDRs[0]: 10.1.8.0/24 overlaps 10.1.0.0/16",
        ),
        (
            &["10.1.0.0/16"],
            &["10.0.0.0/8"],
            "spec.serviceCIDRs[0]: 10.0.0.0/8 overlaps 10.1.0.0/16",
        ),
        (
            &["10.1.0.0/16"],
            &["10.96.0.0/12", "10.100.0.0/16"],
            "spec.serviceCIDRs[1]: 10.100.0.0/16 overlaps 10.96.0.0/12",
        ),
        (
            &["10.1.0.0/16"],
            &["10.96.0.1/12"],
            "spec.serviceCIDRs[0]: 10.96.0.1/12 has host bits set",
        ),
        (
            &["10.1.0.0/16"],
            &["0.0.0.0/0"],
            "spec.serviceCIDRs[0]: 0.0.0.0/0 is a default route",
        ),
        (
            &["10.1.0.0/16"],
            &[
                "10.2.0.0/16",
                "10.3.0.0/16",
                "10.4.0.0/16",
                "10.5.0.0/16",
                "10.6.0.0/16",
            ],
            "spec.serviceCIDRs: ",
        ),
    ] {
        let said = refusal(&with(subnets, prefixes));
        assert!(said.contains(expected), "{prefixes:?}: {said}");
    }
    let by_node = PodNetworkParametersSpec {
        mode: Mode::L3,
        routing: Routing::Node,
        ..with(&["10.1.0.0/16"], &["10.96.0.0/12"])
    };
    let read = network("blue", &by_node).unwrap();
    assert_eq!(read.service_cidrs.len(), 1, "those of the cluster");
}

#[test]
fn services_of_the_cluster_are_named_for_networks_that_have_a_way_there() {
    let spec = |more: PodNetworkParametersSpec| PodNetworkParametersSpec {
        cluster_services: ["kube-system/kube-dns", "default/kubernetes"]
            .map(str::to_owned)
            .into(),
        ..more
    };
    let l3 = PodNetworkParametersSpec {
        mode: Mode::L3,
        ..with(&["10.1.0.0/16"], &["10.96.0.0/12"])
    };
    for egress in [Egress::None, Egress::Masquerade] {
        let network = network(
            "blue",
            &spec(PodNetworkParametersSpec {
                egress,
                ..l3.clone()
            }),
        )
        .unwrap();
        let names: Vec<String> = network
            .cluster_services
            .iter()
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect();
        assert_eq!(names, ["default/kubernetes", "kube-system/kube-dns"]);
    }
    let no_prefix = PodNetworkParametersSpec {
        service_cidrs: Vec::new(),
        ..l3.clone()
    };
    for without in [with(&["10.1.0.0/16"], &["10.96.0.0/12"]), no_prefix] {
        let error = network("blue", &spec(without)).unwrap_err().to_string();
        let expected =
            "spec.clusterServices: the field is for mode L3 and routing Isolated with serviceCIDRs";
        assert!(error.contains(expected), "{error}");
    }
    for wrong in ["kube-dns", "/kube-dns", "kube-system/", "a/b/c", "Kube/dns"] {
        let spec = PodNetworkParametersSpec {
            cluster_services: vec![wrong.to_owned()],
            ..l3.clone()
        };
        let error = network("blue", &spec).unwrap_err().to_string();
        let expected =
            format!("spec.clusterServices[0]: {wrong} is no namespace and name of a Service");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn nodes_have_ports_on_isolated_networks_with_subnets_alone() {
    let asking = |spec: PodNetworkParametersSpec| PodNetworkParametersSpec {
        node_access: NodeAccess::Local,
        ..spec
    };
    let read = network("blue", &asking(l2(&["10.1.0.0/16"]))).unwrap();
    assert_eq!(read.node_access, NodeAccess::Local);
    let by_node = PodNetworkParametersSpec {
        mode: Mode::L3,
        routing: Routing::Node,
        ..l2(&["10.1.0.0/16"])
    };
    for without in [l2(&[]), by_node] {
        let error = network("blue", &asking(without)).unwrap_err().to_string();
        let expected =
            "spec.nodeAccess: the field is for networks with subnets and routing Isolated";
        assert!(error.contains(expected), "{error}");
    }
}
