//! Test the status of `Port`s, and what is left of those that are gone.

use serde_json::{Value, json};

use super::super::objects::kubectl;
use super::super::scene::namespace;
use super::objects::{Cluster, Name, until};
use super::set;

#[test]
fn a_port_tells_whether_a_pod_can_have_it_and_is_released_when_its_pod_has_ended() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(async |client| {
        let space = namespace(&client, "port-status").await;
        let cluster = Cluster::new(client);
        let port: Name<'_> = ("Port", &space, "db-0");
        let spec = json!({"network": "port-status", "ipRequests": ["10.147.0.7"]});
        cluster.create(port, json!({ "spec": spec })).await;
        cluster
            .wait_condition(port, "Ready", "False", "NetworkNotReady")
            .await;
        let subnet = json!({"mode": "L3", "subnets": ["10.147.0.0/24"]});
        cluster.parameters("port-status", subnet).await;
        cluster.network("port-status").await;
        cluster.wait_condition(port, "Ready", "True", "Ready").await;

        cluster
            .pod(&space, "web", Value::Null, Some("no-node"))
            .await;
        let pod = cluster.get(("Pod", &space, "web")).await.expect("the pod");
        let user = json!({"pod": "web", "uid": pod["metadata"]["uid"], "node": "no-node"});
        let status = json!({"mac": "02:00:00:00:00:07", "ips": ["10.147.0.7/24"],
            "user": user, "epoch": 1});
        cluster.patch_status(port, status).await;
        let output = kubectl(
            server,
            &["get", "pnport", "-n", &space, "db-0", "--no-headers"],
        );
        let row = String::from_utf8_lossy(&output.stdout).into_owned();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells.get(..7),
            Some(
                &[
                    "db-0",
                    "port-status",
                    "02:00:00:00:00:07",
                    r#"["10.147.0.7/24"]"#,
                    "web",
                    "no-node",
                    "True"
                ][..]
            ),
            "{row}"
        );
        // Two passes of the controller change nothing while the pod is there.
        for pass in ["port-status-a", "port-status-b"] {
            cluster.ready_network(pass).await;
        }
        let found = cluster.get(port).await.expect("the Port");
        assert_eq!(found["status"]["user"]["pod"], "web");
        cluster.delete_now(&space, "web").await;
        let found = until("the Port to be released", async || {
            let found = cluster.get(port).await?;
            found["status"]["user"].is_null().then_some(found)
        })
        .await;
        let status = &found["status"];
        assert_eq!(
            (&status["ips"], &status["epoch"]),
            (&json!(["10.147.0.7/24"]), &json!(1))
        );
        assert_eq!(status["conditions"][0]["status"], "True");
    });
}

#[test]
fn the_reservation_of_a_port_goes_with_the_port_and_its_pod() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    scene.run(async |client| {
        let space = namespace(&client, "reserve-port").await;
        let cluster = Cluster::new(client);
        let port: Name<'_> = ("Port", &space, "db-0");
        let spec = json!({"network": "reserve-port"});
        let made = cluster.create(port, json!({ "spec": spec })).await;
        let holder = json!({"namespace": space, "name": "db-0", "uid": made["metadata"]["uid"]});
        let reserve = async |name: Name<'_>, address: &str, holder: &Value| {
            let spec = json!({"network": "reserve-port", "address": address, "port": holder});
            cluster.create(name, json!({ "spec": spec })).await;
        };
        let kept = ("IPReservation", "", "reserve-port.10-0-0-7");
        reserve(kept, "10.0.0.7", &holder).await;
        let mut earlier = holder.clone();
        earlier["uid"] = "an-earlier-one".into();
        earlier["name"] = "db-9".into();
        let orphan = ("IPReservation", "", "reserve-port.10-0-0-8");
        reserve(orphan, "10.0.0.8", &earlier).await;
        cluster.wait_gone(orphan).await;
        assert!(cluster.get(kept).await.is_some(), "the Port is there");

        let list = json!([{"name": "reserve-port", "port": "db-0"}]);
        cluster.pod(&space, "web", list, Some("no-node")).await;
        cluster.delete(port).await;
        // The delay of one that came later is over.
        reserve(orphan, "10.0.0.8", &earlier).await;
        cluster.wait_gone(orphan).await;
        assert!(cluster.get(kept).await.is_some(), "its pod is there");
        // Its pod is gone by the API server, and by the node's slice it is not.
        let slice: Name<'_> = ("PodNetworkEndpointSlice", "", "reserve-port.reserve-port.0");
        let mac = "02:00:00:00:00:07";
        let spec = json!({"network": "reserve-port", "node": "reserve-port", "networkID": 1, "vteps": ["192.0.2.7"],
            "endpoints": [{"mac": mac, "ips": ["10.0.0.7"], "since": "2026-01-01T00:00:00.000000Z"}]});
        let labels = json!({"podnet.dev/network": "reserve-port", "podnet.dev/node": "reserve-port"});
        cluster.create(("Node", "", "reserve-port"), json!({})).await;
        cluster
            .create(slice, json!({"metadata": {"labels": labels}, "spec": spec}))
            .await;
        cluster.delete_now(&space, "web").await;
        reserve(orphan, "10.0.0.8", &earlier).await;
        cluster.wait_gone(orphan).await;
        assert!(cluster.get(kept).await.is_some(), "a node has the address");
        cluster.delete(slice).await;
        cluster.wait_gone(kept).await;
    });
}

#[test]
fn a_port_is_immutable_and_wrong_fields_are_refused() {
    let Some(scene) = set(testbed::test_name!()) else {
        return;
    };
    let server = scene.server;
    scene.run(async |client| {
        let space = namespace(&client, "port-fields").await;
        let cluster = Cluster::new(client);
        let port: Name<'_> = ("Port", &space, "db-0");
        let spec = json!({"network": "blue", "ipRequests": ["10.0.0.7"]});
        cluster.create(port, json!({ "spec": spec })).await;
        let patch = r#"{"spec":{"ipRequests":["10.0.0.8"]}}"#;
        let output = kubectl(
            server,
            &[
                "patch",
                "pnport",
                "-n",
                &space,
                "db-0",
                "--type=merge",
                "-p",
                patch,
            ],
        );
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("is immutable; make another Port"), "{said}");
    });
}
