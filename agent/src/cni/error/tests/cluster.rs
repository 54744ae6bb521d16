//! Errors of an agent that follows a cluster.

use api::ResolveError;
use cni_spec::Command;
use world::WorldError;

use super::super::code;
use crate::error::AgentError;
use crate::kube::LookupError;

fn pod() -> (String, String) {
    ("shop".to_owned(), "web-0".to_owned())
}

/// PAIN-SIL-1, NPWG-X6: a state that can pass is tried again; a lost pod is not.
#[test]
fn what_the_api_server_may_tell_later_is_tried_again() {
    let [(namespace, name), (of_other, other), (of_unknown, unknown)] = [pod(), pod(), pod()];
    let not_found = AgentError::from(LookupError::NotFound { namespace, name });
    let another = AgentError::from(LookupError::Another {
        namespace: of_other,
        name: other,
        asked: "a".to_owned(),
        found: "b".to_owned(),
    });
    let silent = AgentError::from(LookupError::Unknown {
        namespace: of_unknown,
        name: unknown,
        why: "no answer".to_owned(),
    });
    let unread = AgentError::from(WorldError::NotSynced {
        unread: vec!["podnetworks are not read yet".to_owned()],
    });
    assert_eq!(code(&not_found, Command::Add).0, 11);
    assert_eq!(code(&silent, Command::Add).0, 11);
    assert_eq!(code(&unread, Command::Add).0, 11);
    assert_eq!(code(&unread, Command::Status).0, 50);
    assert_eq!(code(&another, Command::Add).0, 4);
    proof::of!("NPWG-X6", "PAIN-SIL-1");
}

/// KEP-POD-13: the network flips between the pod's release and `ADD`.
#[test]
fn a_disabled_network_is_worth_another_attempt() {
    let disabled = AgentError::from(WorldError::Resolve {
        source: Box::new(ResolveError::Disabled {
            name: "blue".to_owned(),
        }),
        broken: Vec::new(),
    });
    assert_eq!(code(&disabled, Command::Add).0, 11);
    assert_eq!(code(&disabled, Command::Status).0, 50);
    proof::of!("KEP-POD-13");
}
