//! The default network (KEP-3698 "Default PodNetwork").

use serde_json::json;

use super::objects::{Cluster, condition, until};
use super::set;

const DEFAULT: (&str, &str, &str) = ("PodNetwork", "", "default");

/// KEP-DEF-1, KEP-DEF-2: it has no finalizer, so a deletion never shows on it.
#[test]
fn pn_default_autocreate_exact() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        // It has been looked at when it has a status.
        cluster
            .wait_condition(DEFAULT, "Ready", "True", "Ready")
            .await;
        let found = until("the default network", async || cluster.get(DEFAULT).await).await;
        assert_eq!(found["spec"], json!({"enabled": true}));
        for key in [
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
            "deletionTimestamp",
        ] {
            assert!(found["metadata"][key].is_null(), "{key}: {found}");
        }
    });
    proof::of!("KEP-DEF-1", "KEP-DEF-2");
}

/// KEP-DEF-2
#[test]
fn pn_default_recreated() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        let first = until("the default network", async || cluster.get(DEFAULT).await).await;
        cluster.delete(DEFAULT).await;
        let second = until("another default network", async || {
            let found = cluster.get(DEFAULT).await?;
            (found["metadata"]["uid"] != first["metadata"]["uid"]).then_some(found)
        })
        .await;
        assert_eq!(second["spec"], json!({"enabled": true}));
    });
    proof::of!("KEP-DEF-2");
}

/// KEP-PN-R1, KEP-PN-R5: without references nothing is said about parameters.
#[test]
fn pn_ready_no_refs() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let cluster = Cluster::new(client);
        until("the default network to be ready", async || {
            let found = cluster.get(DEFAULT).await?;
            let ready = condition(&found, "Ready")?;
            assert!(condition(&found, "ParamsReady").is_none(), "{found}");
            (ready["status"] == "True" && ready["reason"] == "Ready").then_some(())
        })
        .await;
    });
    proof::of!("KEP-PN-R1", "KEP-PN-R5");
}
