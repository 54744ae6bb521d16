//! Test `PodNetworkParameters` and `AttachmentParameters` in the API server.
//!
//! What it refuses at once, the agent would refuse later.

use api::{AttachmentParameters, PodNetworkParameters, Resource};
use serde_json::{Value, json};

use super::objects::{self, Objects, check_specs};
use super::scene;

type Table = Vec<(Value, Option<[&'static str; 2]>)>;

/// Whether podnet itself takes the spec, by the rules it reads manifests with.
pub(crate) fn podnet_takes(kind: &str, spec: &Value) -> bool {
    let text = json!({"apiVersion": api::API_VERSION, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let parsed = api::parse_manifests("table", &text.to_string());
    parsed
        .into_iter()
        .all(|object| match object.map(|object| object.resource) {
            Ok(Resource::PodNetworkParameters(object)) => api::network("a", &object.spec).is_ok(),
            Ok(Resource::AttachmentParameters(object)) => {
                api::attachment_request(&object.spec).is_ok()
            }
            _ => false,
        })
}

fn l2(more: &Value) -> Value {
    let mut spec = json!({"mode": "L2", "subnets": ["10.10.0.0/24", "fd10:10::/64"]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

fn networks() -> Table {
    let mut table = shape();
    table.extend(numbers());
    table.extend(routing());
    table.extend(outside());
    table.extend(ports());
    table.extend(ether_types());
    table.extend(places());
    table.extend(services());
    table
}

/// Lists specs of networks with Services.
fn services() -> Table {
    let with = |prefixes: Value| json!({"mode": "L3", "subnets": ["10.10.0.0/24"], "serviceCIDRs": prefixes});
    let refused = |what| Some(["spec.serviceCIDRs", what]);
    let on_vlan = json!({"type": "VLAN", "uplink": "eth1", "id": 5});
    vec![
        (with(json!(["10.96.0.0/12"])), None),
        (with(json!(["10.96.0.1/12"])), refused("host bits")),
        (with(json!(["0.0.0.0/0"])), refused("host bits zero")),
        (with(json!(["127.0.0.0/8"])), refused("unicast prefixes")),
        (
            with(json!(["10.96.0.0/12", "10.100.0.0/16"])),
            refused("overlap"),
        ),
        (with(json!(["10.0.0.0/8"])), refused("overlaps a subnet")),
        (with(json!(["fd96::/108"])), refused("family")),
        (
            json!({"mode": "L2", "serviceCIDRs": ["10.96.0.0/12"]}),
            refused("networks with subnets"),
        ),
        (
            l2(&json!({"transport": on_vlan, "serviceCIDRs": ["10.96.0.0/12"]})),
            refused("L2 network with an uplink"),
        ),
    ]
}

/// Lists specs with values that are right by themselves, and not where they are.
fn places() -> Table {
    let transport = |transport: Value| json!({"mode": "L2", "transport": transport});
    let uplink = |name: &str| transport(json!({"type": "VLAN", "uplink": name, "id": 5}));
    let trunk = |ids: &str| transport(json!({"type": "VLAN", "uplink": "eth1", "trunk": ids}));
    let subnets = |subnets: Value| json!({"mode": "L2", "subnets": subnets});
    let special = Some(["spec.subnets", "unicast prefixes"]);
    let route = |dst: &str| l2(&json!({"gateway": "First", "routes": [{ "dst": dst }]}));
    let ids = Some(["spec.transport.trunk", "should match"]);
    vec![
        (subnets(json!(["100.64.0.0/10", "2001:db8::/32"])), None),
        (subnets(json!(["0.0.0.0/0"])), special),
        (subnets(json!(["127.0.0.0/24"])), special),
        (subnets(json!(["169.254.0.0/16"])), special),
        (subnets(json!(["224.0.0.0/8"])), special),
        (subnets(json!(["192.0.0.0/2"])), special),
        (subnets(json!(["255.255.255.254/31"])), special),
        (subnets(json!(["::/0"])), special),
        (subnets(json!(["fe80::/64"])), special),
        (subnets(json!(["ff02::/16"])), special),
        (
            l2(&json!({"exclude": ["10.10.1.0/24"]})),
            Some(["spec.exclude", "not inside of spec.subnets"]),
        ),
        (
            l2(&json!({"exclude": ["10.10.0.0/16"]})),
            Some(["spec.exclude", "not inside of spec.subnets"]),
        ),
        (
            l2(&json!({"exclude": ["10.11.0.1"]})),
            Some(["spec.exclude", "not inside of spec.subnets"]),
        ),
        (route("192.0.2.0/24"), None),
        (
            route("10.10.0.0/25"),
            Some(["spec.routes", "inside of a subnet"]),
        ),
        (
            route("224.1.0.0/16"),
            Some(["spec.routes[0].dst", "unicast prefix"]),
        ),
        (
            json!({
                "mode": "L3", "subnets": ["10.10.0.0/24"], "routes": [{"dst": "2001:db8::/32"}],
            }),
            Some(["spec.routes", "family"]),
        ),
        (
            l2(&json!({"routes": [{"dst": "192.0.2.0/24", "gw": "10.11.0.1"}]})),
            Some(["spec.routes", "gw of one of them"]),
        ),
        (uplink("bond0.7"), None),
        (
            uplink("a/b"),
            Some(["spec.transport.uplink", "should match"]),
        ),
        (
            uplink("a:1"),
            Some(["spec.transport.uplink", "should match"]),
        ),
        (
            uplink("a b"),
            Some(["spec.transport.uplink", "should match"]),
        ),
        (
            uplink(".."),
            Some(["spec.transport.uplink", "name of an interface"]),
        ),
        (trunk("1,4094,300-310,7-7"), None),
        (trunk("0"), ids),
        (trunk("1,4095"), ids),
        (
            trunk("10-5"),
            Some(["spec.transport.trunk", "the lower id"]),
        ),
        (trunk("1-4095"), ids),
    ]
}

/// Lists specs with EtherTypes of an uplink.
fn ether_types() -> Table {
    let with = |transport: Value| l2(&json!({ "transport": transport }));
    let vlan = |types: Value| {
        with(json!({"type": "VLAN", "uplink": "eth1", "id": 5, "etherTypes": types}))
    };
    let path = "spec.transport.etherTypes";
    let routed = json!({"type": "Native", "uplink": "eth1", "etherTypes": ["0x88f7"]});
    let mut routed = with(routed);
    routed["mode"] = "L3".into();
    vec![
        (vlan(json!(["0x88f7", "0x88B5"])), None),
        (vlan(json!([])), None),
        (vlan(json!(["PTP"])), Some([path, "should match"])),
        (vlan(json!(["0x8808"])), Some([path, "MAC control"])),
        (vlan(json!(["0x88A8"])), Some([path, "VLAN tags"])),
        (vlan(json!(["0x05ff"])), Some([path, "from 0x0600"])),
        (vlan(json!(vec!["0x88f7"; 17])), Some([path, "16"])),
        (
            with(json!({"type": "VXLAN", "etherTypes": ["0x88f7"]})),
            Some(["spec.transport", "mode L2 with an uplink"]),
        ),
        (routed, Some(["spec.transport", "mode L2 with an uplink"])),
    ]
}

/// Lists specs of ports.
fn ports() -> Table {
    let with = |interface: Value| l2(&json!({ "interface": interface }));
    vec![
        (with(json!({"type": "Veth"})), None),
        (with(json!({"type": "AFXDP", "queues": 4})), None),
        (with(json!({"type": "Memif"})), None),
        (
            with(json!({"type": "memif"})),
            Some(["spec.interface.type", "Unsupported value"]),
        ),
        (
            with(json!({"type": "Memif", "queues": 9})),
            Some(["spec.interface.queues", "8"]),
        ),
        (
            with(json!({"type": "Veth", "queues": 1})),
            Some(["spec.interface", "has one queue"]),
        ),
        (
            l2(&json!({"mode": "L3", "routing": "Node", "interface": {"type": "AFXDP"}})),
            Some(["spec.interface", "routing Isolated"]),
        ),
    ]
}

/// Lists specs of ways out: egress and pushed routes.
fn outside() -> Table {
    let l3 = |more: Value| {
        let mut spec = l2(&more);
        spec["mode"] = "L3".into();
        spec
    };
    let routes = |routes: Value| l3(json!({"routes": routes}));
    vec![
        (l3(json!({"egress": "Masquerade"})), None),
        (l3(json!({"egress": "None"})), None),
        (
            l3(json!({"egress": "Uplink", "transport": {"type": "Native", "uplink": "eth1"}})),
            None,
        ),
        (
            l3(json!({"egress": "Uplink"})),
            Some(["spec.egress", "transport Native"]),
        ),
        (
            l3(json!({
                "egress": "Uplink", "transport": {"type": "VLAN", "uplink": "eth1", "id": 5},
            })),
            Some(["spec.egress", "transport Native"]),
        ),
        (l2(&json!({"egress": "None"})), None),
        (
            l2(&json!({"egress": "Masquerade"})),
            Some(["spec.egress", "mode L3 and routing Isolated"]),
        ),
        (
            l3(json!({"egress": "Masquerade", "routing": "Node"})),
            Some(["spec.egress", "mode L3 and routing Isolated"]),
        ),
        (
            l3(json!({"egress": "masquerade"})),
            Some(["spec.egress", "Unsupported value"]),
        ),
        (
            routes(json!([{"dst": "192.0.2.0/24"}, {"dst": "2001:db8::/32"}])),
            None,
        ),
        (
            l2(&json!({"routes": [{"dst": "192.0.2.0/24", "gw": "10.10.0.9"}]})),
            None,
        ),
        (
            routes(json!([{"dst": "192.0.2.1/24"}])),
            Some(["spec.routes[0].dst", "host bits"]),
        ),
        (
            routes(json!([{"dst": "0.0.0.0/0"}])),
            Some(["spec.routes[0].dst", "default route"]),
        ),
        (
            routes(json!([{"dst": "192.0.2.0/24", "gw": "fd10:10::1"}])),
            Some(["spec.routes[0].gw", "family of dst"]),
        ),
        (
            routes(json!([{"dst": "192.0.2.0/24"}, {"dst": "192.0.2.0/24"}])),
            Some(["spec.routes", "same prefix"]),
        ),
        (
            json!({"mode": "L2", "routes": [{"dst": "192.0.2.0/24"}]}),
            Some(["spec.routes", "needs spec.subnets"]),
        ),
    ]
}

/// Lists specs of routing and masquerading.
fn routing() -> Table {
    let l3 = |more: Value| {
        let mut spec = l2(&more);
        spec["mode"] = "L3".into();
        spec
    };
    vec![
        (l3(json!({"routing": "Node"})), None),
        (l3(json!({"routing": "Isolated"})), None),
        (l2(&json!({"routing": "Isolated"})), None),
        (l3(json!({"routing": "Node", "masquerade": true})), None),
        (l3(json!({"routing": "Node", "masquerade": false})), None),
        (
            l2(&json!({"routing": "Node"})),
            Some(["spec.routing", "needs mode L3"]),
        ),
        (
            l3(json!({"routing": "node"})),
            Some(["spec.routing", "Unsupported value"]),
        ),
        (
            l3(json!({"masquerade": true})),
            Some(["spec.masquerade", "belongs to routing Node"]),
        ),
        (
            l3(json!({"routing": "Isolated", "masquerade": false})),
            Some(["spec.masquerade", "belongs to routing Node"]),
        ),
    ]
}

/// Mode, subnets, gateway, exclude.
fn shape() -> Table {
    vec![
        (json!({"mode": "L2"}), None),
        (l2(&json!({})), None),
        (l2(&json!({"mode": "L3"})), None),
        (json!({}), Some(["spec.mode", "Required"])),
        (
            json!({"mode": "l2"}),
            Some(["spec.mode", "Unsupported value"]),
        ),
        (
            json!({"mode": "L3"}),
            Some(["spec.subnets", "mode L3 needs a subnet"]),
        ),
        (
            json!({"mode": "L3", "subnets": []}),
            Some(["spec.subnets", "mode L3 needs a subnet"]),
        ),
        (
            l2(&json!({"subnets": ["10.10.0.1/24"]})),
            Some(["spec.subnets", "host bits zero"]),
        ),
        (
            l2(&json!({"subnets": ["10.10.0.0"]})),
            Some(["spec.subnets", "host bits zero"]),
        ),
        (
            l2(&json!({"subnets": ["ten"]})),
            Some(["spec.subnets", "must be prefixes"]),
        ),
        (
            l2(&json!({"subnets": ["10.0.0.0/8", "10.1.0.0/16"]})),
            Some(["spec.subnets", "overlap"]),
        ),
        (
            l2(&json!({"subnets": ["10.0.0.0/8", "10.0.0.0/8"]})),
            Some(["spec.subnets", "overlap"]),
        ),
        (l2(&json!({"gateway": "None"})), None),
        (l2(&json!({"gateway": "First"})), None),
        (l2(&json!({"gateway": "10.10.0.254"})), None),
        (l2(&json!({"gateway": ["10.10.0.254", "fd10:10::1"]})), None),
        (
            l2(&json!({"gateway": {"a": "b"}})),
            Some(["spec.gateway", ""]),
        ),
        (l2(&json!({"gateway": ""})), Some(["spec.gateway", ""])),
        (
            l2(&json!({"exclude": ["10.10.0.7", "10.10.0.128/25", "fd10:10::1"]})),
            None,
        ),
        (
            l2(&json!({"exclude": ["10.10.0.129/25"]})),
            Some(["spec.exclude", "host bits zero"]),
        ),
        (
            l2(&json!({"exclude": ["seven"]})),
            Some(["spec.exclude", "must be addresses"]),
        ),
        (
            json!({"mode": "L2", "exclude": ["10.10.0.7"]}),
            Some(["spec.exclude", "needs spec.subnets"]),
        ),
    ]
}

/// MTU, network number, rates and bursts.
fn numbers() -> Table {
    vec![
        (l2(&json!({"mtu": 1280})), None),
        (l2(&json!({"mtu": 65521})), None),
        (l2(&json!({"mtu": 65522})), Some(["spec.mtu", "65521"])),
        (
            l2(&json!({"mtu": 1279})),
            Some(["spec.mtu", "at least 1280"]),
        ),
        (json!({"mode": "L2", "mtu": 68}), None),
        (json!({"mode": "L2", "mtu": 67}), Some(["spec.mtu", "68"])),
        (l2(&json!({"networkID": 1})), None),
        (l2(&json!({"networkID": 16_777_215})), None),
        (l2(&json!({"networkID": 0})), Some(["spec.networkID", "1"])),
        (
            l2(&json!({"networkID": 16_777_216})),
            Some(["spec.networkID", "16777215"]),
        ),
        (l2(&json!({"ingressRate": 1000, "ingressBurst": 1})), None),
        (l2(&json!({"egressRate": 0, "egressBurst": 0})), None),
        (
            l2(&json!({"ingressRate": 999})),
            Some(["spec.ingressRate", "at least 1000"]),
        ),
        (
            l2(&json!({"egressRate": -1})),
            Some(["spec.egressRate", "0"]),
        ),
        (
            l2(&json!({"egressRate": 1_000_000_000_000_001_i64})),
            Some(["spec.egressRate", ""]),
        ),
        (
            l2(&json!({"ingressBurst": 1})),
            Some(["spec.ingressBurst", "ingressRate"]),
        ),
        (
            l2(&json!({"egressBurst": 1, "egressRate": 0})),
            Some(["spec.egressBurst", "egressRate"]),
        ),
    ]
}

fn attachments() -> Table {
    let mac = |text: &str| json!({ "macRequest": text });
    let refused_mac = Some(["spec.macRequest", ""]);
    let ips = |ips: &[&str]| json!({ "ipRequests": ips });
    vec![
        (json!({}), None),
        (mac("02:00:00:00:00:2a"), None),
        (mac("02-AB-cd-00-00-2A"), None),
        (mac("02:00:00:00:00"), refused_mac),
        (mac("02:00-00:00:00:2a"), refused_mac),
        (
            mac("03:00:00:00:00:2a"),
            Some(["spec.macRequest", "second digit even"]),
        ),
        (
            mac("ff:ff:ff:ff:ff:ff"),
            Some(["spec.macRequest", "second digit even"]),
        ),
        (
            mac("00:00:00:00:00:00"),
            Some(["spec.macRequest", "not all zero"]),
        ),
        (ips(&["10.10.0.7", "fd10:10::7/64"]), None),
        (
            ips(&["10.10.0.0/"]),
            Some(["spec.ipRequests", "must be addresses"]),
        ),
        (
            ips(&["seven"]),
            Some(["spec.ipRequests", "must be addresses"]),
        ),
        (
            ips(&["127.0.0.1"]),
            Some(["spec.ipRequests", "that a pod can have"]),
        ),
        (
            ips(&["10.10.0.7", "ff02::1/64"]),
            Some(["spec.ipRequests", "that a pod can have"]),
        ),
        (
            ips(&["10.10.0.7", "10.10.0.7/24"]),
            Some(["spec.ipRequests", "same address twice"]),
        ),
        (
            ips(&["fd10::7", "fd10:0::7/64"]),
            Some(["spec.ipRequests", "same address twice"]),
        ),
        (
            json!({"routes": [{"dst": "169.254.1.0/24"}]}),
            Some(["spec.routes[0].dst", "unicast prefix"]),
        ),
        (json!({"interface": {"type": "AFXDP", "queues": 2}}), None),
        (
            json!({"interface": {"type": "Veth", "queues": 2}}),
            Some(["spec.interface", "has one queue"]),
        ),
        (json!({"egressRate": 1000}), None),
        (
            json!({"egressRate": 1}),
            Some(["spec.egressRate", "at least 1000"]),
        ),
        // The rate may come from the network, or from another object.
        (json!({"egressBurst": 1}), None),
        (json!({"egressBurst": -1}), Some(["spec.egressBurst", "0"])),
    ]
}

/// Fewer parameters have to be called invalid later.
#[test]
fn the_server_refuses_network_parameters_that_podnet_would() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    let table = networks();
    for (spec, refusal) in &table {
        assert_eq!(
            podnet_takes("PodNetworkParameters", spec),
            refusal.is_none(),
            "{spec}"
        );
    }
    scene.run(|client| async move {
        let parameters = Objects::all::<PodNetworkParameters>(&client);
        check_specs(&parameters, "parameters", &table).await;
    });
}

/// Issue 17: a network that changes under its pods is two networks.
///
/// Nodes with pods of it stay with the old one, the others make a new one.
#[test]
fn a_network_keeps_its_mode_and_has_subnets_or_none_for_as_long_as_it_exists() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let parameters = Objects::all::<PodNetworkParameters>(&client);
        let create = async |name: &str, spec: Value| {
            let made = parameters.create(name, json!({ "spec": spec })).await;
            made.unwrap();
        };
        create("kept-l2", l2(&json!({}))).await;
        create("kept-l3", l2(&json!({"mode": "L3"}))).await;
        create("kept-bare", json!({"mode": "L2"})).await;
        create("kept-empty", json!({"mode": "L2", "subnets": []})).await;
        let subnets = json!(["10.10.0.0/24"]);
        for (name, change, field) in [
            ("kept-l2", json!({"mode": "L3"}), "spec.mode"),
            ("kept-l3", json!({"mode": "L2"}), "spec.mode"),
            ("kept-l2", json!({"subnets": null}), "spec.subnets"),
            ("kept-l2", json!({"subnets": []}), "spec.subnets"),
            ("kept-bare", json!({"subnets": subnets}), "spec.subnets"),
            ("kept-empty", json!({"subnets": subnets}), "spec.subnets"),
            (
                "kept-bare",
                json!({"mode": "L3", "subnets": subnets}),
                "spec.mode",
            ),
        ] {
            let patch = json!({ "spec": change });
            let refused = parameters.merge(name, patch).await.unwrap_err();
            assert!(
                refused.contains(field) && refused.contains("make other PodNetworkParameters"),
                "{name} {change}: {refused}"
            );
        }
        // Other subnets are not another network.
        for (name, change) in [
            (
                "kept-l2",
                json!({"mode": "L2", "subnets": ["10.10.0.0/23"]}),
            ),
            ("kept-l3", json!({"subnets": ["10.12.0.0/24"], "mtu": 1400})),
            ("kept-bare", json!({"subnets": []})),
            ("kept-empty", json!({"subnets": null})),
        ] {
            let patch = json!({ "spec": change });
            parameters.merge(name, patch).await.unwrap();
        }
    });
}

#[test]
fn the_server_refuses_attachment_parameters_that_podnet_would() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    let table = attachments();
    for (spec, refusal) in &table {
        assert_eq!(
            podnet_takes("AttachmentParameters", spec),
            refusal.is_none(),
            "{spec}"
        );
    }
    scene.run(|client| async move {
        let namespace = scene::namespace(&client, "attachment-parameters").await;
        let parameters = Objects::of::<AttachmentParameters>(&client, &namespace);
        check_specs(&parameters, "parameters", &table).await;
    });
}

/// The server keeps every written field: podnet would never see a dropped one.
#[test]
fn nothing_that_was_written_is_dropped() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let parameters = Objects::all::<PodNetworkParameters>(&client);
        let spec = l2(&json!({"gateway": ["10.10.0.1"], "exclude": ["10.10.0.2"], "mtu": 9000,
            "networkID": 5, "ingressRate": 1000, "egressRate": 1000, "ingressBurst": 8, "egressBurst": 8}));
        let kept = parameters.try_spec("kept", &spec).await.unwrap();
        assert_eq!(kept["spec"], spec);
    });
}
