//! podnet's Kubernetes kinds, and what a valid one means.
//!
//! The job: turn manifests of group `podnet.dev/v1alpha1` into typed, validated networks and
//! attachment requests, and say for each network why it cannot be used when it cannot. The same kinds
//! as objects of the API server, with the definitions that install them there.
//!
//! Refuses to know: where manifests come from (directory, API server), which attachments exist,
//! which addresses are held, what the kernel has. No IO at all.
//!
//! ```
//! let text = r#"
//! apiVersion: podnet.dev/v1alpha1
//! kind: PodNetwork
//! metadata: {name: blue}
//! spec:
//!   provider: podnet.dev/ebpf
//!   parametersRefs: [{group: podnet.dev, kind: PodNetworkParameters, name: blue}]
//! ---
//! apiVersion: podnet.dev/v1alpha1
//! kind: PodNetworkParameters
//! metadata: {name: blue}
//! spec:
//!   mode: L2
//!   subnets: [10.10.0.0/24, "fd10:10::/64"]
//! "#;
//! let objects = api::parse_manifests("blue.yaml", text)
//!     .into_iter()
//!     .collect::<Result<Vec<_>, _>>()
//!     .expect("both documents are valid");
//! let resolved = api::resolve(objects);
//! let blue = resolved.network("blue").expect("blue resolves");
//! assert_eq!(blue.subnets.len(), 2);
//! assert_eq!(resolved.network("red").unwrap_err().reason(), "NotFound");
//! ```

mod attachment;
mod block;
mod claim;
mod condition;
mod crd;
mod endpoint_slice;
mod gateway;
mod interface;
mod json;
mod listed;
mod mac;
mod manifest;
mod meta;
pub mod nad;
mod network_attachment_definition;
mod outside;
mod parameters;
mod podnetwork;
mod policy;
mod port;
mod requests;
mod reservation;
mod resolve;
mod scheduling;
pub mod selection;
mod service;
pub mod status;
mod validate;
mod vpc;

pub use attachment::{PodNetworkAttachment, PodNetworkAttachmentSpec, PodNetworkAttachmentStatus};
pub use block::{BLOCK_LEN_V4, BLOCK_LEN_V6, BlockReason, IpBlock, IpBlockSpec, IpBlockStatus};
pub use claim::{IpamClaim, IpamClaimSpec, IpamClaimStatus};
pub use condition::{GATE, GRANTED, IN_USE, PARAMS_READY, READY, SPLIT, VALID};
pub use crd::{own_definitions, standard_definitions};
pub use endpoint_slice::{
    ENDPOINT_IPS_MAX, ENDPOINT_LABELS_MAX, ENDPOINT_POD_MAX, ENDPOINTS_MAX, NETWORK_LABEL,
    NODE_LABEL, PodNetworkEndpointSlice, PodNetworkEndpointSliceSpec, SliceEndpoint,
    VTEPS_ANNOTATION, label_value,
};
pub use gateway::GatewaySpec;
pub use interface::{Interface, InterfaceKind, InterfaceSpec, QUEUES_MAX};
pub use ipnet::IpNet as Prefix;
pub use json::{RawJson, RawObject};
pub use listed::{Listed, PROBLEM_BYTES, PROBLEMS_MAX, Shortened};
pub use mac::{MacAddr, ParseMacError};
pub use manifest::{
    Documents, ManifestError, ManifestProblem, NamespaceLabels, Object, Origin, Resource,
    parse_definitions, parse_endpoint_slices, parse_manifests,
};
pub use meta::{
    API_VERSION, DEFAULT_NETWORK, GROUP, Kind, Manifest, Metadata, NODE_DEFAULT_ANNOTATION,
    NODE_DEFAULT_MAX, NameError, PROVIDER, ParametersRef, check_label, check_subdomain,
};
pub use network_attachment_definition::{
    NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec,
};
pub use outside::{Egress, NodeAccess, RouteSpec};
pub use parameters::{
    AttachmentParameters, AttachmentParametersSpec, Mode, ParametersStatus, PodNetworkParameters,
    PodNetworkParametersSpec, Routing, Transport, TransportSpec,
};
pub use podnetwork::{Given, PodNetwork, PodNetworkSpec, PodNetworkStatus, check_provider};
pub use policy::{
    NAMESPACE_NAME_LABEL, POLICY_FOR_ANNOTATION, POLICY_NETWORKS_MAX, POLICY_SPEC_MAX, PolicyKind,
    PolicyNetworks, PolicyObject,
};
pub use port::{Port, PortSpec, PortStatus, PortUser};
pub use reservation::{
    ClaimHolder, Holder, IpReservation, IpReservationSpec, IpReservationStatus, PodHolder,
};
pub use resolve::{
    Attachment, NetworkStatus, Outcome, PeerState, Problem, ResolveError, Resolved, RouteTo, Told,
    VpcPeer, VpcState, decided_transport, resolve, resolve_with,
};
pub use scheduling::{
    ADDRESSES_DOMAIN, BANDWIDTH_DOMAIN, CARRIED, NETWORK_DOMAIN, SchedulingSpec, scheduling_key,
};
pub use service::{
    CLUSTER_SLICE_MANAGER, HEADLESS_LABEL, KUBERNETES_SERVICE_NAME_LABEL, MANAGED_BY_LABEL,
    OF_CLUSTER, SELECTOR_ANNOTATION, SERVICE_NAME_LABEL, SERVICE_PORTS_MAX, SERVICE_PROXY,
    SERVICE_PROXY_LABEL, SLICE_ENDPOINTS_MAX, SLICE_MANAGER, ServiceEndpoint, ServiceObject,
    ServicePort, ServiceProtocol, ServiceSlice, label,
};
pub use validate::{
    AttachmentRequest, Bandwidth, Clash, Endpoint, EndpointPod, EndpointSlice, FieldError,
    FieldErrors, FieldProblem, IpRequest, Limit, MTU_MAX, Network, NetworkId, PortRequest,
    PushedRoute, RATE_MAX, RATE_MIN, RouteRequest, Share, Subnet, VlanRange, Wire, Written,
    attachment_request, is_pod_address, network, port,
};
pub use vpc::{Vpc, VpcPeerSpec, VpcSpec, VpcStatus};
