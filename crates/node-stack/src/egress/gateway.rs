//! Makes, mends and removes one gateway in the kernel.
//!
//! Blocking; the connection is in the node's namespace.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::Path;

use datapath::{Dispatcher, Hook};
use host::{ALIAS_PREFIX, attach_dispatcher, silence};
use netdev::{Connection, Link, LinkFilter, NamedNetns, Netns, VethSpec};
use tables::surroundings::WayOut;
use telemetry::failpoint::reached;

use super::EgressError;
use super::plan::{
    self, GatewayPlan, LINK_PREFIX, NODE_MAC, PLACES, PODS, PODS_MAC, PORT_PREFIX, UPLINK,
    UPLINK_MAC,
};

mod sides;

pub(super) use self::sides::guard;

/// A gateway that is there.
struct Found {
    netns: Netns,
    port: Link,
    link: Link,
    place: u16,
}

/// Alias of the links of a network's gateway.
fn alias(network: u32) -> String {
    format!("{ALIAS_PREFIX}egress of network {network}")
}

/// The network that a link of a gateway is of.
fn network_of(link: &Link) -> Option<u32> {
    let start = format!("{ALIAS_PREFIX}egress of network ");
    link.alias.as_deref()?.strip_prefix(&start)?.parse().ok()
}

/// Makes or mends a gateway as planned; an existing one keeps its connections.
///
/// The place is where it was last, if that is known. Returns its place, too.
///
/// # Errors
/// When the kernel refuses; one that was not there leaves nothing then.
pub(super) fn ready(
    connection: &mut Connection,
    hook: &Hook,
    directory: &Path,
    (plan, known): (&GatewayPlan, Option<u16>),
) -> Result<(WayOut, u16), EgressError> {
    let refused = |source| EgressError::Refused {
        network: plan.network,
        source,
    };
    let path = directory.join(plan.file());
    if let Some(found) = find(connection, &path, plan, known).map_err(refused)? {
        settle(connection, hook, plan, &found)?;
        return Ok((way_out(&found), found.place));
    }
    remove_network(connection, directory, plan.network).map_err(refused)?;
    let made = make(connection, directory, plan);
    let made = made.and_then(|found| settle(connection, hook, plan, &found).map(|()| found));
    match made {
        Ok(found) => {
            tracing::info!(
                network = plan.network,
                link = found.link.name,
                "the way out of the network is open"
            );
            Ok((way_out(&found), found.place))
        }
        Err(error) => {
            // The first error is the one to tell.
            if let Err(error) = remove_network(connection, directory, plan.network) {
                tracing::warn!(%error, "the way out could not be removed after a failure; the audit tries again");
            }
            Err(error)
        }
    }
}

const fn way_out(found: &Found) -> WayOut {
    WayOut {
        ifindex: found.port.ifindex,
        mac: PODS_MAC,
    }
}

/// The links of gateways in the node's namespace.
fn links(connection: &mut Connection) -> Result<Vec<Link>, netdev::Error> {
    let filter = LinkFilter {
        kind: Some("veth".to_owned()),
        alias_prefix: Some(ALIAS_PREFIX.to_owned()),
        ..LinkFilter::default()
    };
    let mut links = connection.list(&filter)?;
    links.retain(|link| {
        let named = [PORT_PREFIX, LINK_PREFIX];
        named.iter().any(|prefix| link.name.starts_with(prefix)) && network_of(link).is_some()
    });
    Ok(links)
}

/// Finds both links of a gateway that was at this place; none without both.
///
/// A list of the node's links for each network would be as long as there are ports.
fn links_at(
    connection: &mut Connection,
    plan: &GatewayPlan,
    place: u16,
) -> Result<Option<(Link, Link, u16)>, netdev::Error> {
    let port = connection.by_name(&plan.port())?;
    let link = connection.by_name(&plan::link(place))?;
    let both = port.zip(link).filter(|(port, link)| {
        [port, link]
            .iter()
            .all(|it| network_of(it) == Some(plan.network))
    });
    Ok(both.map(|(port, link)| (port, link, place)))
}

/// Finds both links of a gateway, wherever it is; none unless there are two.
fn links_of(
    connection: &mut Connection,
    plan: &GatewayPlan,
) -> Result<Option<(Link, Link, u16)>, netdev::Error> {
    let ours = links(connection)?;
    let mut of_network = ours
        .into_iter()
        .filter(|link| network_of(link) == Some(plan.network));
    let (Some(one), Some(other), None) = (of_network.next(), of_network.next(), of_network.next())
    else {
        return Ok(None);
    };
    let (port, link) = if one.name == plan.port() {
        (one, other)
    } else {
        (other, one)
    };
    let place = plan::place_of(&link.name).filter(|_| port.name == plan.port());
    Ok(place.map(|place| (port, link, place)))
}

/// The gateway of a network, if it is whole.
fn find(
    connection: &mut Connection,
    path: &Path,
    plan: &GatewayPlan,
    known: Option<u16>,
) -> Result<Option<Found>, netdev::Error> {
    let both = match known {
        Some(place) => links_at(connection, plan, place)?,
        None => None,
    };
    let both = match both {
        None => links_of(connection, plan)?,
        both => both,
    };
    let Some((port, link, place)) = both else {
        return Ok(None);
    };
    let netns = match Netns::open(path) {
        Ok(netns) => netns,
        Err(netdev::Error::NotNetns { .. }) => return Ok(None),
        Err(netdev::Error::OpenNetns { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        // For want of a descriptor, say: what works is not taken down for that.
        Err(error) => return Err(error),
    };
    let inner = netns.run_in(|| -> Result<_, netdev::Error> {
        let mut inside = Connection::open()?;
        Ok([inside.by_name(PODS)?, inside.by_name(UPLINK)?])
    })??;
    let [pods, uplink] = inner.map(|link| link.map(|link| link.ifindex));
    let whole = pods.is_some() && uplink.is_some();
    let joined = pods == port.peer_ifindex && uplink == link.peer_ifindex;
    Ok((whole && joined).then_some(Found {
        netns,
        port,
        link,
        place,
    }))
}

/// Reads the place of the gateway that was made last; none when it is not known.
fn newest(directory: &Path) -> Option<u16> {
    let text = fs::read_to_string(plan::newest(directory)).ok()?;
    text.trim().parse().ok().filter(|place| *place < PLACES)
}

/// Keeps the place of a gateway that is about to be made, for later agents.
fn note_newest(directory: &Path, place: u16) -> Result<(), netdev::Error> {
    let path = plan::newest(directory);
    fs::write(&path, format!("{place}\n")).map_err(|source| netdev::Error::NameNetns {
        action: "write the place of the newest gateway to",
        path,
        source,
    })
}

/// Makes namespace and links; all of them are down.
fn make(
    connection: &mut Connection,
    directory: &Path,
    plan: &GatewayPlan,
) -> Result<Found, EgressError> {
    let refused = |source| EgressError::Refused {
        network: plan.network,
        source,
    };
    let taken: BTreeSet<u16> = connection
        .list(&LinkFilter::default())
        .map_err(refused)?
        .iter()
        .filter_map(|link| plan::place_of(&link.name))
        .collect();
    let place = plan::next_place(newest(directory), &taken).ok_or(EgressError::Full {
        network: plan.network,
        max: PLACES,
    })?;
    note_newest(directory, place).map_err(refused)?;
    let path = directory.join(plan.file());
    let netns = NamedNetns::create(&path).map_err(refused)?.keep();
    reached("egress.namespace");
    let mut pair = |spec: VethSpec| {
        let spec = VethSpec {
            mtu: u32::from(plan.mtu),
            alias: Some(alias(plan.network)),
            peer_netns: Some(netns.clone()),
            ..spec
        };
        connection.create_veth(&spec)?;
        let link = connection.by_name(&spec.host_name)?;
        link.ok_or(netdev::Error::LinkVanished {
            link: spec.host_name.as_str().into(),
        })
    };
    let port = pair(VethSpec {
        peer_mac: Some(PODS_MAC.0),
        ..VethSpec::new(&plan.port(), PODS)
    });
    let port = port.map_err(refused)?;
    reached("egress.port");
    let link = pair(VethSpec {
        host_mac: Some(NODE_MAC.0),
        peer_mac: Some(UPLINK_MAC.0),
        ..VethSpec::new(&plan::link(place), UPLINK)
    });
    let link = link.map_err(refused)?;
    Ok(Found {
        netns,
        port,
        link,
        place,
    })
}

/// Sets everything of a gateway that differs from the plan.
///
/// Guards come before addresses, forwarding and the port come last.
fn settle(
    connection: &mut Connection,
    hook: &Hook,
    plan: &GatewayPlan,
    found: &Found,
) -> Result<(), EgressError> {
    let refused = |source| EgressError::Refused {
        network: plan.network,
        source,
    };
    let inside = found.netns.run_in(|| sides::of_gateway(plan, found.place));
    inside.and_then(|done| done).map_err(refused)?;
    // Before it is up: nothing of a gateway comes to the node but through the program.
    let filters = connection
        .ingress_filters(found.link.ifindex)
        .map_err(refused)?;
    let attached = hook.dispatcher_id(Dispatcher::Gateway)?;
    if filters.iter().all(|it| it.program != Some(attached)) {
        let program = hook.program(Dispatcher::Gateway)?;
        let name = Dispatcher::Gateway.name();
        connection
            .set_ingress_program(found.link.ifindex, program.as_fd(), name)
            .map_err(refused)?;
    }
    sides::of_node(connection, plan, (&found.link, found.place)).map_err(refused)?;
    let dispatcher = hook.dispatcher_id(Dispatcher::Pod)?;
    let filters = connection
        .ingress_filters(found.port.ifindex)
        .map_err(refused)?;
    let first = filters.iter().min_by_key(|filter| filter.priority);
    if first.is_none_or(|filter| filter.program != Some(dispatcher)) {
        attach_dispatcher(connection, hook, found.port.ifindex)?;
    }
    silence(&found.port.name).map_err(refused)?;
    sides::resize(connection, &found.port, plan.mtu).map_err(refused)?;
    connection.set_up(found.port.ifindex).map_err(refused)?;
    Ok(())
}

/// Removes whatever there is of the gateway of a network.
fn remove_network(
    connection: &mut Connection,
    directory: &Path,
    network: u32,
) -> Result<(), netdev::Error> {
    for link in links(connection)? {
        if network_of(&link) == Some(network) {
            connection.delete(link.ifindex)?;
        }
    }
    match NamedNetns::remove(&directory.join(network.to_string())) {
        Err(error) if error.is_gone() => Ok(()),
        other => other,
    }
}

/// Removes the gateways of all networks but these; with `dry` only says what.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn remove_all_but(
    connection: &mut Connection,
    directory: &Path,
    kept: &BTreeSet<u32>,
    dry: bool,
) -> Result<Vec<String>, netdev::Error> {
    let mut removed = Vec::new();
    for link in links(connection)? {
        if network_of(&link).is_some_and(|network| kept.contains(&network)) {
            continue;
        }
        if !dry {
            connection.delete(link.ifindex)?;
        }
        removed.push(format!("link {}", link.name));
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        if number.is_none_or(|network: u32| kept.contains(&network)) {
            continue;
        }
        if !dry {
            NamedNetns::remove(&path)?;
        }
        removed.push(format!("network namespace {}", path.display()));
    }
    Ok(removed)
}

/// Removes all gateways and their directory; with `dry` only lists them.
///
/// # Errors
/// When the kernel refuses.
pub fn remove(
    connection: &mut Connection,
    directory: &Path,
    dry: bool,
) -> Result<Vec<String>, netdev::Error> {
    let mut removed = remove_all_but(connection, directory, &BTreeSet::new(), dry)?;
    let newest = plan::newest(directory);
    if newest.exists() {
        removed.push(newest.display().to_string());
    }
    if !dry {
        let _ = fs::remove_file(&newest);
        // One with anything else in it stays, and one that is not there is gone.
        let _ = fs::remove_dir(directory);
    }
    Ok(removed)
}
