//! Behaviour of definitions, by the sections that ask for it.

mod directory;

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::select};

use super::*;
use crate::{
    Limit,
    selection::{AttachmentOptions, parse_networks},
};

fn read(config: &str, annotations: &[(&str, &str)]) -> Result<NetworkDefinition, DefinitionError> {
    let annotations: BTreeMap<String, String> = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    read_definition(&Definition {
        namespace: "shop",
        name: "blue",
        annotations: &annotations,
        config,
    })
}

fn chain(config: &str) -> PluginChain {
    match read(config, &[]).unwrap().meaning {
        Meaning::Delegate(chain) => chain,
        other => panic!("{config}: {other:?}"),
    }
}

fn own(config: &str, annotation: &str) -> OwnNetwork {
    match read(config, &[(CONFIG_ANNOTATION, annotation)])
        .unwrap()
        .meaning
    {
        Meaning::Own(own) => own,
        other => panic!("{config}{annotation}: {other:?}"),
    }
}

fn refused(config: &str, annotations: &[(&str, &str)], why: &str) {
    let error = read(config, annotations).expect_err(config).to_string();
    assert!(
        error.starts_with("NetworkAttachmentDefinition shop/blue: "),
        "{error}"
    );
    assert!(error.contains(why), "{why:?} is not in {error:?}");
}

/// NPWG-3.2a, NPWG-3.2.4: nothing but the name says which network it is.
#[test]
fn an_empty_config_means_the_network_of_the_objects_name() {
    for config in ["", " \n"] {
        assert_eq!(
            read(config, &[]).unwrap().meaning,
            Meaning::ByName("blue".to_owned())
        );
    }
    proof::of!("NPWG-3.2a", "NPWG-3.2.4");
}

/// NPWG-3.2.1: one plugin.
#[test]
fn one_plugin_is_a_chain_of_one() {
    let text = r#"{"cniVersion":"0.3.0","name":"blue","type":"bridge","bridge":"br0","isGateway":true,"ipam":{"type":"host-local","subnet":"192.168.5.0/24"}}"#;
    let chain = chain(text);
    assert_eq!((chain.is_list, chain.renamed), (false, false));
    assert_eq!(chain.cni_version.as_deref(), Some("0.3.0"));
    let types: Vec<_> = chain
        .plugins
        .iter()
        .map(|p| p.plugin_type.as_str())
        .collect();
    assert_eq!(types, ["bridge"]);
    assert_eq!(chain.config(), text);
    proof::of!("NPWG-3.2.1");
}

/// NPWG-3.2.2: a list of plugins, in order.
#[test]
fn a_list_keeps_its_plugins_in_order() {
    let text = r#"{"cniVersion":"1.0.0","cniVersions":["1.0.0","9.9.9"],"name":"blue","disableCheck":true,"plugins":[{"type":"bridge","ipam":{}},{"type":"tuning","sysctl":{"a.b":"1"}}]}"#;
    let chain = chain(text);
    assert!(chain.is_list && chain.disable_check && !chain.disable_gc);
    assert_eq!(chain.cni_versions, ["1.0.0", "9.9.9"]);
    let types: Vec<_> = chain
        .plugins
        .iter()
        .map(|p| p.plugin_type.as_str())
        .collect();
    assert_eq!(types, ["bridge", "tuning"]);
    assert_eq!(chain.config(), text);
    proof::of!("NPWG-3.2.2");
}

/// NPWG-3.2.3, NPWG-3.4.2: the object's name replaces a missing or empty one.
#[test]
fn a_missing_or_empty_name_is_the_objects_name() {
    for (text, given) in [
        (
            r#"{"cniVersion":"0.3.0","type":"awesome-plugin"}"#,
            r#"{"cniVersion":"0.3.0","type":"awesome-plugin","name":"blue"}"#,
        ),
        (r#"{"name":"","type":"x"}"#, r#"{"name":"blue","type":"x"}"#),
        (
            r#"{"name":null,"type":"x"}"#,
            r#"{"name":"blue","type":"x"}"#,
        ),
        (
            r#"{"plugins":[{"type":"x","name":"y"}]}"#,
            r#"{"plugins":[{"type":"x","name":"y"}],"name":"blue"}"#,
        ),
    ] {
        let chain = chain(text);
        assert_eq!(chain.config(), given);
        assert_eq!((chain.name.as_str(), chain.renamed), ("blue", false));
    }
    let alone = chain(r#"{"type":"x"}"#);
    assert_eq!(
        alone.plugins[0].config.get("name").unwrap().get(),
        "\"blue\""
    );
    proof::of!("NPWG-3.2.3", "NPWG-3.4.2");
}

/// NPWG-3.4.3: another name than the object's is legal, and can be told.
#[test]
fn the_configurations_own_name_is_kept() {
    let chain = chain(r#"{"name":"Prod_Net.1","type":"x"}"#);
    assert_eq!((chain.name.as_str(), chain.renamed), ("Prod_Net.1", true));
    refused(
        r#"{"name":"a b","type":"x"}"#,
        &[],
        "\"a b\" is not a network name of CNI",
    );
    refused(
        r#"{"name":"-a","type":"x"}"#,
        &[],
        "is not a network name of CNI",
    );
    proof::of!("NPWG-3.4.3");
}

/// CNI-CONF-07: unknown keys go through, and numbers keep their digits.
#[test]
fn values_keep_their_bytes() {
    let text =
        r#"{"type":"x","big":123456789012345678901234567890,"f":[1.0,1e2, 0.10],"name":"n"}"#;
    assert_eq!(chain(text).config(), text);
    let list = r#"{"name":"n","plugins":[{"type":"x","big":18446744073709551616 }]}"#;
    let plugin = &chain(list).plugins[0];
    assert_eq!(
        serde_json::to_string(&plugin.config).unwrap(),
        r#"{"type":"x","big":18446744073709551616}"#
    );
    proof::of!("CNI-CONF-07");
}

/// CNI-CONF-02: booleans as strings.
#[test]
fn booleans_are_read_as_strings_too() {
    for yes in ["true", r#""true""#, r#""True""#] {
        let config = format!(
            r#"{{"disableCheck":{yes},"disableGC":{yes},"loadOnlyInlinedPlugins":{yes},"plugins":[{{"type":"x"}}]}}"#
        );
        let chain = chain(&config);
        assert!(
            chain.disable_check && chain.disable_gc && chain.only_inlined_plugins,
            "{yes}"
        );
    }
    for no in ["false", r#""false""#, "null"] {
        assert!(!chain(&format!(r#"{{"disableCheck":{no},"type":"x"}}"#)).disable_check);
    }
    refused(
        r#"{"disableCheck":"yes","type":"x"}"#,
        &[],
        "disableCheck is \"yes\"; write true or false",
    );
    proof::of!("CNI-CONF-02");
}

/// NPWG-3.4.2b, CNI-CONF-04, CNI-CONF-06: what is no plugin.
#[test]
fn a_config_without_a_plugin_is_refused() {
    for (config, why) in [
        ("{}", "neither type nor plugins"),
        (
            r#"{"cniVersion":"1.0.0","name":"blue"}"#,
            "neither type nor plugins",
        ),
        (r#"{"type":""}"#, "type is missing or empty"),
        (r#"{"plugins":[]}"#, "plugins is missing or empty"),
        (
            r#"{"loadOnlyInlinedPlugins":true}"#,
            "plugins is missing or empty",
        ),
        (
            r#"{"plugins":{"type":"x"}}"#,
            "plugins is {\"type\":\"x\"}; write a list of plugins",
        ),
        (
            r#"{"plugins":["x"]}"#,
            "plugins[0] is \"x\"; write an object with a type",
        ),
        (
            r#"{"plugins":[{"type":"x"},{}]}"#,
            "plugins[1].type is missing or empty",
        ),
        (r#"{"type":"../x"}"#, "type \"../x\" has a `/`"),
        (
            r#"{"type":"x","capabilities":["ips"]}"#,
            "capabilities is [\"ips\"]",
        ),
        ("[]", "spec.config is not a JSON object"),
        ("{\"type\": \"x\"", "EOF while parsing"),
        ("type: x", "spec.config is not a JSON object"),
    ] {
        refused(config, &[], why);
    }
    proof::of!("NPWG-3.4.2b", "CNI-CONF-04", "CNI-CONF-06");
}

/// NPWG-G3: configurations of type `podnet`, with the keys the plugin reads.
#[test]
fn a_config_of_our_type_names_a_network_of_ours() {
    let attachment = |namespace: &str, name: &str| NetworkRef::Attachment {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    for (config, network) in [
        (
            r#"{"type":"podnet","podNetwork":"red"}"#,
            NetworkRef::PodNetwork("red".to_owned()),
        ),
        (
            r#"{"type":"podnet"}"#,
            NetworkRef::PodNetwork("blue".to_owned()),
        ),
        (
            r#"{"name":"x","type":"podnet","podNetwork":""}"#,
            NetworkRef::PodNetwork("blue".to_owned()),
        ),
        (
            r#"{"type":"podnet","podNetworkAttachment":"fast"}"#,
            attachment("shop", "fast"),
        ),
        (
            r#"{"plugins":[{"type":"podnet","podNetworkAttachment":"ops/fast"}]}"#,
            attachment("ops", "fast"),
        ),
    ] {
        let own = own(config, "");
        assert_eq!(own.network, network, "{config}");
        assert!(!own.is_default_gateway);
    }
    assert!(own(r#"{"type":"podnet","isDefaultGateway":"true"}"#, "").is_default_gateway);
    // NPWG-8-T3: by this name an IPAMClaim means the network; without one, by that of the object.
    let named = own(r#"{"type":"podnet","name":"lan"}"#, "");
    assert_eq!(named.config_name.as_deref(), Some("lan"));
    let unnamed = own(r#"{"type":"podnet"}"#, "");
    assert_eq!(unnamed.config_name.as_deref(), Some("blue"));
    for (config, why) in [
        (
            r#"{"type":"podnet","podNetwork":"a","podNetworkAttachment":"b"}"#,
            "keep one",
        ),
        (
            r#"{"type":"podnet","podNetwork":"A"}"#,
            "spec.config podNetwork: \"A\" is not a DNS",
        ),
        (
            r#"{"type":"podnet","podNetworkAttachment":"a/b/c"}"#,
            "podNetworkAttachment: ",
        ),
        (r#"{"type":"podnet","podNetwork":7}"#, "podNetwork is 7"),
    ] {
        refused(config, &[], why);
    }
    proof::of!("NPWG-G3", "NPWG-8-T3");
}

/// NPWG-G3: with other plugins behind it, the whole chain is called.
#[test]
fn our_plugin_with_others_behind_it_is_a_chain() {
    let chain = chain(r#"{"plugins":[{"type":"podnet","podNetwork":"red"},{"type":"tuning"}]}"#);
    assert_eq!(chain.plugins.len(), 2);
    proof::of!("NPWG-G3");
}

/// NPWG-3.2b, KUR-02: what is not CNI's is in an annotation of the object.
#[test]
fn the_annotation_names_the_network_and_its_parameters() {
    let annotation = r#"{"podNetwork":"red","isDefaultGateway":true,"ingressRate":1000000,
        "ingressBurst":8000,"macRequest":"02:00:00:00:00:01","ipRequests":["10.0.0.7"]}"#;
    let own = own("", annotation);
    assert_eq!(own.network, NetworkRef::PodNetwork("red".to_owned()));
    assert!(own.is_default_gateway);
    let rate = Limit {
        rate: Some(1_000_000),
        burst: Some(8000),
    };
    assert_eq!(own.request.bandwidth.ingress, rate);
    assert_eq!(own.request.mac.unwrap().to_string(), "02:00:00:00:00:01");
    assert_eq!(own.request.ips[0].to_string(), "10.0.0.7");
    proof::of!("NPWG-3.2b", "KUR-02");
}

/// KUR-02: an annotation without a network means that of the object's name.
#[test]
fn the_annotation_may_leave_the_network_out() {
    let own = own("", r#"{"egressRate":2000}"#);
    assert_eq!(own.network, NetworkRef::PodNetwork("blue".to_owned()));
    assert_eq!(own.request.bandwidth.egress.rate, Some(2000));
    proof::of!("KUR-02");
}

/// KUR-02: a wrong annotation is an error and not a network without parameters.
#[test]
fn a_wrong_annotation_is_refused() {
    for (annotation, why) in [
        ("red", "annotation podnet.dev/config is not a JSON object"),
        (r#"{"subnetId":"x"}"#, "unknown field `subnetId`"),
        (r#"{"ingressRate":"1M"}"#, "ingressRate: invalid type"),
        (
            r#"{"ingressRate":5}"#,
            "spec.ingressRate: 5 bit/s is out of range",
        ),
        (
            r#"{"egressBurst":5}"#,
            "spec.egressBurst: a burst without a rate",
        ),
        (r#"{"macRequest":"x"}"#, "spec.macRequest"),
        (
            r#"{"podNetwork":"a","podNetworkAttachment":"b"}"#,
            "keep one",
        ),
    ] {
        refused("", &[(CONFIG_ANNOTATION, annotation)], why);
    }
    for config in [r#"{"type":"podnet"}"#, r#"{"type":"macvlan"}"#] {
        refused(config, &[(CONFIG_ANNOTATION, "{}")], "remove one");
    }
    proof::of!("KUR-02");
}

/// NPWG-X1: the resource a device plugin offers.
#[test]
fn the_resource_name_is_read() {
    let name = |text| {
        read("", &[(RESOURCE_NAME_ANNOTATION, text)])
            .unwrap()
            .resource_name
    };
    assert_eq!(
        name(" intel.com/sriov ").as_deref(),
        Some("intel.com/sriov")
    );
    assert_eq!(name(""), None);
    assert_eq!(read("", &[]).unwrap().resource_name, None);
    proof::of!("NPWG-X1");
}

/// NPWG-4.1.2.1.3.2, .4.2, .7.2, .8.2, .10.2, PAIN-SIL-2: no wish is dropped.
///
/// Capabilities that no plugin declares are told.
#[test]
fn capabilities_no_plugin_declares_are_told() {
    let options = |keys: &str| -> AttachmentOptions {
        let mut list = parse_networks(&format!(r#"[{{"name":"a",{keys}}}]"#)).unwrap();
        list.remove(0).options
    };
    let all = options(
        r#""ips":["10.0.0.7"],"mac":"02:00:00:00:00:01","bandwidth":{"ingressRate":1000},
           "portMappings":[{"hostPort":1,"containerPort":1}],
           "infiniband-guid":"24:8a:07:03:00:8d:ae:2f","cni-args":{},"default-route":[]"#,
    );
    let missing = |config: &str| -> Vec<&'static str> {
        let missing = chain(config).missing_capabilities(&all);
        missing.into_iter().map(Capability::as_str).collect()
    };
    assert_eq!(
        missing(r#"{"type":"x"}"#),
        ["ips", "mac", "portMappings", "bandwidth", "infinibandGUID"]
    );
    assert_eq!(
        missing(
            r#"{"plugins":[{"type":"x","capabilities":{"ips":true,"mac":false}},
                {"type":"y","capabilities":{"bandwidth":true,"portMappings":true}}]}"#
        ),
        ["mac", "infinibandGUID"]
    );
    assert_eq!(
        chain(r#"{"type":"x"}"#).missing_capabilities(&options(r#""x.y":1"#)),
        []
    );
    proof::of!("NPWG-4.1.2.1.3.2", "PAIN-SIL-2");
}

/// NPWG-4.1.2.1.6: every plugin gets the arguments; the pod's replace others.
#[test]
fn cni_args_are_merged_key_by_key_into_every_plugin() {
    let list = parse_networks(r#"[{"name":"a","cni-args":{"k":{"x":1.0},"n":[2]}}]"#).unwrap();
    let args = list[0].options.cni_args.clone().unwrap();
    let merged = |config: &str| chain(config).with_cni_args(&args).unwrap().config();
    assert_eq!(
        merged(r#"{"name":"b","type":"x","args":{"cni":{"k":{"y":1},"own":0},"other":1}}"#),
        r#"{"name":"b","type":"x","args":{"cni":{"k":{"x":1.0},"own":0,"n":[2]},"other":1}}"#
    );
    assert_eq!(
        merged(r#"{"name":"b","plugins":[{"type":"x","f":1.0},{"type":"y","args":null}]}"#),
        concat!(
            r#"{"name":"b","plugins":[{"type":"x","f":1.0,"args":{"cni":{"k":{"x":1.0},"n":[2]}}},"#,
            r#"{"type":"y","args":{"cni":{"k":{"x":1.0},"n":[2]}}}]}"#
        )
    );
    let wrong = chain(r#"{"plugins":[{"type":"x","args":{"cni":5}}]}"#).with_cni_args(&args);
    let error = wrong.unwrap_err().to_string();
    assert_eq!(error, "plugins[0].args.cni is 5; write an object");
    proof::of!("NPWG-4.1.2.1.6");
}

/// ATT-04a: a definition has limits of plugins and bytes.
///
/// Each plugin gets the network's name and the pod's arguments, so that a definition of 1 MB was
/// gigabytes in the agent.
#[test]
fn a_definition_has_a_limit_of_plugins_and_of_bytes() {
    let listed = |count: usize| {
        let plugins = vec![r#"{"type":"x"}"#; count].join(",");
        format!(r#"{{"name":"b","plugins":[{plugins}]}}"#)
    };
    assert_eq!(chain(&listed(32)).plugins.len(), 32);
    refused(&listed(33), &[], "plugins has 33 elements");
    refused(&listed(4_000), &[], "plugins has 4000 elements");
    let long = |bytes: usize| format!(r#"{{"type":"x","filler":"{}"}}"#, "f".repeat(bytes));
    assert_eq!(chain(&long(65_000)).plugins.len(), 1);
    refused(&long(66_000), &[], "spec.config is longer than 65536 bytes");
    // What is on disk is root's.
    let text = listed(33);
    assert_eq!(
        PluginChain::parse_on_disk(&text, "b")
            .unwrap()
            .plugins
            .len(),
        33
    );
    proof::of!("ATT-04a");
}

fn found(files: &[(&str, &str)]) -> (Option<String>, Vec<String>) {
    let on_disk = find_on_disk("blue", files.iter().copied()).unwrap();
    let broken = on_disk.broken.into_iter().map(|broken| broken.file);
    (on_disk.found.map(|(file, _)| file), broken.collect())
}

const LIST: &str = r#"{"name":"blue","plugins":[{"type":"x"}]}"#;
const PLUGIN: &str = r#"{"name":"blue","type":"x"}"#;
const OTHER: &str = r#"{"name":"red","type":"x"}"#;

/// NPWG-3.4.1: lists come before single plugins, else files come by name.
#[test]
fn a_list_on_disk_wins_over_a_plugin() {
    for (files, file) in [
        (
            vec![("10-a.conf", PLUGIN), ("20-b.conflist", LIST)],
            "20-b.conflist",
        ),
        (vec![("b.conf", PLUGIN), ("a.json", PLUGIN)], "a.json"),
        (
            vec![("b.conflist", LIST), ("a.configlist", LIST)],
            "a.configlist",
        ),
        (vec![("a.conf", OTHER), ("b.config", PLUGIN)], "b.config"),
    ] {
        assert_eq!(found(&files), (Some(file.to_owned()), Vec::new()));
    }
    proof::of!("NPWG-3.4.1");
}

/// NPWG-3.4.1: no file of that name, or files that are no configurations.
#[test]
fn no_file_of_that_name_is_no_network() {
    let files = [
        ("a.conf", OTHER),
        ("b.txt", PLUGIN),
        ("conf", PLUGIN),
        ("c.conf.bak", PLUGIN),
    ];
    assert_eq!(found(&files), (None, Vec::new()));
    assert_eq!(found(&[]), (None, Vec::new()));
    proof::of!("NPWG-3.4.1");
}

/// NPWG-3.4.1: a broken unrelated file does not stop the search, and is told.
#[test]
fn a_broken_unrelated_file_never_aborts() {
    let files = [
        ("00-x.conflist", "{"),
        ("01-x.conf", r#"{"name":5}"#),
        ("02.conf", PLUGIN),
    ];
    assert_eq!(
        found(&files),
        (
            Some("02.conf".to_owned()),
            vec!["00-x.conflist".to_owned(), "01-x.conf".to_owned()]
        )
    );
    proof::of!("NPWG-3.4.1");
}

/// NPWG-3.4.1: a broken file of this name is not passed over for another one.
#[test]
fn a_broken_file_of_the_name_is_an_error() {
    for (file, text, why) in [
        ("a.conf", r#"{"name":"blue"}"#, "neither type nor plugins"),
        ("a.conf", LIST, "rename it to end in .conflist"),
        ("a.conflist", PLUGIN, "rename it to end in .conf"),
    ] {
        let error = find_on_disk("blue", [(file, text), ("b.conf", PLUGIN)]).unwrap_err();
        assert_eq!(error.file, file);
        assert!(error.to_string().contains(why), "{error}");
    }
    proof::of!("NPWG-3.4.1");
}

proptest! {
    /// Every text is a definition or has an error.
    #[test]
    fn no_text_panics(
        text in prop_oneof![
            ".*",
            prop::collection::vec(
                select(vec![
                    "{", "}", "[", "]", ":", ",", "\"type\"", "\"plugins\"", "\"name\"", "\"podnet\"",
                    "\"podNetwork\"", "\"x\"", "\"\"", "null", "true", "1e999", "\\", "\u{e4}",
                ]),
                0..20,
            ).prop_map(|all| all.concat()),
        ],
    ) {
        let _in_config = read(&text, &[]);
        let _in_annotation = read("", &[(CONFIG_ANNOTATION, &text)]);
        let _on_disk = find_on_disk("blue", [("a.conf", text.as_str()), ("b.conflist", &text)]);
    }

    /// NPWG-3.4.2, CNI-CONF-07: what is handed on reads back as the same chain.
    #[test]
    fn what_is_handed_on_reads_back(
        name in prop::option::of("[a-zA-Z0-9][a-zA-Z0-9_.-]{0,8}"),
        types in prop::collection::vec("[a-z]{1,6}", 1..4),
        number in any::<f64>().prop_filter("JSON has finite numbers", |n| n.is_finite()),
    ) {
        let plugins: Vec<_> = types
            .iter()
            .map(|one| serde_json::json!({"type": format!("x{one}"), "n": number}))
            .collect();
        let text = serde_json::json!({"name": name, "plugins": plugins}).to_string();
        let before = chain(&text);
        let after = PluginChain::parse(&before.config(), "other").unwrap();
        prop_assert_eq!(&after.name, &before.name);
        prop_assert_eq!(&after.plugins, &before.plugins);
        prop_assert_eq!(after.config(), before.config());
        proof::of!("NPWG-3.4.2", "CNI-CONF-07");
    }
}
