//! `status` of `PodNetworkParameters` and `AttachmentParameters`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition;
use crate::meta::null_as_default;

/// `status` of `PodNetworkParameters` and `AttachmentParameters`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParametersStatus {
    /// `Valid`: whether podnet reads the object, and else each wrong field.
    #[schemars(schema_with = "condition::list_schema")]
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,
    /// Number of the objects that name this one in their `parametersRefs`.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<i64>,
}
