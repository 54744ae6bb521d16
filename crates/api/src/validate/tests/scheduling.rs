use super::*;
use crate::SchedulingSpec;

const ALL: SchedulingSpec = SchedulingSpec {
    addresses: true,
    bandwidth: true,
    nodes: true,
};

fn over(uplink: Option<&str>, subnets: &[&str]) -> PodNetworkParametersSpec {
    let transport = uplink.map(|uplink| TransportSpec {
        uplink: Some(uplink.to_owned()),
        id: Some(7),
        ..TransportSpec::of(Transport::Vlan)
    });
    PodNetworkParametersSpec {
        transport,
        scheduling: Some(ALL),
        ..l2(subnets)
    }
}

#[test]
fn a_network_is_scheduled_by_addresses_that_it_has_and_an_uplink_that_a_label_can_name() {
    let good = network("blue", &over(Some("eth1"), &["10.0.0.0/24"])).unwrap();
    assert_eq!(good.scheduling, ALL);
    assert_eq!(
        refusal(&over(None, &["10.0.0.0/24"])),
        "spec.scheduling: bandwidth is of an uplink; write transport VLAN or Native, or remove it"
    );
    assert_eq!(
        refusal(&over(Some("eth1"), &[])),
        "spec.scheduling: addresses needs spec.subnets; list a subnet or remove it"
    );
    let odd = refusal(&over(Some("eth1@"), &["10.0.0.0/24"]));
    assert!(
        odd.starts_with("spec.scheduling: \"eth1@\" is no name that a label"),
        "{odd}"
    );
    let long = "l".repeat(64);
    let spec = over(Some("eth1"), &["10.0.0.0/24"]);
    let long = network(&long, &spec).unwrap_err().to_string();
    assert!(long.contains("at most 63 letters"), "{long}");
}
