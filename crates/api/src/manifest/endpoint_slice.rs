//! Reads `PodNetworkEndpointSlice`s from text.
//!
//! They are the slices of a node where there is no API server.

use super::{
    Fault, ManifestError, ManifestProblem, Origin, TypeMeta, check_subdomain, deserialize, split,
};
use crate::{endpoint_slice::PodNetworkEndpointSlice, meta::API_VERSION, validate::EndpointSlice};

/// `kind`.
const KIND: &str = "PodNetworkEndpointSlice";

/// Reads every document of `text`, each a slice; returns names and contents.
///
/// `source_name` is named in errors. The objects are those that the API server would take.
#[must_use]
pub fn parse_endpoint_slices(
    source_name: &str,
    text: &str,
) -> Vec<Result<(String, EndpointSlice), ManifestError>> {
    split::documents(text)
        .enumerate()
        .map(|(index, chunk)| {
            slice(&chunk).map_err(|fault| {
                fault.at(Origin {
                    file: source_name.to_owned(),
                    document: index + 1,
                    line: chunk.first_line,
                })
            })
        })
        .collect()
}

fn slice(chunk: &split::Chunk<'_>) -> Result<(String, EndpointSlice), Fault> {
    let types: TypeMeta = deserialize(chunk)?;
    let version = types.api_version.unwrap_or_default();
    if version != API_VERSION {
        let problem = ManifestProblem::ApiVersion { found: version };
        return Err(Fault::new("apiVersion", problem));
    }
    let found = types.kind.unwrap_or_default();
    if found != KIND {
        return Err(Fault::new("kind", ManifestProblem::NotASlice { found }));
    }
    let object: PodNetworkEndpointSlice = deserialize(chunk)?;
    let name = object.metadata.name.clone().unwrap_or_default();
    check_subdomain(&name).map_err(|error| Fault::new("metadata.name", error))?;
    let slice = object.checked().map_err(|errors| Fault::new("", errors))?;
    Ok((name, slice))
}
