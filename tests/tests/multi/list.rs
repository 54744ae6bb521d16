//! Test that a pod gets the networks of its lists, in order.

use serde_json::{Value, json};
use testbed::manifest::attachment;

use super::scene::{K8sPod, definition, held, interfaces, ips, setup};

/// NPWG-6, KEP-P1-11: a pod without lists has the default network only.
#[test]
fn npwg_6_a_pod_without_lists_has_the_default_network_only() {
    let node = testbed::node!(setup());
    for annotation in [None, Some(""), Some("[]")] {
        let mut pod = K8sPod::new(&node, "a");
        if let Some(text) = annotation {
            pod = pod.npwg(&text.into());
        }
        let result = pod.attach();
        assert_eq!(interfaces(&result), ["eth0"]);
        assert_eq!(pod.links(), ["eth0"]);
        assert_eq!(held(&node), ["a/eth0 blue"]);
        pod.detach();
    }
    node.assert_empty();
    proof::of!("NPWG-6", "KEP-P1-11");
}

/// NPWG-4.1, NPWG-4.1.1b, NPWG-4.1.2.1.5: networks come after the default one.
///
/// Both formats, names asked for and names handed out; an empty definition is the network of its name
/// (NPWG-3.2a). KEP-CNI-1: the runtime is told of the first interface only.
#[test]
fn npwg_4_1_networks_come_after_the_default_one_and_the_result_is_the_first() {
    let lists = [
        json!("red, default/lime@mgmt0 , red"),
        json!([{"name": "red"}, {"name": "lime", "namespace": "default", "interface": "mgmt0"},
            {"name": "red"}]),
    ];
    let node = testbed::node!(
        setup()
            .file("red.json", &definition("red", &Value::Null))
            .file("lime.json", &definition("lime", &Value::Null))
    );
    for list in lists {
        let pod = K8sPod::new(&node, "a").npwg(&list);
        let result = pod.attach();
        assert_eq!(pod.links(), ["eth0", "mgmt0", "net1", "net3"]);
        assert_eq!(interfaces(&result), ["eth0"]);
        assert_eq!(ips(&result).len(), 2, "{result}");
        // NPWG-4.2: the same network twice is two attachments.
        let wanted = ["a/eth0 blue", "a/mgmt0 lime", "a/net1 red", "a/net3 red"];
        assert_eq!(held(&node), wanted);
        pod.check(&result).silent();
        pod.detach();
    }
    node.assert_empty();
    proof::of!(
        "NPWG-4.1",
        "NPWG-4.1.1b",
        "NPWG-4.1.2.1.5",
        "NPWG-3.2a",
        "KEP-CNI-1",
        "NPWG-4.2",
        "CNI-CAP-04"
    );
}

/// KEP-P1-10, KEP-X1, KEP-X2: a list of the KEP leaves the default network out.
///
/// Its first network has eth0, and NPWG's networks come after it.
#[test]
fn kep_p1_10_a_complete_list_leaves_the_default_network_out() {
    let fast = attachment("fast", "green", "{ipRequests: [10.20.0.77]}");
    let setup = setup()
        .file("fast.yaml", &fast)
        .file("lime-nad.json", &definition("lime", &Value::Null));
    let node = testbed::node!(setup);
    let pod = K8sPod::new(&node, "a")
        .kep(&json!([{"name": "red"}, {"attachmentName": "fast", "interfaceName": "data0"}]))
        .npwg(&json!("lime"));
    let result = pod.attach();
    let wanted = ["a/data0 green", "a/eth0 red", "a/net2 lime"];
    assert_eq!(held(&node), wanted);
    assert_eq!(interfaces(&result), ["eth0"]);
    let data0 = pod
        .pod
        .netlink()
        .by_name("data0")
        .expect("links can be read");
    let addresses = pod
        .pod
        .netlink()
        .addresses(data0.expect("it is there").ifindex);
    let addresses = addresses.expect("addresses can be read");
    assert!(
        addresses
            .iter()
            .any(|found| found.ip.to_string() == "10.20.0.77")
    );
    pod.check(&result).silent();
    pod.detach();
    node.assert_empty();
    proof::of!("KEP-P1-10", "KEP-X1", "KEP-X2");
}

/// KEP-PNA-07: of two pods with one attachment, one gets the address it names.
#[test]
fn kep_pna_07_a_request_that_only_one_pod_can_have_fails_the_second() {
    let fast = attachment("fast", "green", "{ipRequests: [10.20.0.77]}");
    let node = testbed::node!(setup().file("fast.yaml", &fast));
    let [first, second] = ["a", "b"].map(|name| {
        let list = json!([{"name": "blue"}, {"attachmentName": "fast"}]);
        K8sPod::new(&node, name).kep(&list)
    });
    first.attach();
    second
        .add()
        .fails_with(101)
        .names(&["attachment 2", "10.20.0.77"]);
    assert_eq!(second.links(), Vec::<String>::new());
    assert_eq!(held(&node), ["a/eth0 blue", "a/net1 green"]);
    first.detach();
    second.attach();
    second.detach();
    node.assert_empty();
    proof::of!("KEP-PNA-07");
}

/// KEP-POD-12: attachments of a network count as the network.
#[test]
fn kep_pod_12_a_network_is_in_the_list_once_counting_its_attachments() {
    let node = testbed::node!(setup().file("fast.yaml", &attachment("fast", "green", "{}")));
    let pod = K8sPod::new(&node, "a").kep(&json!([{"name": "green"}, {"attachmentName": "fast"}]));
    pod.add()
        .fails_with(7)
        .names(&["green", "PodNetworkAttachment"]);
    node.assert_empty();
    proof::of!("KEP-POD-12");
}

/// NPWG-7.2a: the first failure ends it, names the element, and leaves nothing.
#[test]
fn npwg_7_2a_the_first_failure_takes_everything_back() {
    let node = testbed::node!(setup().file("red-nad.json", &definition("red", &Value::Null)));
    let pod = K8sPod::new(&node, "a").npwg(&json!([
        {"name": "red"},
        {"name": "red", "ips": ["192.0.2.9"]},
        {"name": "red"},
    ]));
    let failure = pod.add().fails_with(102);
    failure.names(&["attachment 3", "default/red", "net2", "192.0.2.9"]);
    assert_eq!(pod.links(), Vec::<String>::new());
    node.assert_empty();
    pod.detach();
    proof::of!("NPWG-7.2a");
}

/// NPWG-7.2a: an interface that is there already is not removed (PAIN-DEL-2).
#[test]
fn npwg_4_1_2_1_5_an_interface_that_is_there_already_fails_and_stays() {
    let node = testbed::node!(setup().file("red-nad.json", &definition("red", &Value::Null)));
    let pod = K8sPod::new(&node, "a").npwg(&json!("red@old0"));
    let spec = netdev::VethSpec::new("old0", "old1");
    pod.pod
        .netlink()
        .create_veth(&spec)
        .expect("a link in the pod");
    pod.add().fails_with(111).names(&["attachment 2", "old0"]);
    assert_eq!(pod.links(), ["old0", "old1"]);
    node.assert_empty();
    proof::of!("NPWG-7.2a", "PAIN-DEL-2");
}

/// A missing network fails the pod, named with its kind (PAIN-SIL-1).
#[test]
fn npwg_3_2a_a_network_that_does_not_exist_fails_the_pod() {
    let node = testbed::node!(setup().file("void-nad.json", &definition("void", &Value::Null)));
    for (list, named) in [
        (
            "nothing",
            "NetworkAttachmentDefinition default/nothing does not exist",
        ),
        ("void", "PodNetwork void does not exist"),
        (
            "other/red",
            "NetworkAttachmentDefinition other/red does not exist",
        ),
    ] {
        let pod = K8sPod::new(&node, list.split('/').next().unwrap_or_default()).npwg(&json!(list));
        pod.add().fails_with(7).names(&["attachment 2", named]);
        assert_eq!(pod.links(), Vec::<String>::new());
    }
    node.assert_empty();
    proof::of!("PAIN-SIL-1");
}

/// A definition names one of our networks by type or by annotation.
///
/// The type is `podnet`.
#[test]
fn npwg_3_2b_a_definition_can_name_one_of_our_networks() {
    let by_type = definition("typed", &json!({"type": "podnet", "podNetwork": "red"}));
    let by_annotation = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "annotated", "annotations": {
            "podnet.dev/config": "{\"podNetwork\": \"green\", \"ipRequests\": [\"10.20.0.88\"]}"}},
    });
    let node = testbed::node!(
        setup()
            .file("typed.json", &by_type)
            .file("annotated.json", &by_annotation.to_string())
    );
    let pod = K8sPod::new(&node, "a").npwg(&json!("typed,annotated"));
    pod.attach();
    assert_eq!(held(&node), ["a/eth0 blue", "a/net1 red", "a/net2 green"]);
    let rows = node.get("attachments");
    let net2 = rows.iter().find(|row| row["ifname"] == "net2");
    assert!(
        net2.is_some_and(|row| row["ips"].to_string().contains("10.20.0.88")),
        "{rows:?}"
    );
    pod.detach();
    node.assert_empty();
    proof::of!("NPWG-3.2b", "NPWG-G3");
}

/// PAIN-CONF-1: podnet would wait for itself.
#[test]
fn pain_conf_1_podnet_among_other_plugins_is_refused() {
    let chain = json!({"cniVersion": "1.0.0", "plugins": [
        {"type": "podnet", "podNetwork": "red"}, {"type": "tuning"}]});
    let node = testbed::node!(setup().file("loop.json", &definition("loop", &chain)));
    let pod = K8sPod::new(&node, "a").npwg(&json!("loop"));
    pod.add()
        .fails_with(7)
        .names(&["attachment 2", "podnet among other plugins"]);
    node.assert_empty();
    proof::of!("PAIN-CONF-1");
}

/// NPWG-G1: by default an invalid list fails the pod, with the place.
#[test]
fn npwg_g1_an_invalid_annotation_fails_the_pod() {
    let node = testbed::node!(setup());
    let pod = K8sPod::new(&node, "a").npwg(&json!([{"name": "red"}, {"name": "red", "mac": "x"}]));
    pod.add()
        .fails_with(7)
        .names(&["k8s.v1.cni.cncf.io/networks[1].mac"]);
    assert_eq!(pod.links(), Vec::<String>::new());
    node.assert_empty();
    proof::of!("NPWG-G1");
}

/// NPWG-G1: the letter of the specification, where the operator wants it.
#[test]
fn npwg_g1_an_invalid_annotation_can_be_ignored() {
    let node = testbed::node!(setup().args(&["--invalid-annotation", "ignore"]));
    let pod = K8sPod::new(&node, "a").npwg(&json!([{"name": "red", "mac": "x"}]));
    pod.attach();
    assert_eq!(held(&node), ["a/eth0 blue"]);
    pod.detach();
    node.assert_empty();
    proof::of!("NPWG-G1");
}

/// CNI-CAP-04, PAIN-SIL-1: a pod does not start without annotations and networks.
///
/// No runtime tells the pod's annotations here.
#[test]
fn cni_cap_04_without_annotations_a_pod_of_kubernetes_waits() {
    let node = testbed::node!(setup());
    let pod = K8sPod::new(&node, "a");
    let failure = pod.call("ADD", &node.disk_conf()).run().fails_with(11);
    failure.names(&["default/a", "io.kubernetes.cri.pod-annotations"]);
    node.assert_empty();
    // No pod, no annotations: another runtime.
    let plain = pod.call("ADD", &node.disk_conf()).without("CNI_ARGS");
    assert_eq!(interfaces(&plain.run().result()), ["eth0"]);
    pod.detach();
    node.assert_empty();
    proof::of!("CNI-CAP-04", "PAIN-SIL-1", "RT-CT-01");
}

/// A configuration either names a network or leaves it to the pod.
#[test]
fn from_pod_beside_a_network_is_refused() {
    let node = testbed::node!(setup());
    let pod = K8sPod::new(&node, "a");
    let mut conf = pod.conf();
    conf["podNetwork"] = "blue".into();
    pod.call("ADD", &conf)
        .run()
        .fails_with(7)
        .names(&["fromPod", "podNetwork"]);
}
