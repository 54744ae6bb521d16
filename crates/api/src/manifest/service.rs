//! Services and EndpointSlices of networks among the documents of a text.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::policy::parse;
use super::{Fault, ManifestError, TypeMeta, check_label, check_subdomain, deserialize};
use crate::service::{ServiceObject, ServiceSlice};

/// Reads the Services of networks in `text`; other documents are passed over.
///
/// One without a namespace is in namespace `default`.
#[must_use]
pub fn parse_services(source_name: &str, text: &str) -> Vec<Result<ServiceObject, ManifestError>> {
    parse(source_name, text, |chunk, types| {
        if !is_service(types) {
            return None;
        }
        let object = deserialize::<Service>(chunk);
        object.map_or_else(
            |fault| Some(Err(fault)),
            |object| {
                let mut service = ServiceObject::read(&object)?;
                Some(named(&mut service.namespace, &service.name).map(|()| service))
            },
        )
    })
}

/// Reads the EndpointSlices of networks; other documents are passed over.
#[must_use]
pub fn parse_service_slices(
    source_name: &str,
    text: &str,
) -> Vec<Result<ServiceSlice, ManifestError>> {
    parse(source_name, text, |chunk, types| {
        if !is_slice(types) {
            return None;
        }
        let object = deserialize::<EndpointSlice>(chunk);
        object.map_or_else(
            |fault| Some(Err(fault)),
            |object| {
                let mut slice = ServiceSlice::read(&object)?;
                Some(named(&mut slice.namespace, &slice.name).map(|()| slice))
            },
        )
    })
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
