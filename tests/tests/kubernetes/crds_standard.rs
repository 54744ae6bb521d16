//! Test the NPWG's kinds, as podnet ships their definitions (NPWG v1.3 §3.1, §8.1).

use api::{IpamClaim, NetworkAttachmentDefinition};
use kube::api::Api;
use serde_json::{Value, json};

use super::objects::{self, Objects, kubectl};
use super::scene;

/// NPWG-3.1, NPWG-3.2a, NPWG-3.2.1 to 3.2.4
#[test]
fn every_form_of_the_standard_is_taken_and_read() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let namespace = scene::namespace(&client, "standard-forms").await;
        let untyped = Objects::of::<NetworkAttachmentDefinition>(&client, &namespace);
        let typed: Api<NetworkAttachmentDefinition> = Api::namespaced(client, &namespace);
        let single = r#"{"cniVersion": "0.3.0", "type": "bridge", "mtu": 1e3}"#;
        let list = r#"{"cniVersion": "0.3.0", "name": "a", "plugins": [{"type": "bridge"}]}"#;
        for (name, rest, config) in [
            ("single", json!({"spec": {"config": single}}), single),
            ("list", json!({"spec": {"config": list}}), list),
            ("no-config", json!({"spec": {}}), ""),
            ("no-spec", json!({}), ""),
        ] {
            untyped.create(name, rest).await.unwrap();
            let read = typed.get(name).await.expect("readable");
            assert_eq!(read.spec.config, config, "{name}");
        }
    });
    let output = kubectl(
        scene.server,
        &[
            "get",
            "net-attach-def",
            "-n",
            "standard-forms",
            "-o",
            "name",
        ],
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), 4, "{text}");
    proof::of!(
        "NPWG-3.1",
        "NPWG-3.2a",
        "NPWG-3.2.1",
        "NPWG-3.2.2",
        "NPWG-3.2.3",
        "NPWG-3.2.4"
    );
}

/// NPWG-8.1, NPWG-8.2: spec and status are written by different people.
#[test]
fn a_claim_has_a_status_of_its_own() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let namespace = scene::namespace(&client, "standard-claims").await;
        let claims = Objects::of::<IpamClaim>(&client, &namespace);
        let spec = json!({"network": "blue", "interface": "net1"});
        for missing in ["network", "interface"] {
            let mut spec = spec.clone();
            spec[missing] = Value::Null;
            let message = claims
                .try_spec("vm-a.blue.net1", &spec)
                .await
                .expect_err("incomplete");
            assert!(message.contains(missing), "{message}");
        }
        let status = json!({"ips": ["10.0.0.3/24"]});
        let made = claims
            .create("vm-a.blue.net1", json!({"spec": spec, "status": status}))
            .await;
        assert_eq!(made.unwrap()["status"], Value::Null);
        let message = claims
            .merge_status("vm-a.blue.net1", json!({}))
            .await
            .expect_err("no ips");
        assert!(message.contains("status.ips"), "{message}");
        claims.merge_status("vm-a.blue.net1", status).await.unwrap();
        let typed: Api<IpamClaim> = Api::namespaced(client, &namespace);
        let read = typed.get("vm-a.blue.net1").await.expect("readable");
        assert_eq!(read.status.expect("a status").ips, ["10.0.0.3/24"]);
    });
    proof::of!("NPWG-8.1", "NPWG-8.2", "NPWG-8.3");
}
