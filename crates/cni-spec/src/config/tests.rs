use serde_json::{Map, Value, json};

use super::*;
use crate::config::runtime::{Bandwidth, RATE_MAX, RATE_MIN};
use crate::error::ErrorCode;

const COMMANDS: [Command; 5] = [
    Command::Add,
    Command::Check,
    Command::Del,
    Command::Gc,
    Command::Status,
];

fn conf(extra: &Value) -> String {
    let mut object = json!({"cniVersion": "1.1.0", "name": "blue", "type": "podnet"});
    let map: &mut Map<String, Value> = object.as_object_mut().unwrap();
    map.extend(extra.as_object().unwrap().clone());
    object.to_string()
}

fn parse(extra: &Value, command: Command) -> Result<NetConf, SpecError> {
    NetConf::parse(&conf(extra), command)
}

fn blue(runtime: &Value) -> Result<RuntimeConfig, SpecError> {
    let extra = json!({"podNetwork": "blue", "runtimeConfig": runtime});
    parse(&extra, Command::Add).map(|conf| conf.runtime)
}

#[test]
fn the_smallest_configuration_has_the_defaults() {
    let conf = parse(&json!({"podNetwork": "blue"}), Command::Add).unwrap();
    assert_eq!(conf.head.cni_version, CniVersion::V1_1_0);
    assert_eq!(conf.head.name, "blue");
    assert_eq!(conf.head.socket, Path::new(DEFAULT_SOCKET));
    assert_eq!(
        conf.network,
        Some(NetworkRef::PodNetwork("blue".to_owned()))
    );
    assert!(!conf.is_default_gateway && !conf.disable_check);
    assert_eq!(conf.runtime, RuntimeConfig::default());
    assert_eq!(conf.prev_result().unwrap(), None);
}

#[test]
fn stdin_that_is_not_json_is_code_6_and_not_an_object_is_code_7() {
    for text in ["", "{", "garbage", "{\"name\":\"a\"} {}", "\u{0}"] {
        let error = NetConf::parse(text, Command::Del).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DECODING_FAILURE, "{text:?}");
    }
    for text in ["[]", "null", "7", "\"x\""] {
        let error = NetConf::parse(text, Command::Del).unwrap_err();
        assert_eq!(error.code(), ErrorCode::INVALID_CONFIG, "{text:?}");
    }
}

#[test]
fn a_missing_or_bad_name_is_code_7_for_every_command_cni_err_09() {
    for command in COMMANDS {
        for name in [
            json!(null),
            json!(""),
            json!("-x"),
            json!("a/b"),
            json!("ä"),
        ] {
            let error = parse(&json!({"name": name, "podNetwork": "b"}), command).unwrap_err();
            assert_eq!(error.code(), ErrorCode::INVALID_CONFIG);
            assert!(error.to_string().contains("`name`"), "{error}");
        }
    }
    proof::of!("CNI-ERR-09", "CNI-CONF-01");
}

#[test]
fn version_is_read_first_and_too_old_for_the_command_is_code_1_cni_err_08() {
    let code = |version: &str, command| {
        parse(
            &json!({"cniVersion": version, "podNetwork": "b", "name": "-"}),
            command,
        )
        .unwrap_err()
        .code()
        .0
    };
    assert_eq!(code("9.9.9", Command::Add), 1);
    assert_eq!(code("0.3.1", Command::Check), 1);
    assert_eq!(code("1.0.0", Command::Gc), 1);
    assert_eq!(code("1.0.0", Command::Status), 1);
    assert_eq!(code("1.0.0", Command::Del), 7);
    assert_eq!(
        ConfHead::version_of(&conf(&json!({"cniVersion": "0.4.0"}))),
        CniVersion::V0_4_0
    );
    assert_eq!(
        ConfHead::version_of(&conf(&json!({"cniVersion": "9.9.9"}))),
        CniVersion::LATEST
    );
    assert_eq!(ConfHead::version_of("garbage"), CniVersion::LATEST);
    assert_eq!(ConfHead::version_of("{}"), CniVersion::V0_1_0);
    proof::of!("CNI-ERR-08");
}

/// A `DEL` has to work whatever became of them.
#[test]
fn labels_are_read_for_add_and_check_only() {
    let read = |labels: Value, command| {
        parse(&json!({"podNetwork": "b", "labels": labels}), command).map(|conf| conf.labels)
    };
    for command in COMMANDS {
        let good = read(json!({"app": "web"}), command).unwrap();
        let bad = read(json!({"app": "-"}), command);
        if matches!(command, Command::Add | Command::Check) {
            assert_eq!(good["app"], "web");
            assert_eq!(bad.unwrap_err().code(), ErrorCode::INVALID_CONFIG);
        } else {
            assert!(good.is_empty() && bad.is_ok(), "{command:?}");
        }
    }
}

#[test]
fn exactly_one_network_is_named_for_add_and_check() {
    for command in [Command::Add, Command::Check] {
        let none = parse(&json!({}), command).unwrap_err();
        assert!(none.to_string().contains("`podNetwork`"), "{none}");
        let empty = parse(&json!({"podNetwork": ""}), command).unwrap_err();
        assert!(matches!(empty, SpecError::NoNetwork));
        let both = json!({"podNetwork": "a", "podNetworkAttachment": "b"});
        let both = parse(&both, command).unwrap_err();
        assert!(
            both.to_string().contains("`podNetworkAttachment`"),
            "{both}"
        );
        assert_eq!([none.code().0, empty.code().0, both.code().0], [7, 7, 7]);
    }
}

#[test]
fn attachments_are_named_with_or_without_namespace() {
    let read = |text: &str| {
        parse(&json!({"podNetworkAttachment": text}), Command::Add).map(|conf| conf.network)
    };
    let attachment = |namespace: Option<&str>, name: &str| NetworkRef::Attachment {
        namespace: namespace.map(ToOwned::to_owned),
        name: name.to_owned(),
    };
    assert_eq!(read("fast").unwrap(), Some(attachment(None, "fast")));
    assert_eq!(
        read("ns/fast.v1").unwrap(),
        Some(attachment(Some("ns"), "fast.v1"))
    );
    for bad in [
        "a/b/c",
        "/a",
        "a/",
        "A",
        "a_b",
        "-a",
        "a..b",
        &"a".repeat(254),
    ] {
        let error = read(bad).unwrap_err();
        assert!(
            error.to_string().contains("`podNetworkAttachment`"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn socket_is_an_absolute_path_that_fits_a_socket_address() {
    let socket =
        |path: &str| parse(&json!({"socket": path}), Command::Del).map(|conf| conf.head.socket);
    assert_eq!(socket("/tmp/x.sock").unwrap(), Path::new("/tmp/x.sock"));
    let longest = format!("/{}", "a".repeat(106));
    assert_eq!(socket(&longest).unwrap(), Path::new(&longest));
    for bad in ["agent.sock", "./a", &format!("{longest}a"), "/a\0b"] {
        assert!(
            socket(bad).unwrap_err().to_string().contains("`socket`"),
            "{bad}"
        );
    }
}

#[test]
fn keys_match_in_any_case_as_go_does_cni_cap_03() {
    let spellings = [
        json!({"bandwidth": {"ingressRate": 8000, "ingressBurst": 9, "egressRate": 10000, "egressBurst": 11}}),
        json!({"bandWidth": {"IngressRate": 8000, "IngressBurst": 9, "EgressRate": 10000, "EgressBurst": 11}}),
        json!({"BANDWIDTH": {"INGRESSRATE": 8000, "ingressburst": 9, "EGRESSrate": 10000, "egressburst": 11}}),
    ];
    for runtime in spellings {
        for key in ["runtimeConfig", "RuntimeConfig", "runtimeconfig"] {
            let conf = parse(&json!({"PodNetwork": "b", key: runtime}), Command::Add).unwrap();
            let limits = conf.runtime.bandwidth.unwrap();
            let numbers = [
                limits.ingress_rate,
                limits.ingress_burst,
                limits.egress_rate,
                limits.egress_burst,
            ];
            assert_eq!(numbers.map(|n| n.unwrap().get()), [8000, 9, 10000, 11]);
        }
    }
    proof::of!("CNI-CAP-03");
}

#[test]
fn the_request_a_real_containerd_sends_is_read_meas_01() {
    let text = r#"{"capabilities":{"bandwidth":true,"dns":true,"mac":false,"portMappings":true},
        "cniVersion":"1.1.0","name":"lognet","podNetwork":"blue","runtimeConfig":{"bandwidth":{
        "IngressRate":1000000,"IngressBurst":4294967295,"EgressRate":0,"EgressBurst":0},
        "cgroupPath":"/rsrch-pods","dns":{"Servers":["10.96.0.10"],"Searches":["svc.cluster.local"],
        "Options":["ndots:5"]},"io.kubernetes.cri.pod-annotations":{"k8s.v1.cni.cncf.io/networks":
        "net-a","Upper":"Case"},"portMappings":[{"HostPort":8080,"ContainerPort":80,"Protocol":"TCP",
        "HostIP":""}]},"type":"podnet"}"#;
    let conf = NetConf::parse(text, Command::Add).unwrap();
    assert_eq!(conf.plugin_type.as_deref(), Some("podnet"));
    let runtime = conf.runtime;
    let limits = runtime.bandwidth.unwrap();
    assert!(limits.is_limited());
    assert_eq!(limits.ingress_rate.unwrap().get(), 1_000_000);
    assert_eq!(limits.ingress_burst.unwrap().get(), u64::from(u32::MAX));
    assert_eq!((limits.egress_rate, limits.egress_burst), (None, None));
    assert_eq!(runtime.cgroup_path.as_deref(), Some("/rsrch-pods"));
    assert_eq!(runtime.dns.servers, ["10.96.0.10"]);
    assert_eq!(runtime.dns.searches, ["svc.cluster.local"]);
    assert_eq!(runtime.dns.options, ["ndots:5"]);
    let annotations = runtime.pod_annotations.unwrap();
    assert_eq!(annotations["k8s.v1.cni.cncf.io/networks"], "net-a");
    assert_eq!(annotations["Upper"], "Case");
    let [port] = runtime.port_mappings.as_slice() else {
        panic!("{:?}", runtime.port_mappings);
    };
    assert_eq!((port.host_port, port.container_port), (8080, 80));
    assert_eq!((port.protocol.as_str(), port.host_ip), ("tcp", None));
}

#[test]
fn no_annotations_are_told_from_nothing_said_of_them_cni_cap_04() {
    let key = crate::CAP_POD_ANNOTATIONS;
    assert_eq!(blue(&json!({})).unwrap().pod_annotations, None);
    for none in [json!({}), json!(null)] {
        let read = blue(&json!({key: none})).unwrap().pod_annotations;
        assert_eq!(read, Some(BTreeMap::new()));
    }
    proof::of!("CNI-CAP-04");
}

#[test]
fn from_pod_leaves_the_networks_to_the_pod() {
    for flag in [json!(true), json!("true")] {
        for command in [Command::Add, Command::Check, Command::Status, Command::Del] {
            let conf = parse(&json!({"fromPod": flag}), command).unwrap();
            assert_eq!(conf.network, Some(NetworkRef::FromPod), "{command}");
        }
    }
    let error = parse(&json!({"fromPod": false}), Command::Add).unwrap_err();
    assert!(error.to_string().contains("`fromPod`"), "{error}");
    for key in ["podNetwork", "podNetworkAttachment"] {
        let error = parse(&json!({"fromPod": true, key: "blue"}), Command::Add).unwrap_err();
        assert_eq!(error.code(), ErrorCode::INVALID_CONFIG);
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn all_zero_bandwidth_is_no_limit_and_the_largest_burst_fits_cni_cap_06() {
    let zero = json!({"bandwidth": {"ingressRate": 0, "egressRate": 0}});
    assert_eq!(blue(&zero).unwrap().bandwidth, None);
    assert_eq!(blue(&json!({"bandwidth": {}})).unwrap().bandwidth, None);
    for burst in [1, u64::from(u32::MAX), u64::from(u32::MAX) * 8, u64::MAX] {
        let limits = blue(&json!({"bandwidth": {"egressRate": RATE_MAX, "egressBurst": burst}}));
        let limits = limits.unwrap().bandwidth.unwrap();
        assert_eq!(limits.egress_burst.unwrap().get(), burst);
        assert!(limits.is_limited());
    }
    assert_eq!(Bandwidth::default().ingress_rate, None);
    proof::of!("CNI-CAP-06");
}

#[test]
fn a_rate_that_cannot_be_meant_is_refused_by_its_key() {
    assert!(blue(&json!({"bandwidth": {"ingressRate": RATE_MIN}})).is_ok());
    let out_of_range = [1, RATE_MIN - 1, RATE_MAX + 1, u64::MAX].map(|rate| json!(rate));
    let no_numbers = [json!(-1), json!(1.5), json!("1M"), json!(true)];
    for bad in out_of_range.into_iter().chain(no_numbers) {
        let error = blue(&json!({"bandwidth": {"ingressRate": bad}})).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("runtimeConfig.bandwidth.ingressRate"),
            "{error}"
        );
        assert_eq!(error.code(), ErrorCode::INVALID_CONFIG);
    }
}

#[test]
fn a_burst_without_a_rate_is_refused_by_its_key() {
    for limits in [
        json!({"egressBurst": 8}),
        json!({"egressRate": 0, "egressBurst": 8, "ingressRate": 8000}),
    ] {
        let error = blue(&json!({"bandwidth": limits})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`runtimeConfig.bandwidth.egressBurst` limits nothing without a rate: set egressRate \
             too, or remove it"
        );
        assert_eq!(error.code(), ErrorCode::INVALID_CONFIG);
    }
}

#[test]
fn every_capability_we_know_is_kept_and_others_are_ignored() {
    let runtime = blue(&json!({
        "ips": ["10.2.2.42/24", "fd::1"], "Mac": "02-00-00-00-00-2A",
        "ipRanges": [[{"Subnet": "10.0.0.0/24", "RangeStart": "10.0.0.9", "Gateway": ""}], []],
        "deviceID": "0000:04:00.5", "CNIDeviceInfoFile": "/var/run/x.json",
        "aliases": ["a"], "somethingNew": {"x": 1}, "infinibandGUID": 7,
    }))
    .unwrap();
    let ips: Vec<_> = runtime.ips.iter().map(ToString::to_string).collect();
    assert_eq!(ips, ["10.2.2.42/24", "fd::1"]);
    assert_eq!(runtime.mac.unwrap().to_string(), "02:00:00:00:00:2a");
    assert_eq!(runtime.device_id.as_deref(), Some("0000:04:00.5"));
    assert_eq!(runtime.device_info_file.as_deref(), Some("/var/run/x.json"));
    assert_eq!(runtime.ip_ranges.len(), 2);
    assert_eq!(
        runtime.ip_ranges[0][0].range_start,
        Some("10.0.0.9".parse().unwrap())
    );
    assert_eq!(runtime.ip_ranges[0][0].gateway, None);
}

#[test]
fn null_and_empty_capabilities_are_none() {
    for runtime in [
        json!(null),
        json!({}),
        json!({"ips": null, "mac": "", "bandwidth": null, "portMappings": [], "dns": null}),
    ] {
        assert_eq!(
            blue(&runtime).unwrap(),
            RuntimeConfig::default(),
            "{runtime}"
        );
    }
}

#[test]
fn bad_capabilities_are_code_7_and_name_the_field() {
    let table = [
        (
            json!({"ips": "10.0.0.1"}),
            "`runtimeConfig.ips` must be a list",
        ),
        (json!({"ips": ["10.0.0.1/33"]}), "`runtimeConfig.ips[0]`"),
        (json!({"ips": [7]}), "`runtimeConfig.ips[0]`"),
        (json!({"mac": "ff:ff:ff:ff:ff:ff"}), "`runtimeConfig.mac`"),
        (json!({"mac": "00:00:00:00:00:00"}), "`runtimeConfig.mac`"),
        (json!({"mac": "02:00"}), "`runtimeConfig.mac`"),
        (
            json!({"portMappings": [{"hostPort": 65536, "containerPort": 1}]}),
            "portMappings[0].hostPort",
        ),
        (
            json!({"portMappings": [{"hostPort": 1}]}),
            "`runtimeConfig.portMappings[0].containerPort` is missing",
        ),
        (
            json!({"portMappings": [{"hostPort": 1, "containerPort": 1, "hostIP": "x"}]}),
            "hostIP",
        ),
        (
            json!({"ipRanges": [{"subnet": "10.0.0.0/8"}]}),
            "`runtimeConfig.ipRanges[0]`",
        ),
        (
            json!({"ipRanges": [[{}]]}),
            "`runtimeConfig.ipRanges[0][0].subnet` is missing",
        ),
        (json!([]), "`runtimeConfig` must be an object"),
    ];
    for (runtime, text) in table {
        let error = blue(&runtime).unwrap_err();
        assert_eq!(error.code(), ErrorCode::INVALID_CONFIG);
        assert!(error.to_string().contains(text), "{runtime}: {error}");
    }
}

#[test]
fn addresses_come_from_the_nearest_source_cni_cap_05() {
    let ask = |extra: Value, args: &str| {
        let mut object = json!({"podNetwork": "b"});
        object
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let conf = parse(&object, Command::Add).unwrap();
        let ips = conf.requested_ips(&CniArgs::parse(args))?;
        Ok::<_, SpecError>(ips.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let runtime =
        json!({"runtimeConfig": {"ips": ["10.0.0.1"]}, "args": {"cni": {"ips": ["10.0.0.2"]}}});
    assert_eq!(ask(runtime, "IP=10.0.0.3").unwrap(), ["10.0.0.1"]);
    let args = json!({"args": {"cni": {"ips": ["10.0.0.2"]}}});
    assert_eq!(ask(args, "IP=10.0.0.3").unwrap(), ["10.0.0.2"]);
    assert_eq!(
        ask(json!({}), "IP=10.0.0.3/24, fd::1").unwrap(),
        ["10.0.0.3/24", "fd::1"]
    );
    assert_eq!(ask(json!({}), "").unwrap(), Vec::<String>::new());
    assert_eq!(
        ask(json!({}), "IP=nonsense").unwrap_err().code(),
        ErrorCode::INVALID_CONFIG
    );
    proof::of!("CNI-CAP-05");
}

#[test]
fn the_mac_comes_from_runtime_config_then_cni_args() {
    let conf = parse(&json!({"podNetwork": "b"}), Command::Add).unwrap();
    let from_args = |text: &str| conf.requested_mac(&CniArgs::parse(text));
    assert_eq!(from_args("").unwrap(), None);
    assert_eq!(
        from_args("MAC=02:00:00:00:00:01").unwrap(),
        Some(MacAddr([2, 0, 0, 0, 0, 1]))
    );
    assert!(from_args("MAC=01:00:5e:00:00:01").is_err());
    let runtime = json!({"podNetwork": "b", "runtimeConfig": {"mac": "02:00:00:00:00:02"}});
    let conf = parse(&runtime, Command::Add).unwrap();
    let mac = conf.requested_mac(&CniArgs::parse("MAC=nonsense")).unwrap();
    assert_eq!(mac, Some(MacAddr([2, 0, 0, 0, 0, 2])));
}

#[test]
fn labels_are_read_from_args() {
    let extra = json!({"podNetwork": "b", "args": {"cni": {"labels": [{"key": "k", "value": "v"}, {"key": "e"}]}}});
    let labels = parse(&extra, Command::Add).unwrap().args.labels;
    let pairs: Vec<_> = labels
        .iter()
        .map(|l| (l.key.as_str(), l.value.as_str()))
        .collect();
    assert_eq!(pairs, [("k", "v"), ("e", "")]);
    for tolerated in [
        json!(null),
        json!({}),
        json!({"cni": null}),
        json!({"other": [1]}),
    ] {
        let conf = parse(&json!({"podNetwork": "b", "args": tolerated}), Command::Add).unwrap();
        assert_eq!(conf.args, ConfigArgs::default());
    }
}

#[test]
fn del_works_whatever_became_of_the_configuration_cni_del_01() {
    let broken = json!({
        "podNetwork": "a", "podNetworkAttachment": 7, "runtimeConfig": "nonsense", "args": [],
        "isDefaultGateway": "perhaps", "prevResult": [1], "dns": 1, "type": 5,
        "cni.dev/valid-attachments": "x",
    });
    let conf = parse(&broken, Command::Del).unwrap();
    assert_eq!(conf.network, None);
    assert!(parse(&broken, Command::Add).is_err());
    for prev in [json!(null), json!({})] {
        let conf = parse(&json!({"prevResult": prev}), Command::Del).unwrap();
        assert_eq!(conf.prev_result().unwrap(), None);
    }
    proof::of!("CNI-DEL-01");
}

#[test]
fn check_needs_a_prev_result_cni_chk_01() {
    for extra in [
        json!({}),
        json!({"prevResult": null}),
        json!({"prevResult": {}}),
    ] {
        let mut object = json!({"podNetwork": "b"});
        object
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let conf = parse(&object, Command::Check).unwrap();
        let error = conf.required_prev_result(Command::Check).unwrap_err();
        assert_eq!(error.code(), ErrorCode::INVALID_CONFIG);
        assert!(error.to_string().contains("`prevResult`"));
    }
    proof::of!("CNI-CHK-01");
}

#[test]
fn quoted_booleans_are_booleans_cni_conf_02() {
    let extra = json!({"podNetwork": "b", "isDefaultGateway": "true", "disableCheck": "false"});
    let conf = parse(&extra, Command::Add).unwrap();
    assert!(conf.is_default_gateway && !conf.disable_check);
    proof::of!("CNI-CONF-02");
}

#[test]
fn gc_lists_have_four_forms_cni_gc_02() {
    let read = |extra: Value| parse(&extra, Command::Gc).map(|conf| conf.valid_attachments);
    let own = "cni.dev/valid-attachments";
    let old = "cni.dev/attachments";
    let entry = json!([{"containerID": "c1", "ifname": "eth0"}]);
    let key = AttachmentKey {
        container: ContainerId::new("c1").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    };
    assert_eq!(read(json!({})).unwrap(), GcList::Absent);
    assert_eq!(read(json!({own: null})).unwrap(), GcList::List(vec![]));
    assert_eq!(read(json!({own: []})).unwrap(), GcList::List(vec![]));
    assert_eq!(
        read(json!({own: entry})).unwrap(),
        GcList::List(vec![key.clone()])
    );
    assert_eq!(
        read(json!({old: entry})).unwrap(),
        GcList::List(vec![key.clone()])
    );
    assert_eq!(read(json!({old: null})).unwrap(), GcList::List(vec![]));
    assert_eq!(
        read(json!({own: [], old: entry})).unwrap(),
        GcList::List(vec![])
    );
    assert_eq!(
        read(json!({own: null, old: entry})).unwrap(),
        GcList::List(vec![])
    );
    let go = json!([{"ContainerID": "c1", "IfName": "eth0"}]);
    assert_eq!(read(json!({own: go})).unwrap(), GcList::List(vec![key]));
    proof::of!("CNI-GC-02");
}

#[test]
fn a_gc_entry_that_cannot_be_read_is_an_error_and_not_left_out() {
    for list in [
        json!("x"),
        json!({}),
        json!([null]),
        json!(["c1/eth0"]),
        json!([{"containerID": "c1"}]),
        json!([{"containerID": "", "ifname": "eth0"}]),
        json!([{"containerID": "c1", "ifname": "a/b"}]),
    ] {
        let error = parse(&json!({"cni.dev/valid-attachments": list}), Command::Gc).unwrap_err();
        assert!(
            error.to_string().contains("cni.dev/valid-attachments"),
            "{list}: {error}"
        );
    }
}
