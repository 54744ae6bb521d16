//! Validates `spec.serviceCIDRs` of `PodNetworkParameters`.

use ipnet::IpNet;

use super::network::unicast_prefix;
use super::{Faults, FieldProblem, Subnet, parse_prefix};
use crate::parameters::{Routing, SERVICE_CIDRS_MAX};

/// Checks the prefixes of the Services' addresses of a network with these subnets.
///
/// `on_segment`: its mode is L2, and it has an uplink.
pub(super) fn prefixes(
    faults: &mut Faults,
    written: &[String],
    (routing, on_segment): (Routing, bool),
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
    if routing == Routing::Node || subnets.is_empty() {
        faults.push(PATH, FieldProblem::ServicesNeedIsolation);
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

fn destination(prefix: IpNet) -> Result<IpNet, FieldProblem> {
    if prefix.prefix_len() == 0 {
        return Err(FieldProblem::RouteIsDefault { dst: prefix });
    }
    unicast_prefix(prefix)?;
    Ok(prefix)
}
