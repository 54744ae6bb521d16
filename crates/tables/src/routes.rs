//! Routes of virtual gateways to other networks.
//!
//! Some networks are reached by them only, and have no port here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use agent_common::addr::Ip16;
use agent_common::endpoint::ENDPOINT_ROUTES;
use agent_common::port::PORT_ROUTES;
use agent_common::route::{Route, RouteKey};
use api::Prefix;
use datapath::Entries;

use super::mapped;

/// Id of what is no port, as the virtual gateway.
const NO_PORT: u16 = u16::MAX;

/// Prefixes to which the virtual gateway of a network routes, as the map has them.
///
/// By the first address and the length of the prefix, both those of mapped addresses.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Routes(BTreeMap<(Ip16, u8), Route>);

impl FromIterator<(Prefix, Route)> for Routes {
    fn from_iter<T: IntoIterator<Item = (Prefix, Route)>>(routes: T) -> Self {
        let key = |prefix: Prefix| {
            let length = match prefix.addr() {
                IpAddr::V4(_) => prefix.prefix_len() + 96,
                IpAddr::V6(_) => prefix.prefix_len(),
            };
            (mapped(prefix.network()), length)
        };
        let routes = routes.into_iter();
        Self(routes.map(|(to, route)| (key(to), route)).collect())
    }
}

impl Routes {
    /// True when the gateway routes to no other network.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of the prefixes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The same with those prefixes of others that are not among them.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for (to, route) in &others.0 {
            self.0.entry(*to).or_insert(*route);
        }
        self
    }

    /// The numbers of the networks to which it routes.
    fn reached(&self) -> impl Iterator<Item = u32> {
        let networks = self.0.values().map(|route| route.network);
        networks.filter(|network| *network != 0)
    }
}

/// Routes of all networks with ports on this node, by number.
pub type AllRoutes = BTreeMap<u32, Arc<Routes>>;

/// Sorts entries of the map by the network that the packets are from.
///
/// That is what an agent before has left in force.
pub(super) fn in_force(entries: BTreeMap<RouteKey, Route>) -> AllRoutes {
    let mut all: BTreeMap<u32, Routes> = BTreeMap::new();
    for (key, route) in entries {
        let length = u8::try_from(key.length.saturating_sub(u32::BITS)).unwrap_or(u8::MAX);
        let routes = all.entry(key.network).or_default();
        routes.0.insert((key.ip, length), route);
    }
    let all = all.into_iter();
    all.map(|(network, routes)| (network, Arc::new(routes)))
        .collect()
}

/// Returns the networks of which the tables change with the routes.
///
/// They are those with other routes, and those that are reached by other ones.
pub(super) fn changed(before: &AllRoutes, now: &AllRoutes) -> BTreeSet<u32> {
    let mut changed: BTreeSet<u32> = before
        .keys()
        .chain(now.keys())
        .filter(|network| before.get(network) != now.get(network))
        .copied()
        .collect();
    changed.extend(reached(before).symmetric_difference(&reached(now)));
    changed
}

/// Returns the networks to which any gateway routes.
pub(super) fn reached(all: &AllRoutes) -> BTreeSet<u32> {
    all.values().flat_map(|routes| routes.reached()).collect()
}

/// Adds the routes of a network, and marks its ports.
///
/// A network without a port has none.
pub(super) fn add(entries: &mut Entries, network: u32, routes: &Routes) {
    if entries.ports.is_empty() || routes.is_empty() {
        return;
    }
    for ((ip, length), route) in &routes.0 {
        let key = RouteKey::new(network, *ip, *length);
        entries.routes.insert(key, *route);
    }
    for port in entries.ports.values_mut() {
        port.flags |= PORT_ROUTES;
    }
    // Those that are found by address: what is switched is of the network itself.
    let endpoints = entries.endpoints.values_mut();
    for endpoint in endpoints.filter(|it| it.port_id != NO_PORT) {
        endpoint.flags |= ENDPOINT_ROUTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(all: &[(&str, u32)]) -> Arc<Routes> {
        let all = all.iter();
        let route = |network| Route { network, mtu: 0 };
        Arc::new(
            all.map(|(prefix, network)| (prefix.parse().unwrap(), route(*network)))
                .collect(),
        )
    }

    #[test]
    fn what_is_in_the_map_is_read_as_it_was_written() {
        let routes = routes(&[("10.0.0.0/8", 0), ("10.2.0.0/16", 8), ("fd10::/48", 9)]);
        let entries = routes.0.iter();
        let entries = entries
            .map(|((ip, length), route)| (RouteKey::new(7, *ip, *length), *route))
            .collect::<BTreeMap<_, _>>();
        assert!(entries.keys().any(|key| key.length == 32 + 96 + 8));
        assert!(entries.keys().any(|key| key.length == 32 + 48));
        assert_eq!(in_force(entries), [(7, routes)].into());
    }

    #[test]
    fn tables_change_of_networks_with_other_routes_and_of_those_that_are_reached_otherwise() {
        let before: AllRoutes = [(7, routes(&[("10.2.0.0/16", 8)]))].into();
        let with = |network, to: &[(&str, u32)]| -> AllRoutes {
            let mut all = before.clone();
            all.insert(network, routes(to));
            all
        };
        assert!(changed(&before, &before.clone()).is_empty());
        let back = with(8, &[("10.1.0.0/16", 7)]);
        assert_eq!(changed(&before, &back), [7, 8].into());
        let elsewhere = with(7, &[("10.2.0.0/16", 9)]);
        assert_eq!(changed(&before, &elsewhere), [7, 8, 9].into());
        assert_eq!(changed(&before, &AllRoutes::new()), [7, 8].into());
    }
}
