//! One configuration for each field, and those that are refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod given;
mod hostile;

const NAD: &str = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\n";

/// Imports a plugin's file with these fields in addition to a network.
fn with(fields: &Value) -> Result<Report, ImportError> {
    let mut conf = json!({"type": "multus", "clusterNetwork": "/etc/cni/net.d"});
    for (key, value) in fields.as_object().unwrap() {
        conf[key] = value.clone();
    }
    import(&conf.to_string(), &Definitions::default())
}

fn read(fields: &Value) -> Report {
    with(fields).unwrap()
}

fn refused(fields: &Value) -> String {
    with(fields).unwrap_err().to_string()
}

fn found<'a>(report: &'a Report, field: &str) -> &'a Finding {
    let mut findings = report.findings.iter();
    findings
        .find(|finding| finding.field == field)
        .unwrap_or_else(|| panic!("no line for {field}: {report}"))
}

#[track_caller]
fn assert_outcome(report: &Report, field: &str, outcome: Outcome, word: &str) {
    let finding = found(report, field);
    assert_eq!(finding.outcome, outcome, "{finding:?}");
    assert!(finding.text.contains(word), "{finding:?}");
}

fn has(report: &Report, option: &str) -> bool {
    let options = report.options.iter().chain(&report.agent_options);
    options.into_iter().any(|it| it == option)
}

#[test]
fn each_field_is_in_the_table_once() {
    let mut names: Vec<String> = FIELDS.iter().map(|it| it.name.to_lowercase()).collect();
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// A value of each field's type; each gets a line of its own, whatever its fate.
#[test]
fn each_field_of_the_table_has_a_line_in_the_report() {
    for field in FIELDS {
        let value = match field.kind {
            Kind::Text => json!("debug"),
            Kind::Flag => json!(true),
            Kind::Number => json!(3),
            Kind::Names => json!(["a"]),
            Kind::Object => json!({"a": true}),
            Kind::Objects => json!([{"type": "bridge"}]),
        };
        let value = if field.name == "type" {
            json!("multus")
        } else {
            value
        };
        let (key, fields) = match field.name.split_once('.') {
            Some((outer, inner)) => (outer, json!({outer: {inner: value}})),
            None => (field.name, json!({field.name: value})),
        };
        let report = read(&fields);
        let lines = report.findings.iter();
        let lines = lines.filter(|finding| finding.field.starts_with(key));
        assert!(lines.count() > 0, "{}: {report}", field.name);
    }
}

#[test]
fn a_value_of_another_type_is_refused_with_the_field_and_what_to_write() {
    for field in FIELDS.iter().filter(|field| field.name != "type") {
        let wrong = if field.kind == Kind::Text {
            json!(7)
        } else {
            json!("yes")
        };
        let fields = match field.name.split_once('.') {
            Some((outer, inner)) => json!({outer: {inner: wrong}}),
            None => json!({field.name: wrong}),
        };
        let error = refused(&fields);
        let expected = format!("write {}", field.kind.expected());
        assert!(
            error.contains(field.name) && error.contains(&expected),
            "{error}"
        );
    }
}

#[test]
fn namespace_isolation_is_an_option_when_it_is_on() {
    let report = read(&json!({"namespaceIsolation": true}));
    assert!(has(&report, "--namespace-isolation"));
    assert_outcome(&report, "namespaceIsolation", Outcome::Carried, "--names");
    let report = read(&json!({"namespaceIsolation": false}));
    assert!(!has(&report, "--namespace-isolation"));
    assert_outcome(&report, "namespaceIsolation", Outcome::NeedsNothing, "");
}

/// The namespace `default` is global only while the list is absent.
#[test]
fn global_namespaces_are_one_text_and_count_with_isolation_only() {
    let both = json!({"namespaceIsolation": true, "globalNamespaces": "tools, default ,"});
    let report = read(&both);
    assert!(
        has(&report, "--global-namespaces=default,tools"),
        "{report}"
    );
    let without = json!({"namespaceIsolation": true, "globalNamespaces": "tools"});
    let report = read(&without);
    assert!(has(&report, "--global-namespaces=tools"));
    assert_outcome(
        &report,
        "globalNamespaces",
        Outcome::Carried,
        "none of them",
    );
    let report = read(&json!({"globalNamespaces": "tools"}));
    assert_eq!(report.options.len(), 2, "{report}");
    assert_outcome(&report, "globalNamespaces", Outcome::NeedsNothing, "unless");
    for blank in ["", " , "] {
        let fields = json!({"namespaceIsolation": true, "globalNamespaces": blank});
        let given = has(&read(&fields), "--global-namespaces=");
        assert_eq!(
            given,
            !blank.is_empty(),
            "a list of blanks has no namespace"
        );
    }
    let error = refused(&json!({"globalNamespaces": "Tools"}));
    assert!(error.contains("globalNamespaces") && error.contains("\"Tools\""));
}

#[test]
fn the_namespace_of_default_networks_is_that_of_the_override() {
    let report = read(&json!({"multusNamespace": "net"}));
    assert!(has(&report, "--default-override=net"));
    assert_outcome(&report, "multusNamespace", Outcome::Carried, "override");
    // Multus lets pods choose without any setting, and podnet does not.
    let report = read(&json!({}));
    assert!(has(&report, "--default-override=kube-system"));
    assert!(found(&report, "multusNamespace").value.contains("not in"));
    let report = read(&json!({"multusNamespace": ""}));
    assert!(has(&report, "--default-override=kube-system"), "{report}");
    let error = refused(&json!({"multusNamespace": "a/b"}));
    assert!(error.contains("multusNamespace") && error.contains("a/b"));
}

#[test]
fn cluster_network_is_a_directory_a_file_or_a_name() {
    let report = |name: &str| read(&json!({"clusterNetwork": name}));
    let cases = [
        ("/etc/cni/net.d", Outcome::Carried, "00-multus.conf"),
        (
            "/host/etc/cni/net.d/10-x.conflist",
            Outcome::ByHand,
            "rename",
        ),
        ("/run/other", Outcome::ByHand, "copy"),
        ("lan", Outcome::ByHand, "--definitions"),
    ];
    for (name, outcome, word) in cases {
        let report = report(name);
        assert!(has(&report, "--default-network=delegate"), "{name}");
        assert_outcome(&report, "clusterNetwork", outcome, word);
    }
}

#[test]
fn a_cluster_network_with_a_definition_becomes_an_option_or_a_file() {
    let mut definitions = Definitions::default();
    let text = format!(
        "{NAD}metadata: {{name: ours, namespace: kube-system}}\nspec: {{config: '{{\"cniVersion\": \"1.0.0\", \
         \"type\": \"podnet\", \"podNetwork\": \"blue\"}}'}}\n---\n{NAD}metadata: {{name: lan, namespace: kube-system}}\n\
         spec: {{config: '{{\"cniVersion\": \"1.0.0\", \"type\": \"bridge\", \"mtu\": 1400}}'}}\n---\n{NAD}\
         metadata: {{name: disk, namespace: kube-system}}\n---\n{NAD}metadata: {{name: loop, namespace: kube-system}}\n\
         spec: {{config: '{{\"type\": \"multus\"}}'}}\n---\n{NAD}metadata: {{name: bad, namespace: kube-system}}\n\
         spec: {{config: '{{}}'}}\n"
    );
    definitions.add("nads.yaml", &text).unwrap();
    let read = |name: &str| {
        let conf = json!({"type": "multus", "clusterNetwork": name});
        import(&conf.to_string(), &definitions).unwrap()
    };
    let ours = read("ours");
    assert!(has(&ours, "--default-network=podnetwork:blue"), "{ours}");
    let lan = read("lan");
    assert!(has(&lan, "--default-network=delegate"));
    assert_eq!(lan.files[0].path, "/etc/cni/net.d/10-lan.conf");
    let written: Value = serde_json::from_str(&lan.files[0].text).unwrap();
    let expected = json!({"cniVersion": "1.0.0", "type": "bridge", "mtu": 1400, "name": "lan"});
    assert_eq!(written, expected);
    assert_outcome(&read("disk"), "clusterNetwork", Outcome::ByHand, "confDir");
    for (name, word) in [("loop", "once more"), ("bad", "neither type")] {
        let report = read(name);
        assert_outcome(&report, "clusterNetwork", Outcome::NotCarried, word);
        let options = report.options.iter();
        let mut chosen = options.filter(|it| it.starts_with("--default-network"));
        assert_eq!(chosen.next(), None, "{name}: nothing is chosen in silence");
    }
}

#[test]
fn a_delegate_of_podnet_is_carried_only_when_nothing_of_it_is_lost() {
    let with = |config: Value| {
        let conf = json!({"type": "multus", "delegates": [config]});
        import(&conf.to_string(), &Definitions::default()).unwrap()
    };
    let plain = with(json!({"cniVersion": "1.0.0", "type": "podnet", "podNetwork": "blue"}));
    assert!(has(&plain, "--default-network=podnetwork:blue"));
    let more = with(json!({"type": "podnet", "podNetwork": "blue", "isDefaultGateway": true}));
    assert_outcome(
        &more,
        "delegates[0]",
        Outcome::NotCarried,
        "isDefaultGateway",
    );
    assert!(!has(&more, "--default-network=podnetwork:blue"));
}

#[test]
fn delegates_count_without_cluster_network_only() {
    let report = read(&json!({"delegates": [{"type": "bridge"}, {"type": "x"}]}));
    for field in ["delegates[0]", "delegates[1]"] {
        assert_outcome(&report, field, Outcome::NeedsNothing, "no notice");
    }
    assert!(report.files.is_empty() && report.objects.is_empty());
}

#[test]
fn places_of_the_runtime_need_nothing_and_others_are_copied_by_hand() {
    for (field, usual, other) in [
        ("confDir", "/etc/cni/net.d", "/etc/cni/multus/net.d"),
        ("cniConfigDir", "/host/etc/cni/net.d", "/srv/cni"),
        (
            "multusAutoconfigDir",
            "/host/etc/cni/net.d",
            "/run/multus/cni/net.d",
        ),
        ("binDir", "/opt/cni/bin", "/var/lib/cni/bin"),
        ("multusConfigFile", "auto", "/tmp/my.conf"),
    ] {
        let report = read(&json!({field: usual}));
        assert_outcome(&report, field, Outcome::NeedsNothing, "");
        let report = read(&json!({field: other}));
        assert_outcome(&report, field, Outcome::ByHand, "");
    }
    let report = read(&json!({"multusMasterCNI": "10-x.conf"}));
    assert_outcome(&report, "multusMasterCNI", Outcome::ByHand, "rename");
}

#[test]
fn a_file_of_readiness_is_one_of_the_runtimes_or_is_not_waited_for() {
    let report = |file: &str| read(&json!({"readinessindicatorfile": file}));
    let usual = report("/host/etc/cni/net.d/10-x.conflist");
    assert_outcome(
        &usual,
        "readinessindicatorfile",
        Outcome::NeedsNothing,
        "STATUS",
    );
    let other = report("/run/x/ready");
    assert_outcome(
        &other,
        "readinessindicatorfile",
        Outcome::NotCarried,
        "no counterpart",
    );
    assert_outcome(
        &report(""),
        "readinessindicatorfile",
        Outcome::NeedsNothing,
        "nothing",
    );
}

#[test]
fn flags_that_podnet_has_always_need_nothing_and_their_opposites_are_not_carried() {
    for (field, ours) in [
        ("retryDeleteOnError", true),
        ("logToStderr", true),
        ("cleanupConfigOnExit", false),
    ] {
        let report = read(&json!({field: ours}));
        assert_outcome(&report, field, Outcome::NeedsNothing, "");
        let report = read(&json!({field: !ours}));
        assert_outcome(&report, field, Outcome::NotCarried, "");
    }
}

#[test]
fn a_level_of_logs_is_a_filter() {
    let report = |level: &str| read(&json!({"logLevel": level}));
    let debug = report("Debug");
    assert!(has(
        &debug,
        "--log=info,agent=debug,kube_runtime=off,kube_client=off"
    ));
    assert!(has(&report("panic"), "--log=error") && has(&report("error"), "--log=error"));
    assert_outcome(
        &report("verbose"),
        "logLevel",
        Outcome::NeedsNothing,
        "--log",
    );
    assert_outcome(
        &report("loud"),
        "logLevel",
        Outcome::NotCarried,
        "no such level",
    );
}

#[test]
fn capabilities_beyond_those_of_podnets_configuration_are_not_carried() {
    let fields = json!({"capabilities": {"portMappings": true, "ips": true, "mac": false}});
    let report = read(&fields);
    assert_outcome(
        &report,
        "capabilities.portMappings",
        Outcome::NeedsNothing,
        "declares",
    );
    assert_outcome(
        &report,
        "capabilities.ips",
        Outcome::NotCarried,
        "does not declare",
    );
    assert_outcome(
        &report,
        "capabilities.mac",
        Outcome::NeedsNothing,
        "nothing",
    );
    let error = refused(&json!({"capabilities": {"ips": "yes"}}));
    assert!(error.contains("capabilities.ips") && error.contains("true or false"));
}

#[test]
fn objects_are_told_of_field_by_field_with_keys_that_are_unknown() {
    let fields = json!({"logOptions": {"maxAge": 5, "maxsize": 100, "colour": "red"},
        "perNodeCertificate": {"enabled": true, "certDir": "/x", "x": 1}});
    let report = read(&fields);
    let not = Outcome::NotCarried;
    assert_outcome(&report, "logOptions.maxAge", not, "limit of age");
    assert_outcome(&report, "logOptions.maxsize", not, "containerLogMaxSize");
    assert_outcome(&report, "logOptions.colour", not, "knows the key");
    assert_outcome(&report, "perNodeCertificate.enabled", not, "token");
    assert_outcome(&report, "perNodeCertificate.x", not, "knows the key");
}

/// Go reads keys in any case, and so does Multus.
#[test]
fn keys_count_in_any_case_and_unknown_ones_are_named() {
    let report = read(&json!({"NAMESPACEISOLATION": true, "Note1": "to my successor"}));
    assert!(has(&report, "--namespace-isolation"));
    assert_outcome(&report, "Note1", Outcome::NotCarried, "knows the key");
}

#[test]
fn the_daemons_file_is_read_as_well() {
    let text = r#"{"chrootDir": "/hostroot", "socketDir": "/run/multus", "metricsPort": 9091, "binDir": "/opt/cni/bin"}"#;
    let report = import(text, &Definitions::default()).unwrap();
    assert!(has(&report, "--default-network=delegate"), "{report}");
    assert_outcome(&report, "chrootDir", Outcome::NeedsNothing, "--host-root");
    assert_outcome(&report, "socketDir", Outcome::NeedsNothing, "--socket");
    assert_outcome(&report, "metricsPort", Outcome::NotCarried, "--admin");
    assert_outcome(&report, "clusterNetwork", Outcome::Carried, "daemon");
}

#[test]
fn multus_is_found_in_a_list_and_what_is_behind_it_is_named() {
    let list = json!({"cniVersion": "1.0.0", "name": "x", "disableCheck": true, "plugins": [
        {"type": "multus", "clusterNetwork": "/etc/cni/net.d", "namespaceIsolation": true},
        {"type": "tuning"},
    ]});
    let report = import(&list.to_string(), &Definitions::default()).unwrap();
    assert!(has(&report, "--namespace-isolation"));
    assert_outcome(
        &report,
        "plugins[1]",
        Outcome::NotCarried,
        "list of the default",
    );
    assert_outcome(&report, "disableCheck", Outcome::NotCarried, "list");
    let list = json!({"plugins": [{"type": "tuning"}]});
    let error = import(&list.to_string(), &Definitions::default()).unwrap_err();
    assert_eq!(error, ImportError::NoMultusInList);
}

#[test]
fn a_key_that_is_there_twice_is_refused_at_every_depth() {
    for (text, key) in [
        (r#"{"type": "multus", "type": "multus"}"#, "type"),
        (
            r#"{"type": "multus", "confDir": "a", "confdir": "b"}"#,
            "confdir",
        ),
        (
            r#"{"type": "multus", "delegates": [{"a": {"b": 1, "b": 2}}]}"#,
            "b",
        ),
        (
            r#"{"type": "multus", "clusterNetwork": "/x", "logOptions": {"maxAge": 1, "MaxAge": 2}}"#,
            "MaxAge",
        ),
    ] {
        let error = import(text, &Definitions::default()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ImportError::NotJson { .. }), "{text}");
        assert!(text.contains(key) && text.contains("twice"), "{text}");
    }
}

#[test]
fn other_files_are_refused_with_the_one_to_give() {
    for (text, word) in [
        ("", "00-multus.conf"),
        ("[]", "JSON object"),
        (r#"{"type": "bridge"}"#, "\"bridge\""),
        (r#"{"mood": 1}"#, "no field of Multus"),
        (
            r#"{"type": "multus", "delegates": []}"#,
            "neither clusterNetwork nor",
        ),
        (
            r#"{"type": "multus", "clusterNetwork": null}"#,
            "neither clusterNetwork nor",
        ),
    ] {
        let error = import(text, &Definitions::default())
            .unwrap_err()
            .to_string();
        let word = if text.is_empty() { "JSON object" } else { word };
        assert!(error.contains(word), "{text}: {error}");
    }
}

#[test]
fn definitions_are_read_as_kubectl_prints_them_and_nothing_of_them_is_passed_over() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
         "metadata": {"name": "lan", "namespace": "a"},
         "spec": {"config": "{\"type\": \"bridge\"}", "extra": 1}},
        {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
         "metadata": {"name": "bad"}, "spec": {"config": "{\"plugins\": []}"}},
    ]});
    let mut definitions = Definitions::default();
    definitions.add("all.json", &list.to_string()).unwrap();
    let conf = r#"{"type": "multus", "clusterNetwork": "/etc/cni/net.d"}"#;
    let report = import(conf, &definitions).unwrap();
    let path = "NetworkAttachmentDefinition a/lan";
    assert_outcome(&report, path, Outcome::NeedsNothing, "(bridge)");
    assert_outcome(
        &report,
        &format!("{path}: spec.extra"),
        Outcome::NotCarried,
        "no such field",
    );
    let path = "NetworkAttachmentDefinition default/bad";
    assert_outcome(&report, path, Outcome::NotCarried, "at least one plugin");
    let twice = definitions
        .add("again.json", &list.to_string())
        .unwrap_err();
    assert!(
        twice
            .to_string()
            .contains("again.json: document 1, items[0]")
    );
    for (text, word) in [
        ("kind: Pod\napiVersion: v1\n", "apiVersion is \"v1\""),
        (
            "apiVersion: k8s.cni.cncf.io/v1\nkind: Other\n",
            "kind is \"Other\"",
        ),
        ("a: [\n", "not YAML"),
        (&format!("{NAD}metadata: {{name: A_b}}\n"), "metadata.name"),
        (
            &format!("{NAD}metadata: {{name: a, namespace: b.c}}\n"),
            "metadata.namespace",
        ),
        (
            &format!("{NAD}metadata: {{name: a, name: b}}\n"),
            "not YAML",
        ),
        (
            &format!("{NAD}metadata: {{name: a}}\nspec: {{config: 1}}\n"),
            "string",
        ),
    ] {
        let error = Definitions::default()
            .add("f", text)
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}

/// Values of others are shown shortened and in one line each.
#[test]
fn values_do_not_break_the_lines_of_the_report() {
    let report =
        read(&json!({"Note\n--evil": "a\u{1b}[1m".repeat(100), "defaultNetworks": ["x\n--evil"]}));
    let text = report.to_string();
    assert!(
        !text.lines().any(|line| line.starts_with("--evil")),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(text.contains('…'), "{text}");
}

proptest! {
    /// Each key of a file has a line, whatever it is.
    #[test]
    fn no_key_is_passed_over(keys in prop::collection::btree_set("[a-z]{1,9}", 1..9)) {
        let fields = keys.iter().map(|key| (key.clone(), Value::Null)).collect();
        let mut conf = Value::Object(fields);
        conf["type"] = "multus".into();
        conf["clusterNetwork"] = "/etc/cni/net.d".into();
        let report = import(&conf.to_string(), &Definitions::default()).unwrap();
        for key in keys {
            let told = report.findings.iter().any(|finding| finding.field == key);
            prop_assert!(told, "{key}");
        }
    }

    #[test]
    fn no_text_panics(text in ".*") {
        let _ = import(&text, &Definitions::default());
        let _ = Definitions::default().add("f", &text);
    }
}
