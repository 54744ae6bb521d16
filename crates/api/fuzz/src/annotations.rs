//! Read arbitrary annotations of a pod, and the definitions that they name.
//!
//! Input: a byte of switches, a byte for the limit of attachments, then up to four texts with a zero
//! byte between them: the list of KEP-3698, that of NPWG, the default network, and the configuration of
//! a definition.

use std::collections::{BTreeMap, BTreeSet};

use api::nad::{Definition, read_definition};
use api::selection::{
    DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION, POD_NETWORKS_ANNOTATION, PodAnnotations,
    PodSelection, SelectionRules, parse_networks, parse_pod_networks,
};
use api::{PROBLEM_BYTES, PROBLEMS_MAX};

/// The longest text of errors: each problem is cut, and `; and N more` follows.
const WORDS_MAX: usize = PROBLEMS_MAX * (PROBLEM_BYTES + 8) + 64;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [switches, limit, texts @ ..] = input else {
        return;
    };
    let mut texts = texts.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let mut text = || texts.next().unwrap_or_default().into_owned();
    let (kep, npwg, default, config) = (text(), text(), text(), text());
    let rules = SelectionRules {
        default_override: (switches & 1 != 0).then(|| "kube-system".to_owned()),
        claim_excludes_ips: switches & 2 != 0,
        max_attachments: usize::from(*limit).max(1),
        ..SelectionRules::default()
    };
    let annotations: BTreeMap<String, String> = [
        (POD_NETWORKS_ANNOTATION, kep.clone()),
        (NETWORKS_ANNOTATION, npwg.clone()),
        (DEFAULT_NETWORK_ANNOTATION, default),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    let pod = PodAnnotations {
        namespace: "shop",
        host_network: switches & 4 != 0,
        annotations: &annotations,
    };
    match PodSelection::read(&pod, &rules) {
        Ok(selection) => {
            let all = &selection.attachments;
            assert!(all.len() <= rules.max_attachments);
            assert!(selection.notes.len() <= PROBLEMS_MAX + 1);
            let names: BTreeSet<_> = all.iter().map(|one| one.interface.as_str()).collect();
            assert_eq!(names.len(), all.len(), "an interface twice");
            if !pod.host_network {
                let gateways = all.iter().filter(|one| one.is_default_gateway);
                assert_eq!(gateways.count(), 1);
                assert!(names.contains(rules.primary_interface.as_str()));
            }
            serde_json::to_string(&selection).expect("a selection can be written");
        }
        Err(errors) => {
            assert!((1..=PROBLEMS_MAX).contains(&errors.first.len()));
            assert!(errors.to_string().len() <= WORDS_MAX);
        }
    }
    // What is read must read back.
    if let Ok(list) = parse_networks(&npwg) {
        let again = serde_json::to_string(&list).expect("a list can be written");
        if !list.is_empty() {
            parse_networks(&again).expect("what was written can be read");
        }
    }
    let _ = parse_pod_networks(&kep);
    let read = read_definition(&Definition {
        namespace: "shop",
        name: "n",
        annotations: &annotations,
        config: &config,
    });
    if let Err(error) = read {
        let _ = error.to_string();
    }
}
