//! Test which pods reach each other.

use serde_json::json;

use super::corner::{Corner, Interface, KEP};

fn list(network: &str) -> String {
    json!([{"name": "default", "isDefaultGW": true}, {"name": network}]).to_string()
}

/// The address of a pod's second interface.
fn address(interfaces: &[Interface]) -> &str {
    &interfaces[1].ips[0]
}

/// KEP-PN-05, KEP-3698 "Story 1": tenants with the same addresses are separate.
#[test]
fn pods_of_one_network_reach_each_other_and_no_pod_of_another_with_the_same_subnet() {
    let corner = Corner::new("reach");
    let subnet = "10.103.0.0/24";
    let (blue, red) = (
        corner.network("blue", subnet),
        corner.network("red", subnet),
    );
    let pods = [("b1", &blue), ("b2", &blue), ("b3", &blue), ("r1", &red)];
    for (pod, network) in pods {
        corner.pod(pod, "n1", &[(KEP, list(network))]);
    }
    let [b1, b2, b3, r1] = pods.map(|(pod, _)| corner.ready(pod));
    for (from, to) in [("b1", &b2), ("b2", &b1), ("b1", &b3), ("b3", &b2)] {
        assert!(corner.reaches(from, address(to)), "{from} -> {to:?}");
    }
    // The red pod has an address that a blue one has, too: it is the others it must not see.
    let mut seen = 0;
    for blue in [&b1, &b2, &b3] {
        if address(blue) != address(&r1) {
            assert!(!corner.reaches("r1", address(blue)), "r1 -> {blue:?}");
            seen += 1;
        }
    }
    assert!(seen >= 2);
    // And the default network is there for all.
    assert!(corner.reaches("r1", &b1[0].ips[0]));
    proof::of!("KEP-PN-05");
}
