//! Addresses that outlive pods.

use serde_json::{Value, json};

use super::corner::{Corner, NPWG};
use super::objects::CLAIM;

/// NPWG §8: the address stays with the claim, on any pod and node.
#[test]
fn the_address_of_a_claim_outlives_its_pods_and_goes_to_another_node_with_it() {
    let corner = Corner::new("claim");
    let network = corner.network_name("blue");
    corner.defined_network("blue", "10.110.0.0/24");
    let claim = (corner.name.as_str(), "vm-a");
    let spec = json!({"spec": {"network": network, "interface": "net1"}});
    corner.objects.make(CLAIM, claim, spec);
    let list = json!([{"name": "blue", "ipam-claim-reference": "vm-a"}]).to_string();

    corner.pod("first", "n1", &[(NPWG, list.clone())]);
    let address = corner.ready("first")[1].ips[0].clone();
    let ips = |claim: &Value| claim["status"]["ips"].clone();
    let object = corner.objects.get(CLAIM, claim).expect("the claim");
    assert_eq!(ips(&object), json!([format!("{address}/24")]));
    corner.delete("first");
    let object = corner.objects.get(CLAIM, claim).expect("the claim");
    assert_eq!(ips(&object), json!([format!("{address}/24")]));

    // Somebody else comes while nobody has it.
    corner.pod("other", "n1", &[(NPWG, "blue".to_owned())]);
    assert_ne!(corner.ready("other")[1].ips[0], address);
    corner.pod("second", "n2", &[(NPWG, list)]);
    assert_eq!(corner.ready("second")[1].ips[0], address);
    corner.delete("second");
    corner.objects.delete_wait(CLAIM, claim);
    proof::of!("NPWG-8.0", "NPWG-8-T1", "NPWG-8-T2");
}
