//! Addresses, routes and settings of a gateway, towards its node and its pods.

use std::net::IpAddr;

use agent_common::addr::{GATEWAY_MAC, GATEWAY_V6};
use host::PROTOCOL;
use netdev::{
    AddrGenMode, Address, Connection, Link, LinkChange, Neighbour, Netfilter, Route, Sysctl,
    TableWrite, sysctl,
};

use super::super::plan::{self, Both, GatewayPlan, NODE_MAC, PODS, TO_PODS_V4, UPLINK, UPLINK_MAC};

/// The node's side of the link.
pub(super) fn of_node(
    connection: &mut Connection,
    plan: &GatewayPlan,
    (link, place): (&Link, u16),
) -> Result<(), netdev::Error> {
    let v6 = plan.has(false);
    sysctl::write(&link.name, &[Sysctl::v4("forwarding", "1")])?;
    optional(
        &link.name,
        &[
            Sysctl::v6("disable_ipv6", if v6 { "0" } else { "1" }),
            Sysctl::v6("accept_ra", "0"),
            Sysctl::v6("accept_redirects", "0"),
        ],
        v6,
    )?;
    resize(connection, link, plan.mtu)?;
    connection.set_up(link.ifindex)?;
    let (own, peer) = (plan::of_node(place), plan::of_gateway(place));
    address(connection, link.ifindex, &plan.transit(own))?;
    let mut there = plan.transit(peer);
    there.extend(plan.transit(plan::to_services(place)));
    reach(connection, link.ifindex, &there, UPLINK_MAC.0)
}

/// Writes the guards of a gateway, on a thread in its namespace.
///
/// While Services are not known, a table that is there stays: what an agent before this one has written says more than
/// is known yet.
pub(in super::super) fn guard(plan: &GatewayPlan, place: u16) -> Result<TableWrite, netdev::Error> {
    let mut netfilter = Netfilter::open()?;
    if plan.services.is_none() && netfilter.has(plan::INSIDE)? {
        return Ok(TableWrite::Unneeded);
    }
    netfilter.ensure(&plan.rules(place))
}

/// The gateway's own namespace, on a thread in it.
pub(super) fn of_gateway(plan: &GatewayPlan, place: u16) -> Result<(), netdev::Error> {
    let (v4, v6) = (plan.has(true), plan.has(false));
    guard(plan, place)?;
    for link in ["all", PODS, UPLINK] {
        // Strict where the kernel has a way back: nobody outside has an address of a pod.
        let reverse = if link == "all" { "0" } else { "1" };
        sysctl::write(
            link,
            &[
                Sysctl::v4("rp_filter", reverse),
                Sysctl::v4("send_redirects", "0"),
                Sysctl::v4("accept_redirects", "0"),
            ],
        )?;
        let settings = [
            Sysctl::v6("disable_ipv6", if v6 { "0" } else { "1" }),
            Sysctl::v6("accept_ra", "0"),
            Sysctl::v6("accept_redirects", "0"),
        ];
        optional(link, &settings, v6)?;
    }
    let mut connection = Connection::open()?;
    let mut index = |name: &str| -> Result<u32, netdev::Error> {
        let link = connection.by_name(name)?;
        let link = link.ok_or(netdev::Error::LinkVanished { link: name.into() })?;
        resize(&mut connection, &link, plan.mtu)?;
        let change = LinkChange {
            up: Some(true),
            addr_gen_mode: Some(AddrGenMode::None),
            ..LinkChange::default()
        };
        connection.reconfigure(link.ifindex, &change)?;
        Ok(link.ifindex)
    };
    let (pods, uplink) = (index(PODS)?, index(UPLINK)?);
    let (node, own) = (plan::of_node(place), plan::of_gateway(place));
    address(&mut connection, uplink, &plan.transit(own))?;
    reach(&mut connection, uplink, &plan.transit(node), NODE_MAC.0)?;
    address(&mut connection, pods, &plan.own)?;
    let to_pods = Both {
        v4: TO_PODS_V4,
        v6: GATEWAY_V6,
    };
    reach(&mut connection, pods, &plan.transit(to_pods), GATEWAY_MAC.0)?;
    let mut routes = Vec::new();
    for subnet in &plan.subnets {
        let via = to_pods.of(subnet.addr().is_ipv4());
        routes.push(Route {
            onlink: true,
            ..Route::new(subnet.addr(), subnet.prefix_len(), Some(via), pods)
        });
    }
    for via in plan.transit(node) {
        routes.push(Route {
            onlink: true,
            ..Route::default_via(via, uplink)
        });
    }
    for route in &routes {
        match connection.add_route(route) {
            Err(error) if error.is_exists() => {}
            other => other?,
        }
    }
    if v4 {
        sysctl::write("all", &[Sysctl::v4("forwarding", "1")])?;
    }
    if v6 {
        sysctl::write("all", &[Sysctl::v6("forwarding", "1")])?;
    }
    Ok(())
}

impl GatewayPlan {
    /// Of two addresses those of families that pods have.
    fn transit(&self, both: Both) -> Vec<IpAddr> {
        let families = [true, false].into_iter().filter(|v4| self.has(*v4));
        families.map(|v4| both.of(v4)).collect()
    }
}

/// Makes a link as large as the packets of the network.
pub(super) fn resize(
    connection: &mut Connection,
    link: &Link,
    mtu: u16,
) -> Result<(), netdev::Error> {
    if link.mtu == u32::from(mtu) {
        return Ok(());
    }
    let change = LinkChange {
        mtu: Some(u32::from(mtu)),
        ..LinkChange::default()
    };
    connection.reconfigure(link.ifindex, &change)
}

/// Settings of IPv6, which a kernel need not have when nobody needs them.
fn optional(link: &str, settings: &[Sysctl], needed: bool) -> Result<(), netdev::Error> {
    match sysctl::write(link, settings) {
        Err(error) if error.is_gone() && !needed => Ok(()),
        other => other,
    }
}

fn address(
    connection: &mut Connection,
    ifindex: u32,
    wanted: &[IpAddr],
) -> Result<(), netdev::Error> {
    let known = connection.addresses(ifindex)?;
    for ip in wanted {
        if !known.iter().any(|it| it.ip == *ip) {
            let length = if ip.is_ipv4() { 32 } else { 128 };
            connection.add_address(ifindex, Address::new(*ip, length))?;
        }
    }
    Ok(())
}

fn reach(
    connection: &mut Connection,
    ifindex: u32,
    addresses: &[IpAddr],
    mac: netdev::Mac,
) -> Result<(), netdev::Error> {
    let there: Vec<Neighbour> = addresses
        .iter()
        .map(|address| Neighbour {
            address: *address,
            mac,
        })
        .collect();
    let missing = connection.unreached(ifindex, &there)?;
    connection.reach(ifindex, &missing, PROTOCOL)
}
