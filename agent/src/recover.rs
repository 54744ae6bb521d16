//! Start-up and audit: store, kernel and pins brought together, whatever happened in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use datapath::{HookKind, PinDir};
use netdev::{Connection, Link, LinkEvent, LinkFilter, LinkMonitor};
use telemetry::chain;

use crate::egress;
use crate::error::AgentError;
use crate::host::{
    ALIAS_PREFIX, HOST_PREFIX, HostError, NEAR_PREFIX, attach_dispatcher, near_name,
};
use crate::node::Node;
use crate::overlay;
use crate::record::{Attachment, HostEnd, State};
use crate::tombstone;

/// How often the audit runs.
pub const AUDIT_INTERVAL: Duration = Duration::from_secs(30);

/// What the links of the node say about the book.
#[derive(Debug, Default)]
struct Survey {
    /// Index of every link named like one of ours, by name.
    ours: BTreeMap<String, Link>,
    all: BTreeMap<u32, Link>,
}

impl Node {
    async fn survey(&self) -> Result<Survey, AgentError> {
        let of_kind = |kind: &str| LinkFilter {
            kind: Some(kind.to_owned()),
            ..LinkFilter::default()
        };
        let mut survey = Survey::default();
        let mut links = self.host.netlink.list(of_kind("veth")).await?;
        links.extend(self.host.netlink.list(of_kind("tun")).await?);
        for link in links {
            let alias = link.alias.as_deref().unwrap_or_default();
            // The far end of a shaper goes with the near one.
            let ours = [HOST_PREFIX, NEAR_PREFIX];
            let ours = ours.iter().any(|prefix| link.name.starts_with(prefix));
            if ours && alias.starts_with(ALIAS_PREFIX) {
                survey.ours.insert(link.name.clone(), link.clone());
            }
            survey.all.insert(link.ifindex, link);
        }
        Ok(survey)
    }

    /// Brings everything together at start, before any request is served: unfinished attachments
    /// are undone, dead ones removed, links adopted or removed, tables filled, programs activated.
    ///
    /// # Errors
    /// When the kernel or the store refuses.
    pub async fn recover(self: &Arc<Self>, pins: &PinDir) -> Result<(), AgentError> {
        let survey = self.survey().await?;
        self.finish(&survey).await?;
        let mut known = BTreeSet::new();
        let (mut remove, mut broken) = (Vec::new(), Vec::new());
        for entry in self.book.ledger().entries() {
            let record = &entry.record;
            known.insert(record.host.name.clone());
            if record.shaper.is_some() || record.limits.egress.is_some() {
                known.insert(near_name(&record.host.name));
            }
            if record.state != State::Added || is_dead(record, &survey) {
                remove.push(record.key.clone());
            } else if !is_linked(record, &survey) {
                broken.push(record.key.clone());
            }
        }
        let records: Vec<Attachment> = {
            let mut ledger = self.book.ledger();
            for key in &remove {
                ledger.set_state(key, State::Deleting, false);
            }
            for key in &broken {
                // The pod is there and its link is not: CHECK says so, and DEL is still to come.
                ledger.set_state(key, State::Added, false);
            }
            ledger
                .entries()
                .filter(|entry| entry.live)
                .map(|entry| entry.record.clone())
                .collect()
        };
        let records = self.recover_limits(records).await;
        if records.iter().any(|it| it.network.spans_nodes()) {
            // Everything else is served; the audit comes back to it.
            if let Err(error) = self.overlay.tunnel().await {
                tracing::error!(error = %chain(&error), "no tunnels to other nodes yet");
            }
            // Before the tables are filled, which would take the ways there are away.
            if let Err(error) = self.ways.find().await {
                tracing::warn!(error = %chain(&error), "ways to other nodes not found yet");
            }
        }
        self.egress.recover().await;
        // Before the tables are filled, which would say that uplinks are gone.
        if let Err((_, error)) = Box::pin(self.wires.find_uplinks()).await {
            tracing::error!(error = %chain(&error), "uplinks of networks not as they should be yet");
        }
        if let Err(error) = Box::pin(self.wires.find_hops()).await {
            tracing::error!(error = %chain(&error), "next hops to other nodes not known yet");
        }
        self.tables.reconcile_everything()?;
        for record in &records {
            // One port must not keep the others from being served; the audit comes back to it.
            if let Err(error) = self.repair(record, &survey).await {
                tracing::warn!(attachment = %record.key, %error, "not repaired yet");
            }
        }
        // Packets run through the new programs only now that the tables are complete.
        let retired = self.tables.activate()?;
        tokio::spawn(async move {
            // Programs that ran at the flip are long done by then.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let removed = tokio::task::spawn_blocking(move || retired.remove()).await;
            if let Ok(Err(error)) = removed {
                tracing::warn!(%error, "old programs and maps not removed");
            }
        });
        for key in remove {
            tracing::info!(attachment = %key, "removing what was unfinished or lost its pod");
            self.undo(&key).await;
        }
        self.remove_strays(&survey, &known).await?;
        self.remove_stray_ports()?;
        self.mend_ways_out().await;
        self.drop_stale_pins(pins).await?;
        self.recover_pods().await;
        Ok(())
    }

    /// Attachments that were made whole, and whose runtime may have been told, but whose second record
    /// did not get to the disk.
    async fn finish(&self, survey: &Survey) -> Result<(), AgentError> {
        let whole: Vec<Attachment> = self
            .book
            .ledger()
            .entries()
            .filter_map(|entry| whole(&entry.record, survey))
            .collect();
        for record in whole {
            tracing::info!(attachment = %record.key, "found made");
            if let Err(error) = self.book.save(&record).await {
                // The book has it, and the store will.
                tracing::error!(attachment = %record.key, error = %chain(&error), "not recorded as made");
            }
            let mut ledger = self.book.ledger();
            ledger.set_live(&record);
            ledger.set_added(&record.key);
        }
        Ok(())
    }

    /// Queues and shapers as the records say, before the tables lead packets there. The records as
    /// they are then.
    async fn recover_limits(&self, mut records: Vec<Attachment>) -> Vec<Attachment> {
        for record in &mut records {
            // Nobody is let past a limit for this: without its shaper a limited port sends nothing.
            if let Err(error) = self.limit(record, record.limits).await {
                tracing::error!(attachment = %record.key, %error, "limits not restored yet");
            }
            if let Some(entry) = self.book.ledger().get(&record.key) {
                record.clone_from(&entry.record);
            }
        }
        records
    }

    /// Links that no record names are leftovers.
    async fn remove_strays(
        &self,
        survey: &Survey,
        known: &BTreeSet<String>,
    ) -> Result<(), AgentError> {
        for link in survey
            .ours
            .values()
            .filter(|link| !known.contains(&link.name))
        {
            tracing::info!(interface = %link.name, "removing a link nobody owns");
            self.host.netlink.delete(link.ifindex).await?;
        }
        Ok(())
    }

    async fn drop_stale_pins(&self, pins: &PinDir) -> Result<(), AgentError> {
        let now = self.survey().await?;
        for ifindex in pins.linked()? {
            if !now.all.contains_key(&ifindex) && !self.uplinks.has(ifindex) {
                self.host.hook.forget(ifindex)?;
            }
        }
        Ok(())
    }

    /// Attaches the dispatcher where somebody took it away, and sees to it that the port gets its
    /// TCX link.
    async fn repair(
        self: &Arc<Self>,
        record: &Attachment,
        survey: &Survey,
    ) -> Result<(), AgentError> {
        if is_linked(record, survey) {
            self.mend_hook(record).await?;
            self.routing.mend(record).await?;
            Box::pin(self.mend_port(record)).await?;
        }
        Ok(())
    }

    /// True when the program was missing.
    async fn mend_hook(&self, record: &Attachment) -> Result<bool, AgentError> {
        let host = &record.host;
        let missing = !self.is_attached(host).await?;
        if missing {
            self.attach_again(host.ifindex).await?;
            tracing::info!(interface = %host.name, "program attached again");
        }
        if self.host.hook.kind(host.ifindex) == HookKind::Clsact {
            self.promotions.add(host.clone());
        }
        Ok(missing)
    }

    /// Attaches the dispatcher where it is missing.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn attach_again(&self, ifindex: u32) -> Result<(), HostError> {
        let hook = self.host.hook.clone();
        let attach =
            move |connection: &mut Connection| attach_dispatcher(connection, &hook, ifindex);
        self.host.netlink.with(attach).await
    }

    /// Looks for what went wrong behind our back: half-removed attachments, dead pods, detached
    /// programs.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn audit(self: &Arc<Self>) -> Result<(), AgentError> {
        // Without records nothing is removed, and what is left of it would only be said again.
        let can_remove = self.book.mend().await;
        tombstone::serve_all(self).await;
        // The book first: what it names now and the survey does not see is gone.
        let entries: Vec<Attachment> = self
            .book
            .ledger()
            .entries()
            .map(|entry| entry.record.clone())
            .collect();
        let survey = self.survey().await?;
        let (mut impaired, mut errors) = (0, Vec::new());
        for record in entries {
            // One that fails must not keep the others from being looked at.
            match self.inspect(&record, &survey, can_remove).await {
                Ok(true) => {}
                Ok(false) => impaired += 1,
                Err(error) => {
                    tracing::warn!(attachment = %record.key, %error, "not mended");
                    impaired += usize::from(record.state == State::Added);
                    errors.push(error);
                }
            }
        }
        self.impaired.store(impaired, Ordering::Relaxed);
        if can_remove {
            errors.extend(self.audit_pods().await.err());
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(AgentError::Collect { errors })
        }
    }

    /// Looks at one attachment, and mends or removes it. False when its port is damaged.
    async fn inspect(
        self: &Arc<Self>,
        record: &Attachment,
        survey: &Survey,
        can_remove: bool,
    ) -> Result<bool, AgentError> {
        let _guard = self.book.turn(&record.key.container).await;
        let same = self
            .book
            .ledger()
            .get(&record.key)
            .is_some_and(|entry| entry.record == *record);
        // A request that was under way has changed it.
        if !same {
            return Ok(true);
        }
        match record.state {
            State::Adding => return Ok(true),
            State::Added if !is_dead(record, survey) => {}
            State::Added | State::Deleting if !can_remove => return Ok(true),
            State::Added | State::Deleting => {
                tracing::info!(attachment = %record.key, "removing what lost its pod");
                return self.detach(&record.key).await.map(|()| true);
            }
        }
        if is_linked(record, survey) {
            let looked = self.look_after(record, survey).await;
            let gone = !matches!(looked, Ok(true)) && !self.has_link(&record.host).await?;
            if !gone {
                return looked;
            }
        }
        // No damage of ours: a pod can remove its own end, and must not bring the node's STATUS
        // down with that. CHECK tells.
        self.link_removed(record.host.ifindex);
        Ok(true)
    }

    async fn look_after(
        self: &Arc<Self>,
        record: &Attachment,
        survey: &Survey,
    ) -> Result<bool, AgentError> {
        self.repair(record, survey).await?;
        self.limit(record, self.limits_now(record)).await?;
        let now = self
            .book
            .ledger()
            .get(&record.key)
            .map(|entry| entry.record.clone());
        let record = now.as_ref().unwrap_or(record);
        let faults = self.host_faults(record).await?;
        if !faults.is_empty() {
            tracing::warn!(attachment = %record.key, ?faults, "port damaged");
        }
        Ok(faults.is_empty())
    }

    async fn has_link(&self, host: &HostEnd) -> Result<bool, AgentError> {
        let link = self.host.netlink.by_name(&host.name).await?;
        Ok(link.is_some_and(|link| link.ifindex == host.ifindex))
    }

    /// Follows the links of the node, from when `monitor` was opened: a port whose link is gone leaves the tables at once, before
    /// its index can be another's.
    ///
    /// # Errors
    /// When the kernel stops telling.
    pub async fn follow_links(
        self: Arc<Self>,
        monitor: &mut LinkMonitor,
    ) -> Result<(), AgentError> {
        loop {
            match monitor.next().await? {
                LinkEvent::Removed { ifindex, name } if name.starts_with(HOST_PREFIX) => {
                    self.link_removed(ifindex);
                }
                LinkEvent::Removed { ifindex, name } if name.starts_with(NEAR_PREFIX) => {
                    let node = Arc::clone(&self);
                    tokio::spawn(async move { node.queue_changed(ifindex).await });
                }
                LinkEvent::Removed { name, .. } if name == overlay::DEVICE => {
                    let node = Arc::clone(&self);
                    tokio::spawn(async move { node.overlay.mend().await });
                }
                LinkEvent::Requeued { ifindex } => {
                    let node = Arc::clone(&self);
                    tokio::spawn(async move { node.queue_changed(ifindex).await });
                }
                LinkEvent::Unhooked { ifindex } => {
                    let node = Arc::clone(&self);
                    tokio::spawn(async move { node.hook_removed(ifindex).await });
                }
                LinkEvent::Removed { name, .. } if egress::is_link(&name) => {
                    let node = Arc::clone(&self);
                    tokio::spawn(async move { node.mend_ways_out().await });
                }
                LinkEvent::Removed { ifindex, name }
                    if self.wires.concerns(&name, ifindex, false) =>
                {
                    self.wires.look();
                }
                LinkEvent::Changed(link) if self.wires.concerns(&link.name, link.ifindex, true) => {
                    self.wires.look();
                }
                LinkEvent::Removed { .. } | LinkEvent::Changed(_) => {}
                LinkEvent::Overrun => {
                    self.wires.look();
                    if let Err(error) = self.audit().await {
                        tracing::warn!(%error, "audit incomplete");
                    }
                }
            }
        }
    }

    /// Somebody tidied qdiscs: without its filter the host end of a port hands packets to the node's
    /// own stack, so this cannot wait for the audit.
    async fn hook_removed(&self, ifindex: u32) {
        if self.uplinks.has(ifindex) {
            if let Err(error) = self.uplinks.mend().await {
                tracing::error!(error = %chain(&error), "program not attached again");
            }
            return;
        }
        if self.egress.has_port(ifindex) {
            return self.mend_ways_out().await;
        }
        let Some(key) = self.book.ledger().on_link(ifindex) else {
            return;
        };
        let guard = self.book.turn(&key.container).await;
        // A request that was under way may have removed it.
        let record = self
            .book
            .ledger()
            .get(&key)
            .map(|entry| entry.record.clone());
        let Some(record) = record.filter(|record| record.host.ifindex == ifindex) else {
            drop(guard);
            return self.queue_changed(ifindex).await;
        };
        match self.mend_hook(&record).await {
            Ok(true) => tracing::warn!(attachment = %key, "somebody had removed the program"),
            Ok(false) => {}
            Err(error) => tracing::error!(attachment = %key, %error, "program not attached again"),
        }
    }

    async fn mend_ways_out(&self) {
        if let Err(error) = self.egress.audit().await {
            tracing::error!(error = %chain(&error), "ways out of networks not mended");
        }
    }

    fn link_removed(&self, ifindex: u32) {
        self.promotions.forget(ifindex);
        let Some(record) = self.book.ledger().lose_link(ifindex) else {
            return;
        };
        tracing::info!(attachment = %record.key, interface = %record.host.name, "link is gone");
        if let Err(error) = self.tables.reconcile(record.network.id) {
            tracing::error!(%error, "tables not updated");
        }
    }
}

/// The record of an attachment that is being made, as it is when nothing is missing. Its host end has
/// a carrier when the pod's end is up, and the request that puts that up does all the rest too.
fn whole(record: &Attachment, survey: &Survey) -> Option<Attachment> {
    let link = survey.ours.get(&record.host.name)?;
    let is_whole = record.state == State::Adding && record.limits.egress.is_none() && link.carrier;
    is_whole.then(|| Attachment {
        state: State::Added,
        host: HostEnd {
            ifindex: link.ifindex,
            ..record.host.clone()
        },
        ..record.clone()
    })
}

/// True when neither the link nor the pod's namespace is there any more: nobody will ever use the
/// attachment. With the namespace there, the runtime is still to say `DEL`.
fn is_dead(record: &Attachment, survey: &Survey) -> bool {
    // A device without an end in the pod stays when the pod goes.
    let may_be = record.is_switched() || !is_linked(record, survey);
    may_be && record.sandbox.is_gone()
}

fn is_linked(record: &Attachment, survey: &Survey) -> bool {
    let link = survey.ours.get(&record.host.name);
    link.is_some_and(|link| link.ifindex == record.host.ifindex)
}
