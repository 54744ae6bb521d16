//! Networks that Multus adds to every pod.

use super::*;

#[test]
fn the_first_delegate_is_the_default_network_and_others_are_objects_of_every_pod() {
    let conf = json!({"type": "multus", "multusNamespace": "net", "delegates": [
        {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "bridge"}, {"type": "portmap"}]},
        {"cniVersion": "1.0.0", "name": "storage", "type": "macvlan", "master": "eth1"},
        {"type": "podnet", "podNetwork": "blue"},
        {"name": "x"},
        {"cniVersion": "1.0.0", "name": "storage", "type": "macvlan", "master": "eth2"},
        {"cniVersion": "1.0.0", "name": "again", "TYPE": "multus", "type": "bridge"},
    ]});
    let report = import(&conf.to_string(), &Definitions::default()).unwrap();
    assert!(has(&report, "--default-network=delegate"));
    assert_eq!(report.files[0].path, "/etc/cni/net.d/10-lan.conflist");
    assert_outcome(&report, "delegates[0]", Outcome::Carried, "10-lan.conflist");
    let names: Vec<&str> = report
        .objects
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect();
    // Of two networks of one name none is lost.
    assert_eq!(names, ["storage", "multus-delegate-2", "multus-delegate-4"]);
    let mut again = Definitions::default();
    for object in &report.objects {
        again.add("printed", &object.to_string()).unwrap();
    }
    let all = "--default-networks=net/storage,net/multus-delegate-2,net/multus-delegate-4";
    assert!(has(&report, all), "{report}");
    // systemNamespaces is about defaultNetworks alone.
    assert!(has(&report, "--system-namespaces="), "{report}");
    assert_outcome(
        &report,
        "delegates[1]",
        Outcome::Carried,
        "net/storage first",
    );
    assert_outcome(
        &report,
        "delegates[2]",
        Outcome::Carried,
        "net/multus-delegate-2",
    );
    let not = Outcome::NotCarried;
    assert_outcome(&report, "delegates[3]", not, "neither type nor plugins");
    assert_outcome(&report, "delegates[5]", not, "once more");
}

/// NPWG-X7
#[test]
fn default_networks_and_system_namespaces_become_options() {
    let mut definitions = Definitions::default();
    let text = format!(
        "{NAD}metadata: {{name: a, namespace: kube-system}}\nspec: {{config: '{{\"type\": \"bridge\"}}'}}\n---\n{NAD}\
         metadata: {{name: bad, namespace: kube-system}}\nspec: {{config: '{{}}'}}\n"
    );
    definitions.add("nads.yaml", &text).unwrap();
    let conf = json!({"type": "multus", "clusterNetwork": "/etc/cni/net.d",
        "defaultNetworks": ["a", "b", "bad", "/etc/cni/lan.conf", "../x"],
        "systemNamespaces": ["kube-system", "ops"], "namespaceIsolation": true});
    let report = import(&conf.to_string(), &definitions).unwrap();
    assert!(
        has(&report, "--default-networks=kube-system/a,kube-system/b"),
        "{report}"
    );
    assert!(
        has(&report, "--system-namespaces=kube-system,ops"),
        "{report}"
    );
    let hand = Outcome::ByHand;
    assert_outcome(
        &report,
        "defaultNetworks[0]",
        Outcome::Carried,
        "kube-system/a",
    );
    assert_outcome(&report, "defaultNetworks[1]", hand, "if the cluster has it");
    assert_outcome(
        &report,
        "defaultNetworks[2]",
        Outcome::NotCarried,
        "neither type",
    );
    assert_outcome(
        &report,
        "defaultNetworks[3]",
        hand,
        "write the configuration",
    );
    assert_outcome(
        &report,
        "defaultNetworks[4]",
        hand,
        "write the configuration",
    );
    assert_outcome(&report, "systemNamespaces", Outcome::Carried, "ops");

    let wrong = json!({"type": "multus", "clusterNetwork": "x", "defaultNetworks": ["a"],
        "systemNamespaces": ["a,b"]});
    let error = import(&wrong.to_string(), &definitions).unwrap_err();
    assert!(error.to_string().contains("systemNamespaces"), "{error}");
    let none = read(&json!({"defaultNetworks": ["a"], "systemNamespaces": []}));
    assert!(has(&none, "--system-namespaces="), "{none}");

    let conf = json!({"type": "multus", "delegates": [{"type": "bridge"}], "defaultNetworks": ["a"],
        "systemNamespaces": ["ops"]});
    let report = import(&conf.to_string(), &definitions).unwrap();
    let nothing = Outcome::NeedsNothing;
    assert_outcome(&report, "defaultNetworks[0]", nothing, "clusterNetwork");
    assert_outcome(&report, "systemNamespaces", nothing, "none here");
    let mut options = report.options.iter();
    assert!(!options.any(|it| it.starts_with("--default-networks") || it.starts_with("--system")));
    proof::of!("NPWG-X7");
}
