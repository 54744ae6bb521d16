//! Conditions: the words of KEP-3698 for them, and their schema.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Scheduling gate that holds a pod until its networks are ready.
///
/// KEP-POD-10 to 12.
pub const GATE: &str = "podnet.dev/pod-networks";
/// Condition: new pods can attach (KEP-3698 "Ready").
pub const READY: &str = "Ready";
/// Condition: every object in `parametersRefs` exists and is valid.
///
/// KEP-3698 "ParamsReady".
pub const PARAMS_READY: &str = "ParamsReady";
/// Condition: podnet reads every field of a parameters object.
pub const VALID: &str = "Valid";
/// Condition: pods of a network that ends at the node are on several nodes.
pub const SPLIT: &str = "Split";
/// Condition: pods have a network, or get it without a list.
///
/// Written of the network `default`, which has no finalizer (KEP-3698 "`InUse` state").
pub const IN_USE: &str = "InUse";
/// Condition: an address is the holder's of an `IPReservation`.
pub const GRANTED: &str = "Granted";

/// The most conditions an object has (KEP-3698).
const CONDITIONS_MAX: u32 = 5;

/// Returns the schema of `status.conditions`: `metav1.Condition`, keyed by type.
///
/// It has the limits that Kubernetes sets on its own. The schema made from the Rust type has no limits.
pub(crate) fn list_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": CONDITIONS_MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the state of the object.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "Time at which `status` last changed.",
                },
                "message": {
                    "type": "string",
                    "maxLength": 32768,
                    "description": "Details for people; may be empty.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The `metadata.generation` the condition was computed from.",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "One CamelCase word for programs.",
                },
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "True, False or Unknown.",
                },
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "Subject of the condition, in CamelCase.",
                },
            },
        },
    })
}
