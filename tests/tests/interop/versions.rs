//! Test the version that libcni speaks to podnet (CNI-CONF-03), and its answers.

use serde_json::{Value, json};

use super::libcni::Tools;

/// The result has the highest version of `cniVersion` and `cniVersions`.
///
/// It is the highest that libcni knows.
#[test]
fn the_highest_common_version_is_used() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    let pod = node.pod("a");
    for (one, several, spoken) in [
        (json!("1.0.0"), json!(null), "1.0.0"),
        (json!(null), json!(["0.3.1", "0.4.0", "1.0.0"]), "1.0.0"),
        (json!("1.1.0"), json!(["0.4.0", "1.0.0"]), "1.1.0"),
        (json!("0.3.1"), json!(["1.1.0", "0.4.0", "9.9.9"]), "1.1.0"),
        (json!("9.9.9"), json!(["0.4.0"]), "0.4.0"),
    ] {
        let mut list = json!({"name": "blue", "plugins": [libcni.podnet("blue")]});
        for (key, value) in [("cniVersion", &one), ("cniVersions", &several)] {
            if !value.is_null() {
                list[key] = value.clone();
            }
        }
        libcni.list(&list);
        let port = libcni.attach("blue", &pod, "net1");
        assert_eq!(port.result["cniVersion"], spoken, "of {one} and {several}");
        libcni.run("check", "blue", &pod, "net1").silent();
        libcni.detach("blue", &pod, "net1");
    }
    node.assert_empty();
    proof::of!("CNI-CONF-03");
}

/// libcni decodes each version with code of its own and refuses what does not fit.
#[test]
fn every_version_is_understood() {
    let Some(tools) = Tools::find(testbed::test_name!(), &[]) else {
        return;
    };
    let node = testbed::node!();
    let libcni = tools.on(&node);
    let pod = node.pod("a");
    let podnet = || [libcni.podnet("blue")];
    for version in [
        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
    ] {
        libcni.list(&json!({"cniVersion": version, "name": "blue", "plugins": podnet()}));
        let result = libcni.run("add", "blue", &pod, "net1").result();
        assert_eq!(result["cniVersion"], version);
        assert!(has_address(&result), "{result}");
        let check = libcni.run("check", "blue", &pod, "net1");
        if version.starts_with("0.1") || version.starts_with("0.2") || version.starts_with("0.3") {
            // libcni itself refuses: CHECK came with 0.4.0.
            check.fails_with(&["does not support the CHECK command"]);
        } else {
            check.silent();
        }
        libcni.detach("blue", &pod, "net1");
    }
    node.assert_empty();
}

/// Whichever shape the version has (CNI-RES-01).
fn has_address(result: &Value) -> bool {
    let old = result["ip4"]["ip"].as_str();
    let new = result["ips"][0]["address"].as_str();
    old.or(new).is_some_and(|address| address.ends_with("/24"))
}
