//! Routes to the pods of other nodes, and the removal of the node's settings.

use std::collections::BTreeMap;

use host::PROTOCOL;
use netdev::{Connection, Netfilter, Route};
use telemetry::chain;

use super::plan::NodeRoute;

/// Replaces podnet's routes to other nodes; returns unreached nodes with reasons.
pub(super) fn direct(
    connection: &mut Connection,
    routes: &[NodeRoute],
) -> Result<BTreeMap<String, String>, netdev::Error> {
    let mut missed = BTreeMap::new();
    let mut wanted: Vec<(&NodeRoute, Route)> = Vec::new();
    for node in routes {
        match connection.route_to(node.via)? {
            Some(found) if found.is_on_link() => {
                let route = Route {
                    protocol: Some(PROTOCOL),
                    ..Route::new(
                        node.pods.addr(),
                        node.pods.prefix_len(),
                        Some(node.via),
                        found.ifindex,
                    )
                };
                wanted.push((node, route));
            }
            found => {
                let how = found.map_or_else(
                    || "no route leads there".to_owned(),
                    |found| format!("the way there is {found}"),
                );
                let why = format!(
                    "its address {} is on no network of this node ({how}); pods reach each other \
                     over routers only where these know the routes",
                    node.via
                );
                missed.insert(node.node.clone(), why);
            }
        }
    }
    let id = |route: &Route| (route.dst, route.prefix_len, route.gateway, route.ifindex);
    let there = connection.routes_by(PROTOCOL)?;
    // Those without a next hop lead to pods of this node.
    let there: Vec<Route> = there
        .into_iter()
        .filter(|it| it.gateway.is_some())
        .collect();
    for route in &there {
        if !wanted.iter().any(|(_, other)| id(other) == id(route)) {
            connection.remove_route(route)?;
            tracing::info!(%route, "a route to another node is removed");
        }
    }
    for (node, route) in wanted {
        if there.iter().any(|other| id(other) == id(&route)) {
            continue;
        }
        match connection.add_route(&route) {
            Ok(()) => tracing::info!(node = node.node, %route, "a route to another node is added"),
            Err(error) if error.is_exists() => {
                let why = format!("this node has another route to {}", node.pods);
                missed.insert(node.node.clone(), why);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(missed)
}

/// Remove routes and table of the node's network; with `dry` only list them.
///
/// Forwarding stays.
///
/// # Errors
/// When the kernel refuses.
pub fn remove(connection: &mut Connection, dry: bool) -> Result<Vec<String>, netdev::Error> {
    let mut removed = Vec::new();
    for route in connection.routes_by(PROTOCOL)? {
        // Those without a next hop go with their links.
        if route.gateway.is_some() && (dry || connection.remove_route(&route)?) {
            removed.push(format!("route {route}"));
        }
    }
    let there = match Netfilter::open() {
        Ok(mut netfilter) if dry => netfilter.is_there(),
        Ok(mut netfilter) => netfilter.remove(),
        // A kernel without netfilter has no table of ours.
        Err(_) => Ok(false),
    };
    match there {
        Ok(true) => removed.push("nf_tables table inet podnet".to_owned()),
        Ok(false) => {}
        // One without nf_tables has none either.
        Err(error) => tracing::debug!(
            error = chain(&error),
            "nf_tables cannot be read, and no table of masquerading is looked for"
        ),
    }
    Ok(removed)
}
