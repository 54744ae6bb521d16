//! Networks that may not be deleted.

use serde_json::json;

use super::corner::{Corner, KEP};
use super::objects::{NETWORK, until};

/// KEP-PN-U1: a network goes when the last pod on it has gone.
#[test]
fn a_network_that_a_pod_is_on_is_deleted_after_the_pod() {
    let corner = Corner::new("in-use");
    let blue = corner.network("blue", "10.111.0.0/24");
    let list = json!([{"name": "default", "isDefaultGW": true}, {"name": blue}]).to_string();
    corner.pod("web", "n1", &[(KEP, list)]);
    let interfaces = corner.ready("web");
    let place = ("", blue.as_str());
    until("the network to be known as in use", || {
        let network = corner.objects.get(NETWORK, place)?;
        let finalizers = network["metadata"]["finalizers"].as_array()?;
        finalizers
            .contains(&"podnet.dev/in-use".into())
            .then_some(())
    });
    corner
        .objects
        .delete(NETWORK, place)
        .expect("the wish is taken");
    let network = corner.objects.get(NETWORK, place).expect("it is there");
    assert!(network["metadata"].get("deletionTimestamp").is_some());
    corner.assert_has("web", &interfaces);
    corner.delete("web");
    until("the network to be gone", || {
        corner.objects.get(NETWORK, place).is_none().then_some(())
    });
    proof::of!("KEP-PN-U1");
}

/// Every cluster has it.
#[test]
fn the_default_network_is_not_deleted() {
    let corner = Corner::new("default");
    let place = ("", "default");
    let before = corner.objects.get(NETWORK, place).expect("it is there");
    let refused = corner.objects.delete(NETWORK, place);
    let why = refused.expect_err("nobody may do that");
    assert!(why.contains("default"), "{why}");
    let after = corner.objects.get(NETWORK, place).expect("it is there");
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert!(after["metadata"].get("deletionTimestamp").is_none());
    proof::of!("KEP-DEF-2");
}
