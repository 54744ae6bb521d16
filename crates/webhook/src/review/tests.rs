use api::nad::{AllowedPlugins, PluginChain};
use api::selection::{PodSelection, SelectionRules, Target};
use kube::core::admission::Operation;
use serde_json::{Value, json};

use super::super::facts::{Facts, Reached, Way};
use super::super::samples::{create, listing, npwg, plain, pod, update};
use super::{Denial, check_definitions, check_deletion, gate, read, warnings};

fn rules() -> SelectionRules {
    SelectionRules::default()
}

fn selection(pod: &Value) -> PodSelection {
    read(&create(pod), &rules())
        .expect("valid lists")
        .expect("something to look at")
}

/// KEP-POD-01..06, NPWG-4.1: a wrong list is refused with its place and the remedy.
#[test]
fn a_wrong_list_is_refused_with_its_place_and_what_to_write() {
    let host = |list: &str| {
        let spec = json!({ "hostNetwork": true, "containers": [{ "name": "c", "image": "i" }] });
        pod(&json!({ "podnet.dev/networks": list }), &spec)
    };
    let table = [
        (
            listing(r#"[{"name": "a", "attachmentName": "b"}]"#),
            "podnet.dev/networks[0]: name and attachmentName exclude each other; keep one",
        ),
        (
            listing("[{}]"),
            "podnet.dev/networks[0]: a name is required; write {\"name\": \"blue\"}",
        ),
        (
            listing(r#"[{"name": "a"}, {"name": "a"}]"#),
            "podnet.dev/networks[1].name: network \"a\" is there already, as [0]",
        ),
        (
            listing(r#"[{"name": "a", "isDefaultGW": true}, {"name": "b", "isDefaultGW": true}]"#),
            "podnet.dev/networks[1].isDefaultGW: only one element may have isDefaultGW",
        ),
        (
            listing(
                r#"[{"name": "a"}, {"name": "b", "interfaceName": "x0"}, {"name": "c", "interfaceName": "x0"}]"#,
            ),
            "podnet.dev/networks[2].interfaceName: interface x0 is used by",
        ),
        (
            listing(r#"[{"name": "a"}, {"name": "b", "interfaceName": "a/b"}]"#),
            "podnet.dev/networks[1].interfaceName: ",
        ),
        (
            host(r#"[{"name": "a"}]"#),
            "podnet.dev/networks: a pod with hostNetwork: true has the node's network",
        ),
        (
            npwg("a,,b"),
            "k8s.v1.cni.cncf.io/networks, item 2 at character 3: a name is missing here",
        ),
        (
            npwg(r#"[{"name": "a", "mac": "nonsense"}]"#),
            "k8s.v1.cni.cncf.io/networks[0].mac: ",
        ),
        (
            npwg(r#"{"name": "a"}"#),
            "k8s.v1.cni.cncf.io/networks: a single object is not a list",
        ),
    ];
    for (pod, words) in table {
        let request = create(&pod);
        let errors = read(&request, &rules()).expect_err(words);
        let response = Denial::from(errors).respond(&request);
        assert!(!response.allowed);
        assert_eq!(
            (response.result.code, response.result.reason.as_str()),
            (422, "Invalid")
        );
        let message = &response.result.message;
        assert!(message.contains(words), "{words:?} is not in {message:?}");
        let causes = response.result.details.expect("details").causes;
        assert!(
            causes[0].field.starts_with("metadata.annotations."),
            "{causes:?}"
        );
    }
    proof::of!(
        "KEP-POD-01",
        "KEP-POD-02",
        "KEP-POD-03",
        "KEP-POD-04",
        "KEP-POD-05",
        "KEP-POD-06",
        "NPWG-4.1"
    );
}

/// A person mends a list in one go.
#[test]
fn every_error_of_a_list_is_told_at_once() {
    let request = create(&listing(
        r#"[{}, {"name": "A"}, {"name": "b", "speed": 1}]"#,
    ));
    let errors = read(&request, &rules()).unwrap_err();
    let response = Denial::from(errors).respond(&request);
    let causes = response.result.details.expect("details").causes;
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "metadata.annotations.podnet.dev/networks[0]",
            "metadata.annotations.podnet.dev/networks[1].name",
            "metadata.annotations.podnet.dev/networks[2]",
        ]
    );
}

/// KEP-P1-01, KEP-POD-06: empty lists and pods without one are admitted unchanged.
#[test]
fn pods_without_lists_are_taken_as_they_are() {
    let host = json!({ "hostNetwork": true, "containers": [{ "name": "c", "image": "i" }] });
    for pod in [
        pod(&Value::Null, &plain()),
        pod(&json!({ "other.example/networks": "[{" }), &plain()),
        listing(""),
        listing("[]"),
        npwg(" "),
        pod(&json!({ "podnet.dev/networks": "[]" }), &host),
        // NPWG's list has no effect on such a pod.
        pod(&json!({ "k8s.v1.cni.cncf.io/networks": "a" }), &host),
    ] {
        let request = create(&pod);
        let selection = read(&request, &rules()).expect("valid");
        assert!(
            selection.is_none_or(|selection| super::named(&selection).next().is_none()),
            "{pod}"
        );
        assert_eq!(gate(&request, &rules()), None, "{pod}");
    }
    proof::of!("KEP-P1-01", "KEP-POD-06", "KEP-DEF-3");
}

/// NPWG-4.1: an update is checked when a list changes, and not when none does.
#[test]
fn an_update_is_looked_at_when_a_list_changes() {
    let (good, bad, none) = (npwg("a"), npwg("a,,b"), pod(&Value::Null, &plain()));
    assert_eq!(read(&update(&bad, &bad), &rules()), Ok(None));
    assert_eq!(read(&update(&good, &none), &rules()), Ok(None));
    assert!(read(&update(&good, &bad), &rules()).is_err());
    assert!(read(&update(&none, &bad), &rules()).is_err());
    let changed = read(&update(&none, &good), &rules()).expect("valid");
    assert_eq!(changed.expect("a change").attachments.len(), 2);
    let mut going = bad;
    going["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
    assert_eq!(read(&update(&good, &going), &rules()), Ok(None));
    proof::of!("NPWG-4.1");
}

/// KEP-POD-10..12: the gate makes the pod wait, with the gates of others.
#[test]
fn a_pod_that_lists_networks_gets_the_gate() {
    let with = json!([{ "op": "add", "path": "/spec/schedulingGates", "value": [{ "name": "podnet.dev/pod-networks" }] }]);
    for pod in [
        listing(r#"[{"name": "a"}]"#),
        listing(r#"[{"attachmentName": "a"}]"#),
        npwg("a"),
        npwg(r#"[{"name": "a", "namespace": "b"}]"#),
    ] {
        assert_eq!(gate(&create(&pod), &rules()), Some(with.clone()), "{pod}");
    }
    let mut pod = npwg("a");
    pod["spec"]["schedulingGates"] = json!([{ "name": "other.example/gate" }]);
    let beside = json!([{ "op": "add", "path": "/spec/schedulingGates/-", "value": { "name": "podnet.dev/pod-networks" } }]);
    assert_eq!(gate(&create(&pod), &rules()), Some(beside));
    proof::of!("KEP-POD-10", "KEP-POD-11", "KEP-POD-12");
}

/// KEP-POD-10..12, Kubernetes "Pod scheduling readiness": a gate comes at creation.
///
/// It comes once, to pods without a node.
#[test]
fn no_gate_for_pods_that_cannot_wait_or_wait_already() {
    let mut bound = npwg("a");
    bound["spec"]["nodeName"] = json!("n1");
    let mut gated = npwg("a");
    gated["spec"]["schedulingGates"] = json!([{ "name": "podnet.dev/pod-networks" }]);
    for pod in [bound, gated, npwg("a,,b"), listing("[{")] {
        assert_eq!(gate(&create(&pod), &rules()), None, "{pod}");
    }
    let later = update(&npwg("a"), &npwg("a,b"));
    assert_eq!(later.operation, Operation::Update);
    assert_eq!(gate(&later, &rules()), None);
    proof::of!("KEP-POD-10", "KEP-POD-11", "KEP-POD-12");
}

/// ATT-07b: new pods that name forbidden plugins or namespaces are refused.
///
/// A definition of a plugin that is not allowed is one, a definition of an isolated namespace another.
#[test]
fn plugins_and_namespaces_that_are_not_allowed_are_refused() {
    let lan = Target::Definition {
        namespace: "shop".to_owned(),
        name: "lan".to_owned(),
    };
    let config = r#"{"type": "bridge", "ipam": {"type": "evil"}}"#;
    let chain = PluginChain::parse(config, "lan").expect("a chain");
    let facts: Facts = [(lan, Way::to_others(chain))].into_iter().collect();
    let lists = selection(&npwg("lan"));
    assert_eq!(check_definitions(&lists, &facts, &rules()), Ok(()));
    let limited = SelectionRules {
        plugins: AllowedPlugins::Listed(["bridge".to_owned()].into()),
        global_namespaces: Some(["default".to_owned()].into()),
        ..rules()
    };
    let denial = check_definitions(&lists, &facts, &limited).unwrap_err();
    let message = denial.to_string();
    for words in ["shop/lan", "ipam.type is \"evil\"", "--delegates-allowed"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    let request = create(&npwg("lan"));
    assert_eq!(denial.respond(&request).result.code, 403);
    let errors = read(&create(&npwg("ops/lan")), &limited).unwrap_err();
    assert!(
        errors.to_string().contains("--namespace-isolation"),
        "{errors}"
    );
    // Where podnet is behind another plugin, nobody can say whom to ask.
    let config = r#"{"type": "flannel", "delegate": {"type": "podnet", "podNetwork": "red"}}"#;
    let hidden = PluginChain::parse(config, "lan").expect("a chain");
    let way = Way::to_others(hidden);
    assert!(matches!(way.reached, Reached::Unknown(_)), "{way:?}");
    proof::of!("ATT-07b");
}

/// ATT-07b: as agents and the controller say it, see `check_namespace` there.
#[test]
fn a_definition_that_leads_into_another_namespace_is_refused_where_namespaces_are_isolated() {
    let lan = Target::Definition {
        namespace: "shop".to_owned(),
        name: "lan".to_owned(),
    };
    let lists = selection(&npwg("lan"));
    let facts = |namespace: &str| -> Facts {
        let way = Way {
            attachment_in: Some(namespace.to_owned()),
            ..Way::to(Reached::Network("blue".to_owned()))
        };
        [(lan.clone(), way)].into_iter().collect()
    };
    let isolated = SelectionRules {
        global_namespaces: Some(["default".to_owned()].into()),
        ..rules()
    };
    for namespace in ["shop", "default"] {
        let facts = facts(namespace);
        assert_eq!(check_definitions(&lists, &facts, &isolated), Ok(()));
    }
    let facts = facts("bank");
    assert_eq!(check_definitions(&lists, &facts, &rules()), Ok(()));
    let denial = check_definitions(&lists, &facts, &isolated).expect_err("it is refused");
    let message = denial.to_string();
    for words in ["shop/lan", "namespace bank", "--namespace-isolation"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert_eq!(denial.respond(&create(&npwg("lan"))).result.code, 403);
    proof::of!("ATT-07b");
}

/// KEP-PN-U3: a network that is being deleted gets no new references.
///
/// That is so through other objects too.
#[test]
fn a_network_that_is_being_deleted_takes_no_new_pods() {
    let blue = Target::PodNetwork("blue".to_owned());
    let fast = Target::Attachment {
        namespace: "shop".to_owned(),
        name: "fast".to_owned(),
    };
    let to_blue = |deleted: Option<&Target>| Way {
        deleted: deleted.cloned(),
        ..Way::to(Reached::Network("blue".to_owned()))
    };
    let lists = selection(&listing(
        r#"[{"name": "blue"}, {"attachmentName": "fast"}]"#,
    ));
    let facts = |of_blue, of_fast| -> Facts {
        [
            (blue.clone(), to_blue(of_blue)),
            (fast.clone(), to_blue(of_fast)),
        ]
        .into_iter()
        .collect()
    };
    assert_eq!(check_deletion(&lists, &facts(None, None)), Ok(()));
    for (facts, gone) in [
        (facts(Some(&blue), Some(&blue)), &blue),
        (facts(None, Some(&fast)), &fast),
    ] {
        let denial = check_deletion(&lists, &facts).unwrap_err();
        assert_eq!(
            denial,
            Denial::BeingDeleted {
                target: gone.clone()
            }
        );
        let response = denial.respond(&create(&npwg("a")));
        assert_eq!(response.result.code, 409);
        assert!(
            response.result.message.contains("is being deleted"),
            "{response:?}"
        );
    }
    proof::of!("KEP-PN-U3");
}

/// NPWG-4.1.2: reserved keys are ignored, and the user is told.
#[test]
fn what_has_no_effect_is_a_warning() {
    let lists = selection(&npwg(r#"[{"name": "a", "mtu": 1400}]"#));
    assert_eq!(
        warnings(&lists),
        ["k8s.v1.cni.cncf.io/networks[0].mtu is not known and ignored"]
    );
    proof::of!("NPWG-4.1.2");
}

/// A list that moves the default network is valid, and kubectl shows the loss.
#[test]
fn a_default_network_off_the_first_interface_is_a_warning() {
    let moved = r#"[{"name": "a", "interfaceName": "eth0"}, {"name": "default"}]"#;
    let [warning] = &warnings(&selection(&listing(moved)))[..] else {
        panic!("one warning");
    };
    assert!(
        warning.starts_with("the default network default is at net1 and another network at eth0"),
        "{warning}"
    );
}
