//! Validates `spec.routes` of `PodNetworkParameters` and `AttachmentParameters`.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use super::network::unicast_prefix;
use super::{Faults, FieldErrors, FieldProblem, Network, Subnet, parse_address, parse_prefix};
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

/// A route as it is asked for, whatever the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RouteRequest {
    /// Where it leads.
    pub dst: IpNet,
    /// Next hop; none for the network's gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// Checks routes by themselves; returns them with their places in the list.
pub(super) fn written(faults: &mut Faults, spec: &[RouteSpec]) -> Vec<(usize, RouteRequest)> {
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
    let mut good: Vec<(usize, RouteRequest)> = Vec::new();
    for (index, route) in spec.iter().enumerate() {
        let path = format!("spec.routes[{index}]");
        let dst = parse_prefix(&route.dst).and_then(destination);
        let dst = faults.take(format!("{path}.dst"), dst);
        let gw = route.gw.as_deref().map(parse_address).transpose();
        let gw = faults.take(format!("{path}.gw"), gw);
        let (Some(dst), Some(gw)) = (dst, gw) else {
            continue;
        };
        if good.iter().any(|(_, other)| other.dst == dst) {
            faults.push(format!("{path}.dst"), FieldProblem::RouteTwice { dst });
        } else {
            good.push((index, RouteRequest { dst, gw }));
        }
    }
    good
}

/// Checks routes against the network they are of.
pub(super) fn pushed(
    faults: &mut Faults,
    routes: impl IntoIterator<Item = (usize, RouteRequest)>,
    mode: Mode,
    subnets: &[Subnet],
) -> Vec<PushedRoute> {
    let mut good = Vec::new();
    for (index, RouteRequest { dst, gw }) in routes {
        let path = format!("spec.routes[{index}]");
        // One that holds a subnet is harmless: the subnet's own route is longer.
        if let Some(subnet) = subnets.iter().find(|it| it.prefix.contains(&dst)) {
            let subnet = subnet.prefix;
            let problem = FieldProblem::RouteInSubnet { dst, subnet };
            faults.push(format!("{path}.dst"), problem);
            continue;
        }
        let gw = next_hop(dst, gw, mode, subnets);
        if let Some(gw) = faults.take(format!("{path}.gw"), gw) {
            good.push(PushedRoute { dst, gw });
        }
    }
    good
}

impl Network {
    /// Adds the routes that an attachment asks for.
    ///
    /// Of two that lead to the same prefix, the attachment's holds.
    ///
    /// # Errors
    /// Every route that the network has no way for.
    pub fn with_routes(self, asked: &[RouteRequest]) -> Result<Self, FieldErrors> {
        let mut faults = Faults::default();
        let all = asked.iter().copied().enumerate();
        let mut routes = pushed(&mut faults, all, self.mode, &self.subnets);
        let others = self.routes.iter();
        routes.extend(others.filter(|it| asked.iter().all(|own| own.dst != it.dst)));
        faults.finish(Self { routes, ..self })
    }
}

fn destination(dst: IpNet) -> Result<IpNet, FieldProblem> {
    if dst.prefix_len() == 0 {
        return Err(FieldProblem::RouteIsDefault { dst });
    }
    unicast_prefix(dst)?;
    Ok(dst)
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
