//! Test the default networks of nodes, and those of every pod.

use super::pod::{read_by, shown};
use crate::selection::{
    NETWORKS_ANNOTATION, POD_NETWORKS_ANNOTATION, PodSelection, SelectedAttachment, SelectionRules,
};

/// KEP-DEF-6: a list means the same on every node.
#[test]
fn a_node_has_another_default_network_for_pods_without_a_list_only() {
    let rules = SelectionRules {
        node_default: Some("green".to_owned()),
        ..SelectionRules::default()
    };
    let read = |annotations: &[(&str, &str)]| read_by(&rules, false, annotations).unwrap();
    assert_eq!(shown(&read(&[])), ["PodNetwork green@eth0*"]);
    assert_eq!(
        shown(&PodSelection::default_only("shop", &rules)),
        ["PodNetwork green@eth0*"]
    );
    let listed = read(&[(
        POD_NETWORKS_ANNOTATION,
        r#"[{"name":"green"},{"name":"default"}]"#,
    )]);
    assert_eq!(
        shown(&listed),
        ["PodNetwork green@net1", "PodNetwork default@eth0*"]
    );
    proof::of!("KEP-DEF-6");
}

/// NPWG-X7: as Multus' `defaultNetworks` and `systemNamespaces`.
#[test]
fn pods_have_the_default_networks_next_but_in_system_namespaces_and_with_complete_lists() {
    let in_system = |namespaces: &[&str]| SelectionRules {
        default_networks: ["lan", "san"]
            .map(|name| ("ops".to_owned(), name.to_owned()))
            .into(),
        system_namespaces: namespaces.iter().map(|it| (*it).to_owned()).collect(),
        global_namespaces: Some(std::collections::BTreeSet::new()),
        ..SelectionRules::default()
    };
    let rules = in_system(&["kube-system"]);
    let read = |annotations: &[(&str, &str)]| read_by(&rules, false, annotations).unwrap();
    // Next to the default network, and counted in the names of interfaces; isolation is about pods' own words.
    let plain = [
        "PodNetwork default@eth0*",
        "NetworkAttachmentDefinition ops/lan@net1",
        "NetworkAttachmentDefinition ops/san@net2",
    ];
    assert_eq!(shown(&read(&[])), plain);
    assert_eq!(shown(&PodSelection::default_only("shop", &rules)), plain);
    let listed = shown(&read(&[(NETWORKS_ANNOTATION, "own,other@net1")]));
    assert_eq!(
        listed,
        [
            "PodNetwork default@eth0*",
            "NetworkAttachmentDefinition ops/lan@net4",
            "NetworkAttachmentDefinition ops/san@net2",
            "NetworkAttachmentDefinition shop/own@net3",
            "NetworkAttachmentDefinition shop/other@net1",
        ]
    );
    let given = read(&[(NETWORKS_ANNOTATION, "own")]);
    let given: Vec<bool> = given
        .attachments
        .iter()
        .map(SelectedAttachment::is_given)
        .collect();
    assert_eq!(given, [false, true, true, false]);
    // A list of KEP-3698 is complete.
    let kep = [(POD_NETWORKS_ANNOTATION, r#"[{"name":"blue"}]"#)];
    assert_eq!(shown(&read(&kep)), ["PodNetwork blue@eth0*"]);
    let system = in_system(&["kube-system", "shop"]);
    let of_system = read_by(&system, false, &[]).unwrap();
    assert_eq!(shown(&of_system), ["PodNetwork default@eth0*"]);
    assert_eq!(
        shown(&read_by(&rules, true, &[]).unwrap()),
        [""; 0],
        "the node's network"
    );
    // They count.
    let rules = SelectionRules {
        max_attachments: 3,
        ..rules.clone()
    };
    let error = read_by(&rules, false, &[(NETWORKS_ANNOTATION, "own")]).unwrap_err();
    assert!(error.to_string().contains('3'), "{error}");
    proof::of!("NPWG-X7");
}
