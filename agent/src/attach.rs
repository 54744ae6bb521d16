//! Making and unmaking attachments. Record before effect, one way to take apart, and that one can
//! be taken from any state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cni_spec::AttachmentKey;
use netdev::{
    Address, Connection, LinkEvent, LinkLocal, LinkMonitor, Netns, PodEnd, Route, Sysctl, VethSpec,
};
use tokio::time::timeout;

use crate::error::AgentError;
use crate::failpoint::reached;
use crate::ledger::Wanted;
use crate::node::Node;
use crate::ports::{ALIAS_PREFIX, host_name, near_name};
use crate::record::{Attachment, HostEnd, Shaper, State};
use crate::shaping::{Pair, silence};

mod check;

/// How long an `ADD` waits for the queue of its host end: usually less than writing its record
/// takes, and hundreds of milliseconds while others make and remove links.
const QUEUE_PATIENCE: Duration = Duration::from_secs(2);

impl Node {
    /// Makes an attachment; the caller holds the container's lock.
    ///
    /// An attachment that is there already, for the same request in the same namespace, is the
    /// answer again: its runtime did not get the first one. If it is not as it should be, for
    /// example because the agent died while it was made, it is made anew.
    ///
    /// # Errors
    /// When it cannot be made; nothing of it is left then.
    pub async fn attach(
        self: &Arc<Self>,
        wanted: Wanted,
        network: &api::Network,
        netns: &Netns,
    ) -> Result<Attachment, AgentError> {
        if let Some(record) = self.same(&wanted)? {
            match self.check(&record.key, netns, &record.result()?).await {
                Ok(()) => return Ok(record),
                Err(AgentError::Damaged { faults, .. }) => {
                    tracing::warn!(attachment = %record.key, ?faults, "asked for again, made anew");
                    self.take_apart(&record.key).await?;
                }
                Err(error) => return Err(error),
            }
        }
        if !wanted.limits.is_unlimited() {
            self.discipline(&wanted.limits)?;
        }
        let _busy = self.promotions.busy();
        let host = HostEnd {
            name: host_name(&wanted.key),
            ifindex: 0,
        };
        let record = match &self.cluster {
            Some(cluster) => cluster.book(self, wanted, network, host).await?,
            None => self.ledger().reserve(wanted, network, host)?,
        };
        reached("add.reserved");
        if let Err(error) = self.save(&record).await {
            // Whether it was written is not known, so it is taken apart like one that was.
            self.undo(&record.key).await;
            return Err(error);
        }
        reached("add.recorded");
        match self.make(&record, netns).await {
            Ok(record) => Ok(record),
            Err(error) => {
                self.undo(&record.key).await;
                Err(error)
            }
        }
    }

    /// The record of the same request, if it was served already.
    fn same(&self, wanted: &Wanted) -> Result<Option<Attachment>, AgentError> {
        let ledger = self.ledger();
        let Some(entry) = ledger.get(&wanted.key) else {
            return Ok(None);
        };
        let record = &entry.record;
        let refuse = |what| {
            Err(AgentError::AlreadyAttached {
                key: wanted.key.clone(),
                what,
            })
        };
        if (record.sandbox.dev, record.sandbox.ino) != (wanted.sandbox.dev, wanted.sandbox.ino) {
            return refuse("network namespace");
        }
        if record.request_digest != wanted.request_digest {
            return refuse("configuration");
        }
        match record.state {
            State::Added if !entry.live => refuse("link: that one is gone"),
            State::Added => Ok(Some(record.clone())),
            State::Adding | State::Deleting => refuse("state: it is being removed"),
        }
    }

    async fn make(&self, record: &Attachment, netns: &Netns) -> Result<Attachment, AgentError> {
        self.tables.reset_port_counters(record.port_id)?;
        let (ifindex, shaper) = self.make_links(record, netns).await?;
        reached("add.placed");
        let host = HostEnd {
            ifindex,
            ..record.host.clone()
        };
        let added = Attachment {
            state: State::Added,
            host,
            shaper,
            ..record.clone()
        };
        // In the tables before the pod's end is up: what it announces then reaches its network.
        self.ledger().set_live(&added);
        self.reconcile(record.network.id)?;
        reached("add.live");
        let queue = match record.host_end_queues() {
            true => Some(self.netlink.monitor()?),
            false => None,
        };
        // The disk and the kernel at once. An agent that dies in between leaves what nobody was told
        // of, and what an ADD or a DEL that follows puts right.
        let (configured, saved) = tokio::join!(
            async {
                netns.configure_pod_end(pod_end(record)).await?;
                match queue {
                    Some(links) => started(links, added.host.ifindex).await,
                    None => Ok(()),
                }
            },
            async {
                let saved = self.save(&added).await;
                reached("add.saved");
                saved
            }
        );
        configured?;
        saved?;
        self.ledger().set_added(&record.key);
        reached("add.committed");
        self.promotions.add(added.host.clone());
        Ok(added)
    }

    /// The link, with the dispatcher at its host end and the other end in the pod under its final
    /// name, and the shaper, if what the pod sends is limited. The pod's end is made there: moving
    /// one takes the kernel longer than all the rest. Down until the dispatcher is attached and the
    /// rate limited, so that nothing passes them.
    async fn make_links(
        &self,
        record: &Attachment,
        netns: &Netns,
    ) -> Result<(u32, Option<Shaper>), AgentError> {
        let mut spec = VethSpec::new(&record.host.name, record.key.ifname.as_str());
        spec.peer_mac = Some(record.mac.0);
        spec.mtu = u32::from(record.network.mtu);
        spec.alias = Some(format!("{ALIAS_PREFIX}{}", record.key));
        spec.queues = Some(1);
        spec.peer_netns = Some(netns.clone());
        let (hook, name) = (self.hook.clone(), record.host.name.clone());
        let limits = record.limits;
        let (mut into, mut out_of) = (None, None);
        if !limits.is_unlimited() {
            let discipline = self.discipline(&limits)?;
            let mtu = record.network.mtu;
            into = limits.ingress.map(|limit| (limit.shape(mtu), discipline));
            out_of = limits
                .egress
                .map(|limit| Pair::of(record, limit, discipline));
        }
        let made = self.netlink.with(move |connection| {
            // A link of this name is what is left of an attachment with this key.
            connection.delete_by_name(&name)?;
            let pair = connection.create_veth(&spec)?;
            if let Err(error) = hook.attach(&name) {
                return Ok(Err(error));
            }
            if let Some((shape, discipline)) = into {
                connection.shape(pair.host_ifindex, &shape, discipline)?;
            }
            let shaper = match out_of {
                Some(pair) => match pair.make(connection, &hook)? {
                    Ok(shaper) => Some(shaper),
                    Err(error) => return Ok(Err(error)),
                },
                None => None,
            };
            silence(&name)?;
            connection.set_up(pair.host_ifindex)?;
            Ok(Ok((pair.host_ifindex, shaper)))
        });
        Ok(made.await??)
    }

    /// Takes apart what a failed `ADD` has made. What cannot be removed now stays recorded, and the
    /// audit goes on with it.
    pub async fn undo(&self, key: &AttachmentKey) {
        if let Err(error) = self.take_apart(key).await {
            tracing::error!(attachment = %key, %error, "roll-back incomplete, will be finished later");
        }
    }

    /// Removes an attachment; one that is not there is removed already. The caller holds the
    /// container's lock.
    ///
    /// # Errors
    /// When something of it is left; calling again goes on.
    pub async fn detach(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        let _busy = self.promotions.busy();
        let Some(record) = self.ledger().get(key).map(|entry| entry.record.clone()) else {
            return Ok(());
        };
        if record.state != State::Deleting {
            self.save(&Attachment {
                state: State::Deleting,
                ..record
            })
            .await?;
        }
        reached("del.recorded");
        self.take_apart(key).await
    }

    /// Tables, link, record, in this order: a port stops sending before it goes, and is forgotten
    /// when nothing is left of it. Every step succeeds when its work is done already.
    async fn take_apart(&self, key: &AttachmentKey) -> Result<(), AgentError> {
        let record = {
            let mut ledger = self.ledger();
            ledger.set_state(key, State::Deleting, false);
            match ledger.get(key) {
                Some(entry) => entry.record.clone(),
                None => return Ok(()),
            }
        };
        self.reconcile(record.network.id)?;
        self.close_queues(&record).await;
        // The names are the attachment's own, whatever their index.
        let (host, near) = (record.host.name.clone(), near_name(&record.host.name));
        let remove = move |connection: &mut Connection| {
            Ok([
                connection.delete_by_name(&host)?,
                connection.delete_by_name(&near)?,
            ])
        };
        let removed = self.netlink.with(remove).await?;
        tracing::debug!(attachment = %key, interface = record.host.name, ?removed, "link, shaper");
        self.promotions.forget(record.host.ifindex);
        self.hook.forget(record.host.ifindex)?;
        reached("del.torn-down");
        self.erase(key).await?;
        self.ledger().release(key);
        if let Some(cluster) = &self.cluster {
            cluster.released();
        }
        reached("del.forgotten");
        Ok(())
    }

    /// Removes the attachments of a CNI network that `keep` does not want and that were there
    /// before the request came.
    ///
    /// # Errors
    /// All failures together; what can be removed is removed.
    pub async fn collect(
        &self,
        cni_network: &str,
        before: Instant,
        keep: impl Fn(&Attachment) -> bool,
    ) -> Result<usize, AgentError> {
        // Of these the runtime knows nothing; they go and stay with their pods (CNI-GC-03).
        let owned = self.pods.owned();
        let stale: Vec<AttachmentKey> = self
            .ledger()
            .entries()
            .filter(|entry| !owned.contains(&entry.record.key))
            .filter(|entry| entry.record.cni_network == cni_network && entry.since < before)
            .filter(|entry| !keep(&entry.record))
            .map(|entry| entry.record.key.clone())
            .collect();
        let (mut removed, mut errors) = (0, Vec::new());
        for key in stale {
            let _guard = self.lock(&key.container).await;
            // While this waited, the attachment may have been removed and made again.
            let still = self
                .ledger()
                .get(&key)
                .is_some_and(|entry| entry.since < before);
            if !still {
                continue;
            }
            tracing::info!(attachment = %key, "removing a stale attachment");
            match self.detach(&key).await {
                Ok(()) => removed += 1,
                Err(error) => errors.push(error),
            }
            reached("gc.one");
        }
        if errors.is_empty() {
            Ok(removed)
        } else {
            Err(AgentError::Collect { errors })
        }
    }
}

/// Waits until the kernel has started the queue of a host end: some moments after the pod's end is
/// up, and it drops what comes before. Its first announcement of the link with a carrier says so.
/// `links` was opened while the pod's end was down.
async fn started(mut links: LinkMonitor, ifindex: u32) -> Result<(), netdev::Error> {
    let announced = async {
        loop {
            match links.next().await? {
                LinkEvent::Changed(link) if link.ifindex == ifindex && link.carrier => break,
                // What was announced is not known, and was a while ago.
                LinkEvent::Overrun => break,
                _ => {}
            }
        }
        Ok(())
    };
    // Later is later; the first packets are not worth more of the runtime's time.
    timeout(QUEUE_PATIENCE, announced).await.unwrap_or(Ok(()))
}

/// The pod's end of the link, as `netdev` takes it.
fn pod_end(record: &Attachment) -> PodEnd {
    let mut end = PodEnd::new(record.key.ifname.as_str());
    end.addresses = record
        .leases
        .iter()
        .map(|lease| Address::new(lease.address, record.prefix_len(lease)))
        .collect();
    let v6 = record.leases.iter().any(|lease| lease.address.is_ipv6());
    end.link_local = if v6 || record.network.addressless() {
        LinkLocal::Eui64
    } else {
        LinkLocal::Absent
    };
    end.routes = record
        .routes()
        .into_iter()
        .map(|route| {
            let onlink = record.network.routed && route.via.is_some();
            Route {
                onlink,
                metric: route.metric,
                ..Route::new(route.to.addr(), route.to.prefix_len(), route.via, 0)
            }
        })
        .collect();
    // Neighbours that knew the address at another MAC address learn of the new one at once.
    end.sysctls = vec![Sysctl::v4("arp_notify", "1")];
    if v6 || record.network.addressless() {
        end.sysctls.push(Sysctl::v6("disable_ipv6", "0"));
        end.sysctls.push(Sysctl::v6("ndisc_notify", "1"));
        end.sysctls.push(Sysctl::v6("accept_ra", "0"));
    }
    end
}
