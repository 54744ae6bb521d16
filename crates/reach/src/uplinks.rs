//! Interfaces by which packets of other nodes come in, and their programs.
//!
//! The program takes packets of tunnels and networks. The rest is the node's own, and meets the next
//! filter. In front of it there may be a program in XDP: see [`crate::early_drop`].

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_common::addr::{Ip16, MacAddr};
use agent_common::uplink::{
    UPLINK_ANY_FAMILY, UPLINK_EVERY_FRAME, UPLINK_PROMISCUOUS, UPLINK_STEERS, UPLINK_WIRES, Uplink,
};
use api::Listed;
use datapath::{DatapathError, Dispatcher, Hook};
use host::{Host, HostError};
use netdev::{Connection, LinkChange};
use tables::Reconciler;
use telemetry::chain;

use crate::early_drop::EarlyDrop;

/// Needs of interfaces, by interface index.
pub type Wanted = BTreeMap<u32, Uplink>;

/// User of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// Tunnels of other nodes end there.
    Tunnels,
    /// Networks leave and come in there as they are.
    UplinkNetworks,
}

/// Interfaces of the node are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// Several could not be settled.
    #[error("{} attachments could not be removed or mended: {}", errors.len(), Listed::new(errors))]
    Several {
        /// Each failure.
        errors: Vec<HostError>,
    },
    /// The kernel refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<netdev::Error> for UplinkError {
    fn from(error: netdev::Error) -> Self {
        HostError::from(error).into()
    }
}

impl From<DatapathError> for UplinkError {
    fn from(error: DatapathError) -> Self {
        HostError::from(error).into()
    }
}

/// The interfaces that have the program.
#[derive(Debug)]
pub struct Uplinks {
    host: Arc<Host>,
    tables: Arc<Reconciler>,
    early: Arc<EarlyDrop>,
    wanted: Asked,
    /// One at a time makes changes.
    turn: tokio::sync::Mutex<()>,
}

/// The needs of users.
#[derive(Debug, Default)]
struct Asked(Mutex<BTreeMap<User, Wanted>>);

impl Asked {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<User, Wanted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Needs of all users.
    ///
    /// A user that has not spoken since the agent started keeps its part of `known`.
    fn all(&self, known: &Wanted) -> Wanted {
        let mut all = Wanted::new();
        let wanted = self.lock();
        let silent = |user: &User| !wanted.contains_key(user);
        let mut kept = Wanted::new();
        for user in [User::Tunnels, User::UplinkNetworks]
            .iter()
            .filter(|it| silent(it))
        {
            for (ifindex, uplink) in known {
                if let Some(part) = part(*user, uplink) {
                    let whole = kept.entry(*ifindex).or_insert(part);
                    *whole = both(whole, &part);
                }
            }
        }
        for (ifindex, uplink) in wanted.values().flatten().chain(&kept) {
            let known = all.entry(*ifindex).or_insert(*uplink);
            *known = both(known, uplink);
        }
        all
    }
}

/// Part of an interface's entry that one user needs.
fn part(user: User, uplink: &Uplink) -> Option<Uplink> {
    match user {
        User::Tunnels => uplink.has_tunnels().then_some(Uplink {
            flags: uplink.flags & UPLINK_ANY_FAMILY,
            ..*uplink
        }),
        User::UplinkNetworks => (uplink.flags & UPLINK_WIRES != 0).then_some(Uplink {
            flags: uplink.flags & (UPLINK_WIRES | UPLINK_EVERY_FRAME),
            mac: uplink.mac,
            ..Uplink::NOTHING
        }),
    }
}

/// Union of two users' needs of one interface.
fn both(one: &Uplink, other: &Uplink) -> Uplink {
    let either = |one: Ip16, other: Ip16| if one == Ip16::NONE { other } else { one };
    Uplink {
        flags: one.flags | other.flags,
        port: if one.has_tunnels() {
            one.port
        } else {
            other.port
        },
        v4: either(one.v4, other.v4),
        v6: either(one.v6, other.v6),
        ..*one
    }
}

impl Uplinks {
    /// Hold what is needed; no interface is known yet.
    pub fn new(host: Arc<Host>, tables: Arc<Reconciler>, early: Arc<EarlyDrop>) -> Self {
        Self {
            host,
            tables,
            early,
            wanted: Asked::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether the program belongs on this interface.
    pub fn has(&self, ifindex: u32) -> bool {
        let wanted = self.wanted.lock();
        wanted.values().any(|it| it.contains_key(&ifindex))
    }

    /// From now on this is taken from interfaces for `user`, and nothing else.
    ///
    /// # Errors
    /// When the kernel refuses for an interface; all others are as they should be.
    pub async fn take_from(&self, user: User, wanted: Wanted) -> Result<(), UplinkError> {
        self.wanted.lock().insert(user, wanted);
        self.mend().await
    }

    /// Attaches the program where it is missing, and idles it on unused interfaces.
    ///
    /// # Errors
    /// As for [`Self::take_from`].
    pub async fn mend(&self) -> Result<(), UplinkError> {
        let _alone = self.turn.lock().await;
        let known = self.tables.uplinks()?;
        let mut wanted = self.wanted.all(&known);
        let indexes: Vec<u32> = wanted.keys().copied().collect();
        let macs = move |connection: &mut Connection| macs(connection, &indexes);
        for (ifindex, mac) in self.host.netlink.with(macs).await? {
            if let Some(uplink) = wanted.get_mut(&ifindex) {
                uplink.mac = mac;
            }
        }
        for (ifindex, uplink) in &mut wanted {
            // What podnet has done to an interface stays known until it is undone, and what was found of
            // it until it is looked at again.
            uplink.flags |= known
                .get(ifindex)
                .map_or(0, |it| it.flags & (UPLINK_PROMISCUOUS | UPLINK_STEERS));
            if known.get(ifindex) != Some(uplink) {
                self.tables.set_uplink(*ifindex, Some(*uplink))?;
            }
        }
        let mut errors = Vec::new();
        for ifindex in wanted.keys().copied() {
            let hook = self.host.hook.clone();
            let attach = move |connection: &mut Connection| attach(connection, &hook, ifindex);
            match self.host.netlink.with(attach).await {
                Ok(true) => tracing::info!(
                    ifindex,
                    "packets of other nodes are taken in at this interface"
                ),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(ifindex, error = %chain(&error), "the program could not be attached to the interface; the audit tries again");
                    errors.push(error);
                }
            }
        }
        self.early.settle(&wanted).await;
        let places = self.early.places();
        for (ifindex, uplink) in &mut wanted {
            let steers = places.get(ifindex).is_some_and(|it| it.steers);
            if steers != (uplink.flags & UPLINK_STEERS != 0) {
                uplink.flags ^= UPLINK_STEERS;
                self.tables.set_uplink(*ifindex, Some(*uplink))?;
            }
        }
        for (ifindex, uplink) in &wanted {
            if let Err(error) = self.open_up(*ifindex, *uplink).await {
                tracing::warn!(ifindex, error = %chain(&error), "the promiscuous mode of the interface could not be set; the audit tries again");
                errors.push(error);
            }
        }
        let unwanted: BTreeSet<u32> = known
            .keys()
            .copied()
            .filter(|it| !wanted.contains_key(it))
            .collect();
        for ifindex in unwanted {
            if let Some(uplink) = known.get(&ifindex) {
                let closed = Uplink {
                    flags: uplink.flags & UPLINK_PROMISCUOUS,
                    ..*uplink
                };
                self.open_up(ifindex, closed).await?;
            }
            // The program leaves everything to the node from here on.
            self.tables.set_uplink(ifindex, None)?;
            self.host.hook.forget(ifindex)?;
            // Where tunnels ended, a filter stays for the reason at `attach`: they may be back with the
            // next change of routes. `cleanup` takes it away.
            if known.get(&ifindex).is_some_and(|it| !it.has_tunnels()) {
                let hook = self.host.hook.clone();
                let detach = move |connection: &mut Connection| detach(connection, &hook, ifindex);
                self.host.netlink.with(detach).await?;
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(UplinkError::Several { errors })
        }
    }

    /// Sets promiscuous mode where frames for MAC addresses of pods come in.
    ///
    /// Elsewhere resets it, if podnet has set it.
    async fn open_up(&self, ifindex: u32, uplink: Uplink) -> Result<(), HostError> {
        let wanted = uplink.flags & UPLINK_EVERY_FRAME != 0;
        let ours = uplink.flags & UPLINK_PROMISCUOUS != 0;
        if !wanted && !ours {
            return Ok(());
        }
        let look = move |connection: &mut Connection| connection.by_index(ifindex);
        let Some(link) = self.host.netlink.with(look).await? else {
            return Ok(());
        };
        let set = move |connection: &mut Connection| set_promiscuous(connection, ifindex, wanted);
        let changed = |flags| Uplink { flags, ..uplink };
        if wanted && !link.promiscuous {
            let flags = uplink.flags | UPLINK_PROMISCUOUS;
            self.tables.set_uplink(ifindex, Some(changed(flags)))?;
            self.host.netlink.with(set).await?;
        } else if !wanted {
            self.host.netlink.with(set).await?;
            let flags = uplink.flags & !UPLINK_PROMISCUOUS;
            self.tables.set_uplink(ifindex, Some(changed(flags)))?;
        }
        Ok(())
    }
}

fn set_promiscuous(
    connection: &mut Connection,
    ifindex: u32,
    on: bool,
) -> Result<(), netdev::Error> {
    let change = LinkChange {
        promiscuous: Some(on),
        ..LinkChange::default()
    };
    match connection.reconfigure(ifindex, &change) {
        Err(error) if error.is_gone() => Ok(()),
        done => done,
    }
}

/// The MAC addresses of those that are there.
fn macs(
    connection: &mut Connection,
    indexes: &[u32],
) -> Result<Vec<(u32, MacAddr)>, netdev::Error> {
    let mut found = Vec::new();
    for ifindex in indexes.iter().copied() {
        let mac = connection.by_index(ifindex)?.and_then(|link| link.mac);
        found.extend(mac.map(|mac| (ifindex, MacAddr(mac))));
    }
    Ok(found)
}

/// Attaches the program to an interface; false when it is there already.
///
/// The kernel's TCX link comes first: a clsact qdisc that comes or goes stops the interface's queues
/// for a moment, and packets that the node sends then are dropped (`qdisc_graft`).
fn attach(connection: &mut Connection, hook: &Hook, ifindex: u32) -> Result<bool, HostError> {
    let id = hook.dispatcher_id(Dispatcher::Uplink)?;
    let Some(link) = connection.by_index(ifindex)? else {
        return Ok(false);
    };
    if hook.tcx_programs(&link.name)?.contains(&id) {
        return Ok(false);
    }
    let filters = connection.ingress_filters(ifindex)?;
    if filters.iter().any(|it| it.program == Some(id)) {
        return Ok(false);
    }
    if hook.promote(Dispatcher::Uplink, &link.name, ifindex)? {
        return Ok(true);
    }
    let program = hook.program(Dispatcher::Uplink)?;
    let name = Dispatcher::Uplink.name();
    Ok(connection.add_ingress_program(ifindex, (program.as_fd(), id), name)?)
}

fn detach(connection: &mut Connection, hook: &Hook, ifindex: u32) -> Result<(), HostError> {
    let id = hook.dispatcher_id(Dispatcher::Uplink)?;
    let filters = connection.ingress_filters(ifindex)?;
    for filter in filters.iter().filter(|it| it.program == Some(id)) {
        connection.remove_ingress_filter(ifindex, filter)?;
    }
    Ok(())
}

/// Detaches the program from every interface, for `cleanup`; returns their names.
///
/// Settings that podnet has changed for the program are reset.
///
/// # Errors
/// When the kernel refuses.
pub fn remove(
    connection: &mut Connection,
    known: &Wanted,
    dry_run: bool,
) -> Result<Vec<String>, netdev::Error> {
    let mut removed = Vec::new();
    for link in connection.list(&netdev::LinkFilter::default())? {
        let flags = known.get(&link.ifindex).map_or(0, |it| it.flags);
        if flags & UPLINK_PROMISCUOUS != 0 && link.promiscuous {
            if !dry_run {
                set_promiscuous(connection, link.ifindex, false)?;
            }
            removed.push(format!("promiscuous mode of {}", link.name));
        }
        for filter in connection.ingress_filters(link.ifindex)? {
            if filter.name.as_deref() != Some(Dispatcher::Uplink.name()) {
                continue;
            }
            if !dry_run {
                connection.remove_ingress_filter(link.ifindex, &filter)?;
            }
            removed.push(format!(
                "filter {} of {}",
                Dispatcher::Uplink.name(),
                link.name
            ));
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start must not take away what the part of the agent needs that speaks last.
    #[test]
    fn who_has_not_spoken_yet_keeps_what_he_had() {
        let tunnels = Uplink {
            flags: UPLINK_ANY_FAMILY,
            port: [0x12, 0xb5],
            v4: Ip16::from_v4([192, 0, 2, 1]),
            ..Uplink::NOTHING
        };
        let wires = Uplink {
            flags: UPLINK_WIRES | UPLINK_EVERY_FRAME,
            port: [0; 2],
            v4: Ip16::NONE,
            ..tunnels
        };
        let known = Wanted::from([(1, both(&tunnels, &wires)), (2, wires), (3, tunnels)]);
        let asked = Asked::default();
        assert_eq!(asked.all(&known), known);
        asked
            .lock()
            .insert(User::Tunnels, Wanted::from([(1, tunnels)]));
        let expected = Wanted::from([(1, both(&tunnels, &wires)), (2, wires)]);
        assert_eq!(asked.all(&known), expected);
        asked.lock().insert(User::UplinkNetworks, Wanted::new());
        assert_eq!(asked.all(&known), Wanted::from([(1, tunnels)]));
    }

    #[test]
    fn an_interface_that_two_need_serves_both() {
        let tunnels = Uplink {
            flags: 1,
            port: [0x12, 0xb5],
            v4: Ip16::from_v4([192, 0, 2, 1]),
            ..Uplink::NOTHING
        };
        let other = Uplink {
            flags: 2,
            ..Uplink::NOTHING
        };
        let expected = Uplink {
            flags: 3,
            ..tunnels
        };
        assert_eq!(both(&tunnels, &other), expected);
        assert_eq!(both(&other, &tunnels), expected);
    }
}
