//! What `spec.routes` of a `PodNetworkParameters` means.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use super::network::unicast_prefix;
use super::{Faults, FieldProblem, Subnet, parse_address, parse_prefix};
use crate::outside::{ROUTES_MAX, RouteSpec};
use crate::parameters::Mode;

/// A route that every pod of the network with an address of its family gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PushedRoute {
    /// Where it leads.
    pub dst: IpNet,
    /// Next hop. None on a routed network, where it is the virtual gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// Checks routes against the network they are of.
pub(super) fn routes(
    faults: &mut Faults,
    spec: &[RouteSpec],
    mode: Mode,
    subnets: &[Subnet],
) -> Vec<PushedRoute> {
    let max = ROUTES_MAX as usize;
    if spec.len() > max {
        let problem = FieldProblem::Count {
            min: 0,
            max,
            found: spec.len(),
        };
        faults.push("spec.routes", problem);
        return Vec::new();
    }
    let mut good: Vec<PushedRoute> = Vec::new();
    for (index, route) in spec.iter().enumerate() {
        let path = format!("spec.routes[{index}]");
        let dst = parse_prefix(&route.dst).and_then(|dst| destination(dst, subnets));
        let dst = faults.take(format!("{path}.dst"), dst);
        let gw = route.gw.as_deref().map(parse_address).transpose();
        let gw = faults.take(format!("{path}.gw"), gw);
        let (Some(dst), Some(gw)) = (dst, gw) else {
            continue;
        };
        if good.iter().any(|other| other.dst == dst) {
            faults.push(format!("{path}.dst"), FieldProblem::RouteTwice { dst });
            continue;
        }
        let gw = next_hop(dst, gw, mode, subnets);
        if let Some(gw) = faults.take(format!("{path}.gw"), gw) {
            good.push(PushedRoute { dst, gw });
        }
    }
    good
}

fn destination(dst: IpNet, subnets: &[Subnet]) -> Result<IpNet, FieldProblem> {
    if dst.prefix_len() == 0 {
        return Err(FieldProblem::RouteIsDefault { dst });
    }
    unicast_prefix(dst)?;
    // One that holds a subnet is harmless: the subnet's own route is longer.
    match subnets.iter().find(|it| it.prefix.contains(&dst)) {
        Some(subnet) => Err(FieldProblem::RouteInSubnet {
            dst,
            subnet: subnet.prefix,
        }),
        None => Ok(dst),
    }
}

fn next_hop(
    dst: IpNet,
    gw: Option<IpAddr>,
    mode: Mode,
    subnets: &[Subnet],
) -> Result<Option<IpAddr>, FieldProblem> {
    let v4 = dst.addr().is_ipv4();
    let of_family = || {
        let subnets = subnets.iter();
        subnets.filter(|it| it.prefix.addr().is_ipv4() == v4)
    };
    if of_family().next().is_none() {
        return Err(FieldProblem::RouteWithoutFamily { dst });
    }
    let own = of_family().find_map(|subnet| subnet.gateway);
    match (gw, mode) {
        (None, Mode::L3) => Ok(None),
        (None, Mode::L2) => match own {
            Some(gateway) => Ok(Some(gateway)),
            None => Err(FieldProblem::RouteWithoutGateway { dst }),
        },
        (Some(gw), _) if !of_family().any(|it| it.prefix.contains(&gw)) => {
            Err(FieldProblem::OutsideSubnets {
                address: gw,
                subnets: of_family().map(|it| it.prefix).collect(),
            })
        }
        (Some(gw), Mode::L3) if !of_family().any(|it| it.gateway == Some(gw)) => {
            Err(FieldProblem::RoutePastGateway { gw })
        }
        (Some(_), Mode::L3) => Ok(None),
        (Some(gw), Mode::L2) => Ok(Some(gw)),
    }
}
