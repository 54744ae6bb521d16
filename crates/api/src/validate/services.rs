//! Validates `spec.serviceCIDRs` and `spec.clusterServices`.

use ipnet::IpNet;

use super::network::unicast_prefix;
use super::{Faults, FieldProblem, Subnet, parse_prefix};
use crate::listed::{PROBLEM_BYTES, Shortened};
use crate::meta::check_label;
use crate::parameters::{CLUSTER_SERVICES_MAX, SERVICE_CIDRS_MAX};

/// Checks the prefixes of the Services' addresses of a network with these subnets.
///
/// `on_segment`: its mode is L2, and it has an uplink.
pub(super) fn prefixes(
    faults: &mut Faults,
    written: &[String],
    on_segment: bool,
    subnets: &[Subnet],
) -> Vec<IpNet> {
    const PATH: &str = "spec.serviceCIDRs";
    if written.is_empty() {
        return Vec::new();
    }
    let max = SERVICE_CIDRS_MAX as usize;
    if written.len() > max {
        let found = written.len();
        faults.push(PATH, FieldProblem::Count { min: 0, max, found });
        return Vec::new();
    }
    if on_segment {
        faults.push(PATH, FieldProblem::ServicesOnSegment);
        return Vec::new();
    }
    if subnets.is_empty() {
        faults.push(PATH, FieldProblem::ServicesNeedSubnets);
        return Vec::new();
    }
    let mut good: Vec<IpNet> = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        let Some(prefix) = faults.take(&path, parse_prefix(text).and_then(destination)) else {
            continue;
        };
        let overlaps = |other: &IpNet| other.contains(&prefix) || prefix.contains(other);
        let mut of_family = subnets.iter().map(|it| it.prefix);
        let has_family = of_family.any(|it| it.addr().is_ipv4() == prefix.addr().is_ipv4());
        let mut others = subnets.iter().map(|it| &it.prefix).chain(&good);
        if let Some(other) = others.find(|other| overlaps(other)) {
            let other = *other;
            faults.push(path, FieldProblem::ServicesOverlap { prefix, other });
        } else if has_family {
            good.push(prefix);
        } else {
            faults.push(path, FieldProblem::ServicesWithoutFamily { prefix });
        }
    }
    good
}

/// Checks the names of Services of the cluster's network.
///
/// `has_way`: the network can have a way there.
pub(super) fn of_cluster(
    faults: &mut Faults,
    written: &[String],
    has_way: bool,
) -> Vec<(String, String)> {
    const PATH: &str = "spec.clusterServices";
    let max = CLUSTER_SERVICES_MAX as usize;
    if written.is_empty() {
        return Vec::new();
    }
    if written.len() > max {
        let found = written.len();
        faults.push(PATH, FieldProblem::Count { min: 0, max, found });
        return Vec::new();
    }
    if !has_way {
        faults.push(PATH, FieldProblem::ClusterServicesNeedGateway);
        return Vec::new();
    }
    let mut good = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let parts = text.split_once('/').filter(|(namespace, name)| {
            check_label(namespace).is_ok() && check_label(name).is_ok()
        });
        let found = || Shortened(text, PROBLEM_BYTES).to_string();
        let read = parts.ok_or_else(|| FieldProblem::ServiceName { found: found() });
        let read = faults.take(format!("{PATH}[{index}]"), read);
        good.extend(read.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())));
    }
    good.sort();
    good.dedup();
    good
}

fn destination(prefix: IpNet) -> Result<IpNet, FieldProblem> {
    if prefix.prefix_len() == 0 {
        return Err(FieldProblem::RouteIsDefault { dst: prefix });
    }
    unicast_prefix(prefix)?;
    Ok(prefix)
}
