//! `IPAMClaim`s: addresses that outlive pods (NPWG v1.3 section 8).

use serde_json::json;
use testbed::wait;

use super::ipam_scene::{Nodes, config_name};

fn of_claim(name: &str) -> serde_json::Value {
    json!({"ipam-claim-reference": name})
}

/// NPWG-8-T1, NPWG-8-T2, NPWG-8.0
#[test]
fn a_claim_gets_addresses_once_and_keeps_them_from_pod_to_pod_and_node_to_node() {
    let Some(s) = Nodes::start(testbed::test_name!(), "claim-moves") else {
        return;
    };
    let network = s.network("blue", &["10.40.0.0/24", "fd40::/64"]);
    s.claim("vm-a", &network, &[]);
    let (first, here) = (
        s.pod(&s.one, "first", &network, &of_claim("vm-a")),
        s.one.node.pod("c1"),
    );
    let ips = s.add(&s.one, &here, "first", &first);
    // Written when the ADD succeeds, with the length of the prefix.
    assert_eq!((s.claimed("vm-a"), ips.len()), (ips.clone(), 2));
    s.del(&s.one, &here, "first", &first);
    s.one.node.assert_empty();
    assert_eq!(s.claimed("vm-a"), ips, "the pod's end is not the claim's");

    // Nobody else gets them meanwhile, on any node.
    let bare = |ip: &String| ip.split('/').next().unwrap_or_default().to_owned();
    let keys = json!({"ips": [bare(&ips[0])]});
    let (thief, there) = (
        s.pod(&s.two, "thief", &network, &keys),
        s.two.node.pod("c2"),
    );
    s.refused(&s.two, &there, ("thief", &thief), 101)
        .names(&[&format!("IPAMClaim {}/vm-a", s.one.name)]);

    // The next pod is on the other node.
    let second = s.pod(&s.two, "second", &network, &of_claim("vm-a"));
    assert_eq!(s.add(&s.two, &there, "second", &second), ips);
    assert_eq!(s.claimed("vm-a"), ips);
    // And one more beside it, as while a virtual machine moves.
    let third = s.pod(&s.one, "third", &network, &of_claim("vm-a"));
    assert_eq!(s.add(&s.one, &here, "third", &third), ips);
    s.del(&s.one, &here, "third", &third);
    s.del(&s.two, &there, "second", &second);
    proof::of!("NPWG-8-T1", "NPWG-8-T2", "NPWG-8.0", "NPWG-8.3");
}

/// NPWG-8-T2, NPWG-4.1.2.1.11
#[test]
fn addresses_that_a_claim_has_already_are_used_exactly_or_not_at_all() {
    let Some(s) = Nodes::start(testbed::test_name!(), "claim-preset") else {
        return;
    };
    let network = s.network("blue", &["10.41.0.0/24"]);
    s.claim("vm-a", &network, &["10.41.0.77/24"]);
    let (first, here) = (
        s.pod(&s.one, "first", &network, &of_claim("vm-a")),
        s.one.node.pod("c1"),
    );
    assert_eq!(s.add(&s.one, &here, "first", &first), ["10.41.0.77/24"]);

    // The address of another claim's.
    s.claim("vm-b", &network, &["10.41.0.77/24"]);
    let (second, there) = (
        s.pod(&s.two, "second", &network, &of_claim("vm-b")),
        s.two.node.pod("c2"),
    );
    s.refused(&s.two, &there, ("second", &second), 101)
        .names(&["10.41.0.77", "IPAMClaim", "vm-a"]);

    // Addresses beside the claim are the claim's, or there is a mistake.
    let both = |ip: &str| json!({"ips": [ip], "ipam-claim-reference": "vm-c"});
    s.claim("vm-c", &network, &[]);
    let third = s.pod(&s.two, "third", &network, &both("10.41.0.99"));
    assert_eq!(s.add(&s.two, &there, "third", &third), ["10.41.0.99/24"]);
    assert_eq!(s.claimed("vm-c"), ["10.41.0.99/24"]);
    s.del(&s.two, &there, "third", &third);
    let fourth = s.pod(&s.two, "fourth", &network, &both("10.41.0.98"));
    s.refused(&s.two, &there, ("fourth", &fourth), 7)
        .names(&["vm-c", "10.41.0.98", "remove ips"]);
    s.del(&s.one, &here, "first", &first);
    proof::of!("NPWG-8-T2", "NPWG-4.1.2.1.11");
}

/// NPWG-8-T3; facts 4.1.2.1.11: a claim that is not there yet is waited for.
#[test]
fn a_claim_of_another_network_is_refused_and_a_missing_one_waited_for() {
    let Some(s) = Nodes::start(testbed::test_name!(), "claim-wrong") else {
        return;
    };
    let (blue, red) = (
        s.network("blue", &["10.42.0.0/24"]),
        s.network("red", &["10.43.0.0/24"]),
    );
    s.claim("vm-red", &red, &[]);
    let (web, here) = (
        s.pod(&s.one, "web", &blue, &of_claim("vm-red")),
        s.one.node.pod("c1"),
    );
    s.refused(&s.one, &here, ("web", &web), 7)
        .names(&["vm-red", &red, &blue, "spec.network"]);
    assert!(s.claimed("vm-red").is_empty());

    let late = s.pod(&s.one, "late", &blue, &of_claim("vm-late"));
    let failure = wait::until("an ADD that waits for the claim", || {
        let outcome = s.call(&s.one, "ADD", &here, "late", &late);
        Some(outcome.error()).filter(|failure| failure.code == 11)
    });
    failure.names(&["vm-late", "does not exist"]);
    assert!(
        s.one.node.attachments().is_empty(),
        "nothing is given blindly"
    );
    s.claim("vm-late", &blue, &[]);
    assert_eq!(s.add(&s.one, &here, "late", &late), s.claimed("vm-late"));
    s.del(&s.one, &here, "late", &late);
    proof::of!("NPWG-8-T3");
}

/// NPWG-8-T3: claims name the network as the NetworkAttachmentDefinition does.
///
/// KubeVirt's do. The name of the runtime's own configuration, `podnet`, is that of no network.
#[test]
fn a_claim_names_its_network_as_the_definition_does_and_never_as_the_runtime_does() {
    let Some(s) = Nodes::start(testbed::test_name!(), "claim-names") else {
        return;
    };
    let network = s.network("blue", &["10.44.0.0/24"]);
    s.claim("vm-a", &config_name(&network), &[]);
    let (first, here) = (
        s.pod(&s.one, "first", &network, &of_claim("vm-a")),
        s.one.node.pod("c1"),
    );
    assert_eq!(s.add(&s.one, &here, "first", &first), s.claimed("vm-a"));
    s.del(&s.one, &here, "first", &first);

    s.claim("vm-b", "podnet", &[]);
    let second = s.pod(&s.one, "second", &network, &of_claim("vm-b"));
    s.refused(&s.one, &here, ("second", &second), 7).names(&[
        "vm-b",
        "spec.network is podnet",
        &network,
    ]);
    assert!(s.claimed("vm-b").is_empty());
    proof::of!("NPWG-8-T3");
}

/// NPWG-8-T5: on a network without addresses a claim is ignored, and stays.
#[test]
fn a_claim_on_a_network_without_addresses_is_left_alone() {
    let Some(s) = Nodes::start(testbed::test_name!(), "claim-none") else {
        return;
    };
    let bare = s.network("bare", &[]);
    s.claim("vm-a", &bare, &[]);
    let (web, here) = (
        s.pod(&s.one, "web", &bare, &of_claim("vm-a")),
        s.one.node.pod("c1"),
    );
    assert!(s.add(&s.one, &here, "web", &web).is_empty());
    assert!(s.claimed("vm-a").is_empty());
    s.del(&s.one, &here, "web", &web);
    proof::of!("NPWG-8-T5");
}
