//! Steps of a port's life, in their order, whatever makes them.
//!
//! The node's own parts are at [`super::parts`]; tests have others, which fail or die at each step.

use std::collections::BTreeSet;

use api::InterfaceKind;
use book::bandwidth::Limits;
use book::record::{Attachment, HostEnd};
use datapath::{HookKind, PinDir};
use host::near_name;
use netdev::{Discipline, Netns};
use telemetry::failpoint::reached;
use tokio::sync::oneshot;

use crate::afxdp::FitPort;
use crate::directories::Directories;
use crate::error::PortError;
use crate::kernel::Kernel;
use crate::links::{Ends, Form, Links};
use crate::survey::Survey;

/// Rooms below the door, each by the verbs that a port's life needs of it.
///
/// A verb does nothing for records of other kinds. What it removes may be gone already.
pub(super) trait Parts: Sync {
    /// Connection to the kernel.
    type Kernel: Kernel;
    /// Watch on the links of the node.
    type Watch: Send;

    /// Attach points of the programs.
    fn hook(&self) -> <Self::Kernel as Kernel>::Hook;

    /// Directories of devices.
    fn devices(&self) -> &Directories;

    /// How the kernel limits rates.
    ///
    /// # Errors
    /// When it does not.
    fn discipline(&self, limits: &Limits) -> Result<Discipline, PortError>;

    /// Works on a connection in the node's namespace, on a thread that may wait.
    ///
    /// # Errors
    /// Those of `work`.
    fn with<T: Send + 'static, E: From<netdev::Error> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Self::Kernel) -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send;

    /// The same; then sets the pod's end up, if the record has one.
    ///
    /// # Errors
    /// Those of `here`, and when the kernel refuses.
    fn with_pod_end<T: Send + 'static, E: From<netdev::Error> + Send + 'static>(
        &self,
        record: &Attachment,
        netns: &Netns,
        here: impl FnOnce(&mut Self::Kernel) -> Result<T, E> + Send + 'static,
    ) -> impl Future<Output = Result<T, E>> + Send;

    /// Watches links from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn watch(&self) -> Result<Self::Watch, netdev::Error>;

    /// Waits until the queue of a host end has started.
    ///
    /// # Errors
    /// When the kernel stops telling.
    fn started(
        &self,
        watch: Self::Watch,
        host_end: u32,
    ) -> impl Future<Output = Result<(), netdev::Error>> + Send;

    /// Opens the control socket of an AF_XDP port.
    ///
    /// # Errors
    /// When it cannot be made.
    fn open_control(
        &self,
        record: &Attachment,
        netns: &Netns,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Closes that socket and removes its files.
    fn shut_control(&self, record: &Attachment);

    /// Removes the pins of an AF_XDP port.
    ///
    /// # Errors
    /// When one cannot be removed.
    fn unpin(&self, record: &Attachment) -> Result<(), PortError>;

    /// Makes the missing parts of an AF_XDP port again.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn mend_afxdp(&self, record: &Attachment)
    -> impl Future<Output = Result<(), PortError>> + Send;

    /// Removes what AF_XDP ports have that no record names.
    ///
    /// # Errors
    /// When a pin cannot be removed.
    fn remove_stray_controls(&self) -> Result<(), PortError>;

    /// Describes the port to its pod, by a file.
    ///
    /// # Errors
    /// When it cannot be made.
    fn tell_pod(&self, record: &Attachment) -> Result<(), PortError>;

    /// Gives a memif port to the switch; true when the switch did not have it.
    ///
    /// # Errors
    /// When the switch or the kernel refuses.
    fn plug_in(
        &self,
        record: &Attachment,
        netns: &Netns,
    ) -> impl Future<Output = Result<bool, PortError>> + Send;

    /// Takes it from there, and removes its files.
    ///
    /// # Errors
    /// When the switch does not answer.
    fn unplug(&self, record: &Attachment) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Tells the switch how a port is now, if it has it.
    ///
    /// # Errors
    /// When the switch refuses.
    fn tell_switch(
        &self,
        record: &Attachment,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// Brings queues and tables to these limits; returns the record as it is then.
    ///
    /// # Errors
    /// When the kernel or the store refuses.
    fn shape(
        &self,
        record: &Attachment,
        limits: Limits,
    ) -> impl Future<Output = Result<Attachment, PortError>> + Send;

    /// Counts what the queues of a port dropped, for the last time.
    fn close_queues(&self, record: &Attachment) -> impl Future<Output = ()> + Send;

    /// True unless no link of the node has this name; waits for nothing.
    fn may_be_there(&self, name: &str) -> bool;

    /// Removes links of a port by their names; returns which were there.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn remove_links(
        &self,
        record: &Attachment,
        names: Vec<String>,
    ) -> impl Future<Output = Result<Vec<bool>, PortError>> + Send;

    /// Has a host end wait for its TCX link.
    fn await_promotion(&self, host: HostEnd);

    /// It waits no more.
    fn forget_promotion(&self, ifindex: u32);

    /// True when packets from a host end meet the dispatcher.
    ///
    /// # Errors
    /// When the kernel does not tell.
    fn is_attached(&self, host: &HostEnd) -> impl Future<Output = Result<bool, PortError>> + Send;

    /// Attaches the dispatcher.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn attach_again(&self, ifindex: u32) -> impl Future<Output = Result<(), PortError>> + Send;

    /// [`host::Host::mend_way_out`].
    fn mend_way_out(&self, host: &HostEnd) -> impl Future<Output = bool> + Send;

    /// The way in which it is attached.
    fn hook_kind(&self, ifindex: u32) -> HookKind;

    /// Removes the pin of a link.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn forget_hook(&self, ifindex: u32) -> Result<(), PortError>;

    /// Indexes of the links that have pins.
    ///
    /// # Errors
    /// When they cannot be read.
    fn pinned(&self, pins: &PinDir) -> Result<Vec<u32>, PortError>;

    /// Looks at the links of the node.
    ///
    /// # Errors
    /// When the kernel does not tell.
    fn look(&self) -> impl Future<Output = Result<Survey, PortError>> + Send;
}

/// [`super::Ports::make`].
pub(super) async fn make<P: Parts, T, E>(
    parts: &P,
    record: &Attachment,
    netns: &Netns,
    live: impl FnOnce(Result<Ends, PortError>) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<PortError> + From<netdev::Error> + Send + 'static,
{
    let links = links_of(parts, record, netns)?;
    Box::pin(parts.open_control(record, netns)).await?;
    let (watched, watching) = oneshot::channel();
    let here = move |connection: &mut P::Kernel| {
        let links = links.make(connection);
        reached("add.placed");
        // Without an answer there will be nobody to tell.
        let watched = watching.blocking_recv();
        let links = links.and_then(|links| match watched {
            Ok(()) => Ok(links),
            Err(_) => Err(PortError::LinksUnwatched),
        });
        let host_end = links.as_ref().map_or(0, |links| links.host_end);
        live(links).map(|made| (made, host_end))
    };
    let make = parts.with_pod_end(record, netns, here);
    let (made, watch) = tokio::join!(make, async {
        // While links are made; the pod's end stays down until this is open. The device of a memif port
        // starts when the switch has it.
        let queues = record.host_end_queues() && !record.is_switched();
        let watch = queues.then(|| parts.watch()).transpose();
        if watch.is_ok() {
            // A thread that has failed by now does not listen.
            let _ = watched.send(());
        }
        watch
    });
    let (watch, (made, host_end)) = (watch?, made?);
    // Before the wait: a start takes a port whose ends are up for complete.
    parts.tell_pod(record)?;
    if let Some(watch) = watch {
        parts.started(watch, host_end).await?;
    }
    Ok(made)
}

/// The links that the kind of this record has.
fn links_of<P: Parts>(
    parts: &P,
    record: &Attachment,
    netns: &Netns,
) -> Result<Links<<P::Kernel as Kernel>::Hook>, PortError> {
    let form = match record.interface.kind {
        InterfaceKind::Veth => Form::Pair {
            queues: 1,
            fit: None,
        },
        InterfaceKind::AfXdp => {
            let fit = FitPort::of(record, netns, parts.devices());
            Form::Pair {
                queues: fit.as_ref().map_or(1, FitPort::queues),
                fit,
            }
        }
        InterfaceKind::Memif => Form::Device,
    };
    let limits = &record.limits;
    let discipline = match limits.is_unlimited() {
        true => None,
        false => Some(parts.discipline(limits)?),
    };
    Ok(Links::of(parts.hook(), record, netns, form, discipline))
}

/// [`super::Ports::activate`].
pub(super) async fn activate<P: Parts>(
    parts: &P,
    record: &Attachment,
    netns: &Netns,
) -> Result<(), PortError> {
    if record.is_switched() {
        // The device has a carrier from the moment that the switch has its file.
        let watch = parts.watch()?;
        let is_new = Box::pin(parts.plug_in(record, netns)).await?;
        reached("add.plugged");
        if is_new {
            parts.started(watch, record.host.ifindex).await?;
        }
    }
    parts.await_promotion(record.host.clone());
    Ok(())
}

/// [`super::Ports::unmake`].
pub(super) async fn unmake<P: Parts>(parts: &P, record: &Attachment) -> Result<(), PortError> {
    if record.is_switched() {
        parts.unplug(record).await?;
    }
    parts.close_queues(record).await;
    // The names are the attachment's own, whatever their index. What is not there is not asked for: that
    // would wait until the removals of others are over.
    let mut names = vec![record.host.name.clone(), near_name(&record.host.name)];
    names.retain(|name| parts.may_be_there(name));
    let removed = match names.is_empty() {
        true => Vec::new(),
        false => parts.remove_links(record, names).await?,
    };
    tracing::debug!(attachment = %record.key, interface = record.host.name, ?removed, "link and shaper of the port are removed");
    parts.forget_promotion(record.host.ifindex);
    parts.forget_hook(record.host.ifindex)?;
    parts.shut_control(record);
    parts.unpin(record)
}

/// [`super::Ports::mend_hook`].
pub(super) async fn mend_hook<P: Parts>(parts: &P, record: &Attachment) -> Result<bool, PortError> {
    let host = &record.host;
    // First: the qdisc that it makes has both sides.
    let mut missing = record.network.by_node && parts.mend_way_out(host).await;
    if !parts.is_attached(host).await? {
        parts.attach_again(host.ifindex).await?;
        missing = true;
    }
    if missing {
        tracing::info!(interface = %host.name, "the program is attached to the port again");
    }
    if parts.hook_kind(host.ifindex) == HookKind::Filter {
        parts.await_promotion(host.clone());
    }
    Ok(missing)
}

/// [`super::Ports::repair`].
pub(super) async fn repair<P: Parts>(parts: &P, record: &Attachment) -> Result<(), PortError> {
    mend_hook(parts, record).await?;
    Box::pin(parts.mend_afxdp(record)).await
}

/// [`super::Ports::limit`].
pub(super) async fn limit<P: Parts>(
    parts: &P,
    record: &Attachment,
    limits: Limits,
) -> Result<(), PortError> {
    if !record.is_switched() {
        return parts.shape(record, limits).await.map(|_| ());
    }
    // From the first moment what the switch carries goes by the queues.
    let mut next = record.clone();
    next.limits = limits;
    parts.tell_switch(&next).await?;
    let limited = parts.shape(record, limits).await?;
    parts.tell_switch(&limited).await
}

/// [`super::Ports::remove_strays`].
pub(super) async fn remove_strays<P: Parts>(
    parts: &P,
    survey: &Survey,
    known: &BTreeSet<String>,
) -> Result<(), PortError> {
    for (name, ifindex) in survey.strays(known) {
        tracing::info!(interface = %name, "a link that no attachment owns is removed");
        parts
            .with(move |connection: &mut P::Kernel| connection.delete(ifindex))
            .await?;
    }
    parts.remove_stray_controls()
}

/// [`super::Ports::drop_stale_pins`].
pub(super) async fn drop_stale_pins<P: Parts>(
    parts: &P,
    pins: &PinDir,
    kept: impl Fn(u32) -> bool,
) -> Result<(), PortError> {
    let now = parts.look().await?;
    for ifindex in parts.pinned(pins)? {
        if !now.has_index(ifindex) && !kept(ifindex) {
            parts.forget_hook(ifindex)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
