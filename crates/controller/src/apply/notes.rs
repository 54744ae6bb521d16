//! Word the Events about networks, attachments and pods.

use api::API_VERSION;
use cluster::events::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ApiResource;
use overview::pod::Pod;

use crate::plan::ObjectStep;

fn reference(resource: &ApiResource, step: &ObjectStep) -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(resource.kind.clone()),
        namespace: step.namespace.clone(),
        name: Some(step.name.clone()),
        uid: Some(step.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Names the user of an object that is being deleted.
pub(super) fn in_use_note(resource: &ApiResource, step: &ObjectStep, user: &str) -> Note {
    Note {
        about: reference(resource, step),
        reason: "InUse",
        action: "Delete",
        is_warning: false,
        varies: false,
        text: format!("deleted as soon as nothing uses it: {user} does"),
    }
}

/// Tells of nodes that a network leaves apart.
pub(super) fn split_note(resource: &ApiResource, step: &ObjectStep, why: &str) -> Note {
    Note {
        about: reference(resource, step),
        reason: "Split",
        action: "Connect",
        is_warning: true,
        // Pods come and go on other nodes, and it stays the same warning.
        varies: true,
        text: why.to_owned(),
    }
}

/// As the scheduler tells of a pod that fits nowhere (KEP-POD-10).
pub(super) fn waiting_note(pod: &Pod, text: String) -> Note {
    Note {
        about: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        },
        reason: "FailedScheduling",
        action: "Scheduling",
        is_warning: true,
        varies: false,
        text,
    }
}
