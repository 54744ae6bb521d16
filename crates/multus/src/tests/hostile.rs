//! Files that somebody has made to do harm.

use std::fmt::Write as _;

use super::*;

/// A report goes into tickets.
#[test]
fn what_is_secret_by_its_key_is_not_shown_at_any_depth() {
    let secret = "hunter2";
    let mut definitions = Definitions::default();
    let nad = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "lan", "namespace": "a"},
        "spec": {"config": format!("{{\"type\": \"x\", \"etcd\": {{\"password\": \"{secret}\"}}}}"),
            "access_token": secret, "more": {"a": [{"clientKeyData": secret}]}}});
    definitions.add("f", &nad.to_string()).unwrap();
    let broken = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "broken", "namespace": "a"},
        "spec": {"config": format!("password: {secret}")}});
    definitions.add("g", &broken.to_string()).unwrap();
    let conf = json!({"type": "multus", "clusterNetwork": "/etc/cni/net.d",
        "kubeconfig": format!("apiVersion: v1\nusers:\n- {{name: a, user: {{token: {secret}}}}}\n"),
        "users": [{"user": {"token": secret, "client-key-data": secret}}], "Password": secret,
        "remark": {"private_key": [secret], "CERTIFICATE-AUTHORITY-DATA": secret},
        "logOptions": {"secret": secret}, "cert": format!("-----BEGIN {secret}")});
    let report = import(&conf.to_string(), &definitions).unwrap();
    let json = serde_json::to_string(&report).unwrap();
    for text in [report.to_string(), json] {
        assert!(!text.contains(secret), "{text}");
        assert!(text.contains("(not shown)"), "{text}");
    }
    // The path of the kubeconfig is none.
    let path = read(&json!({"kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig"}));
    assert!(
        found(&path, "kubeconfig")
            .value
            .contains("multus.kubeconfig")
    );
    let error = refused(&json!({"kubeconfig": {"users": [{"token": secret}]}}));
    assert!(
        error.contains("kubeconfig") && !error.contains(secret),
        "{error}"
    );
}

/// Each element has a line of some hundred bytes.
#[test]
fn more_elements_than_a_configuration_has_are_refused_and_not_listed() {
    let many = |value: Value| Value::Array(vec![value; 257]);
    let mut keys = json!({});
    for number in 0..257 {
        keys[format!("k{number}")] = true.into();
    }
    for (fields, word) in [
        (keys.clone(), "the configuration has"),
        (
            json!({"defaultNetworks": many(json!("a"))}),
            "defaultNetworks has 257",
        ),
        (
            json!({"systemNamespaces": many(json!("a"))}),
            "systemNamespaces has 257",
        ),
        (
            json!({"delegates": many(json!({"type": "x"}))}),
            "delegates has 257",
        ),
        (json!({"capabilities": keys}), "capabilities has 257"),
        (json!({"logOptions": keys}), "logOptions has 257"),
        (
            json!({"globalNamespaces": "a,".repeat(256)}),
            "globalNamespaces has 257",
        ),
        (
            json!({"plugins": many(json!({"type": "x"}))}),
            "plugins has 257",
        ),
    ] {
        let error = refused(&fields);
        assert!(error.contains(word) && error.contains("256"), "{error}");
        assert!(error.len() < 400, "{error}");
    }
}

#[test]
fn deep_and_self_repeating_texts_end_soon_with_an_error() {
    let deep = |open: &str, close: &str| {
        let times = 100_000;
        format!(
            "{{\"type\": \"multus\", \"a\": {}{}}}",
            open.repeat(times),
            close.repeat(times)
        )
    };
    for text in [deep("[", "]"), deep("{\"a\":", "}"), "[".repeat(1 << 20)] {
        let error = import(&text, &Definitions::default()).unwrap_err();
        assert!(error.to_string().contains("recursion limit"), "{error}");
        assert!(Definitions::default().add("f", &text).is_err());
    }
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        let below = below.trim_end_matches(", ");
        writeln!(bomb, "a{level}: &a{level} [{below}]").unwrap();
    }
    let error = Definitions::default().add("bomb.yaml", &bomb).unwrap_err();
    assert!(
        error.to_string().starts_with("bomb.yaml is not YAML"),
        "{error}"
    );
}

/// A path that climbs is somewhere else than it ends, and a name is no path.
#[test]
fn paths_that_lead_away_are_not_taken_for_the_runtimes_directory() {
    for path in [
        "/etc/cni/net.d/../../../tmp/etc/cni/net.d",
        "/x/../etc/cni/net.d",
    ] {
        let conf = json!({"type": "multus", "clusterNetwork": path});
        let report = import(&conf.to_string(), &Definitions::default()).unwrap();
        assert_outcome(&report, "clusterNetwork", Outcome::ByHand, "copy");
        assert_outcome(
            &read(&json!({"confDir": path})),
            "confDir",
            Outcome::ByHand,
            "cni-conf-dir",
        );
    }
    for name in ["../../etc/cron.d/x", "..", "a/b", "a\nb", "-x", ""] {
        let conf = json!({"type": "multus", "delegates": [
            {"cniVersion": "1.0.0", "name": name, "type": "bridge"}]});
        let report = import(&conf.to_string(), &Definitions::default()).unwrap();
        for file in &report.files {
            let rest = file.path.strip_prefix("/etc/cni/net.d/10-").unwrap();
            assert!(
                !rest.contains('/') && !rest.contains(char::is_whitespace),
                "{name:?}: {rest}"
            );
        }
    }
}

/// Escapes of terminals, and characters that turn the order of others around.
#[test]
fn what_is_printed_is_shown_as_it_is() {
    let evil = "a\u{202e}b\u{9b}31m\u{200b}\u{e0041}";
    let conf = json!({"type": "multus", "delegates": [
        {"cniVersion": "1.0.0", "name": "lan", "type": "bridge", "note": evil},
        {"cniVersion": "1.0.0", "name": "san", "type": "bridge", "note": evil},
        {"cniVersion": "1.0.0", "name": evil, "type": "bridge"}],
        evil: evil});
    let report = import(&conf.to_string(), &Definitions::default()).unwrap();
    let text = report.to_string();
    for hostile in ['\u{202e}', '\u{9b}', '\u{200b}', '\u{e0041}', '\u{1b}'] {
        assert!(!text.contains(hostile), "{hostile:?}: {text}");
    }
    // What is to be written is still the same.
    let line = text
        .lines()
        .find(|line| line.starts_with("{\"cniVersion\""))
        .unwrap();
    let written: Value = serde_json::from_str(line).unwrap();
    assert_eq!(written["note"], evil);
    // White space between values is no part of them.
    let conf = "{\"type\": \"multus\", \"delegates\": [{\"name\": \"lan\", \"type\": \"x\", \"a\": [1,\t\r\n2]}]}";
    let text = import(conf, &Definitions::default()).unwrap().to_string();
    let file = text.split("10-lan.conf\n").nth(1).unwrap();
    let file = file.split("\n\n#").next().unwrap();
    let written: Value = serde_json::from_str(file).unwrap();
    assert_eq!(written["a"], json!([1, 2]), "{file}");
    let error = import(&json!({"type": evil}).to_string(), &Definitions::default());
    let error = error.unwrap_err().to_string();
    assert!(
        !error.contains('\u{202e}') && !error.contains('\u{9b}'),
        "{error}"
    );
}

/// Go takes keys in any case, and of several the last.
#[test]
fn another_plugin_in_another_spelling_is_found() {
    for config in [
        r#"{"cniVersion": "1.0.0", "name": "x", "type": "bridge", "Type": "multus"}"#,
        r#"{"cniVersion": "1.0.0", "name": "x", "type": "flannel", "delegate": {"type": "multus-shim"}}"#,
        r#"{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "a", "TYPE": "multus"}]}"#,
    ] {
        let conf = format!(r#"{{"type": "multus", "delegates": [{config}]}}"#);
        let report = import(&conf, &Definitions::default()).unwrap();
        assert_outcome(&report, "delegates[0]", Outcome::NotCarried, "once more");
        assert!(report.files.is_empty(), "{report}");
        let mut definitions = Definitions::default();
        let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "x", "namespace": "a"}, "spec": {"config": config}});
        definitions.add("f", &object.to_string()).unwrap();
        let conf = r#"{"type": "multus", "clusterNetwork": "/etc/cni/net.d"}"#;
        let report = import(conf, &definitions).unwrap();
        assert_outcome(
            &report,
            "NetworkAttachmentDefinition a/x",
            Outcome::ByHand,
            "remove it",
        );
    }
}
