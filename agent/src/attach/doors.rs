//! Verbs that the life of an attachment needs of the rooms below.
//!
//! Tests have others than the node.

use std::collections::BTreeSet;

use book::bandwidth::Limits;
use book::ledger::Wanted;
use book::record::{Attachment, HostEnd, NetworkFacts, PodIdentity};
use cluster::access::Used;
use datapath::{DatapathError, PinDir};
use host::HostError;
use netdev::Netns;
use ports::{self, Ends, PortError, PortFindings, Survey};
use reach::{self, ReachError};

use crate::error::AgentError;

/// Verbs of the door to ports, as [`ports::Ports`] has them.
pub trait Ports: Send + Sync + 'static {
    /// Keeps slow work away while it lives.
    type Busy: Send;

    /// [`ports::Ports::busy`].
    fn busy(&self) -> Self::Busy;

    /// [`ports::Ports::admit`].
    ///
    /// # Errors
    /// As there.
    fn admit(&self, wanted: &mut Wanted, network: &api::Network) -> Result<(), PortError>;

    /// [`ports::Ports::make`].
    fn make<T: Send + 'static>(
        &self,
        record: &Attachment,
        netns: &Netns,
        live: impl FnOnce(Result<Ends, PortError>) -> Result<T, AgentError> + Send + 'static,
    ) -> impl Future<Output = Result<T, AgentError>> + Send;

    /// [`ports::Ports::activate`].
    fn activate(
        &self,
        record: &Attachment,
        netns: &Netns,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// [`ports::Ports::unmake`].
    fn unmake(&self, record: &Attachment) -> impl Future<Output = Result<(), PortError>> + Send;

    /// [`ports::Ports::lost`].
    fn lost(&self, ifindex: u32);

    /// [`ports::Ports::survey`].
    fn survey(&self) -> impl Future<Output = Result<Survey, PortError>> + Send;

    /// [`ports::Ports::suspects`].
    ///
    /// # Errors
    /// As there.
    fn suspects(
        &self,
        survey: &Survey,
        records: &[Attachment],
    ) -> Result<BTreeSet<usize>, PortError>;

    /// [`ports::Ports::has_link`].
    fn has_link(&self, host: &HostEnd) -> impl Future<Output = Result<bool, PortError>> + Send;

    /// [`ports::Ports::faults`].
    fn faults(
        &self,
        record: &Attachment,
    ) -> impl Future<Output = Result<PortFindings, PortError>> + Send;

    /// [`ports::Ports::pod_faults`].
    fn pod_faults(
        &self,
        record: &Attachment,
        netns: &Netns,
    ) -> impl Future<Output = Result<Vec<String>, PortError>> + Send;

    /// [`ports::Ports::repair`].
    fn repair(&self, record: &Attachment) -> impl Future<Output = Result<(), PortError>> + Send;

    /// [`ports::Ports::mend_hook`].
    fn mend_hook(
        &self,
        record: &Attachment,
    ) -> impl Future<Output = Result<bool, PortError>> + Send;

    /// [`ports::Ports::queue_changed`].
    fn queue_changed(&self, ifindex: u32) -> impl Future<Output = ()> + Send;

    /// [`ports::Ports::limits_now`].
    fn limits_now(&self, record: &Attachment) -> Limits;

    /// [`ports::Ports::limit`].
    fn limit(
        &self,
        record: &Attachment,
        limits: Limits,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// [`ports::Ports::remove_strays`].
    fn remove_strays(
        &self,
        survey: &Survey,
        known: &BTreeSet<String>,
    ) -> impl Future<Output = Result<(), PortError>> + Send;

    /// [`ports::Ports::drop_stale_pins`].
    fn drop_stale_pins(
        &self,
        pins: &PinDir,
        kept: impl Fn(u32) -> bool + Send + Sync,
    ) -> impl Future<Output = Result<(), PortError>> + Send;
}

/// Verbs of the door to what is beyond the node, as [`reach::Reach`] has them.
pub trait Reach: Send + Sync + 'static {
    /// [`reach::Reach::admit`].
    fn admit(&self, network: &api::Network) -> impl Future<Output = Result<(), ReachError>> + Send;

    /// [`reach::Reach::ensure`].
    fn ensure(&self, facts: &NetworkFacts) -> impl Future<Output = Result<(), ReachError>> + Send;

    /// [`reach::Reach::withdraw`].
    ///
    /// # Errors
    /// As there.
    fn withdraw(&self, facts: &NetworkFacts)
    -> impl Future<Output = Result<(), ReachError>> + Send;

    /// [`reach::Reach::release`].
    fn release(&self, facts: &NetworkFacts) -> impl Future<Output = ()> + Send;

    /// [`reach::Reach::recover`].
    fn recover(&self) -> impl Future<Output = ()> + Send;

    /// [`reach::Reach::mend_ways_out`].
    fn mend_ways_out(&self) -> impl Future<Output = ()> + Send;

    /// [`reach::Reach::mend`].
    fn mend(&self, record: &Attachment) -> impl Future<Output = Result<(), HostError>> + Send;

    /// [`reach::Reach::faults`].
    fn faults(
        &self,
        record: &Attachment,
    ) -> impl Future<Output = Result<Vec<String>, HostError>> + Send;

    /// [`reach::Reach::suspects`].
    ///
    /// # Errors
    /// As there.
    fn suspects(&self, records: &[Attachment]) -> Result<BTreeSet<usize>, HostError>;

    /// [`reach::Reach::has_program`].
    fn has_program(&self, ifindex: u32) -> bool;
}

/// Verbs of the only writer of the tables.
pub trait Tables: Send + Sync + 'static {
    /// Zeroes the counters of a port to be made, and puts its policies in force.
    ///
    /// # Errors
    /// When the kernel refuses, or a table is full: the port must not be made.
    fn prepare(&self, record: &Attachment) -> Result<(), DatapathError>;

    /// Has a port judged by its policies, which is not live yet.
    ///
    /// # Errors
    /// When they cannot be in force: the port must not be live.
    fn admit(&self, record: &Attachment) -> Result<(), DatapathError>;

    /// [`Reconciler::reconcile_port`].
    ///
    /// # Errors
    /// As there.
    fn reconcile_port(&self, record: &Attachment) -> Result<(), DatapathError>;

    /// [`Reconciler::reconcile_everything`].
    ///
    /// # Errors
    /// As there.
    fn reconcile_everything(&self) -> Result<(), DatapathError>;

    /// Sends packets through the tables, and removes those before them a second later.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn activate(&self) -> Result<(), DatapathError>;

    /// [`Reconciler::faults`].
    ///
    /// # Errors
    /// As there.
    fn faults(&self, record: &Attachment) -> Result<Vec<String>, DatapathError>;

    /// [`Reconciler::suspects`].
    ///
    /// # Errors
    /// As there.
    fn suspects(&self, records: &[Attachment]) -> Result<BTreeSet<usize>, DatapathError>;
}

/// Gives a port its addresses, its MAC address and its number.
pub trait Authority: Send + Sync + 'static {
    /// Checks that a pod may use all of these (KEP-P2-1).
    fn allow(
        &self,
        pod: Option<&PodIdentity>,
        used: impl IntoIterator<Item = Used> + Send,
    ) -> impl Future<Output = Result<(), AgentError>> + Send;

    /// Books an attachment.
    fn grant(
        &self,
        wanted: Wanted,
        network: &api::Network,
        host: HostEnd,
    ) -> impl Future<Output = Result<Attachment, AgentError>> + Send;

    /// Says that addresses are free again.
    fn released(&self);
}

impl Ports for ports::Ports {
    type Busy = ports::Busy;

    fn busy(&self) -> ports::Busy {
        self.busy()
    }

    fn admit(&self, wanted: &mut Wanted, network: &api::Network) -> Result<(), PortError> {
        self.admit(wanted, network)
    }

    async fn make<T: Send + 'static>(
        &self,
        record: &Attachment,
        netns: &Netns,
        live: impl FnOnce(Result<Ends, PortError>) -> Result<T, AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        self.make(record, netns, live).await
    }

    async fn activate(&self, record: &Attachment, netns: &Netns) -> Result<(), PortError> {
        self.activate(record, netns).await
    }

    async fn unmake(&self, record: &Attachment) -> Result<(), PortError> {
        self.unmake(record).await
    }

    fn lost(&self, ifindex: u32) {
        self.lost(ifindex);
    }

    async fn survey(&self) -> Result<Survey, PortError> {
        self.survey().await
    }

    fn suspects(
        &self,
        survey: &Survey,
        records: &[Attachment],
    ) -> Result<BTreeSet<usize>, PortError> {
        self.suspects(survey, records)
    }

    async fn has_link(&self, host: &HostEnd) -> Result<bool, PortError> {
        self.has_link(host).await
    }

    async fn faults(&self, record: &Attachment) -> Result<PortFindings, PortError> {
        self.faults(record).await
    }

    async fn pod_faults(
        &self,
        record: &Attachment,
        netns: &Netns,
    ) -> Result<Vec<String>, PortError> {
        self.pod_faults(record, netns).await
    }

    async fn repair(&self, record: &Attachment) -> Result<(), PortError> {
        self.repair(record).await
    }

    async fn mend_hook(&self, record: &Attachment) -> Result<bool, PortError> {
        self.mend_hook(record).await
    }

    async fn queue_changed(&self, ifindex: u32) {
        self.queue_changed(ifindex).await;
    }

    fn limits_now(&self, record: &Attachment) -> Limits {
        self.limits_now(record)
    }

    async fn limit(&self, record: &Attachment, limits: Limits) -> Result<(), PortError> {
        self.limit(record, limits).await
    }

    async fn remove_strays(
        &self,
        survey: &Survey,
        known: &BTreeSet<String>,
    ) -> Result<(), PortError> {
        self.remove_strays(survey, known).await
    }

    async fn drop_stale_pins(
        &self,
        pins: &PinDir,
        kept: impl Fn(u32) -> bool + Send + Sync,
    ) -> Result<(), PortError> {
        self.drop_stale_pins(pins, kept).await
    }
}

impl Reach for reach::Reach {
    async fn admit(&self, network: &api::Network) -> Result<(), ReachError> {
        self.admit(network).await
    }

    async fn ensure(&self, facts: &NetworkFacts) -> Result<(), ReachError> {
        self.ensure(facts).await
    }

    async fn withdraw(&self, facts: &NetworkFacts) -> Result<(), ReachError> {
        self.withdraw(facts).await
    }

    async fn release(&self, facts: &NetworkFacts) {
        self.release(facts).await;
    }

    async fn recover(&self) {
        self.recover().await;
    }

    async fn mend_ways_out(&self) {
        self.mend_ways_out().await;
    }

    async fn mend(&self, record: &Attachment) -> Result<(), HostError> {
        self.mend(record).await
    }

    async fn faults(&self, record: &Attachment) -> Result<Vec<String>, HostError> {
        self.faults(record).await
    }

    fn suspects(&self, records: &[Attachment]) -> Result<BTreeSet<usize>, HostError> {
        self.suspects(records)
    }

    fn has_program(&self, ifindex: u32) -> bool {
        self.has_program(ifindex)
    }
}
