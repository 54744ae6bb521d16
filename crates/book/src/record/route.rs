//! Routes that a pod gets.

use std::net::IpAddr;

use agent_common::addr::GATEWAY_V6;
use api::Prefix;

use super::Attachment;

/// A route in the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRoute {
    /// Destination.
    pub to: Prefix,
    /// Next hop; none for what is on the link.
    pub via: Option<IpAddr>,
    /// Preference, lower wins; the kernel's own when absent.
    pub metric: Option<u32>,
}

impl PodRoute {
    /// A route with the kernel's own preference.
    pub const fn new(to: Prefix, via: Option<IpAddr>) -> Self {
        Self {
            to,
            via,
            metric: None,
        }
    }
}

/// Metric of the default route at this place in a list: a later one is larger.
///
/// The first has the kernel's own (0 for IPv4, 1024 for IPv6).
pub fn metric(v4: bool, place: u32) -> Option<u32> {
    let first = if v4 { 0 } else { 1024 };
    (place > 0).then(|| place.saturating_add(first))
}

fn host_prefix(ip: IpAddr) -> Prefix {
    Prefix::from(ip)
}

fn default_prefix(v4: bool) -> Prefix {
    let any: IpAddr = if v4 {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    // A length of zero is valid for both families.
    Prefix::new(any, 0).unwrap_or_else(|_| Prefix::from(any))
}

impl Attachment {
    /// Routes the pod needs besides those its addresses bring.
    pub fn routes(&self) -> Vec<PodRoute> {
        let mut routes = Vec::new();
        for v4 in [true, false] {
            let Some(lease) = self
                .leases
                .iter()
                .find(|lease| lease.address.is_ipv4() == v4)
            else {
                continue;
            };
            let gateway = self.gateway(lease);
            // By link-local address the virtual gateway can be the next hop on several links of a
            // pod at once; IPv4 has no such address.
            let next_hop = match gateway {
                Some(IpAddr::V6(_)) if self.network.routed => Some(IpAddr::V6(GATEWAY_V6)),
                other => other,
            };
            if let (true, Some(gateway)) = (self.network.routed, gateway) {
                // On the link, for whoever makes routes of their own by it; fe80::/64 always is.
                let known = matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local());
                if !known && !self.is_of_node() {
                    routes.push(PodRoute::new(host_prefix(gateway), None));
                }
                for subnet in &self.network.subnets {
                    if subnet.prefix.addr().is_ipv4() == v4 {
                        routes.push(PodRoute::new(subnet.prefix, next_hop));
                    }
                }
            }
            if self.is_of_node() {
                // The subnets, and nothing else; no route comes with its address.
                let subnets = self.network.subnets.iter().map(|it| it.prefix);
                let on_link =
                    subnets.filter(|it| it.addr().is_ipv4() == v4 && !self.network.routed);
                routes.extend(on_link.map(|subnet| PodRoute::new(subnet, None)));
                continue;
            }
            let pushed = self.network.routes.iter();
            for route in pushed.filter(|it| it.dst.addr().is_ipv4() == v4) {
                routes.push(PodRoute::new(route.dst, route.gw.or(next_hop)));
            }
            // Where nothing is routed, an address of a Service is asked for on the link.
            let via = next_hop.filter(|_| self.network.routed);
            let services = self.network.service_cidrs.iter();
            for prefix in services.filter(|it| it.addr().is_ipv4() == v4) {
                routes.push(PodRoute::new(*prefix, via));
            }
            routes.extend(self.vpc_routes(v4, next_hop));
            routes.extend(self.default_routes(v4, next_hop));
        }
        routes
    }

    /// Lists the routes to what the network's VPC reaches.
    ///
    /// Those that are there anyway are left out.
    fn vpc_routes(&self, v4: bool, via: Option<IpAddr>) -> impl Iterator<Item = PodRoute> {
        let network = &self.network;
        let of_family = move |it: &&Prefix| it.addr().is_ipv4() == v4;
        let is_there = |prefix: &Prefix| {
            network.subnets.iter().any(|it| it.prefix == *prefix)
                || network.routes.iter().any(|it| it.dst == *prefix)
        };
        let cidrs = network.vpc_cidrs.iter().filter(of_family);
        let new = cidrs.filter(move |it| via.is_some() && !is_there(it));
        new.map(move |prefix| PodRoute::new(*prefix, via))
    }

    /// Lists a family's default routes; a routed network has only `own`, its gateway.
    fn default_routes(&self, v4: bool, own: Option<IpAddr>) -> Vec<PodRoute> {
        let to = default_prefix(v4);
        match self.default_gateway.of(v4) {
            None => Vec::new(),
            Some(chosen) if chosen.is_empty() || self.network.routed => {
                own.map(|_| PodRoute::new(to, own)).into_iter().collect()
            }
            Some(chosen) => (0..)
                .zip(chosen)
                .map(|(place, via)| PodRoute {
                    metric: metric(v4, place),
                    ..PodRoute::new(to, Some(*via))
                })
                .collect(),
        }
    }
}
