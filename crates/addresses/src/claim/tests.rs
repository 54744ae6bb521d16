use api::Mode;
use book::record::ObjectRef;
use book::samples::{network, wanted};
use serde_json::{Value, json};

use super::*;

fn claim(network: &str, interface: &str, ips: &Value) -> FoundClaim {
    let object: api::IpamClaim = serde_json::from_value(json!({
        "apiVersion": "k8s.cni.cncf.io/v1alpha1",
        "kind": "IPAMClaim",
        "metadata": {"name": "vm-a", "namespace": "vms"},
        "spec": {"network": network, "interface": interface},
        "status": {"ips": ips},
    }))
    .unwrap();
    object.into()
}

fn name() -> ClaimRef {
    let object = ObjectRef {
        namespace: "vms".to_owned(),
        name: "vm-a".to_owned(),
    };
    let kind = ClaimKind::IpamClaim;
    ClaimRef { kind, object }
}

/// NPWG-8-T3
#[test]
fn a_claim_fits_its_network_by_either_name_whatever_the_interface_is_called() {
    let blue = network("blue", Mode::L2, &[("10.10.0.0/24", "")]);
    let attachment = Wanted {
        claim_network: Some("lan-of-shop".to_owned()),
        ..wanted("c1")
    };
    let fits = |network: &str, interface: &str| {
        fits(
            &claim(network, interface, &json!([])),
            &name(),
            &attachment,
            &blue,
        )
    };
    assert!(fits("blue", "net1").is_ok());
    // `name` in the NetworkAttachmentDefinition, and not that of the runtime's own configuration.
    assert!(fits("lan-of-shop", "net1").is_ok());
    assert!(fits(&attachment.cni_network, "net1").is_err());
    assert!(fits("blue", "pod37a8eec1ce1").is_ok());
    let refused = fits("red", "net1").unwrap_err().to_string();
    assert!(
        refused.starts_with("IPAMClaim vms/vm-a: spec.network is red") && refused.contains("blue"),
        "{refused}"
    );
    proof::of!("NPWG-8-T3");
}

/// NPWG-8.1: with the length of the prefix; other writers leave it out.
#[test]
fn addresses_of_a_claim_are_read_with_and_without_their_lengths() {
    let read = |ips: Value| addresses_of(&claim("blue", "net1", &ips), &name());
    let ips = read(json!(["10.10.0.7/24", "fd10::7"])).unwrap();
    assert_eq!(
        ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.10.0.7", "fd10::7"]
    );
    assert!(read(json!([])).unwrap().is_empty());
    let refused = read(json!(["10.10.0"])).unwrap_err().to_string();
    assert!(refused.contains("\"10.10.0\" in status.ips"), "{refused}");
    proof::of!("NPWG-8.1");
}

/// NPWG-4.1.2.1.11
#[test]
fn addresses_beside_a_claim_are_among_its_own() {
    let known: Vec<IpAddr> = ["10.10.0.7", "fd10::7"]
        .map(|ip| ip.parse().unwrap())
        .to_vec();
    let asking = |ips: &[&str]| {
        let ips = ips
            .iter()
            .map(|ip| AddressRequest::from(ip.parse::<IpAddr>().unwrap()));
        let wanted = Wanted {
            ips: (ips.collect(), "the test"),
            ..wanted("c1")
        };
        same_as_asked(&known, &wanted, &name())
    };
    assert!(asking(&[]).is_ok());
    assert!(asking(&["fd10::7"]).is_ok());
    let refused = asking(&["10.10.0.7", "10.10.0.8"]).unwrap_err().to_string();
    assert!(
        refused.contains("10.10.0.8") && refused.contains("remove ips"),
        "{refused}"
    );
    proof::of!("NPWG-4.1.2.1.11");
}
