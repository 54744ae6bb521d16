//! Parts of this node's ports: each verb of a port's life by its room.

use std::collections::BTreeMap;

use book::bandwidth::Limits;
use book::record::{Attachment, HostEnd};
use datapath::{Hook, HookKind, PinDir};
use host::Attached;
use netdev::{Connection, Discipline, LinkMonitor, Netns, RootQueue};
use uswitch::PortConfig;

use super::life::Parts;
use super::{Ports, told};
use crate::directories::Directories;
use crate::error::PortError;
use crate::glance::Sight;
use crate::links;
use crate::sockets;
use crate::survey::Survey;

/// A glance at this node's ports.
#[derive(Debug)]
pub(super) struct NodeSight<'a> {
    pub(super) ports: &'a Ports,
    pub(super) connection: &'a mut Connection,
    pub(super) attached: Attached,
}

impl Sight for NodeSight<'_> {
    fn root_queues(&mut self) -> Result<BTreeMap<u32, RootQueue>, PortError> {
        Ok(self.connection.root_queues()?)
    }

    fn switched(&mut self) -> Result<BTreeMap<String, PortConfig>, PortError> {
        self.ports.switch.held()
    }

    fn is_attached(&mut self, name: &str, ifindex: u32) -> Result<bool, PortError> {
        Ok(self.attached.is_at(self.connection, name, ifindex)?)
    }

    fn is_on_the_way_out(&mut self, ifindex: u32) -> Result<bool, PortError> {
        Ok(self.attached.is_on_the_way_out(self.connection, ifindex)?)
    }

    fn await_promotion(&mut self, host: &HostEnd) {
        if self.ports.host.hook.kind(host.ifindex) == HookKind::Filter {
            self.ports.promotions.add(host.clone());
        }
    }

    fn has_sockets(&mut self, record: &Attachment) -> Result<bool, PortError> {
        Ok(self.ports.afxdp.faults(record)?.is_empty())
    }

    fn has_its_limits(&mut self, record: &Attachment) -> bool {
        self.ports.limits_now(record) == record.limits
    }

    fn is_told(&mut self, record: &Attachment, held: &BTreeMap<String, PortConfig>) -> bool {
        self.ports.switch.is_told(record, held)
    }
}

impl Parts for Ports {
    type Kernel = Connection;
    type Watch = LinkMonitor;

    fn hook(&self) -> Hook {
        self.host.hook.clone()
    }

    fn devices(&self) -> &Directories {
        &self.devices
    }

    fn discipline(&self, limits: &Limits) -> Result<Discipline, PortError> {
        self.shaping.discipline(limits)
    }

    async fn with<T: Send + 'static, E: From<netdev::Error> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.host.netlink.with(work).await
    }

    async fn with_pod_end<T: Send + 'static, E: From<netdev::Error> + Send + 'static>(
        &self,
        record: &Attachment,
        netns: &Netns,
        here: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        if record.is_switched() {
            self.host.netlink.with(here).await
        } else {
            let end = record.pod_end();
            self.host.netlink.make_pod_link(netns, end, here).await
        }
    }

    fn watch(&self) -> Result<LinkMonitor, netdev::Error> {
        self.host.netlink.monitor()
    }

    async fn started(&self, watch: LinkMonitor, host_end: u32) -> Result<(), netdev::Error> {
        links::started(watch, host_end).await
    }

    async fn open_control(&self, record: &Attachment, netns: &Netns) -> Result<(), PortError> {
        self.afxdp.open_control(record, netns).await
    }

    fn shut_control(&self, record: &Attachment) {
        self.afxdp.shut(record);
    }

    fn unpin(&self, record: &Attachment) -> Result<(), PortError> {
        self.afxdp.unpin(record)
    }

    async fn mend_afxdp(&self, record: &Attachment) -> Result<(), PortError> {
        self.afxdp.mend(record).await
    }

    fn remove_stray_controls(&self) -> Result<(), PortError> {
        self.afxdp.remove_strays()
    }

    fn tell_pod(&self, record: &Attachment) -> Result<(), PortError> {
        Ok(sockets::tell(record, told(record))?)
    }

    async fn plug_in(&self, record: &Attachment, netns: &Netns) -> Result<bool, PortError> {
        self.switch.plug_in(record, netns).await
    }

    async fn unplug(&self, record: &Attachment) -> Result<(), PortError> {
        self.switch.unplug(record).await
    }

    async fn tell_switch(&self, record: &Attachment) -> Result<(), PortError> {
        self.switch.tell(record).await
    }

    async fn shape(&self, record: &Attachment, limits: Limits) -> Result<Attachment, PortError> {
        self.shaping.limit(record, limits).await
    }

    async fn close_queues(&self, record: &Attachment) {
        self.shaping.close_queues(record).await;
    }

    fn may_be_there(&self, name: &str) -> bool {
        netdev::may_be_there(name)
    }

    async fn remove_links(
        &self,
        record: &Attachment,
        names: Vec<String>,
    ) -> Result<Vec<bool>, PortError> {
        let tcx = self.host.hook.kind(record.host.ifindex) == HookKind::Tcx;
        Ok(self.remover.remove(names, tcx).await?)
    }

    fn await_promotion(&self, host: HostEnd) {
        self.promotions.add(host);
    }

    fn forget_promotion(&self, ifindex: u32) {
        self.promotions.forget(ifindex);
    }

    async fn is_attached(&self, host: &HostEnd) -> Result<bool, PortError> {
        Ok(self.host.is_attached(&host.name, host.ifindex).await?)
    }

    async fn attach_again(&self, ifindex: u32) -> Result<(), PortError> {
        Ok(self.host.attach_again(ifindex).await?)
    }

    async fn mend_way_out(&self, host: &HostEnd) -> bool {
        self.host.mend_way_out(&host.name, host.ifindex).await
    }

    fn hook_kind(&self, ifindex: u32) -> HookKind {
        self.host.hook.kind(ifindex)
    }

    fn forget_hook(&self, ifindex: u32) -> Result<(), PortError> {
        Ok(self.host.hook.forget(ifindex)?)
    }

    fn pinned(&self, pins: &PinDir) -> Result<Vec<u32>, PortError> {
        Ok(pins.linked()?.into_iter().collect())
    }

    async fn look(&self) -> Result<Survey, PortError> {
        Survey::make(&self.host.netlink).await
    }
}
