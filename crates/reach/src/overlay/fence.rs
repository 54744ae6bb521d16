//! Drops forged tunnel packets by a table of nf_tables.
//!
//! Pods of any plugin may send UDP from any source, and the receiver of a tunnel knows a node by the
//! source alone.
//!
//! A node forwards nothing to the tunnel port, and takes in what comes for it only from where other nodes
//! are. There is one such table wherever there is the tunnel device.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use netdev::{Bound, Connection, Guard, Link, LinkName, Netfilter, Packets, Ruleset, TableWrite};
use rustix::io::Errno;
use telemetry::chain;

use super::{DEVICE, Overlay, OverlayError};

/// Name of the table, of family `inet`, in the node's namespace.
pub const TABLE: &str = "podnet-tunnels";

/// Rules for packets to the tunnel port.
///
/// Packets by `entrances` pass, whatever the route back is: other nodes send by these. A packet by
/// another link passes only when the route back leads there, with `reverse_path`, so that a change of
/// the node's routes needs no change here. All others are dropped.
fn fence(port: u16, entrances: &BTreeSet<String>, reverse_path: bool) -> Ruleset {
    let mut guards = Vec::new();
    for link in entrances {
        let by = Packets::InBy(LinkName::Is(link.clone()));
        guards.push(Guard::pass(Bound::Here, &[by]));
    }
    let tunnel = Packets::UdpTo(port);
    if reverse_path {
        let back = [tunnel.clone(), Packets::ByReversePath];
        guards.push(Guard::pass(Bound::Here, &back));
    }
    for bound in [Bound::Here, Bound::Elsewhere] {
        guards.push(Guard::stop(bound, std::slice::from_ref(&tunnel)));
        // IPv6 lets headers push the ports out of the first fragment, which nothing but an attack needs (RFC
        // 7112). Fragments after it have no ports, and are nothing without it.
        guards.push(Guard::pass(bound, &[Packets::WithPorts]));
        guards.push(Guard::stop(bound, &[Packets::Beginning]));
    }
    Ruleset {
        table: TABLE,
        masquerade: None,
        ports: None,
        limits: Vec::new(),
        guards,
        early: true,
    }
}

/// Links by which other nodes send, and the VRFs that these are in.
///
/// They are those of the node's own addresses for tunnels, those that lead to other nodes, and those of
/// default routes.
pub(crate) fn entrances(
    connection: &mut Connection,
    own: &[IpAddr],
    nodes: &BTreeSet<IpAddr>,
) -> Result<BTreeSet<String>, netdev::Error> {
    let mut links: BTreeSet<u32> = connection.default_links()?.into_iter().collect();
    for address in own {
        links.extend(connection.holder_of(*address)?);
    }
    for address in nodes {
        if let Some(local) = own.iter().find(|it| it.is_ipv4() == address.is_ipv4()) {
            let way = connection.way_to(*address, *local)?;
            links.extend(way.map(|way| way.ifindex));
        }
    }
    let mut names = BTreeSet::new();
    for ifindex in links {
        let Some(link) = connection.by_index(ifindex)? else {
            continue;
        };
        if let Some(controller) = link.controller_ifindex {
            let controller = connection.by_index(controller)?;
            names.extend(controller.filter(is_vrf).map(|link| link.name));
        }
        if may_bring(&link) {
            names.insert(link.name);
        }
    }
    Ok(names)
}

fn is_vrf(link: &Link) -> bool {
    link.kind.as_deref() == Some("vrf")
}

/// An address for tunnels may be on the loopback, by which nobody else sends.
fn may_bring(link: &Link) -> bool {
    link.name != "lo" && link.name != DEVICE
}

impl Overlay {
    /// Writes the table where it is missing or not as it should be.
    ///
    /// # Errors
    /// [`OverlayError::NoFence`], and when links and routes cannot be read.
    pub(crate) async fn fence(&self) -> Result<TableWrite, OverlayError> {
        let own = self.remotes.vteps();
        let nodes = self.other_nodes(&own)?;
        let look = move |connection: &mut Connection| entrances(connection, &own, &nodes);
        let found = self.host.netlink.with(look).await?;
        self.fence_from(found).await
    }

    /// The same with links that were just found.
    ///
    /// # Errors
    /// [`OverlayError::NoFence`].
    pub(crate) async fn fence_from(
        &self,
        entrances: BTreeSet<String>,
    ) -> Result<TableWrite, OverlayError> {
        let port = self.port;
        // Where this node's tunnels end is not known yet, after a start: what an agent before this one has
        // written for the port says more.
        let is_early = self.remotes.vteps().is_empty();
        let stops = Guard::stop(Bound::Here, &[Packets::UdpTo(port)]).to_string();
        let full = fence(port, &entrances, true);
        let plain = fence(port, &entrances, false);
        let tried = self.has_reverse_path.load(Ordering::Acquire);
        let write = move |netfilter: &mut Netfilter| {
            let wanted = if tried { &full } else { &plain };
            let has_port = |rules: Vec<(String, u64)>| rules.iter().any(|(said, _)| *said == stops);
            if netfilter.says(wanted)? || is_early && has_port(netfilter.stopped(TABLE)?) {
                return Ok((TableWrite::Unneeded, tried));
            }
            match netfilter.write(wanted) {
                Err(error) if tried && is_unknown(&error) => Ok((netfilter.write(&plain)?, false)),
                written => written.map(|written| (written, tried)),
            }
        };
        let written = self.host.netlink.with_netfilter(write).await;
        let (written, has) = written.map_err(|source| OverlayError::NoFence { source })?;
        self.has_written.store(true, Ordering::Release);
        if has != tried {
            self.has_reverse_path.store(has, Ordering::Release);
            tracing::info!(
                "this kernel's nf_tables cannot look up the way back: tunnels are taken in from the links that are found"
            );
        }
        if written.is_change() {
            let known = || entrances.iter().map(String::as_str).collect::<Vec<_>>();
            tracing::info!(links = ?known(), "tunnels are taken in from these links, as the nf_tables table inet {TABLE} says");
        }
        let mut last = self
            .entrances
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = entrances;
        Ok(written)
    }

    /// Writes the table again when it differs.
    ///
    /// A node without a tunnel device has no such table.
    ///
    /// # Errors
    /// As for [`Self::fence`].
    pub(crate) async fn restore_fence(&self) -> Result<TableWrite, OverlayError> {
        if self.device() == 0 && self.host.netlink.by_name(DEVICE).await?.is_none() {
            return Ok(TableWrite::Unneeded);
        }
        self.fence().await
    }
}

/// The kernel has not the expression, or not for this hook (before Linux 5.13).
fn is_unknown(error: &netdev::Error) -> bool {
    matches!(
        error.errno(),
        Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::INVAL)
    )
}

/// Removes the table, for `cleanup`; true when there was one.
///
/// With `dry` only looks.
pub fn remove(dry: bool) -> bool {
    let there = match Netfilter::open() {
        Ok(mut netfilter) if dry => netfilter.has(TABLE),
        Ok(mut netfilter) => netfilter.remove_table(TABLE),
        // A kernel without netfilter has no table of ours.
        Err(_) => Ok(false),
    };
    there.unwrap_or_else(|error| {
        // One without nf_tables has none either.
        tracing::debug!(
            error = chain(&error),
            "nf_tables cannot be read, and no fence of tunnels is looked for"
        );
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_forwarded_to_the_tunnel_port_and_it_is_reached_from_entrances_alone() {
        let entrances = BTreeSet::from(["eth0".to_owned(), "wg0".to_owned()]);
        let rules = fence(4790, &entrances, true);
        let of = |bound| -> Vec<String> {
            let guards = rules.guards.iter().filter(|guard| guard.bound == bound);
            guards.map(ToString::to_string).collect()
        };
        let here = [
            "pass in by eth0",
            "pass in by wg0",
            "pass to UDP port 4790 by the reverse path",
            "stop to UDP port 4790",
            "pass with ports",
            "stop of first fragments",
        ];
        assert_eq!(of(Bound::Here), here);
        assert_eq!(of(Bound::Elsewhere), here[3..]);
        assert!(rules.early, "before a rule of somebody else accepts it");
        let plain = fence(4790, &entrances, false);
        assert_eq!(plain.guards.len() + 1, rules.guards.len());
    }
}
