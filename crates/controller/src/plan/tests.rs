use overview::samples::{at, attachment, gated, network, node, ours, parameters, pod, view};
use serde_json::{Value, json};

use super::*;

const CHOICES: Choices = Choices {
    multi_network: true,
    create_default: true,
    reclaim_delay: SignedDuration::from_secs(300),
    spare_blocks: 2,
};

fn planned(objects: &[Value]) -> Plan {
    plan(&view(objects), &CHOICES, &mut Orphans::default(), at(0))
}

fn deleted(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z".into();
    object["metadata"]["finalizers"] = json!(["acme.io/x", FINALIZER]);
    object
}

fn step<'a>(steps: &'a [ObjectStep], name: &str) -> Option<&'a ObjectStep> {
    steps.iter().find(|step| step.name == name)
}

/// KEP-DEF-1, KEP-DEF-4
#[test]
fn the_default_network_is_made_where_it_is_missing_and_wanted() {
    assert!(planned(&[]).create_default);
    let default = ours(
        "PodNetwork",
        json!({"name": "default"}),
        json!({"enabled": true}),
    );
    assert!(!planned(std::slice::from_ref(&default)).create_default);
    let choices = Choices {
        create_default: false,
        ..CHOICES
    };
    assert!(!plan(&view(&[]), &choices, &mut Orphans::default(), at(0)).create_default);
    proof::of!("KEP-DEF-1", "KEP-DEF-4");
}

/// KEP-DEF-6: it goes when no pod has it and none can get it.
#[test]
fn the_default_network_may_be_deleted_when_no_pod_has_it_and_every_node_has_another() {
    let in_use = |provider: Option<&str>, others: &[Value]| {
        let spec = provider.map_or(json!({}), |provider| json!({"provider": provider}));
        let default = ours("PodNetwork", json!({"name": "default"}), spec);
        let plan = planned(&[&[default], others].concat());
        let status = step(&plan.networks, "default").unwrap().status.clone();
        let mut conditions = status.unwrap().conditions.into_iter();
        let found = conditions.find(|it| it.type_ == "InUse").unwrap();
        (found.status, found.reason, found.message)
    };
    let moved = || node("n1", "podnetwork:green");
    let web = || pod("web", &json!([{"name": "default"}]), "");
    for (others, holds, reason, words) in [
        (vec![], "True", "DefaultOfNodes", "no Node that has another"),
        (vec![moved()], "False", "Unused", "it can be deleted"),
        (vec![moved(), web()], "True", "Used", "pod shop/web uses it"),
        (
            vec![moved(), node("n2", "podnetwork:default")],
            "True",
            "DefaultOfNodes",
            "on node n2; annotate every Node with podnet.dev/default-network",
        ),
        (
            vec![moved(), node("n3", "gren")],
            "True",
            "DefaultOfNodes",
            "on node n3",
        ),
        (
            vec![moved(), attachment("shop", "fast", "default")],
            "True",
            "Used",
            "PodNetworkAttachment shop/fast",
        ),
    ] {
        for provider in [None, Some("podnet.dev/ebpf"), Some("acme.io/x")] {
            let (status, found, message) = in_use(provider, &others);
            assert_eq!(
                (status.as_str(), found.as_str()),
                (holds, reason),
                "{message}"
            );
            assert!(message.contains(words), "{message}");
        }
    }
    proof::of!("KEP-DEF-6", "KEP-P1-09");
}

/// KEP-DEF-6: no bare network is in the way of the one that the operator makes.
#[test]
fn no_default_network_is_made_while_every_node_has_another() {
    let moved = || node("n1", "podnetwork:green");
    assert!(!planned(&[moved()]).create_default);
    assert!(planned(&[moved(), node("n2", "podnetwork:default")]).create_default);
    assert!(planned(&[moved(), node("n2", "nonsense")]).create_default);
    proof::of!("KEP-DEF-6");
}

/// The status of another provider's network is its own, but for one condition.
#[test]
fn a_default_network_of_another_provider_gets_one_condition_once() {
    let spec = json!({"provider": "acme.io/x"});
    let mut default = ours("PodNetwork", json!({"name": "default"}), spec);
    let first = planned(std::slice::from_ref(&default));
    let written = step(&first.networks, "default")
        .unwrap()
        .status
        .clone()
        .unwrap();
    assert_eq!(written.conditions.len(), 1);
    assert_eq!((written.number, written.transport), (None, None));
    let mut all = json!(written.conditions);
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-11-20T10:00:00Z",
    });
    all.as_array_mut().unwrap().push(ready);
    default["status"] = json!({ "conditions": all });
    assert_eq!(planned(&[default]).networks, []);
}

/// KEP-PN-U1, KEP-DEF-2
#[test]
fn every_network_but_the_default_gets_the_finalizer() {
    let default = ours(
        "PodNetwork",
        json!({"name": "default"}),
        json!({"enabled": true}),
    );
    let mut kept = network("red");
    kept["metadata"]["finalizers"] = json!(["acme.io/x"]);
    let plan = planned(&[
        default,
        network("blue"),
        kept,
        attachment("shop", "fast", "blue"),
    ]);
    let finalizers =
        |steps: &[ObjectStep], name: &str| step(steps, name).unwrap().finalizers.clone();
    assert_eq!(finalizers(&plan.networks, "default"), None);
    assert_eq!(
        finalizers(&plan.networks, "blue"),
        Some(vec![FINALIZER.to_owned()])
    );
    let both = vec!["acme.io/x".to_owned(), FINALIZER.to_owned()];
    assert_eq!(finalizers(&plan.networks, "red"), Some(both));
    assert_eq!(
        finalizers(&plan.attachments, "fast"),
        Some(vec![FINALIZER.to_owned()])
    );
    proof::of!("KEP-PN-U1", "KEP-DEF-2");
}

/// KEP-PN-U1, KEP-PNA-05
#[test]
fn what_is_being_deleted_stays_while_it_is_in_use() {
    let free = planned(&[deleted(network("blue"))]);
    let free = step(&free.networks, "blue").unwrap();
    assert_eq!(free.finalizers, Some(vec!["acme.io/x".to_owned()]));
    assert!(free.must_be_unused);
    assert_eq!(free.status, None, "it may be gone by then");

    let user = pod("web", &json!([{"name": "blue"}]), "");
    let used = planned(&[deleted(network("blue")), user]);
    let used = step(&used.networks, "blue").unwrap();
    assert_eq!(
        (&used.finalizers, used.user.as_deref()),
        (&None, Some("pod shop/web"))
    );
    let status = used.status.as_ref().unwrap();
    let ready = &status.conditions[0];
    assert_eq!(
        (ready.status.as_str(), ready.reason.as_str()),
        ("False", "Terminating")
    );
    assert!(
        ready.message.contains("waits for pod shop/web"),
        "{}",
        ready.message
    );

    let pna = deleted(attachment("shop", "fast", "blue"));
    let plan = planned(&[deleted(network("blue")), pna]);
    assert!(step(&plan.networks, "blue").unwrap().finalizers.is_none());
    assert!(
        step(&plan.attachments, "fast")
            .unwrap()
            .finalizers
            .is_some()
    );
    proof::of!("KEP-PN-U1", "KEP-PNA-05");
}

#[test]
fn an_attachment_nobody_can_read_may_use_any_network() {
    let mut view = view(&[deleted(network("blue"))]);
    view.unreadable = vec!["PodNetworkAttachment shop/x: unknown field".to_owned()];
    let plan = plan(&view, &CHOICES, &mut Orphans::default(), at(0));
    assert!(step(&plan.networks, "blue").unwrap().finalizers.is_none());
}

/// KEP-PN-06: nothing is written, and podnet's nodes would refuse the pods.
#[test]
fn networks_of_others_are_left_alone_and_their_pods_are_not_sent_to_nodes() {
    let mut foreign = ours(
        "PodNetwork",
        json!({"name": "theirs"}),
        json!({"provider": "acme.io/x"}),
    );
    let web = gated(pod("web", &json!([{"name": "theirs"}]), ""));
    let by_attachment = gated(pod("by-pna", &json!([{"attachmentName": "of-theirs"}]), ""));
    let of_theirs = attachment("shop", "of-theirs", "theirs");
    foreign["status"] = json!({"conditions": [{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-11-20T10:00:00Z",
    }]});
    let plan = planned(&[foreign, of_theirs, web, by_attachment]);
    assert_eq!((plan.networks, plan.attachments), (vec![], vec![]));
    assert_eq!(plan.pods.len(), 2);
    for (pod, step) in plan.pods {
        let PodStep::Wait(why) = step else {
            panic!("{:?} is released", pod.metadata.name);
        };
        // The one obstacle names network and provider, and the remedy.
        assert_eq!(
            why,
            [
                "PodNetwork theirs has spec.provider acme.io/x, and podnet serves podnet.dev/ebpf only; \
              name a PodNetwork of that provider instead"
            ]
        );
    }
    proof::of!("KEP-PN-06");
}

/// Nodes may leave the network `default` to another plugin.
#[test]
fn a_default_network_of_another_provider_holds_pods_only_until_it_is_ready() {
    let default = json!({"provider": "acme.io/x"});
    let mut default = ours("PodNetwork", json!({"name": "default"}), default);
    let web = gated(pod("web", &json!([{"name": "default"}]), ""));
    let held = planned(&[default.clone(), web.clone()]);
    assert!(
        matches!(&held.pods[0].1, PodStep::Wait(why) if why[0].contains("its provider has not"))
    );
    default["status"] = json!({"conditions": [{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-11-20T10:00:00Z",
    }]});
    let held = planned(&[default, web]);
    assert_eq!(held.pods[0].1, PodStep::Release);
}

/// The next plan finds the status that a plan has written, and writes none.
#[test]
fn a_status_is_written_once() {
    let objects = [network("blue"), parameters("blue", None)];
    let first = planned(&objects);
    let status = step(&first.networks, "blue")
        .unwrap()
        .status
        .clone()
        .unwrap();
    assert!(status.is_new_number);
    let number = status.number.expect("a number").get();
    assert_eq!(status.transport, Some(Transport::Vxlan));
    let mut written = network("blue");
    written["metadata"]["finalizers"] = json!([FINALIZER]);
    written["status"] =
        json!({"conditions": status.conditions, "networkID": number, "transport": "VXLAN"});
    let [_, parameters] = objects;
    assert_eq!(planned(&[written.clone(), parameters]).networks, []);

    // Without its parameters it is not ready, and keeps number and transport.
    let later = planned(&[written]);
    let later = step(&later.networks, "blue")
        .unwrap()
        .status
        .clone()
        .unwrap();
    assert_eq!(later.number.map(NetworkId::get), Some(number));
    assert_eq!(later.transport, Some(Transport::Vxlan));
    assert!(!later.is_new_number);
    assert_eq!(later.conditions[0].status, "False");
}

/// Returns the status of `blue` that a plan writes.
///
/// The parameters have these fields, and the network this status before.
fn status_of_blue(parameters: &Value, status: Value) -> Option<Status> {
    let mut blue = network("blue");
    blue["metadata"]["finalizers"] = json!([FINALIZER]);
    blue["status"] = status;
    let mut spec = json!({"mode": "L3", "subnets": ["10.1.0.0/24"]});
    for (key, value) in parameters.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let parameters = ours("PodNetworkParameters", json!({"name": "blue"}), spec);
    let planned = planned(&[blue, parameters]);
    step(&planned.networks, "blue")?.status.clone()
}

#[test]
fn a_network_without_a_transport_spans_the_nodes_unless_it_was_numbered_without_one_before() {
    let transport = |parameters: Value, status: Value| {
        let status = status_of_blue(&parameters, status).expect("a status is written");
        status.transport.map(Transport::as_str)
    };
    let local = json!({"transport": {"type": "Local"}});
    let new = json!({});
    assert_eq!(transport(json!({}), new.clone()), Some("VXLAN"));
    assert_eq!(transport(local.clone(), new.clone()), Some("Local"));
    assert_eq!(
        transport(json!({"routing": "Node"}), new.clone()),
        Some("Local")
    );
    let vlan = json!({"transport": {"type": "VLAN", "uplink": "eth1", "id": 5}});
    assert_eq!(transport(vlan, new), Some("VLAN"));
    // Of the version before: its pods are attached to a network that ends at their nodes.
    let numbered = json!({"networkID": 0x80_0001});
    assert_eq!(transport(json!({}), numbered), Some("Local"));
    let decided = json!({"networkID": 0x80_0001, "transport": "VXLAN"});
    assert_eq!(transport(local, decided), Some("VXLAN"));
}

/// Pods are attached by the first one, so a later one is refused.
#[test]
fn parameters_with_another_transport_than_the_network_was_made_with_are_not_ready() {
    let local = json!({"transport": {"type": "Local"}});
    let decided = json!({"networkID": 0x80_0001, "transport": "VXLAN"});
    let status = status_of_blue(&local, decided).expect("a status is written");
    let found = |type_: &str| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|it| it.type_ == type_).expect(type_);
        (found.status.as_str(), found.reason.as_str())
    };
    assert_eq!(found("ParamsReady"), ("False", "TransportConflict"));
    assert_eq!(found(READY), ("False", "ParamsNotReady"));
}

fn on_node(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = node.into();
    pod
}

#[test]
fn a_local_network_with_pods_on_two_nodes_says_so_and_names_the_remedy() {
    let mut of_nad = pod("nad", &Value::Null, "blue-nad");
    of_nad["metadata"]["namespace"] = "shop".into();
    let nad = overview::samples::definition(
        "shop",
        "blue-nad",
        r#"{"cniVersion":"1.0.0","type":"podnet","podNetwork":"blue"}"#,
    );
    let split = |transport: &str, pods: &[Value]| {
        let mut parameters = parameters("blue", None);
        parameters["spec"]["transport"] = json!({ "type": transport });
        let mut objects = vec![network("blue"), parameters, nad.clone()];
        objects.extend(pods.iter().cloned());
        let planned = planned(&objects);
        let step = step(&planned.networks, "blue").expect("a step").clone();
        let conditions = step.status.expect("a status is written").conditions;
        let found = conditions.into_iter().find(|it| it.type_ == api::SPLIT);
        (
            found.map(|it| (it.status, it.reason, it.message)),
            step.split,
        )
    };
    let web = |name: &str| pod(name, &json!([{"name": "blue"}]), "");
    let words = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());

    let (found, why) = split(
        "Local",
        &[on_node(web("a"), "n1"), on_node(web("b"), "n1"), web("c")],
    );
    let (status, reason, message) = found.expect("a condition");
    assert_eq!((status, reason), words("False", "OneNode"));
    assert_eq!((message.as_str(), why), ("", None));

    let apart = [
        on_node(web("a"), "n2"),
        on_node(of_nad, "n1"),
        on_node(web("c"), "n3"),
    ];
    let (found, why) = split("Local", &apart);
    let (status, reason, message) = found.expect("a condition");
    assert_eq!((status, reason), words("True", "SeveralNodes"));
    assert_eq!(why.as_ref(), Some(&message));
    for words in ["n1 and n2 among them", "transport VXLAN"] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(split("VXLAN", &apart), (None, None));

    // A pod that has ended reaches no other.
    let mut ended = on_node(web("a"), "n2");
    ended["status"]["phase"] = "Succeeded".into();
    let (found, _) = split("Local", &[ended, on_node(web("b"), "n1")]);
    assert_eq!(found.expect("a condition").1, "OneNode");
}

/// The Event is written again from time to time, though no status is.
#[test]
fn a_split_network_is_told_of_as_long_as_it_is_split() {
    let mut parameters = parameters("blue", None);
    parameters["spec"]["transport"] = json!({"type": "Local"});
    let web = |name: &str, node: &str| on_node(pod(name, &json!([{"name": "blue"}]), ""), node);
    let mut objects = vec![network("blue"), parameters, web("a", "n1"), web("b", "n2")];
    let first = planned(&objects);
    let status = step(&first.networks, "blue")
        .unwrap()
        .status
        .clone()
        .unwrap();
    let number = status.number.map(NetworkId::get);
    objects[0]["metadata"]["finalizers"] = json!([FINALIZER]);
    objects[0]["status"] =
        json!({"conditions": status.conditions, "networkID": number, "transport": "Local"});
    let again = planned(&objects);
    let again = step(&again.networks, "blue").expect("an Event");
    assert!(again.status.is_none() && again.split.is_some(), "{again:?}");
}

/// KEP-POD-10, KEP-POD-11
#[test]
fn a_pod_is_released_in_the_pass_that_finds_its_networks_ready() {
    let web = gated(pod("web", &json!([{"name": "blue"}]), ""));
    let waits = planned(&[network("blue"), web.clone()]);
    assert!(matches!(waits.pods[0].1, PodStep::Wait(_)));
    let goes = planned(&[network("blue"), parameters("blue", None), web]);
    assert_eq!(goes.pods[0].1, PodStep::Release);
    proof::of!("KEP-POD-10", "KEP-POD-11");
}

#[test]
fn a_pod_that_went_on_is_said_to_be_ready() {
    let mut pod = pod("web", &json!([{"name": "blue"}]), "");
    pod["status"]["conditions"] = json!([{"type": "podnet.dev/NetworksReady", "status": "False"}]);
    assert_eq!(
        planned(std::slice::from_ref(&pod)).pods[0].1,
        PodStep::MarkReady
    );
    pod["status"]["conditions"][0]["status"] = "True".into();
    assert_eq!(planned(&[pod]).pods, []);
}

/// KEP-CTL-4
#[test]
fn without_the_feature_nothing_waits_and_nothing_is_written() {
    let choices = Choices {
        multi_network: false,
        ..CHOICES
    };
    let web = gated(pod("web", &json!([{"name": "blue"}]), ""));
    let user = pod("other", &json!([{"name": "red"}]), "");
    let objects = [network("blue"), deleted(network("red")), user, web];
    let plan = plan(&view(&objects), &choices, &mut Orphans::default(), at(0));
    assert!(!plan.create_default);
    assert_eq!(plan.pods.len(), 1);
    assert_eq!(plan.pods[0].1, PodStep::Release);
    let [red] = plan.networks.as_slice() else {
        unreachable!("{:?}", plan.networks)
    };
    assert_eq!(red.finalizers, Some(vec!["acme.io/x".to_owned()]));
    assert!(!red.must_be_unused && red.status.is_none());
    proof::of!("KEP-CTL-4");
}

/// ATT-04b: a large cluster is planned without work that grows with a square.
#[test]
fn a_large_cluster_with_lists_of_any_length_is_planned() {
    const NETWORKS: usize = 1500;
    const PODS: usize = 1500;
    let mut objects = Vec::new();
    for number in 0..NETWORKS {
        let name = format!("n{number}");
        objects.push(network(&name));
        let asked = u32::try_from(number + 1).ok();
        objects.push(parameters(&name, asked));
    }
    for number in 0..PODS {
        let kep = json!([{"name": format!("n{number}")}]);
        let is_hostile = number % 100 == 0;
        let names = (0..if is_hostile { 43_000 } else { 0 }).map(|name| format!("{name:x}"));
        let npwg = names.collect::<Vec<_>>().join(",");
        objects.push(gated(pod(&format!("p{number}"), &kep, &npwg)));
    }
    let plan = planned(&objects);
    let waiting = plan.pods.iter().filter_map(|(_, step)| match step {
        PodStep::Wait(obstacles) => Some(obstacles),
        _ => None,
    });
    let (count, words) = waiting.fold((0, 0), |(count, words), obstacles| {
        let length: usize = obstacles.iter().map(String::len).sum();
        (count + 1, words.max(length))
    });
    assert_eq!((count, plan.pods.len()), (PODS / 100, PODS));
    assert!(words < 1000, "{words}");
    assert_eq!(plan.ready, [0, NETWORKS]);
    proof::of!("ATT-04b");
}
