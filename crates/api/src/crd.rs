//! Generate the `CustomResourceDefinition` of every kind, podnet's and the NPWG's.

mod multi_policy;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceValidation, JSONSchemaProps,
    JSONSchemaPropsOrArray,
};
use kube_core::{CustomResourceExt, Resource};

use crate::{
    attachment::PodNetworkAttachment,
    block::IpBlock,
    claim::IpamClaim,
    endpoint_slice::PodNetworkEndpointSlice,
    network_attachment_definition::NetworkAttachmentDefinition,
    parameters::{AttachmentParameters, PodNetworkParameters},
    podnetwork::PodNetwork,
    port::Port,
    reservation::IpReservation,
    vpc::Vpc,
};

/// Definitions of podnet's kinds, as installed in a cluster.
#[must_use]
pub fn own_definitions() -> Vec<CustomResourceDefinition> {
    [
        PodNetwork::crd(),
        PodNetworkAttachment::crd(),
        PodNetworkParameters::crd(),
        AttachmentParameters::crd(),
        IpBlock::crd(),
        IpReservation::crd(),
        PodNetworkEndpointSlice::crd(),
        Vpc::crd(),
        Port::crd(),
    ]
    .map(finish)
    .into()
}

/// Returns the definitions of the NPWG's kinds, with its policies.
///
/// See NPWG v1.3 §3.1, §8.1.
///
/// They have the names and the schema of its standard. A cluster may have them already, with more fields:
/// then they belong to others, and must not be overwritten.
#[must_use]
pub fn standard_definitions() -> Vec<CustomResourceDefinition> {
    [
        network_attachment_definitions(),
        IpamClaim::crd(),
        multi_policy::definition(),
    ]
    .map(finish)
    .into()
}

fn network_attachment_definitions() -> CustomResourceDefinition {
    let text = |description: &str| JSONSchemaProps {
        description: Some(description.to_owned()),
        type_: Some("string".to_owned()),
        ..JSONSchemaProps::default()
    };
    let object = |description: &str, name: &str, property| JSONSchemaProps {
        description: Some(description.to_owned()),
        type_: Some("object".to_owned()),
        properties: Some([(name.to_owned(), property)].into()),
        ..JSONSchemaProps::default()
    };
    let config = text(
        "CNI configuration or configuration list, as JSON text. Without it the network is one that \
         the implementation knows by the object's name.",
    );
    let spec = object("Way in which pods attach to the network.", "config", config);
    let root = object(
        "A network pods attach to by name (NPWG v1.3 section 3).",
        "spec",
        spec,
    );
    type Kind = NetworkAttachmentDefinition;
    let plural = Kind::plural(&());
    CustomResourceDefinition {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            name: Some(format!("{plural}.{}", Kind::group(&()))),
            ..Default::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: Kind::group(&()).into(),
            names: CustomResourceDefinitionNames {
                kind: Kind::kind(&()).into(),
                plural: plural.into(),
                singular: Some("network-attachment-definition".to_owned()),
                short_names: Some(vec!["net-attach-def".to_owned()]),
                ..Default::default()
            },
            scope: "Namespaced".to_owned(),
            versions: vec![CustomResourceDefinitionVersion {
                name: Kind::version(&()).into(),
                served: true,
                storage: true,
                schema: Some(CustomResourceValidation {
                    open_api_v3_schema: Some(root),
                }),
                ..Default::default()
            }],
            ..Default::default()
        },
        status: None,
    }
}

fn finish(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let names = &mut definition.spec.names;
    names.list_kind = Some(format!("{}List", names.kind));
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(root) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            root.title = None;
            mend(root);
        }
    }
    definition
}

/// Makes optional fields absent or valid, never null, and descriptions one line.
///
/// The generator lets an optional field be null, and a rule that asks for its presence would find
/// that null there. The server drops a null of a field that is not nullable, as it does for its own
/// kinds.
fn mend(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(description) = &mut schema.description {
        *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|map| map.values_mut())
    {
        mend(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        mend(items);
    }
}

#[cfg(test)]
mod tests;
