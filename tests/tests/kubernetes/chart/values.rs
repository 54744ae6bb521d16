//! Test values of the chart: refused ones, and places of the others.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Helm, Key, chart, deploy};

#[test]
fn a_value_that_is_misspelt_or_impossible_is_refused_with_its_place() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    for (values, place, said) in [
        ("agent={\"resorces\":{}}", "'/agent'", "'resorces'"),
        (
            "image={\"pullPolicy\":\"Often\"}",
            "'/image/pullPolicy'",
            "'IfNotPresent'",
        ),
        (
            "defaultNetwork=\"blue\"",
            "'/defaultNetwork'",
            "podnetwork:",
        ),
        (
            "maxAttachmentsPerPod=0",
            "'/maxAttachmentsPerPod'",
            "minimum",
        ),
        (
            "accessControl=\"on\"",
            "'/accessControl'",
            "'serviceaccount'",
        ),
        (
            "egress={\"clusterCIDRs\":[\"10.0.0.0\"]}",
            "'/egress/clusterCIDRs/0'",
            "pattern",
        ),
        ("kubeletDir=\"lib\"", "'/kubeletDir'", "pattern"),
        (
            "reservedHostPorts=[\"80:90\"]",
            "'/reservedHostPorts/0'",
            "pattern",
        ),
        // Of the root directory of a node, not of one of its own.
        (
            "flowLog={\"file\":\"/flows\"}",
            "'/flowLog/file'",
            "pattern",
        ),
        (
            "tracing={\"otlpEndpoint\":\"https://collector:4317\"}",
            "'/tracing/otlpEndpoint'",
            "pattern",
        ),
        (
            "agent={\"extraArgs\":[\"log\"]}",
            "'/agent/extraArgs/0'",
            "pattern",
        ),
    ] {
        let set = format!("--set-json={values}");
        let output = helm.run(&["template", "--kube-version=v1.36.2", &chart(), &set]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{values} is taken");
        for word in [place, said] {
            assert!(complaint.contains(word), "{values}: {word}: {complaint}");
        }
    }
    // A chart that contains this one may hand it values of its own.
    helm.objects(&["global={\"region\":\"here\"}"]);
}

/// Kind and name of an object.
type Object = (&'static str, &'static str);
/// A value, an object, a place in it, and its content with the value.
type Place = (String, Object, &'static str, Value);

const AGENT: (&str, &str) = ("DaemonSet", "podnet-agent");
const SWITCH: (&str, &str) = ("DaemonSet", "podnet-switch");
const CONTROLLER: (&str, &str) = ("Deployment", "podnet-controller");
const WEBHOOK: (&str, &str) = ("Deployment", "podnet-webhook");
const VALIDATING: (&str, &str) = ("ValidatingWebhookConfiguration", "podnet-webhook");

fn places() -> Vec<Place> {
    let digest = format!("sha256:{}", "0".repeat(64));
    let image = format!(r#"image={{"repository":"example.com/podnet","digest":"{digest}"}}"#);
    let by_digest = json!(format!("example.com/podnet@{digest}"));
    let secrets = r#"imagePullSecrets=[{"name":"registry"}]"#;
    let mut all = Vec::new();
    for object in [AGENT, SWITCH, CONTROLLER, WEBHOOK] {
        let at = "/spec/template/spec/containers/0/image";
        all.push((image.clone(), object, at, by_digest.clone()));
        let at = "/spec/template/spec/imagePullSecrets";
        all.push((
            secrets.to_owned(),
            object,
            at,
            json!([{"name": "registry"}]),
        ));
    }
    let pods: [(&str, _, _, _); 13] = [
        (
            r#"agent={"maxUnavailable":1}"#,
            AGENT,
            "/spec/updateStrategy/rollingUpdate/maxUnavailable",
            json!(1),
        ),
        (
            r#"agent={"nodeSelector":{"podnet":"yes"}}"#,
            AGENT,
            "/spec/template/spec/nodeSelector/podnet",
            json!("yes"),
        ),
        (
            r#"agent={"affinity":{"nodeAffinity":{}}}"#,
            AGENT,
            "/spec/template/spec/affinity",
            json!({"nodeAffinity": {}}),
        ),
        (
            r#"agent={"podAnnotations":{"a":"b"}}"#,
            AGENT,
            "/spec/template/metadata/annotations",
            json!({"a": "b", "kubectl.kubernetes.io/default-container": "agent"}),
        ),
        (
            r#"cni={"confDir":"/etc/other"}"#,
            AGENT,
            "/spec/template/spec/volumes/3/hostPath/path",
            json!("/etc/other"),
        ),
        (
            r#"kubeletDir="/data/kubelet""#,
            AGENT,
            "/spec/template/spec/volumes/6/hostPath/path",
            json!("/data/kubelet/device-plugins"),
        ),
        (
            r#"switch={"resources":{"limits":{"memory":"3Gi"}}}"#,
            SWITCH,
            "/spec/template/spec/containers/0/resources/limits/memory",
            json!("3Gi"),
        ),
        (
            r#"switch={"extraArgs":["--memory=2048"]}"#,
            SWITCH,
            "/spec/template/spec/containers/0/args",
            json!(["switch", "--stay", "--memory=2048"]),
        ),
        (
            r#"controller={"tolerations":[]}"#,
            CONTROLLER,
            "/spec/template/spec/tolerations",
            json!([]),
        ),
        (
            r#"controller={"podLabels":{"a":"b"},"podAnnotations":{"c":"d"}}"#,
            CONTROLLER,
            "/spec/template/metadata",
            json!({
                "labels": {
                    "a": "b",
                    "app.kubernetes.io/name": "podnet-controller",
                    "app.kubernetes.io/part-of": "podnet",
                },
                "annotations": {"c": "d"},
            }),
        ),
        (
            r#"webhook={"replicas":3}"#,
            WEBHOOK,
            "/spec/replicas",
            json!(3),
        ),
        (
            r#"webhook={"extraVolumes":[{"name":"callers"}]}"#,
            WEBHOOK,
            "/spec/template/spec/volumes",
            json!([{"name": "callers"}]),
        ),
        (
            r#"webhook={"failurePolicy":"Fail"}"#,
            VALIDATING,
            "/webhooks/0/failurePolicy",
            json!("Fail"),
        ),
    ];
    all.extend(pods.map(|(values, object, at, wanted)| (values.to_owned(), object, at, wanted)));
    all
}

#[test]
fn values_get_where_they_belong() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    for (values, (kind, name), at, wanted) in places() {
        let objects = helm.objects(&[&values]);
        let object = found(&objects, (kind, name));
        assert_eq!(object.pointer(at), Some(&wanted), "{values}: {at}");
    }
}

/// The object of that kind and name.
#[track_caller]
fn found<'a>(objects: &'a BTreeMap<Key, Value>, (kind, name): (&str, &str)) -> &'a Value {
    let mut all = objects.iter();
    let object = all.find(|(key, _)| key.0 == kind && key.1 == name);
    object.expect("the object is there").1
}

/// Arguments of a program's container.
fn arguments(objects: &BTreeMap<Key, Value>, program: (&str, &str)) -> Vec<String> {
    let arguments = &found(objects, program)["spec"]["template"]["spec"]["containers"][0]["args"];
    serde_json::from_value(arguments.clone()).expect("a list of words")
}

/// Otherwise an agent would attach networks that the webhook has refused.
#[test]
fn lists_are_read_in_the_same_way_by_all_three_programs() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    let objects = helm.objects(&[
        "defaultNetwork=\"podnetwork:cluster\"",
        "maxAttachmentsPerPod=1000",
        "delegatesAllowed=[]",
        "namespaceIsolation=true",
        "globalNamespaces=[\"shared\",\"default\"]",
    ]);
    for program in [AGENT, CONTROLLER, WEBHOOK] {
        let arguments = arguments(&objects, program);
        for wanted in [
            "--default-network=podnetwork:cluster",
            "--max-attachments-per-pod=1000",
            "--delegates-allowed=",
            "--namespace-isolation",
            "--global-namespaces=shared,default",
        ] {
            assert!(
                arguments.iter().any(|it| it == wanted),
                "{program:?}: {arguments:?}"
            );
        }
    }
}

#[test]
fn the_agents_get_the_values_of_their_options_and_none_without() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    let of_values = |values: &[&str]| {
        let objects = helm.objects(values);
        let ours = ["--reserved-host-ports", "--flow-log", "--otlp-endpoint"];
        let is_ours = |it: &String| ours.iter().any(|name| it.starts_with(name));
        let mut arguments = arguments(&objects, AGENT);
        arguments.retain(is_ours);
        let spec = &found(&objects, AGENT)["spec"]["template"]["spec"];
        let is_log = |it: &&Value| it["name"] == "flow-log";
        let volumes = spec["volumes"].as_array().expect("volumes");
        let mounts = spec["containers"][0]["volumeMounts"].as_array();
        let mounts = mounts.expect("mounts").iter().find(is_log);
        let volume = volumes.iter().find(is_log).cloned();
        (arguments, volume, mounts.cloned())
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(of_values(&[]), (none, None, None));
    let (arguments, volume, mount) = of_values(&[
        "reservedHostPorts=[\"30000-32767\",\"8472\"]",
        "flowLog={\"file\":\"/var/log/podnet/flows.jsonl\"}",
        "tracing={\"otlpEndpoint\":\"http://127.0.0.1:4317\"}",
    ]);
    assert_eq!(
        arguments,
        [
            "--reserved-host-ports=30000-32767,8472",
            "--flow-log=/flow-log/flows.jsonl",
            "--otlp-endpoint=http://127.0.0.1:4317",
        ]
    );
    let path = json!({"path": "/var/log/podnet", "type": "DirectoryOrCreate"});
    assert_eq!(volume, Some(json!({"name": "flow-log", "hostPath": path})));
    assert_eq!(
        mount,
        Some(json!({"name": "flow-log", "mountPath": "/flow-log"}))
    );
    let (arguments, volume, _) = of_values(&["reservedHostPorts=[]", "flowLog={\"file\":\"-\"}"]);
    assert_eq!(arguments, ["--reserved-host-ports=", "--flow-log=-"]);
    assert_eq!(volume, None, "the container's log has no directory");
}

/// As `deploy/access-control` does it.
#[test]
fn access_control_fails_closed() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    for (control, agents) in [("serviceaccount", true), ("user", false)] {
        let objects = helm.objects(&[&format!("accessControl=\"{control}\"")]);
        let flag = format!("--access-control={control}");
        assert!(arguments(&objects, WEBHOOK).contains(&flag));
        assert_eq!(
            arguments(&objects, AGENT).contains(&flag),
            agents,
            "{control}"
        );
        assert_eq!(
            found(&objects, VALIDATING)["webhooks"][0]["failurePolicy"],
            "Fail"
        );
    }
}

/// The pages have no authentication: only a value takes them off loopback.
#[test]
fn metrics_of_nodes_are_served_and_probed_at_the_same_address() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    for (family, address) in [("IPv4", "$(HOST_IP)"), ("IPv6", "[$(HOST_IP)]")] {
        let objects = helm.objects(&[&format!(
            "monitoring={{\"nodeMetrics\":\"{family}\",\"podMonitor\":{{\"enabled\":true}}}}"
        )]);
        for (program, port) in [(AGENT, 9464), (CONTROLLER, 9465)] {
            let flag = format!("--admin={address}:{port}");
            assert!(arguments(&objects, program).contains(&flag), "{flag}");
            let container = &found(&objects, program)["spec"]["template"]["spec"]["containers"][0];
            assert_eq!(container["env"][0]["name"], "HOST_IP");
            for probe in ["livenessProbe", "readinessProbe"] {
                let get = &container[probe]["httpGet"];
                assert_eq!((&get["host"], &get["port"]), (&Value::Null, &json!(port)));
            }
        }
        let monitors = objects.keys().filter(|key| key.0 == "PodMonitor").count();
        assert_eq!(monitors, 3);
    }
    let one = helm.objects(&["monitoring={\"podMonitor\":{\"enabled\":true}}"]);
    let monitors: Vec<&Key> = one.keys().filter(|key| key.0 == "PodMonitor").collect();
    assert_eq!(monitors.len(), 1, "{monitors:?}");
    assert_eq!(monitors[0].1, "podnet-webhook");
}

/// Alerts and dashboard have braces of Prometheus' and Grafana's.
#[test]
fn alerts_and_dashboard_are_in_the_release_as_they_are_in_their_files() {
    let Some(helm) = Helm::find(testbed::test_name!()) else {
        return;
    };
    let objects = helm.objects(&[
        "monitoring={\"prometheusRule\":{\"enabled\":true},\"dashboard\":{\"enabled\":true}}",
    ]);
    let text = std::fs::read_to_string(deploy("monitoring/alerts.yaml")).expect("a file");
    let alerts: Value = serde_saphyr::from_str(&text).expect("YAML");
    assert_eq!(
        found(&objects, ("PrometheusRule", "podnet"))["spec"],
        alerts
    );
    let text = std::fs::read_to_string(deploy("monitoring/dashboard.json")).expect("a file");
    let map = found(&objects, ("ConfigMap", "podnet-dashboard"));
    let board = map["data"]["podnet.json"].as_str().expect("a text");
    let parsed = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(parsed(board), parsed(&text));
}
