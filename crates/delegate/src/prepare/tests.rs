use api::selection::{NETWORKS_ANNOTATION, PodAnnotations, PodSelection, SelectionRules};
use serde_json::{Value, json};

use super::*;

fn chain(text: &str) -> PluginChain {
    PluginChain::parse(text, "from-object").unwrap()
}

/// Options as a pod asks for them.
fn options(element: &Value) -> AttachmentOptions {
    let annotations = [(NETWORKS_ANNOTATION.to_owned(), json!([element]).to_string())];
    let pod = PodAnnotations {
        namespace: "ns",
        host_network: false,
        annotations: &annotations.into(),
    };
    let selection = PodSelection::read(&pod, &SelectionRules::default()).unwrap();
    selection.attachments[1].options.clone()
}

fn offered(pairs: &Value) -> Wishes {
    let pairs = pairs.as_object().unwrap().iter();
    let raw = |value: &Value| RawJson::parse(&value.to_string()).unwrap();
    Wishes {
        offered: pairs
            .map(|(key, value)| (key.clone(), raw(value)))
            .collect(),
        ..Wishes::default()
    }
}

fn prepared(text: &str, wishes: &Wishes) -> Vec<Value> {
    let delegation = prepare(&chain(text), wishes).unwrap();
    let plugins = delegation.plugins.iter();
    plugins
        .map(|plugin| plugin.config.read().unwrap())
        .collect()
}

/// NPWG-7.1, NPWG-3.4.2: every plugin gets the name and the version of the list.
#[test]
fn name_and_version_are_given_to_every_plugin() {
    let list = r#"{"cniVersion":"0.3.1","plugins":[{"type":"a"},{"type":"b","name":"x"}]}"#;
    for plugin in prepared(list, &Wishes::default()) {
        assert_eq!(plugin["name"], "from-object");
        assert_eq!(plugin["cniVersion"], "0.3.1");
    }
    proof::of!("NPWG-7.1", "NPWG-3.4.2");
}

/// CNI-CONF-03
#[test]
fn the_newest_version_spoken_here_is_chosen() {
    let table = [
        (r#"{"type":"a"}"#, Some("0.1.0")),
        (r#"{"type":"a","cniVersion":"0.4.0"}"#, Some("0.4.0")),
        (
            r#"{"type":"a","cniVersions":["0.4.0","1.0.0","9.9.9"]}"#,
            Some("1.0.0"),
        ),
        (
            r#"{"type":"a","cniVersion":"1.1.0","cniVersions":["0.3.1"]}"#,
            Some("1.1.0"),
        ),
        (r#"{"type":"a","cniVersion":"9.9.9"}"#, None),
        (r#"{"type":"a","cniVersions":["9.9.9"]}"#, None),
    ];
    for (conf, version) in table {
        let found = prepare(&chain(conf), &Wishes::default()).ok();
        assert_eq!(found.map(|found| found.version.as_str()), version, "{conf}");
    }
    proof::of!("CNI-CONF-03", "CNI-CONF-01");
}

/// CNI-CONF-07: unknown keys pass through as they were written.
#[test]
fn numbers_of_unknown_keys_keep_their_digits() {
    let conf = r#"{"cniVersion":"1.0.0","type":"a","big":12345678901234567890123,"f":1.10}"#;
    let delegation = prepare(&chain(conf), &Wishes::default()).unwrap();
    let text = delegation.plugins[0].config.get().to_owned();
    assert!(
        text.contains("\"big\":12345678901234567890123,\"f\":1.10"),
        "{text}"
    );
    proof::of!("CNI-CONF-07");
}

/// CNI-CAP-01, CNI-CAP-02: plugins get declared capabilities, not the declaration.
#[test]
fn runtime_config_has_declared_capabilities_only() {
    let list = r#"{"cniVersion":"1.0.0","plugins":[
        {"type":"a","capabilities":{"cgroupPath":true,"dns":false}},
        {"type":"b"}]}"#;
    let wishes = offered(&json!({"cgroupPath": "/pods", "dns": {}, "other": 1}));
    let plugins = prepared(list, &wishes);
    assert_eq!(plugins[0]["runtimeConfig"], json!({"cgroupPath": "/pods"}));
    assert_eq!(plugins[1].get("runtimeConfig"), None);
    assert!(
        plugins
            .iter()
            .all(|plugin| plugin.get("capabilities").is_none())
    );
    proof::of!("CNI-CAP-01", "CNI-CAP-02");
}

/// CNI-CONF-08: values merge over a stored `runtimeConfig`, however it is spelled.
#[test]
fn a_stored_runtime_config_is_merged_over() {
    let conf = r#"{"cniVersion":"1.0.0","type":"a","capabilities":{"bandwidth":true},
        "RuntimeConfig":{"bandWidth":{"ingressRate":1},"kept":1.50},"prevResult":{"ips":[]}}"#;
    let wishes = Wishes::of(&options(&json!({
        "name": "x", "bandwidth": {"ingressRate": 1000, "ingressBurst": 8},
    })));
    let [plugin] = &prepared(conf, &wishes)[..] else {
        panic!("one plugin");
    };
    let wanted = json!({"kept": 1.5, "bandwidth": {"ingressRate": 1000, "ingressBurst": 8}});
    assert_eq!(plugin["runtimeConfig"], wanted);
    assert_eq!(plugin.get("RuntimeConfig"), None);
    assert_eq!(plugin.get("prevResult"), None);
    proof::of!("CNI-CONF-08", "CNI-CONF-06");
}

/// CNI-CONF-06: a definition does not speak for the runtime.
#[test]
fn keys_of_the_runtime_are_not_taken_from_a_definition() {
    let conf = r#"{"cniVersion":"1.1.0","type":"a","cni.dev/valid-attachments":[],
        "CNI.dev/other":1,"prevResult":{"ips":[]},"cni.devices":2}"#;
    let plugins = prepared(conf, &Wishes::default());
    let wanted =
        json!({"cniVersion": "1.1.0", "type": "a", "name": "from-object", "cni.devices": 2});
    assert_eq!(plugins[0], wanted);
    proof::of!("CNI-CONF-06");
}

/// NPWG-4.1.2.1.3.2 and its siblings: values have the names of their capabilities.
#[test]
fn what_an_element_asks_for_arrives_in_runtime_config() {
    let conf = r#"{"cniVersion":"1.0.0","type":"a","capabilities":
        {"ips":true,"mac":true,"portMappings":true,"infinibandGUID":true}}"#;
    let wishes = Wishes::of(&options(&json!({
        "name": "x", "ips": ["10.1.0.5/24", "fd00::5"], "mac": "02:00:00:00:00:2A",
        "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "TCP"}],
        "infiniband-guid": "24:8a:07:03:00:8d:ae:2f",
    })));
    let wanted = json!({
        "ips": ["10.1.0.5/24", "fd00::5"], "mac": "02:00:00:00:00:2a",
        "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}],
        "infinibandGUID": "24:8a:07:03:00:8d:ae:2f",
    });
    assert_eq!(prepared(conf, &wishes)[0]["runtimeConfig"], wanted);
    proof::of!("NPWG-4.1.2.1.3.2");
}

/// NPWG-4.1.2.1.3.2, PAIN-SIL-2: a demand no plugin takes fails the attachment.
///
/// The error names the demand.
#[test]
fn a_demand_that_no_plugin_takes_is_refused_by_its_name() {
    let demands = [
        (json!({"ips": ["10.1.0.5"]}), "ips"),
        (json!({"mac": "02:00:00:00:00:01"}), "mac"),
        (json!({"bandwidth": {"egressRate": 1000}}), "bandwidth"),
        (
            json!({"portMappings": [{"hostPort": 1, "containerPort": 2}]}),
            "portMappings",
        ),
        (
            json!({"infiniband-guid": "24:8a:07:03:00:8d:ae:2f"}),
            "infinibandGUID",
        ),
    ];
    for (mut element, capability) in demands {
        element["name"] = "x".into();
        let wishes = Wishes::of(&options(&element));
        let declared = |flag: bool| {
            json!({"cniVersion": "1.0.0", "plugins": [
                {"type": "a"}, {"type": "b", "capabilities": {capability: flag}}]})
            .to_string()
        };
        let error = prepare(&chain(&declared(false)), &wishes).unwrap_err();
        assert!(error.to_string().contains(capability), "{error}");
        assert!(
            prepare(&chain(&declared(true)), &wishes).is_ok(),
            "{capability}"
        );
    }
    proof::of!("NPWG-4.1.2.1.3.2", "PAIN-SIL-2");
}

/// NPWG-4.1.2.1.6: into `args.cni` of every plugin, key by key, over what is there.
#[test]
fn cni_args_win_over_those_of_the_configuration() {
    let list = r#"{"cniVersion":"1.0.0","plugins":[
        {"type":"a","args":{"cni":{"x":1,"y":{"deep":1}},"other":2}},{"type":"b"}]}"#;
    let wishes = Wishes::of(&options(&json!({
        "name": "n", "cni-args": {"y": {"new": 1.10}, "z": "text"},
    })));
    let plugins = prepared(list, &wishes);
    let wanted = json!({"cni": {"x": 1, "y": {"new": 1.1}, "z": "text"}, "other": 2});
    assert_eq!(plugins[0]["args"], wanted);
    assert_eq!(
        plugins[1]["args"],
        json!({"cni": {"y": {"new": 1.1}, "z": "text"}})
    );
    proof::of!("NPWG-4.1.2.1.6");
}
