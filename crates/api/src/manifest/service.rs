//! Services and EndpointSlices of networks among the documents of a text.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{Fault, TypeMeta, check_label, check_subdomain, deserialize, split};
use crate::service::{ServiceObject, ServiceSlice};

/// Reads a document that is a Service; nothing of one that podnet never serves.
pub(super) fn read(
    chunk: &split::Chunk<'_>,
    types: &TypeMeta,
) -> Option<Result<ServiceObject, Fault>> {
    if !is_service(types) {
        return None;
    }
    deserialize::<Service>(chunk).map_or_else(
        |fault| Some(Err(fault)),
        |object| {
            let mut service = ServiceObject::read(&object)?;
            Some(named(&mut service.namespace, &service.name).map(|()| service))
        },
    )
}

/// Reads a document that says that it is an EndpointSlice, as [`read`].
pub(super) fn read_slice(
    chunk: &split::Chunk<'_>,
    types: &TypeMeta,
) -> Option<Result<ServiceSlice, Fault>> {
    if !is_slice(types) {
        return None;
    }
    deserialize::<EndpointSlice>(chunk).map_or_else(
        |fault| Some(Err(fault)),
        |object| {
            let mut slice = ServiceSlice::read(&object)?;
            Some(named(&mut slice.namespace, &slice.name).map(|()| slice))
        },
    )
}

fn named(namespace: &mut String, name: &str) -> Result<(), Fault> {
    if namespace.is_empty() {
        "default".clone_into(namespace);
    }
    check_subdomain(name).map_err(|error| Fault::new("metadata.name", error))?;
    check_label(namespace).map_err(|error| Fault::new("metadata.namespace", error))
}

pub(super) fn is_service(types: &TypeMeta) -> bool {
    types.api_version.as_deref() == Some("v1") && types.kind.as_deref() == Some("Service")
}

pub(super) fn is_slice(types: &TypeMeta) -> bool {
    types.api_version.as_deref() == Some("discovery.k8s.io/v1")
        && types.kind.as_deref() == Some("EndpointSlice")
}
