//! Test lists that were filled in (KEP-3698 "Auto-population").

use super::pod::{read_by, shown};
use crate::selection::{
    DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION, POD_NETWORKS_ANNOTATION, POPULATED_ANNOTATION,
    SelectionRules, Source, populated_list,
};

/// KEP-DEF-5, KEP-DEF-7: it changes nothing, next to any other list.
#[test]
fn a_populated_list_means_what_no_list_means() {
    let rules = SelectionRules {
        default_override: Some("ops".to_owned()),
        ..SelectionRules::default()
    };
    let list = populated_list("default");
    assert_eq!(list, r#"[{"name":"default"}]"#);
    let populated = [
        (POD_NETWORKS_ANNOTATION, list.as_str()),
        (POPULATED_ANNOTATION, "default"),
    ];
    for others in [
        &[][..],
        &[(NETWORKS_ANNOTATION, "blue, red@mgmt0")],
        // An interface that the default network has.
        &[(NETWORKS_ANNOTATION, "blue@eth0")],
        &[(DEFAULT_NETWORK_ANNOTATION, "other")],
    ] {
        let with: Vec<_> = populated.iter().chain(others).copied().collect();
        for host_network in [false, true] {
            let wanted = read_by(&rules, host_network, others);
            assert_eq!(read_by(&rules, host_network, &with), wanted, "{others:?}");
        }
    }
    // A node with another default network has pods without a list on that.
    let moved = SelectionRules {
        node_default: Some("blue".to_owned()),
        ..SelectionRules::default()
    };
    let selection = read_by(&moved, false, &populated).unwrap();
    assert_eq!(shown(&selection), ["PodNetwork blue@eth0*"]);
    assert_eq!(selection.attachments[0].source, Source::Default);
    proof::of!("KEP-DEF-5", "KEP-DEF-7");
}

/// A pod with a mark of another network is on the one that it lists.
#[test]
fn a_forged_mark_does_not_hide_the_network_of_a_pod() {
    for default in ["default", "blue"] {
        let rules = SelectionRules {
            default_network: default.to_owned(),
            ..SelectionRules::default()
        };
        let list = populated_list("isolated");
        let forged = [
            (POD_NETWORKS_ANNOTATION, list.as_str()),
            (POPULATED_ANNOTATION, "isolated"),
        ];
        let selection = read_by(&rules, false, &forged).unwrap();
        assert_eq!(shown(&selection), ["PodNetwork isolated@eth0*"]);
        assert_ne!(selection.attachments[0].source, Source::Default);
    }
    proof::of!("KEP-DEF-7");
}

/// The mark is an annotation as any other, and everybody can write it.
#[test]
fn a_mark_with_another_list_has_no_effect() {
    for (list, mark) in [
        (r#"[{"name": "default"}]"#, "blue"),
        (r#"[{"name": "default"}]"#, ""),
        (r#"[{"name": "blue"}]"#, "default"),
        (r#"[{"name": "default"}, {"name": "blue"}]"#, "default"),
        (
            r#"[{"name": "default", "interfaceName": "eth0"}]"#,
            "default",
        ),
        (r#"[{"name": "default", "isDefaultGW": true}]"#, "default"),
        (r#"[{"attachmentName": "default"}]"#, "default"),
        ("[]", "default"),
        ("[{", "default"),
    ] {
        let rules = SelectionRules::default();
        let bare = read_by(&rules, false, &[(POD_NETWORKS_ANNOTATION, list)]);
        let marked = [
            (POD_NETWORKS_ANNOTATION, list),
            (POPULATED_ANNOTATION, mark),
        ];
        assert_eq!(read_by(&rules, false, &marked), bare, "{list} {mark}");
    }
}
