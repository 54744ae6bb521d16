//! Reads several `PodNetworkParameters` as one.
//!
//! No object is above another, so order decides nothing: objects that contradict each other make no
//! network (KEP-PN-02).

use std::fmt;

use crate::{listed::Listed, meta::ParametersRef, parameters::PodNetworkParametersSpec};

use super::ResolveError;

/// Outcome of one of several references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its object is valid, and agrees with those before.
    Read,
    /// Its object cannot be used.
    Unusable(Box<ResolveError>),
    /// The list has the same reference before.
    Repeated,
    /// Fields that have another value in an object before.
    Conflict(Vec<&'static str>),
}

/// One of several references, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Place in `spec.parametersRefs`, from 0.
    pub index: usize,
    /// The reference.
    pub reference: ParametersRef,
    /// Its outcome.
    pub outcome: Outcome,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            index,
            reference,
            outcome,
        } = self;
        write!(f, "[{index}] ")?;
        match outcome {
            Outcome::Read => write!(f, "{reference} is read"),
            Outcome::Unusable(error) => error.fmt(f),
            Outcome::Repeated => write!(f, "{reference} is named before; remove one"),
            Outcome::Conflict(fields) => write!(
                f,
                "{reference} contradicts an object before it in {}; write a field in one of them, or the \
                 same in all",
                Listed::new(fields).separated_by(", ")
            ),
        }
    }
}

impl Outcome {
    /// Returns the reason of a condition, if the network cannot be used for it.
    pub(super) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Read => None,
            Self::Unusable(error) => Some(error.reason()),
            Self::Repeated => Some("ParamsInvalid"),
            Self::Conflict(_) => Some("ParamsConflict"),
        }
    }
}

/// Adds the fields of `more` to `into`; returns those that contradict it.
///
/// Absent fields and empty lists contradict nothing. A field that always has a value, if only its default,
/// is the same in all objects: an explicit `routing: Isolated` must not be overruled.
pub(super) fn merge(
    into: &mut PodNetworkParametersSpec,
    more: &PodNetworkParametersSpec,
) -> Vec<&'static str> {
    // By name: a new field does not compile without its line below.
    let PodNetworkParametersSpec {
        mode,
        routing,
        masquerade,
        transport,
        subnets,
        gateway,
        exclude,
        routes,
        service_cidrs,
        cluster_services,
        egress,
        node_access,
        mtu,
        interface,
        scheduling,
        network_id,
        ingress_rate,
        egress_rate,
        ingress_burst,
        egress_burst,
        vpc,
    } = more;
    let agreed = [
        ("spec.mode", into.mode == *mode),
        ("spec.routing", into.routing == *routing),
        ("spec.masquerade", fill(&mut into.masquerade, masquerade)),
        ("spec.transport", fill(&mut into.transport, transport)),
        ("spec.subnets", fill_list(&mut into.subnets, subnets)),
        ("spec.gateway", into.gateway == *gateway),
        ("spec.exclude", fill_list(&mut into.exclude, exclude)),
        ("spec.routes", fill_list(&mut into.routes, routes)),
        (
            "spec.serviceCIDRs",
            fill_list(&mut into.service_cidrs, service_cidrs),
        ),
        (
            "spec.clusterServices",
            fill_list(&mut into.cluster_services, cluster_services),
        ),
        ("spec.egress", into.egress == *egress),
        ("spec.nodeAccess", into.node_access == *node_access),
        ("spec.mtu", fill(&mut into.mtu, mtu)),
        ("spec.interface", fill(&mut into.interface, interface)),
        ("spec.scheduling", fill(&mut into.scheduling, scheduling)),
        ("spec.networkID", fill(&mut into.network_id, network_id)),
        (
            "spec.ingressRate",
            fill(&mut into.ingress_rate, ingress_rate),
        ),
        ("spec.egressRate", fill(&mut into.egress_rate, egress_rate)),
        (
            "spec.ingressBurst",
            fill(&mut into.ingress_burst, ingress_burst),
        ),
        (
            "spec.egressBurst",
            fill(&mut into.egress_burst, egress_burst),
        ),
        ("spec.vpc", fill(&mut into.vpc, vpc)),
    ];
    let contradicted = agreed.into_iter().filter(|(_, agrees)| !agrees);
    contradicted.map(|(field, _)| field).collect()
}

/// Sets what is unset; false where both are set, and differ.
fn fill<T: Clone + PartialEq>(into: &mut Option<T>, from: &Option<T>) -> bool {
    if into.is_none() {
        into.clone_from(from);
    }
    from.is_none() || into == from
}

/// As [`fill`], of lists.
fn fill_list<T: Clone + PartialEq>(into: &mut Vec<T>, from: &[T]) -> bool {
    if into.is_empty() {
        into.extend_from_slice(from);
    }
    from.is_empty() || *into == from
}
