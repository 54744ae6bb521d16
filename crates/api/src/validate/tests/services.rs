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
            "spec.serviceCIDRs: the field is for networks with subnets and routing Isolated",
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
    assert!(refusal(&by_node).contains("spec.serviceCIDRs: "));
}
