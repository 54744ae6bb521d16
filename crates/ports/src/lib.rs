//! The door to ports: what an attachment has on this node, of whatever kind it is.
//!
//! This is the only file that lists the kinds. A kind has a room of its own below this one, does nothing
//! for records of others, and is called here at each step of an attachment's life.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{InterfaceKind, RawJson};
use book::Book;
use book::bandwidth::Limits;
use book::ledger::Wanted;
use book::record::{Attachment, HostEnd, State};
use cni_spec::AttachmentKey;
use datapath::PinDir;
use host::{Attached, Host, HostError, Remover, host_name, near_name};
use metrics::Metrics;
use netdev::Netns;
use serde_json::{Value, json};
use tables::Reconciler;
use uswitch::PortStatus;
use world::Current;

use self::afxdp::AfXdp;
use self::directories::Directories;
use self::shaping::Shaping;
use self::switch::{Line, Switch};

pub mod afxdp;
pub mod directories;
pub mod error;
mod glance;
mod kernel;
mod life;
mod links;
mod parts;
mod pod;
pub mod promotions;
pub mod shaping;
pub mod sockets;
pub mod survey;
pub mod switch;

pub use error::PortError;
pub use links::Ends;
pub use promotions::{Busy, Promotions};
pub use survey::Survey;

/// The ports of this node.
#[derive(Debug)]
pub struct Ports {
    book: Arc<Book>,
    host: Arc<Host>,
    devices: Directories,
    /// Host ends that wait for a TCX link.
    promotions: Arc<Promotions>,
    remover: Remover<Arc<Host>>,
    shaping: Shaping,
    afxdp: AfXdp,
    switch: Switch,
}

/// Places of files that ports have.
#[derive(Debug)]
pub struct Places {
    /// Directories of devices.
    pub devices: Directories,
    /// Where control sockets of AF_XDP ports are.
    pub controls: PathBuf,
    /// The line to the switch.
    pub line: Line,
}

/// Findings about a port.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PortFindings {
    /// Its link is there.
    pub is_linked: bool,
    /// Faults, in words.
    pub faults: Vec<String>,
}

impl PortFindings {
    fn unlinked(fault: String) -> Self {
        Self {
            is_linked: false,
            faults: vec![fault],
        }
    }
}

impl Ports {
    /// Puts the kinds together.
    pub fn new(
        book: &Arc<Book>,
        host: &Arc<Host>,
        tables: &Arc<Reconciler>,
        (world, metrics): (&Arc<Current>, &Arc<Metrics>),
        promotions: Arc<Promotions>,
        places: Places,
    ) -> Self {
        let both = || (Arc::clone(book), Arc::clone(host));
        let (devices, controls) = (places.devices, places.controls);
        Self {
            shaping: Shaping::new(
                Arc::clone(book),
                Arc::clone(host),
                Arc::clone(tables),
                Arc::clone(world),
                Arc::clone(metrics),
            ),
            afxdp: AfXdp::new(both().0, both().1, devices.clone(), controls),
            switch: Switch::new(both().0, both().1, Arc::clone(tables), places.line),
            remover: Remover::new(both().1),
            book: both().0,
            host: both().1,
            devices,
            promotions,
        }
    }

    /// Keeps what takes long away while the value lives.
    pub fn busy(&self) -> Busy {
        self.promotions.busy()
    }

    /// Number of host ends that wait for their TCX link.
    pub fn waiting(&self) -> usize {
        self.promotions.waiting()
    }

    /// Gives host ends their TCX links when nothing else goes on. For ever.
    pub async fn promote(&self) {
        Arc::clone(&self.promotions).work().await;
    }

    /// Sees to it that the switch has every port it should have. For ever.
    pub async fn keep_switch(&self) {
        self.switch.keep().await;
    }

    /// Lists the ports of the switch by their keys.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn switched(&self) -> Result<BTreeMap<String, PortStatus>, PortError> {
        self.switch.ports().await
    }

    /// Has all frames of a port of type Memif go by its device, or not any more.
    ///
    /// # Errors
    /// When the switch refuses.
    pub async fn set_slow(&self, record: &Attachment, slow: bool) -> Result<(), PortError> {
        self.switch.set_slow(record, slow).await
    }

    /// The rates.
    pub const fn shaping(&self) -> &Shaping {
        &self.shaping
    }

    /// Refuses ports that this node cannot make, before anything is booked.
    ///
    /// A kind of port with a socket file has its place written into `wanted`.
    ///
    /// # Errors
    /// When the kernel has no rates, or the network is none for this kind of port.
    pub fn admit(&self, wanted: &mut Wanted, network: &api::Network) -> Result<(), PortError> {
        if !wanted.limits.is_unlimited() {
            self.shaping.discipline(&wanted.limits)?;
        }
        let (all, file) = match wanted.interface.kind {
            InterfaceKind::Veth => return Ok(()),
            InterfaceKind::AfXdp => {
                afxdp::check_mtu(network)?;
                (self.afxdp.sockets(), afxdp::FILE)
            }
            InterfaceKind::Memif => {
                switch::check_trunk(network)?;
                (self.switch.sockets(), switch::FILE)
            }
        };
        let at: (&Path, &str) = (all, &host_name(&wanted.key));
        let place = sockets::place(wanted.device.as_ref(), &self.devices, at, file)?;
        wanted.socket_path = Some(place);
        Ok(())
    }

    /// Makes the links of a record, with all that belongs to them.
    ///
    /// `live` is told of the links on a thread that may wait, before the pod can use anything; the pod's
    /// end is still down.
    ///
    /// # Errors
    /// When the kernel refuses, and those of `live`. [`Self::unmake`] removes what is there then.
    pub async fn make<T, E>(
        &self,
        record: &Attachment,
        netns: &Netns,
        live: impl FnOnce(Result<Ends, PortError>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<PortError> + From<netdev::Error> + Send + 'static,
    {
        life::make(self, record, netns, live).await
    }

    /// Opens a port to the pod's programs, once its links are made.
    ///
    /// # Errors
    /// When the kernel or the switch refuses.
    pub async fn activate(&self, record: &Attachment, netns: &Netns) -> Result<(), PortError> {
        life::activate(self, record, netns).await
    }

    /// Removes all that a port has on this node, whatever is there of it.
    ///
    /// # Errors
    /// When something of it is left; calling again goes on.
    pub async fn unmake(&self, record: &Attachment) -> Result<(), PortError> {
        life::unmake(self, record).await
    }

    /// The link of this index is gone.
    pub fn lost(&self, ifindex: u32) {
        self.promotions.forget(ifindex);
    }

    /// Looks at the links of the node.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn survey(&self) -> Result<Survey, PortError> {
        Survey::make(&self.host.netlink).await
    }

    /// Finds live attachments whose ports may not be as recorded, by their places.
    ///
    /// The places are those in the list. All are looked at together. Host ends without a TCX link wait for
    /// one from then on. Blocks.
    ///
    /// # Errors
    /// When the kernel does not tell: nothing is known of any.
    pub fn suspects(
        &self,
        survey: &Survey,
        records: &[Attachment],
    ) -> Result<BTreeSet<usize>, PortError> {
        let attached = Attached::to(&self.host.hook)?;
        let discipline = self.host.discipline;
        self.host.netlink.blocking(|connection| {
            let mut sight = parts::NodeSight {
                ports: self,
                connection,
                attached,
            };
            glance::suspects(&mut sight, survey, records, discipline)
        })
    }

    /// True when the host end of a record is there now.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn has_link(&self, host: &HostEnd) -> Result<bool, PortError> {
        let link = self.host.netlink.by_name(&host.name).await?;
        Ok(link.is_some_and(|link| link.ifindex == host.ifindex))
    }

    /// Lists the faults of a port at the node's end.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub async fn faults(&self, record: &Attachment) -> Result<PortFindings, PortError> {
        let name = &record.host.name;
        let Some(link) = self.host.netlink.by_name(name).await? else {
            return Ok(PortFindings::unlinked(format!(
                "host interface {name} is gone"
            )));
        };
        if link.ifindex != record.host.ifindex {
            return Ok(PortFindings::unlinked(format!(
                "host interface {name} was replaced"
            )));
        }
        let mut faults = Vec::new();
        if !link.up {
            faults.push(format!("host interface {name} is down"));
        }
        if !self.host.is_attached(name, link.ifindex).await? {
            faults.push(format!("the program of host interface {name} is detached"));
        }
        if record.network.by_node && !self.host.is_on_the_way_out(link.ifindex).await? {
            faults.push(format!(
                "the program on the way out of host interface {name} is detached"
            ));
        }
        faults.extend(self.afxdp.faults(record)?);
        faults.extend(self.shaping.faults(record).await?);
        Ok(PortFindings {
            is_linked: true,
            faults,
        })
    }

    /// Lists the faults of a port at the pod's end.
    ///
    /// # Errors
    /// When the kernel or the switch does not tell.
    pub async fn pod_faults(
        &self,
        record: &Attachment,
        netns: &Netns,
    ) -> Result<Vec<String>, PortError> {
        if record.is_switched() {
            self.switch.faults(record).await
        } else {
            pod::faults(record, netns).await
        }
    }

    /// Makes again what somebody undid of a port that has its link.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn repair(&self, record: &Attachment) -> Result<(), PortError> {
        life::repair(self, record).await
    }

    /// Attaches the dispatcher where it is missing; true when it was.
    ///
    /// The port gets its TCX link later.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn mend_hook(&self, record: &Attachment) -> Result<bool, PortError> {
        life::mend_hook(self, record).await
    }

    /// Removes links whose names are not among these, stray sockets and stray pins.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn remove_strays(
        &self,
        survey: &Survey,
        known: &BTreeSet<String>,
    ) -> Result<(), PortError> {
        life::remove_strays(self, survey, known).await
    }

    /// Removes the pins of links that are gone, except the `kept` ones.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn drop_stale_pins(
        &self,
        pins: &PinDir,
        kept: impl Fn(u32) -> bool,
    ) -> Result<(), PortError> {
        life::drop_stale_pins(self, pins, kept).await
    }

    /// Has frames of sockets judged by policies, or not any more. For ever.
    pub async fn follow_guards(&self) {
        self.switch.follow_guards().await;
    }

    /// The limits that the objects ask for by now, or those that there are.
    pub fn limits_now(&self, record: &Attachment) -> Limits {
        self.shaping.limits_now(record)
    }

    /// Brings queues and tables of a live attachment to these limits.
    ///
    /// The caller holds the container's lock.
    ///
    /// # Errors
    /// When the kernel or the store refuses; calling again goes on.
    pub async fn limit(&self, record: &Attachment, limits: Limits) -> Result<(), PortError> {
        life::limit(self, record, limits).await
    }

    /// Gives all attachments the limits that the objects ask for by now.
    ///
    /// Failures are logged; the audit comes back to them.
    pub async fn follow_limits(&self) {
        let keys: Vec<_> = self
            .book
            .ledger()
            .entries()
            .map(|entry| entry.record.key.clone())
            .collect();
        for key in keys {
            let _guard = self.book.turn(&key.container).await;
            let Some(record) = self.live(&key) else {
                continue;
            };
            if self.shaping.falls_short(&record) {
                tracing::error!(attachment = %key, "the attachment has a rate and this kernel cannot limit it: load its module sch_tbf and restart the agent");
            }
            let limits = self.limits_now(&record);
            if limits != record.limits
                && let Err(error) = self.limit(&record, limits).await
            {
                tracing::error!(attachment = %key, %error, "the limits of the attachment could not be changed");
            }
        }
    }

    /// Mends the limits of a port whose queue or shaper at this interface changed.
    ///
    /// Somebody removed ours, or a plugin that is chained behind podnet put one there, which packets must
    /// not go past.
    pub async fn queue_changed(&self, ifindex: u32) {
        let Some(key) = self.book.ledger().on_link(ifindex) else {
            return;
        };
        match self.look_again(&key).await {
            Ok(()) => {}
            // The link is gone with its queue, and will be said to be.
            Err(PortError::Host(HostError::Netdev(error))) if error.is_gone() => {}
            Err(error) => tracing::error!(attachment = %key, %error, "limits not mended"),
        }
    }

    /// Looks after the limits of an attachment, as they are recorded.
    async fn look_again(&self, key: &AttachmentKey) -> Result<(), PortError> {
        let _guard = self.book.turn(&key.container).await;
        match self.live(key) {
            Some(record) => self.limit(&record, record.limits).await,
            // A request that was under way may have changed or removed it.
            None => Ok(()),
        }
    }

    fn live(&self, key: &AttachmentKey) -> Option<Attachment> {
        let ledger = self.book.ledger();
        let entry = ledger.get(key)?;
        let is_live = entry.live && entry.record.state == State::Added;
        is_live.then(|| entry.record.clone())
    }
}

/// Names of the links that a record may have on the node.
pub fn links_of(record: &Attachment) -> Vec<String> {
    let has_shaper = record.shaper.is_some() || record.limits.egress.is_some();
    let near = has_shaper.then(|| near_name(&record.host.name));
    std::iter::once(record.host.name.clone())
        .chain(near)
        .collect()
}

/// Kind-specific part of the file that describes a port to its pod.
fn told(record: &Attachment) -> Value {
    match record.interface.kind {
        InterfaceKind::Veth => json!({}),
        InterfaceKind::Memif => switch::describe(record),
        InterfaceKind::AfXdp => afxdp::describe(record),
    }
}

/// `device-info` of a port in the status of its pod; none for most kinds.
pub fn device_info(record: &Attachment) -> Option<RawJson> {
    switch::device_info(record)
}

#[cfg(test)]
mod tests;
