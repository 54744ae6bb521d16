//! Test `PodNetwork` and `PodNetworkAttachment` in the API server (KEP-3698).

use api::{PodNetwork, PodNetworkAttachment};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::objects::{self, Objects, check_specs, kubectl};
use super::scene;

/// A reference to podnet's parameters of this name.
fn reference(name: &str) -> Value {
    json!({"group": "podnet.dev", "kind": "PodNetworkParameters", "name": name})
}

/// `pn_enabled_default_true`: KEP-PN-01.
#[test]
fn a_network_is_enabled_unless_it_says_false() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let networks = Objects::all::<PodNetwork>(&client);
        for (written, enabled) in [
            (json!({}), true),
            (json!({"enabled": null}), true),
            (json!({"enabled": true}), true),
            (json!({"enabled": false}), false),
        ] {
            let taken = networks.try_spec("enabled", &written).await;
            let taken = taken.expect("a valid spec");
            assert_eq!(taken["spec"]["enabled"], enabled, "{written}");
        }
    });
    proof::of!("KEP-PN-01");
}

/// `pn_provider_pattern_ok`, `pn_provider_pattern_bad`: KEP-PN-03, KEP-PN-M2.
#[test]
fn the_provider_is_a_domain_and_a_path() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    let provider = |text: &str| json!({ "provider": text });
    let refused = Some(["spec.provider", ""]);
    let path = |bytes| provider(&format!("a/{}", "b".repeat(bytes)));
    let table = [
        (json!({}), None),
        (provider("acme.io/foo"), None),
        (provider("foo/bar"), None),
        (provider("a/b/c:d%20~"), None),
        (path(251), None),
        (path(252), refused),
        (provider(""), refused),
        (provider("acme.io"), refused),
        (provider("acme.io/"), refused),
        (provider("Acme.io/x"), refused),
        (provider("a..b/x"), refused),
        (provider("a/b c"), refused),
        (json!({"provider": 7}), refused),
    ];
    scene.run(|client| async move {
        check_specs(&Objects::all::<PodNetwork>(&client), "provider", &table).await;
    });
    // The agent, which reads manifests without a server, judges alike.
    for text in ["acme.io/foo", "foo/bar", "a/b/c:d%20~"] {
        assert!(api::check_provider(text), "{text}");
    }
    proof::of!("KEP-PN-03", "KEP-PN-M2");
}

/// KEP-PN-M2
#[test]
fn references_name_group_kind_and_object() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    let with = |key: &str, value: Value| {
        let mut reference = reference("blue");
        reference[key] = value;
        json!({ "parametersRefs": [reference] })
    };
    let many = |count| json!({"parametersRefs": (0..count).map(|n| reference(&format!("p{n}"))).collect::<Vec<_>>()});
    let table = [
        (with("name", json!("a.b-c")), None),
        (with("group", json!("")), None),
        // The plural, as the KEP's examples have it.
        (with("kind", json!("network-attachment-definitions")), None),
        (with("namespace", json!("team-a")), None),
        (many(16), None),
        (many(17), Some(["spec.parametersRefs", "at most 16"])),
        (
            with("name", Value::Null),
            Some(["parametersRefs[0].name", "Required"]),
        ),
        (
            with("name", json!("")),
            Some(["parametersRefs[0].name", ""]),
        ),
        (
            with("name", json!(1)),
            Some(["parametersRefs[0].name", "string"]),
        ),
        (
            with("group", json!("A_b")),
            Some(["parametersRefs[0].group", ""]),
        ),
        (
            with("kind", json!("")),
            Some(["parametersRefs[0].kind", ""]),
        ),
        (
            with("namespace", json!("a.b")),
            Some(["parametersRefs[0].namespace", ""]),
        ),
        (
            json!({"parametersRefs": [reference("a"), reference("b"), reference("a")]}),
            Some(["spec.parametersRefs", "same reference twice"]),
        ),
    ];
    scene.run(|client| async move {
        check_specs(&Objects::all::<PodNetwork>(&client), "references", &table).await;
    });
    proof::of!("KEP-PN-M2");
}

/// `pn_spec_immutable_provider_change` and its siblings: KEP-PN-M1.
///
/// They are `_add`, `_remove`, `_refs_change`, `_refs_reorder`.
#[test]
fn the_spec_of_a_network_never_changes() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    let refs = |names: &[&str]| json!(names.iter().map(|name| reference(name)).collect::<Vec<_>>());
    let full = json!({"provider": "podnet.dev/ebpf", "parametersRefs": refs(&["a", "b"])});
    scene.run(|client| async move {
        let networks = Objects::all::<PodNetwork>(&client);
        for (name, spec) in [("immutable-full", full), ("immutable-empty", json!({}))] {
            networks
                .create(name, json!({ "spec": spec }))
                .await
                .unwrap();
        }
        for (name, change) in [
            ("immutable-full", json!({"provider": "acme.io/other"})),
            ("immutable-full", json!({"provider": null})),
            (
                "immutable-full",
                json!({"parametersRefs": refs(&["a", "c"])}),
            ),
            (
                "immutable-full",
                json!({"parametersRefs": refs(&["b", "a"])}),
            ),
            ("immutable-full", json!({"parametersRefs": refs(&["a"])})),
            ("immutable-full", json!({"parametersRefs": []})),
            ("immutable-full", json!({"parametersRefs": null})),
            ("immutable-empty", json!({"provider": "podnet.dev/ebpf"})),
            ("immutable-empty", json!({"parametersRefs": refs(&["a"])})),
        ] {
            let answer = networks.merge(name, json!({ "spec": change })).await;
            let message = answer.expect_err("a change of the spec");
            assert!(message.contains("is immutable"), "{change}: {message}");
        }
        // Without a spec there would be no rules.
        let gone = networks
            .merge("immutable-full", json!({"spec": null}))
            .await;
        assert!(gone.expect_err("no spec").contains("spec"));
    });
    proof::of!("KEP-PN-M1", "KEP-PN-02");
}

/// `pn_enabled_mutable`: KEP-PN-M1.
#[test]
fn a_network_can_be_disabled_and_labelled() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let networks = Objects::all::<PodNetwork>(&client);
        let spec = json!({"provider": "podnet.dev/ebpf", "parametersRefs": [reference("a")]});
        networks
            .create("mutable", json!({ "spec": spec }))
            .await
            .unwrap();
        for enabled in [false, true, false] {
            let patch = json!({"spec": {"enabled": enabled, "provider": "podnet.dev/ebpf"}});
            let now = networks.merge("mutable", patch).await.unwrap();
            assert_eq!(now["spec"]["enabled"], enabled);
        }
        let labels =
            json!({"metadata": {"labels": {"team": "a"}, "finalizers": ["podnet.dev/in-use"]}});
        networks.merge("mutable", labels).await.unwrap();
        let none = json!({"metadata": {"finalizers": null}});
        networks.merge("mutable", none).await.unwrap();
    });
    proof::of!("KEP-PN-M1");
}

/// KEP-PN-M1: an empty list and none are the same wish; a typed client writes none.
#[test]
fn a_typed_client_can_write_back_what_it_read() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let untyped = Objects::all::<PodNetwork>(&client);
        let spec = json!({"enabled": false, "parametersRefs": []});
        untyped
            .create("typed", json!({ "spec": spec }))
            .await
            .unwrap();
        let networks: Api<PodNetwork> = Api::all(client);
        let read = networks.get("typed").await.expect("readable");
        let params = PostParams::default();
        let written = networks.replace("typed", &params, &read).await;
        assert!(!written.expect("the same spec").spec.enabled);
    });
    proof::of!("KEP-PN-M1");
}

/// `pn_conditions_max5`: KEP-PN-04.
#[test]
fn a_network_has_at_most_five_conditions_one_of_a_type() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1})
    };
    let of = |kinds: &[&str]| json!({"conditions": kinds.iter().map(|kind| condition(kind)).collect::<Vec<_>>()});
    scene.run(|client| async move {
        let networks = Objects::all::<PodNetwork>(&client);
        let with = json!({"spec": {}, "status": of(&["Ready"])});
        let made = networks.create("conditions", with).await.unwrap();
        assert_eq!(
            made["status"],
            Value::Null,
            "only the subresource writes it"
        );
        let five = of(&["Ready", "ParamsReady", "C", "D", "E"]);
        networks.merge_status("conditions", five).await.unwrap();
        for refused in [
            of(&["Ready", "ParamsReady", "C", "D", "E", "F"]),
            of(&["Ready", "Ready"]),
            json!({"conditions": [{"type": "Ready", "status": "True"}]}),
            json!({"networkID": 16_777_216}),
        ] {
            let answer = networks.merge_status("conditions", refused.clone()).await;
            assert!(answer.is_err(), "{refused} was taken");
        }
        let numbered = networks
            .merge_status("conditions", json!({"networkID": 7}))
            .await;
        assert_eq!(numbered.unwrap()["status"]["networkID"], 7);
    });
    proof::of!("KEP-PN-04");
}

/// KEP-P1-02: `kubectl get podnetwork blue` is about the network.
///
/// It is not about everything in a category of that name.
#[test]
fn a_network_is_found_by_every_name_of_its_kind() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let networks = Objects::all::<PodNetwork>(&client);
        networks.create("found", json!({"spec": {}})).await.unwrap();
    });
    for name in ["podnetworks", "podnetwork", "pn", "podnetworks.podnet.dev"] {
        let output = kubectl(scene.server, &["get", name, "found", "--output=name"]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "kubectl get {name} found: {complaint}"
        );
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim(), "podnetwork.podnet.dev/found", "{name}");
    }
    let output = kubectl(scene.server, &["get", "pn", "found"]);
    let table = String::from_utf8_lossy(&output.stdout);
    let head: Vec<&str> = table
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(
        head,
        [
            "NAME",
            "READY",
            "REASON",
            "ENABLED",
            "PROVIDER",
            "TRANSPORT",
            "AGE"
        ]
    );
    proof::of!("KEP-P1-02");
}

/// A network's name leaves room for an address in the names of its `IPBlock`s.
///
/// They have to be shorter than 254 bytes, and begin with the network's.
#[test]
fn a_network_has_a_name_that_leaves_room_for_an_address() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let networks = Objects::all::<PodNetwork>(&client);
        let spec = json!({});
        networks.try_spec(&"a".repeat(213), &spec).await.unwrap();
        let message = networks
            .try_spec(&"a".repeat(214), &spec)
            .await
            .expect_err("too long");
        assert!(message.contains("at most 213 characters"), "{message}");
    });
}

/// `pna_spec_immutable`: KEP-PNA-01, KEP-PNA-04.
#[test]
fn the_spec_of_an_attachment_never_changes() {
    let Some(scene) = objects::set(testbed::test_name!()) else {
        return;
    };
    scene.run(|client| async move {
        let namespace = scene::namespace(&client, "attachment-immutable").await;
        let attachments = Objects::of::<PodNetworkAttachment>(&client, &namespace);
        let table = [
            (json!({"podNetworkName": "not-there-yet"}), None),
            (json!({}), Some(["spec.podNetworkName", "Required"])),
            (
                json!({"podNetworkName": ""}),
                Some(["spec.podNetworkName", ""]),
            ),
            (
                json!({"podNetworkName": "A"}),
                Some(["spec.podNetworkName", ""]),
            ),
        ];
        check_specs(&attachments, "a", &table).await;
        let spec =
            json!({"podNetworkName": "blue", "parametersRefs": [reference("a"), reference("b")]});
        attachments
            .create("a", json!({ "spec": spec }))
            .await
            .unwrap();
        for change in [
            json!({"podNetworkName": "red"}),
            json!({"parametersRefs": null}),
            json!({"parametersRefs": [reference("b"), reference("a")]}),
        ] {
            let answer = attachments.merge("a", json!({ "spec": change })).await;
            let message = answer.expect_err("a change of the spec");
            assert!(message.contains("is immutable"), "{change}: {message}");
        }
        attachments
            .merge("a", json!({ "spec": spec }))
            .await
            .unwrap();
        let labels = json!({"metadata": {"labels": {"team": "a"}}});
        attachments.merge("a", labels).await.unwrap();
    });
    proof::of!("KEP-PNA-01", "KEP-PNA-04");
}
